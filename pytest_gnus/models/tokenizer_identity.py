"""What a tokenizer does to texts, as digests: two of them are compared without both being in memory.

Files may differ in how they say a thing, and in padding and truncation. So what a tokenizer knows is read
from the tokenizer itself, and how it normalizes and splits from what it makes of a text that has something of
everything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

#: Cases, accents in both forms, ligatures, widths, digits, spaces, scripts, code, and what looks like a mark.
_PROBE = (
    " Don't STOP; the café re\u0301sume\u0301 cost $1,234,567.89 (≈ 98.6 %)…  two  spaces\tand\ttabs\n\n"
    "ﬁne ＦＵＬＬ ½ №42 x² naïve ß İ\n    def f(x):\n        return x**2 != 0xFF  # ok?\r\n"
    "https://example.org/a_b?c=d&e=%20 'quoted' “curly” em—dash snake_case CamelCase HTTPServer\n"
    "日本語のテキスト 한국어 Ελληνικά русский العربية हिन्दी ไทย 👩‍🚀🚀 \u200b\xa0end <s></s> [MASK] <|x|>   "
)


def tokenizer_identity(tokenizer: Any) -> dict[str, Any]:
    """What can be said of a tokenizer of transformers in a few numbers and digests, as plain JSON."""
    vocabulary: Mapping[str, int] = tokenizer.get_vocab()
    tokens = sorted(vocabulary)
    encoded = [int(token) for token in tokenizer.encode(_PROBE)]
    return {
        "size": len(vocabulary),
        "tokens": _digest(tokens),
        "vocabulary": _digest([*tokens, *(str(vocabulary[token]) for token in tokens)]),
        "merges": _merges(tokenizer),
        "begin": _id(tokenizer.bos_token_id),
        "end": _id(tokenizer.eos_token_id),
        "added_tokens": _digest(
            repr((number, *(getattr(token, name) for name in _ADDED)))
            for number, token in sorted(tokenizer.added_tokens_decoder.items())
        ),
        "probe": _digest([_PROBE]),
        "encoding": _digest(map(str, encoded)),
        "decoding": _digest([tokenizer.decode(encoded), tokenizer.decode(encoded, skip_special_tokens=True)]),
    }


_ADDED = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")


def tokenizer_differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """In what `one` differs from `other`, in words; empty where nothing that matters does.

    What only one of them says is not compared: the other is of another release.
    """

    def apart(key: str) -> bool:
        return key in one and key in other and one[key] != other[key]

    found: list[str] = []
    if apart("size"):
        found.append(f"{one['size']} tokens instead of {other['size']}")
    elif apart("tokens"):
        found.append("other tokens in its vocabulary")
    elif apart("vocabulary"):
        found.append("the same tokens under other ids")
    if apart("merges"):
        found.append("other merges")
    for key, name in (("begin", "begin of text"), ("end", "end of text")):
        if apart(key):
            found.append(f"the {name} token {one[key]} instead of {other[key]}")
    if apart("added_tokens"):
        found.append("other added or special tokens")
    if not found and not apart("probe"):
        if apart("encoding"):
            found.append("texts normalized or split in another way")
        elif apart("decoding"):
            found.append("tokens decoded in another way")
    return found


def _id(token: Any) -> int | None:
    return None if token is None else int(token)


def _merges(tokenizer: Any) -> str | None:
    """The merges of a BPE tokenizer, or the scores of a unigram one; None where it has neither to show."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        return None
    model = json.loads(backend.to_str())["model"]
    vocabulary = model.get("vocab")
    rules = model.get("merges") or (vocabulary if isinstance(vocabulary, list) else [])
    return _digest([json.dumps(rules)])


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
