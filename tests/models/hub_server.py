"""A hub on loopback: the part of its protocol that fetching a repository needs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "1234567890" * 4


@contextmanager
def hub(repository: str, files: Mapping[str, bytes], kind: str = "models") -> Iterator[tuple[str, list[str]]]:
    """Serve `files` as `repository`, whose `main` is COMMIT; yields its address and the paths asked for so far."""
    asked: list[str] = []
    place = repository if kind == "models" else f"{kind}/{repository}"

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
            for revision in ("main", COMMIT):
                if path in (f"/api/{kind}/{repository}/revision/{revision}", f"/api/{kind}/{repository}"):
                    siblings = [{"rfilename": name} for name in files]
                    return self._send(200, json.dumps({"id": repository, "sha": COMMIT, "siblings": siblings}).encode())
                if path == f"/api/{kind}/{repository}/tree/{revision}":
                    entries = [{"type": "file", "path": n, "size": len(b), "oid": "0" * 40} for n, b in files.items()]
                    return self._send(200, json.dumps(entries).encode())
                name = path.removeprefix(f"/{place}/resolve/{revision}/")
                if name != path and name in files:
                    return self._send(200, files[name], X_Repo_Commit=COMMIT, ETag=f'"{abs(hash(name))}"')
            self._send(404, b"", X_Error_Code="RepoNotFound" if repository not in path else "EntryNotFound")

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


def environment(address: str, home: Path) -> dict[str, str]:
    """For a process of its own: huggingface_hub reads its address once, at import."""
    return {
        "HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1",
        "no_proxy": "127.0.0.1",
    }  # fmt: skip
