"""A provider of models: `unigram:FILE`, which knows how often each word stands in a text and nothing else.

Put this beside `benchmarks/` and `config/`, or into a plugin of your own, and name it as any other model:

    pytest --niche=patents --gnus-model=unigram:data/words.txt

A benchmark on which it reaches the floor measures which words are common, not what a model understands.
"""

import hashlib
import math
from collections import Counter
from pathlib import Path

from pytest_gnus import LoadedModel, ModelError, Provider


class Unigram(Provider):
    name = "unigram"  # the word before the colon
    example = "unigram:data/words.txt"

    def problem(self, name):
        """Asked while the configuration is read: looks at the text, opens no file."""
        return None if name.endswith(".txt") else "a text file, as in unigram:data/words.txt"

    def located(self, name, root):
        """Relative to the project, wherever pytest is started."""
        return str((root / name).resolve())

    def load(self, spec, options):
        file = Path(spec.name)
        if not file.is_file():
            raise ModelError(f"there is no text {file}")
        text = file.read_text(encoding="utf-8")
        return LoadedModel(
            spec=spec,
            lm=unigram_model(Counter(text.split())),
            # Which weights were measured; the fingerprint holds its digest. None makes that invalid.
            identity=f"unigram:{hashlib.sha256(text.encode('utf-8')).hexdigest()}",
        )


def unigram_model(counts):
    """lm-eval's three questions, and what the product asks of every model beside them."""
    # What is heavy is imported where a model is loaded: collecting tests stays instant.
    from lm_eval.api.model import LM

    from pytest_gnus.models.progress import NoProgress
    from pytest_gnus.models.usage import Usage

    class UnigramModel(LM):
        def __init__(self):
            super().__init__()
            self.usage = Usage()  # counted for the record
            self.progress = NoProgress()  # told how far it is; the run puts its display here

        def release(self):
            """Nothing to free."""

        def logprob(self, text):
            total = counts.total() + len(counts) + 1
            return sum(math.log((counts[word] + 1) / total) for word in text.split())

        def asked(self, requests):
            self.usage.truncated_prompts += 0  # it reads texts of any length; unset means: not known
            self.progress.begin(len(requests))
            for request in requests:
                self.usage.count_prompts([len(request.args[0].split())])
                self.progress.advance(1, len(request.args[0].split()))
                yield request.args

        def loglikelihood(self, requests):
            return [(self.logprob(continuation), False) for _, continuation in self.asked(requests)]

        def loglikelihood_rolling(self, requests):
            return [self.logprob(text) for (text,) in self.asked(requests)]

        def generate_until(self, requests):
            likeliest = counts.most_common(1)[0][0]
            return [likeliest for _ in self.asked(requests)]

    return UnigramModel()


def pytest_gnus_providers():
    """One provider or several."""
    return Unigram()
