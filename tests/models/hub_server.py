"""A hub on loopback: the part of its protocol that fetching a repository needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from core.provenance import ROOT

COMMIT = "1234567890" * 4


@contextmanager
def hub(repositories: Mapping[str, Mapping[str, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """Serve `models/<id>` and `datasets/<id>` with their files; the `main` of all is COMMIT. Yields the address and the
    requests so far."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def _send(self, status: int, body: bytes, **headers: str) -> None:
            asked.append(f"{self.command} {self.path}")
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def _answer(self) -> None:
            path = self.path.split("?")[0]
            for repository, files in repositories.items():
                if answer := _found(path, repository, files):
                    return self._send(200, answer[0], **answer[1])
            self._send(404, b"", X_Error_Code="EntryNotFound")

        do_GET = do_HEAD = _answer  # noqa: N815 - the names http.server calls

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def _found(path: str, repository: str, files: Mapping[str, bytes]) -> tuple[bytes, dict[str, str]] | None:
    """Body and headers for a request of this repository: its commit, its list of files, or a file."""
    name = repository.split("/", 1)[1]
    place = name if repository.startswith("models/") else repository
    for revision in ("main", COMMIT):
        if path == f"/api/{repository}/revision/{revision}":
            siblings = [{"rfilename": file} for file in files]
            return json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode(), {}
        if path == f"/api/{repository}/tree/{revision}":
            entries = [{"type": "file", "path": n, "size": len(b), "oid": "0" * 40} for n, b in files.items()]
            return json.dumps(entries).encode(), {}
        file = path.removeprefix(f"/{place}/resolve/{revision}/")
        if file != path and file in files:
            return files[file], {"X_Repo_Commit": COMMIT, "ETag": f'"{abs(hash(file))}"'}
    return None


def environment(address: str, home: Path) -> dict[str, str]:
    """For a process of its own: huggingface_hub reads its address once, at import."""
    return {
        "HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1",
        "no_proxy": "127.0.0.1",
    }  # fmt: skip


def command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, env=os.environ | variables,
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
