"""Nobody else reaches a run of verl: where its sockets listen, who is heard, who may read its folder in /tmp."""

from __future__ import annotations

import importlib
import os
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from methods.adapters.verl import processes

# --- the folder in /tmp -----------------------------------------------------------------------------------------------


def test_the_folder_and_its_token_are_closed_to_other_users_and_nothing_else_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PLACE", tmp_path)
    (tmp_path / f"tepo-{os.getpid()}-others").mkdir()
    before = os.umask(0)
    try:
        with processes.short_folder() as name:
            variables = processes.own_token(Path(name))
            token = Path(variables["RAY_AUTH_TOKEN_PATH"])
            assert variables["RAY_AUTH_MODE"] == "token"
            assert (token.parent, len(token.read_text(encoding="utf-8"))) == (Path(name), 64)
            assert [stat.S_IMODE(path.stat().st_mode) for path in (Path(name), token)] == [0o700, 0o600]
            assert len(Path(name).name) < 24
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == [f"tepo-{os.getpid()}-others"]


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
