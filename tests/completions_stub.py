"""A server of OpenAI's completions on loopback that answers with a real model's log-probabilities.

It echoes as OpenAI and vLLM do: `token_logprobs` holds a null for the first token, then each token's from
what stands before it, then that of the token generated behind the prompt. `faults` turn it into a server
that does something else.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import mlx.core as mx
import numpy as np

KEY = "sk-never-to-be-seen"


@dataclass
class Stub:
    """The server's model, what it is to do wrong, and what it was asked."""

    model: Any
    tokenizer: Any
    faults: dict[str, Any] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    most_at_once: int = 0
    url: str = ""
    _now: int = 0
    _count: threading.Lock = field(default_factory=threading.Lock)
    _device: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: dict[str, Any]) -> tuple[int, Any]:
        """Status and body."""
        with self._count:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            self.requests.append(request)
        try:
            if self.faults.get("busy", 0) > 0:
                self.faults["busy"] -= 1
                return 503, {"error": f"{self.url} is overloaded"}
            if "status" in self.faults:
                return self.faults["status"], {"error": f"no, not for {KEY} at {self.url}"}
            time.sleep(self.faults.get("seconds", 0.0))
            with self._device:
                return 200, self._completion(request)
        finally:
            with self._count:
                self._now -= 1

    def _completion(self, request: dict[str, Any]) -> dict[str, Any]:
        prompt = request["prompt"]
        if isinstance(prompt, list) and isinstance(prompt[0], list):
            (prompt,) = prompt  # a batch of one
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        made, finish, reason = self._generated(ids, request)
        text = self.tokenizer.decode(made)
        stops = request.get("stop", [])
        assert isinstance(stops, list)
        assert len(stops) <= 4
        for stop in stops:
            if stop in text:
                text, finish, reason = text[: text.index(stop)], "stop", stop
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": finish}
        if self.faults.get("says_reason", True):
            choice["stop_reason"] = reason
        if "text" in self.faults:
            choice["text"] = self.faults["text"]
        if request.get("logprobs"):
            echoed = [] if self.faults.get("no_echo") or not request.get("echo") else ids
            choice["logprobs"] = self._logprobs(ids, made, len(ids) - len(echoed))
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(made)}
        return {"choices": [choice], "usage": usage}

    def _table(self, ids: list[int]) -> np.ndarray:
        """(position, vocabulary) log-probabilities."""
        logits = np.array(self.model(mx.array([ids]))[0].astype(mx.float32), dtype=np.float64)
        shifted = logits - logits.max(axis=-1, keepdims=True)
        table: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        return table

    def _generated(self, ids: list[int], request: dict[str, Any]) -> tuple[list[int], str, str | None]:
        made: list[int] = []
        while len(made) < request["max_tokens"]:
            token = int(self._table(ids + made)[-1].argmax())
            if token == self.tokenizer.eos_token_id and not request.get("echo"):
                return made, "stop", None
            made.append(token)
            if any(stop in self.tokenizer.decode(made) for stop in request.get("stop", [])):
                break
        return made, "length", None

    def _logprobs(self, ids: list[int], made: list[int], start: int) -> dict[str, Any]:
        whole = ids + made
        table = self._table(whole)
        shift = 0 if self.faults.get("own_position") else 1
        values: list[float | None] = [
            None if index == 0 else float(table[index - shift, token]) for index, token in enumerate(whole)
        ]
        # The generated token's own is what it was drawn from, whatever is wrong with the echo.
        values[-1] = float(table[-2, whole[-1]])
        if self.faults.get("not_finite"):
            values[len(ids) - 1] = math.nan
        likeliest = [int(row.argmax()) for row in table]
        tops: list[dict[str, float] | None] = [None]
        tops += [
            {self.tokenizer.decode([top]): float(table[index, top])}
            for index, top in enumerate(likeliest[:-1])
        ]
        return {
            "tokens": [self.tokenizer.decode([token]) for token in whole][start:],
            "token_logprobs": values[start:],
            "top_logprobs": tops[start:],
        }


class _Handler(BaseHTTPRequestHandler):
    stub: Stub

    def do_POST(self) -> None:
        self.stub.keys.append(self.headers.get("Authorization"))
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions":
            status, answer = 404, {"error": f"nothing at {self.path}"}
        else:
            status, answer = self.stub.answer(body)
        content = json.dumps(answer).encode() if not self.stub.faults.get("no_json") else b"<html>"
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", self.stub.url + "/elsewhere")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: Any) -> None:
        """Nothing on the terminal."""


@contextmanager
def completions_stub(model: Any, tokenizer: Any) -> Iterator[Stub]:
    """A running server; `url` is what `OPENAI_BASE_URL` is to be."""
    stub = Stub(model, tokenizer)
    handler = type("Handler", (_Handler,), {"stub": stub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    stub.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
