"""Nobody else reaches a run of verl: where its sockets listen, who is heard, and what is removed from /tmp."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from methods.adapters.verl import processes

# --- the folder in /tmp -----------------------------------------------------------------------------------------------


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that was killed."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(processes, "PLACE", place)
    child = os.fork()
    if child == 0:
        with processes.short_folder(Path("run")) as folder:
            (folder / "ray").mkdir()
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    (folder,) = place.iterdir()
    return folder


def owned(folder: Path, **changes: Any) -> None:
    """Another owner in the folder's mark; None: no such field."""
    mark = folder / processes.OWNER
    owner = {name: value for name, value in (json.loads(mark.read_text()) | changes).items() if value is not None}
    mark.write_text(json.dumps(owner))


def copied(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("tepo-copy"))
    (folder.with_name("tepo-copy")).chmod(0o700)


def replaced(folder: Path) -> None:
    folder.rename(folder.with_name("aside"))
    shutil.copytree(folder.with_name("aside"), folder)
    folder.chmod(0o700)


def linked(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


def linked_mark(folder: Path) -> None:
    (folder / processes.OWNER).rename(folder / "mark")
    (folder / processes.OWNER).symlink_to("mark")


def unmarked(folder: Path) -> None:
    (folder / processes.OWNER).unlink()


NOT_OURS: dict[str, Callable[[Path], object]] = {
    "no mark": unmarked,
    "a mark that is no JSON": lambda folder: (folder / processes.OWNER).write_text("{"),
    "a mark that is a list": lambda folder: (folder / processes.OWNER).write_text("[]"),
    "an empty mark": lambda folder: (folder / processes.OWNER).write_text("{}"),
    "a mark that is a link": linked_mark,
    "a link to what was ours": linked,
    "a folder put in its place": replaced,
    "open to others": lambda folder: folder.chmod(0o755),
    "of a living process": lambda folder: owned(
        folder, pid=os.getpid(), process_started=processes.started(os.getpid())
    ),
    "of another machine": lambda folder: owned(folder, host="elsewhere"),
    "of another container": lambda folder: owned(folder, pid_namespace="pid:[1]"),
    "without a time": lambda folder: owned(folder, process_started=None),
    "without a process": lambda folder: owned(folder, pid=None),
    "of another program": lambda folder: owned(folder, made_by="another"),
    "of another user": lambda folder: os.chown(folder, 65534, 65534),
}


@pytest.mark.parametrize("case", NOT_OURS)
def test_what_is_not_ours_for_certain_stays(case: str, left: Path) -> None:
    if case == "of another user" and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    NOT_OURS[case](left)
    before = sorted(left.parent.rglob("*"))
    with processes.short_folder(Path("run")):
        pass
    assert sorted(left.parent.rglob("*")) == before


@pytest.mark.parametrize("reused", [False, True])
def test_a_killed_runs_folder_is_removed_and_what_looks_like_it_stays(reused: bool, left: Path) -> None:
    """reused: another process has the number of the one that was killed."""
    place = left.parent
    copied(left)
    clones = [place / f"tepo-{2**22 + 1}-main", place / "tepo-bench-main", place / "tepo-bench-main" / "tepo-x-y"]
    for clone in clones:
        clone.mkdir()
        (clone / "results.csv").write_text("years of work")
    (place / "tepo-notes").write_text("mine")
    if reused:
        owned(left, pid=os.getpid())
    others = sorted(path for path in place.rglob("*") if not path.is_relative_to(left))
    with processes.short_folder(Path("run")) as made:
        assert not left.exists()
        assert len(str(made.relative_to(place))) < 20
    assert sorted(place.rglob("*")) == others


def test_the_folder_and_its_token_are_closed_to_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PLACE", tmp_path)
    before = os.umask(0)
    try:
        with processes.short_folder(tmp_path / "run") as folder:
            variables = processes.own_token(folder)
            token = Path(variables["RAY_AUTH_TOKEN_PATH"])
            assert variables["RAY_AUTH_MODE"] == "token"
            assert (token.parent, len(token.read_text(encoding="utf-8"))) == (folder, 64)
            assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, token)] == [0o700, 0o600]
            assert json.loads((folder / processes.OWNER).read_text())["run"] == str(tmp_path / "run")
    finally:
        os.umask(before)


# --- sockets ----------------------------------------------------------------------------------------------------------


def listening(port: int) -> set[str]:
    found = (c for c in psutil.Process().net_connections("inet") if c.status == "LISTEN")
    return {connection.laddr.ip for connection in found if connection.laddr.port == port}


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1"])
def test_torchs_store_listens_on_the_address_that_it_is_given(address: str) -> None:
    importlib.import_module("methods.adapters.verl.network")
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    wait = timedelta(seconds=30)
    store = rendezvous._create_c10d_store(address, 0, 0, 1, wait)
    assert listening(store.port) <= {"127.0.0.1", "::1"}
    assert len(listening(store.port)) == 1
    shared = rendezvous._create_c10d_store(address, store.port, 0, 1, wait)  # as a second group on the same port has it
    client = rendezvous._create_c10d_store(address, store.port, 1, 1, wait)
    store.set("key", "value")
    assert shared.get("key") == client.get("key") == b"value"


PEERS = {"the run's own": (b"token", True), "without keys": (None, False), "of another run": (b"another", False)}


@pytest.mark.parametrize("peer", PEERS)
def test_the_queue_hears_only_who_has_the_runs_token(peer: str) -> None:
    import zmq
    from transfer_queue.utils import zmq_utils
    from zmq.utils.monitor import recv_monitor_message

    network = importlib.import_module("methods.adapters.verl.network")
    stock = getattr(zmq_utils.create_zmq_socket, "__wrapped__", zmq_utils.create_zmq_socket)
    token, heard = PEERS[peer]
    with zmq.Context() as context:
        server = network._authenticated(stock, b"token")(context, zmq.ROUTER, "127.0.0.1")
        create = stock if token is None else network._authenticated(stock, token)
        client = create(context, zmq.DEALER, "127.0.0.1", identity=b"TQ_STORAGE_stranger")
        events = server.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        )
        port = server.bind_to_random_port("tcp://127.0.0.1")
        client.connect(f"tcp://127.0.0.1:{port}")
        client.send(b"message")
        try:
            assert events.poll(30_000)
            succeeded = recv_monitor_message(events)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
            assert succeeded == heard
            assert bool(server.poll(30_000 if heard else 300)) == heard
        finally:
            server.disable_monitor()
            client.close(linger=0)
            server.close(linger=0)


def test_every_socket_of_the_queue_comes_from_the_one_maker() -> None:
    """Else one of them would listen to anybody. Programs of other storage backends are never started here."""
    import transfer_queue

    folder = Path(transfer_queue.__file__).parent
    sources = [path for path in folder.rglob("*.py") if "yuanrong" not in path.name and "mooncake" not in path.name]
    makers = {
        path.name: path.read_text().count("ctx.socket(") + path.read_text().count("context.socket(") for path in sources
    }
    assert {name for name, count in makers.items() if count} == {"zmq_utils.py"}
    assert makers["zmq_utils.py"] == 1
    servers = {
        line.split("(")[-1]
        for path in sources
        for line in path.read_text().splitlines()
        if "zmq.PUB" in line or "zmq.REP" in line
    }
    assert servers == set(), "a server that is no ROUTER would get a client's keys"
