"""One server of OpenAI's completions. Where it is and its key are the environment's secrets: no message,
record or log holds them."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from pytest_gnus.errors import EvaluationError, ModelError

BASE_URL, API_KEY = "OPENAI_BASE_URL", "OPENAI_API_KEY"
#: Seconds to wait before each new attempt, where the server is busy or out of reach.
_WAITS = (1.0, 3.0, 9.0)
_BUSY = frozenset({408, 409, 429, 500, 502, 503, 504})
_REFUSED_KEY = frozenset({401, 403})
_SHOWN = 200


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected request would carry the key to wherever the answer says."""

    def redirect_request(self, *_arguments: Any, **_keywords: Any) -> None:
        return None


class CompletionsServer:
    """Sends requests and checks the form of the answers.

    The standard library's client: those of lm-eval write the URL into log lines and error messages.
    """

    def __init__(self, base_url: str, api_key: str | None, model: str, timeout: float) -> None:
        self._base_url = base_url.rstrip("/").removesuffix("/completions")
        self._api_key = api_key
        self._model = model
        self._timeout = timeout
        self._opener = urllib.request.build_opener(_NoRedirects())

    def __repr__(self) -> str:
        return f"CompletionsServer(model={self._model!r})"

    @classmethod
    def from_environment(cls, model: str, timeout: float) -> CompletionsServer:
        """The server that the environment names.

        Raises:
            ModelError: it names none.
        """
        base_url = os.environ.get(BASE_URL, "").strip()
        parts = urllib.parse.urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            found = "is not set" if not base_url else "is no address"
            raise ModelError(
                f"openai:{model}: the environment variable {BASE_URL} {found}: name a server, as "
                "http://127.0.0.1:8080/v1"
            )
        return cls(base_url, os.environ.get(API_KEY) or None, model, timeout)

    def complete(self, **settings: Any) -> Mapping[str, Any]:
        """The one choice of a completion, with the answer's `usage` beside its own keys.

        Raises:
            ModelError: the server cannot be reached, or has no such model, or not for this key.
            EvaluationError: it refuses the request, or the answer is none.
        """
        answer = self._answer(json.dumps({"model": self._model, **settings}).encode("utf-8"))
        choices = answer.get("choices") if isinstance(answer, Mapping) else None
        if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], Mapping):
            raise EvaluationError("the completions server's answer holds no completion")
        if not isinstance(choices[0].get("text"), str):
            raise EvaluationError("the completions server gave no text")
        return {**choices[0], "usage": answer.get("usage")}

    def _answer(self, body: bytes) -> Any:
        for wait in (*_WAITS, None):
            try:
                return self._sent(body)
            except _BusyError as error:
                if wait is None:
                    raise error.final from None
                time.sleep(wait)
        raise AssertionError("unreachable")

    def _sent(self, body: bytes) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        request = urllib.request.Request(f"{self._base_url}/completions", body, headers)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                content = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code, error.read()) from None
        except urllib.error.URLError as error:
            raise _BusyError(ModelError(self._unreachable(error.reason))) from None
        except (OSError, http.client.HTTPException) as error:
            raise _BusyError(ModelError(self._unreachable(error))) from None
        try:
            return json.loads(content)
        except ValueError:
            raise EvaluationError("the completions server's answer is not JSON") from None

    def _unreachable(self, error: Any) -> str:
        reason = getattr(error, "strerror", None) or type(error).__name__
        return f"the server that {BASE_URL} names cannot be reached: {self._without_secrets(str(reason))}"

    def _refused(self, code: int, content: bytes) -> Exception:
        if code in _REFUSED_KEY:
            # What it says of a key may repeat the key.
            return ModelError(f"the completions server refuses the key that {API_KEY} holds (HTTP {code})")
        said = self._without_secrets(content.decode("utf-8", "replace").strip())[:_SHOWN]
        text = f"the completions server refuses the request (HTTP {code}): {said}"
        if 300 <= code < 400:
            return ModelError(f"the completions server sends its requests elsewhere (HTTP {code})")
        if code in _BUSY:
            return _BusyError(EvaluationError(text))
        return ModelError(text) if code == 404 else EvaluationError(text)

    def _without_secrets(self, text: str) -> str:
        parts = urllib.parse.urlsplit(self._base_url)
        for secret in (self._api_key, self._base_url, parts.netloc, parts.hostname):
            if secret:
                text = text.replace(secret, "***")
        return text


class _BusyError(Exception):
    """An attempt that may be repeated; `final` is what it comes to if it may not."""

    def __init__(self, final: Exception) -> None:
        super().__init__()
        self.final = final
