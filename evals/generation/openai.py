"""The openai backend: an endpoint with the OpenAI protocol.

Each request carries its own seed, so that a server that honours it returns k different samples. Each response is kept
as it arrives; after a failure, the same command requests only the missing ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import PositiveInt

from core import digests
from core.declared import Declared, check, validated
from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError, unknown
from core.files import locked, parse_json, write_text
from core.progress import Progress
from evals.benchmark import Decoding
from evals.generation import prompts
from evals.generation.engine import JOURNAL, Drawn, Engine, Request, Settings
from evals.store import STOPS, clean

KEY = "OPENAI_API_KEY"  # the environment variable that holds the key
RETRIED = (408, 409, 425, 429, 500, 502, 503, 504)  # HTTP status: a retry may succeed
FIRST_WAIT = 1.0  # seconds before the second try; doubled for each further one
LONGEST_WAIT = 60  # seconds, even if the server requests more
UNFINISHED = ("abort", "error", "cancelled")  # finish_reason of a response that the server broke off
FEWEST_SAMPLES = 4  # with two or three samples, equal ones are common
LIST_SECONDS = 10  # for the list of models
RECENT = 60  # seconds
LONGEST_BODY = 2**24  # bytes; a response of 8,192 tokens has some 40,000


class Arguments(Declared):
    """Arguments of --engine. Only `think_end_token` affects a response."""

    max_retries: PositiveInt = 6  # attempts per request; the waits between them add up to half a minute
    timeout: PositiveInt = 3600  # seconds; a busy server queues requests, and a slow response is not an error
    verify_certificate: bool = True
    think_end_token: str | None = None  # of a chat endpoint: the text up to it is removed from the response


LINE = {  # seconds: from the first request to this response, without the time between calls
    "item_id": str, "sample": int, "text": str, "tokens?": int, "stop": str, "seconds": float, "served?": dict,
}  # fmt: skip


# Of the model in the server's list: what tells it from another of its name.
SERVED = {"id": str, "root": str, "created": int}
Kept = dict[tuple[str, int], dict[str, Any]]  # responses by item and sample, as in `LINE`


def read_journal(path: Path) -> Kept:
    """Read the responses of an unfinished benchmark, of which a kill loses at most those in flight.

    A line that is not a response is reported and requested again; so is an incomplete last one, without a report.
    """
    kept: Kept = {}
    for number, text in enumerate((path.read_bytes() if path.is_file() else b"").split(b"\n")[:-1], 1):
        where = f"{path}: line {number}"
        try:
            line = parse_json(text.decode(), where)
            check(line, LINE, where)
            if line["stop"] not in STOPS:
                raise unknown(where, "stop", line["stop"], STOPS)
            kept[line["item_id"], line["sample"]] = {"tokens": None} | line
        except (BenchError, UnicodeDecodeError) as error:
            print(f"requested again: {where}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
    return kept


async def _content(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body; ValueError for one that is too long."""
    content = bytearray()
    async for part in answer.content.iter_any():
        content += part
        if len(content) > LONGEST_BODY:
            raise ValueError(f"a response of more than {LONGEST_BODY} bytes")
    return bytes(content)


class Endpoint(Engine):
    """A running server. Its weights are not accessible, so their digest is recorded as unknown."""

    backend, default_batch_size = "openai", 16

    def __init__(self, settings: Settings):
        super().__init__(settings)
        # samples.json records the address, and errors print it: it must not hold a secret
        if not re.fullmatch(r"https?://[^@?#\s/]+(/[^@?#\s]*)?", settings.endpoint or ""):
            raise ConfigError(
                "generate: --endpoint: backend openai needs an address like http://host:port/v1, without user, password"
                f" and query, which would be recorded; give the key as variable {KEY}"
            )
        self.url = f"{str(settings.endpoint).rstrip('/')}/{'chat/completions' if settings.chat else 'completions'}"
        self.key = os.environ.get(KEY, "")
        if not (self.key.isascii() and self.key.isprintable()):  # the libraries' own errors would quote it
            raise ConfigError(f"generate: variable {KEY}: holds a character that an HTTP header cannot hold")
        self.answered = False  # by anything at that address
        self.arguments = validated(Arguments, dict(settings.more), "generate: --engine")
        self.chat = settings.chat
        if not settings.chat and not settings.tokenizer:
            raise ConfigError(
                "generate: --tokenizer: give a folder, prompts are built here; or --chat, to leave that to the server"
            )

    @cached_property
    def identity(self) -> dict[str, str | None]:
        if self.settings.tokenizer:
            digests.check_model(self.settings.tokenizer)
        return {"weights_sha256": None, "files_sha256": None}

    @cached_property
    def served(self) -> dict[str, Any]:
        """What the server's list of models says of this one, and when; empty where it says nothing."""
        found = asyncio.run(self._served())
        return found and found | {"at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}

    async def _served(self) -> dict[str, Any]:
        try:
            async with (
                self._session(LIST_SECONDS) as session,
                session.get(f"{str(self.settings.endpoint).rstrip('/')}/models") as answer,
            ):
                listed = parse_json((await _content(answer)).decode(), "list of models")["data"]
            (model,) = (one for one in listed if one["id"] == self.settings.model)
            date = answer.headers.get("Date")
            now = parsedate_to_datetime(date).timestamp() if date else time.time()
            found = {name: model[name] for name, kind in SERVED.items() if type(model.get(name)) is kind}
        except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError):
            return {}
        # vLLM and others write the time of the request there
        return {name: value for name, value in found.items() if name != "created" or abs(now - value) > RECENT}

    def _session(self, seconds: float) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.batch_size, ssl=self.arguments.verify_certificate),
            timeout=aiohttp.ClientTimeout(total=seconds),
            headers={"Authorization": f"Bearer {self.key}"},
        )

    @property
    def tokenizer_folder(self) -> Path | None:
        return Path(self.settings.tokenizer) if self.settings.tokenizer else None

    def describe(self) -> dict[str, Any]:
        """Return the settings without those that cannot affect a response, which may change after an error."""
        more = {name: value for name, value in self.settings.more.items() if name == "think_end_token"}
        facts = super().describe() | {"endpoint": self.settings.endpoint, "chat": self.chat, "more": more}
        return {name: value for name, value in facts.items() if name != "batch_size"}

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, folder: Path, progress: Progress
    ) -> Sequence[Drawn]:
        """Return all responses.

        Raises BusyError; MissingInputError for missing or too many empty ones; CorruptInputError for copies of one.
        """
        path = folder / JOURNAL
        with locked(path.with_suffix(".lock"), f"{folder}: another command draws these responses"):
            kept = read_journal(path)
            for line in kept.values():
                self.refuse_another(line.get("served"), f"the {len(kept)} responses in {path}")
            before = self.served  # read before there is an event loop
            kept = asyncio.run(self._fill(path, kept, requests, decoding, progress))
            del self.served
            self.refuse_another(before, f"the {len(kept)} responses in {path}")  # replaced while it answered
        lines = [kept[request.item_id, request.sample] for request in requests]
        texts = {(line["item_id"], line["text"]) for line in lines}
        if decoding.samples >= FEWEST_SAMPLES and len(texts) * decoding.samples == len(lines):
            path.unlink()  # the next call would find the same copies
            raise CorruptInputError(
                f"{self.url}: all samples of every item are equal: the server draws each with one seed; start it"
                " without a seed, or set --samples 1 if the model always gives one answer"
            )
        return [Drawn(line["text"], line["tokens"], line["stop"]) for line in lines]

    async def _fill(
        self, path: Path, kept: Kept, requests: Sequence[Request], decoding: Decoding, progress: Progress
    ) -> Kept:
        """Request each response that is not kept, `batch_size` at any time, add it to the journal, and return all."""
        full = {key: line for key, line in kept.items() if line["text"].strip()}
        empty, most_empty = len(kept) - len(full), self.settings.empty_limit * len(requests)
        if empty > most_empty:  # with which the previous call ended: they are requested again
            kept, empty = full, 0
        progress.start = len(kept)
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept.values()))  # without damaged ones
        self.earlier_seconds = max((line["seconds"] for line in kept.values()), default=0.0)
        began, failures = time.monotonic() - self.earlier_seconds, Counter[str]()
        missing = deque(request for request in requests if (request.item_id, request.sample) not in kept)

        async def send(session: aiohttp.ClientSession) -> None:
            """Send requests one after another until the first failure: where a server refuses some of many,
            fewer stay in flight; where one prompt always fails, the others still get their responses."""
            nonlocal empty
            while missing and empty <= most_empty:
                request = missing.popleft()
                found = await self._response(session, self._body(request, decoding))
                if isinstance(found, str):
                    failures[found] += 1
                    return
                facts = {"seconds": time.monotonic() - began, "served": self.served, **found._asdict()}
                line = {"item_id": request.item_id, "sample": request.sample, **facts}
                with open(path, "ab") as stream:
                    stream.write(json.dumps(line).encode() + b"\n")
                kept[request.item_id, request.sample] = line
                empty += not found.text.strip()
                progress.update(len(kept))

        async with self._session(self.arguments.timeout) as session:
            await asyncio.gather(*(send(session) for _ in range(self.batch_size)))
        count = f"{len(requests) - len(kept)} of {len(requests)} responses are missing"
        rest = f"{len(kept)} are kept in {path}"
        if empty > most_empty:
            raise MissingInputError(
                f"{self.url}: {empty} responses are empty, more than {self.settings.empty_limit:.0%}, and {count};"
                f" {rest}; if the server puts the text elsewhere (reasoning_content), change that and run the same"
                " command to go on; else set --empty-limit to 1"
            )
        if failures:
            why = failures.most_common(1)[0][0]
            raise MissingInputError(f"{self.url}: {count} ({why}); {rest}; run the same command to go on")
        return kept

    def _body(self, request: Request, decoding: Decoding) -> dict[str, Any]:
        body = {"model": self.settings.model, "max_tokens": decoding.max_tokens, "stop": [], "seed": request.seed}
        body |= {"temperature": float(decoding.temperature)} | ({} if decoding.greedy else {"top_p": decoding.top_p})
        if self.chat or self.tokenizer is None:
            return body | {"messages": json.loads(request.prompt)}
        # Token ids: a server would add a begin token to a text that has one.
        return body | {"prompt": [prompts.ids(self.tokenizer, request.prompt)]}

    async def _response(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> Drawn | str:
        """Return the response to one request, or the error after `max_retries` attempts."""
        wait, failure = 0.0, ""
        for attempt in range(self.arguments.max_retries):
            await asyncio.sleep(min(wait, LONGEST_WAIT))
            wait = FIRST_WAIT * 2 ** min(attempt, 9)
            try:
                async with session.post(self.url, json=body) as answer:
                    self.answered = True
                    content = await _content(answer)
                if answer.ok:
                    return self._read(content)
                failure = f"HTTP {answer.status} {answer.reason}: {content.decode(errors='replace')}"
                if answer.status not in RETRIED:
                    break
                if (after := answer.headers.get("Retry-After", "")).isdecimal():
                    wait = max(wait, int(after[:3]))
            except (aiohttp.ClientError, ValueError) as error:
                failure = str(error) or type(error).__name__
                if isinstance(error, aiohttp.ClientConnectorError) and not self.answered:
                    break  # a server that never answered is not busy
            except TimeoutError:  # not sent again: it may already be billed
                failure = f"no response within {self.arguments.timeout} s"
                break
        # its beginning, on one line and without the key, which some servers echo
        line = " ".join((failure.replace(self.key, f"({KEY})") if self.key else failure).split())[:200]
        return "".join(letter if letter.isprintable() else "?" for letter in line).rstrip(": ")

    def _read(self, content: bytes) -> Drawn:
        """Return the response in a server's JSON. Raises ValueError for an incomplete completion."""
        try:
            value = json.loads(content)
            (choice,) = value["choices"]
            text = (choice["message"]["content"] if self.chat else choice["text"]) or ""
            if self.chat and (end := self.arguments.think_end_token):
                text = text.split(end)[-1].lstrip()
            stop, text = choice.get("finish_reason"), clean(text)
            # the server's count: only without a tokenizer here
            tokens = None if self.tokenizer else (value.get("usage") or {}).get("completion_tokens")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"no completion: {content.decode(errors='replace')}") from error
        if stop in UNFINISHED:
            raise ValueError(f"the server broke off its response (finish_reason {stop!r})")
        known = type(tokens) is int and 0 <= tokens < 2**31
        return Drawn(text, tokens if known else None, stop if stop in STOPS else "unknown")
