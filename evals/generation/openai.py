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
from collections import Counter, deque
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import aiohttp

from core import digests
from core.declared import check
from core.errors import ConfigError, CorruptInputError, MissingInputError
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
MOST_EMPTY = 0.5  # share of the responses; a reasoning model that is cut off leaves some
FEWEST_SAMPLES = 4  # with two or three samples, equal ones are common
LIST_SECONDS = 10  # for the list of models
ATTEMPTS = 6  # of a request; the waits between them add up to half a minute
TIMEOUT = 3600  # seconds; a busy server queues requests, and a slow response is not an error
LONGEST_BODY = 2**24  # bytes; a response of 8,192 tokens has some 40,000


LINE = {"item_id": str, "sample": int, "text": str, "tokens?": int, "stop": str}
Kept = dict[tuple[str, int], Drawn]  # responses by item and sample


def read_journal(path: Path) -> Kept:
    """Read the responses of an unfinished benchmark, of which a kill loses at most those in flight.

    A line that is not a response is reported and requested again; so is an incomplete last one, without a report.
    """
    kept: Kept = {}
    for number, text in enumerate((path.read_bytes() if path.is_file() else b"").split(b"\n")[:-1], 1):
        where = f"{path}: line {number}"
        try:
            check(line := parse_json(text.decode(), where), LINE, where)
            if line["stop"] not in STOPS:
                raise ValueError(f"stop: {line['stop']!r}")
            kept[line["item_id"], line["sample"]] = Drawn(line["text"], line.get("tokens"), line["stop"])
        except ValueError as error:
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
        if settings.more:
            raise ConfigError(f"generate: --engine: {next(iter(settings.more))}: backend openai takes no arguments")
        self.chat = settings.chat
        if not settings.chat and not settings.tokenizer:
            raise ConfigError(
                "generate: --tokenizer: give a folder, prompts are built here; or --chat, to leave that to the server"
            )

    @cached_property
    def identity(self) -> dict[str, str | None]:
        """Unknown digests, and `served`: the model's path in the server's list of models, which tells it from another
        of its name; None where the list has none. Raises MissingInputError where no server answers."""
        if self.settings.tokenizer:
            digests.check_model(self.settings.tokenizer)
        return {"weights_sha256": None, "files_sha256": None, "served": asyncio.run(self._served())}

    async def _served(self) -> str | None:
        address = f"{str(self.settings.endpoint).rstrip('/')}/models"
        try:
            async with self._session(LIST_SECONDS) as session, session.get(address) as answer:
                if answer.status in RETRIED:  # busy: without the list, kept responses would be another model's
                    raise MissingInputError(f"{address}: HTTP {answer.status}; run the same command again")
                listed = parse_json((await _content(answer)).decode(), address)["data"]
            (root,) = (one.get("root") for one in listed if one["id"] == self.settings.model)
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            raise MissingInputError(f"{address}: {str(error) or type(error).__name__}") from error
        except (aiohttp.ClientError, ValueError, LookupError, TypeError):
            return None
        return root if isinstance(root, str) else None

    def _session(self, seconds: float) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.batch_size),
            timeout=aiohttp.ClientTimeout(total=seconds),
            headers={"Authorization": f"Bearer {self.key}"},
        )

    @property
    def tokenizer_folder(self) -> Path | None:
        return Path(self.settings.tokenizer) if self.settings.tokenizer else None

    def describe(self) -> dict[str, Any]:
        facts = super().describe() | {"endpoint": self.settings.endpoint, "chat": self.chat}
        del facts["batch_size"]  # does not affect a response, and may change after an error
        return facts

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, folder: Path, progress: Progress
    ) -> Sequence[Drawn]:
        """Return all responses.

        Raises BusyError; MissingInputError for missing ones; CorruptInputError for copies of one, or mostly empty ones.
        """
        path = folder / JOURNAL
        with locked(path.with_suffix(".lock"), f"{folder}: another command draws these responses"):
            kept = read_journal(path)
            lines = (json.dumps({"item_id": id, "sample": k, **one._asdict()}) + "\n" for (id, k), one in kept.items())
            write_text(path, "".join(lines))  # without damaged ones
            progress.start = len(kept)
            asyncio.run(self._fill(path, kept, requests, decoding, progress))
        found = [kept[request.item_id, request.sample] for request in requests]
        texts = {(request.item_id, one.text) for request, one in zip(requests, found, strict=True)}
        empty, reason = sum(not one.text.strip() for one in found), ""
        if empty > MOST_EMPTY * len(found):
            reason = (
                f"{empty} of {len(found)} responses are empty; look whether it puts the text into reasoning_content"
            )
        elif decoding.samples >= FEWEST_SAMPLES and len(texts) * decoding.samples == len(found):
            reason = (
                "all samples of every item are equal: the server draws each with one seed; start it without a seed, or "
                "set --samples 1 if the model always gives one answer"
            )
        if reason:
            path.unlink()  # the next call would find the same ones
            raise CorruptInputError(f"{self.url}: {reason}")
        return found

    async def _fill(
        self, path: Path, kept: Kept, requests: Sequence[Request], decoding: Decoding, progress: Progress
    ) -> None:
        """Request each response that is not kept, `batch_size` at any time, and add it to `kept` and the journal."""
        failures = Counter[str]()
        missing = deque(request for request in requests if (request.item_id, request.sample) not in kept)

        async def send(session: aiohttp.ClientSession) -> None:
            """Send requests one after another until the first failure: where a server refuses some of many,
            fewer stay in flight; where one prompt always fails, the others still get their responses."""
            while missing:
                request = missing.popleft()
                found = await self._response(session, self._body(request, decoding))
                if isinstance(found, str):
                    failures[found] += 1
                    return
                line = {"item_id": request.item_id, "sample": request.sample, **found._asdict()}
                with open(path, "ab") as stream:
                    stream.write(json.dumps(line).encode() + b"\n")
                kept[request.item_id, request.sample] = found
                progress.update(len(kept))

        async with self._session(TIMEOUT) as session:
            await asyncio.gather(*(send(session) for _ in range(self.batch_size)))
        if failures:
            raise MissingInputError(
                f"{self.url}: {len(requests) - len(kept)} of {len(requests)} responses are missing "
                f"({failures.most_common(1)[0][0]}); {len(kept)} are kept in {path}; run the same command to go on"
            )

    def _body(self, request: Request, decoding: Decoding) -> dict[str, Any]:
        # With a tokenizer, prompts go out as token ids: a server would add a begin token to a text that has one.
        asked: dict[str, Any] = {"messages": json.loads(request.prompt)} if self.chat else {}
        if not self.chat and self.tokenizer:
            asked = {"prompt": [prompts.ids(self.tokenizer, request.prompt)]}
        asked |= {"temperature": float(decoding.temperature)} | ({} if decoding.greedy else {"top_p": decoding.top_p})
        fixed = {"model": self.settings.model, "max_tokens": decoding.max_tokens, "stop": [], "seed": request.seed}
        return asked | fixed

    async def _response(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> Drawn | str:
        """Return the response to one request, or the error after `ATTEMPTS` attempts."""
        wait, failure = 0.0, ""
        for attempt in range(ATTEMPTS):
            await asyncio.sleep(min(wait, LONGEST_WAIT))
            wait = FIRST_WAIT * 2 ** min(attempt, 9)
            try:
                async with session.post(self.url, json=body) as answer:
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
            except TimeoutError:  # not sent again: it may already be billed
                failure = f"no response within {TIMEOUT} s"
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
            stop, text = choice.get("finish_reason"), clean(text)
            # the server's count: only without a tokenizer here
            tokens = None if self.tokenizer else (value.get("usage") or {}).get("completion_tokens")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"no completion: {content.decode(errors='replace')}") from error
        if stop in UNFINISHED:
            raise ValueError(f"the server broke off its response (finish_reason {stop!r})")
        known = type(tokens) is int and 0 <= tokens < 2**31
        return Drawn(text, tokens if known else None, stop if stop in STOPS else "unknown")
