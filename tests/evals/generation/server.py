"""A small OpenAI-compatible server around a tiny model: `python -m tests.evals.generation.server FOLDER`.

A process of its own. Prints its port.
Knows `/v1/models`, `/v1/completions` (text or token ids) and `/v1/chat/completions`; honours seed,
temperature, max_tokens, finish_reason and usage; writes every request body to stdout, so that a test can read what
was asked. Below `/guarded/` it answers only who sends the key.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests import planted

NAME = "served-tiny"
KEY = planted.ENVIRONMENT["OPENAI_API_KEY"]
FOLDER = sys.argv[1]
MODEL, TOKENIZER = AutoModelForCausalLM.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)
LOCK = threading.Lock()
torch.set_num_threads(1)


def answer(ids: list[int], body: dict[str, Any]) -> tuple[str, str, int]:
    """Text, finish reason, tokens."""
    sampled = body.get("temperature", 0) > 0
    sampling = {"temperature": body["temperature"], "top_p": body.get("top_p", 1.0), "top_k": 0} if sampled else {}
    context = torch.tensor([ids])
    with LOCK, torch.inference_mode():
        torch.manual_seed(body.get("seed", 0))
        out = MODEL.generate(
            context,
            attention_mask=torch.ones_like(context),
            do_sample=sampled,
            max_new_tokens=body["max_tokens"],
            **sampling,
        )
    new = out[0, len(ids) :].tolist()
    ended = new[-1] == TOKENIZER.eos_token_id
    return TOKENIZER.decode(new, skip_special_tokens=True), "stop" if ended else "length", len(new)


class Handler(BaseHTTPRequestHandler):
    def _send(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refused(self) -> bool:
        refused = self.path.startswith("/guarded/") and self.headers["Authorization"] != f"Bearer {KEY}"
        if refused:
            self.send_error(401)
        return refused

    def do_GET(self) -> None:
        if self._refused():
            return
        self._send({"data": [{"id": NAME}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._refused():
            return
        with LOCK:
            print(json.dumps({"path": self.path, **body}), flush=True)
        if self.path.endswith("/chat/completions"):
            prompt = "".join(f"{message['role']}: {message['content']}\n" for message in body["messages"])
            ids = TOKENIZER.encode(prompt)[-100:]
        else:
            first = body["prompt"][0] if isinstance(body["prompt"][0], list) else body["prompt"]
            ids = first if isinstance(first, list) else TOKENIZER.encode(first)
        text, reason, tokens = answer(ids, body)
        said = {"message": {"content": text}} if self.path.endswith("/chat/completions") else {"text": text}
        choice = {"index": 0, "finish_reason": reason, **said}
        self._send({"choices": [choice], "usage": {"completion_tokens": tokens}})

    def log_message(self, format: str, *arguments: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
