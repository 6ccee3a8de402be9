"""Who can reach a run's processes: their sockets listen on one address, and the queue between them takes no stranger.

Imported in every process of a run: Ray calls `install` when it starts a worker, and `import verl` imports this module
at its end (`VERL_USE_EXTERNAL_MODULES`), also in the processes that vLLM starts. Ray itself, gloo, NCCL and vLLM are
told by their own variables (`processes.environment`); these two have none:

- torch's TCPStore listens on every interface, whatever address it is given;
- verl's transfer queue unpickles what anybody sends: whoever reaches its ports can run code in the run's processes.
"""

import functools
import os
import socket
import sys
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

INSTALL = f"{__name__}.install"  # for Ray's `worker_process_setup_hook`


def install() -> None:
    """Put both replacements in place, once."""
    from transfer_queue.utils import zmq_utils

    rendezvous: Any = import_module("torch.distributed.rendezvous")  # its package has a function of this name
    if not hasattr(rendezvous.TCPStore, "__wrapped__"):
        rendezvous.TCPStore = _on_its_own_address(rendezvous.TCPStore)
    token = ray_token()
    original = zmq_utils.create_zmq_socket
    if token is not None and not hasattr(original, "__wrapped__"):
        replacement = _authenticated(original, token)
        # Modules of the package that are imported by now hold their own references to the function.
        package: list[Any] = [module for name, module in sys.modules.items() if name.startswith("transfer_queue.")]
        for module in package:
            if getattr(module, "create_zmq_socket", None) is original:
                module.create_zmq_socket = replacement


def ray_token() -> bytes | None:
    """The token that Ray asks for, found as Ray finds it; None for a Ray that asks for none."""
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return None
    text = os.environ.get("RAY_AUTH_TOKEN")
    if not text and "RAY_AUTH_TOKEN_PATH" in os.environ:
        text = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text(encoding="utf-8").strip()
    return text.encode() if text else None


def _on_its_own_address(store: Any) -> Any:
    """torch's TCPStore, whose master listens on the address that it is given and on no other."""
    listening: set[tuple[str, int]] = set()

    @functools.wraps(store)
    def listen(host_name: str, port: int, *args: Any, is_master: bool = False, **options: Any) -> Any:
        # A second store on the same port shares the first one's socket (`multi_tenant`).
        if is_master and options.get("master_listen_fd") is None and (host_name, port) not in listening:
            family, *_, address = socket.getaddrinfo(host_name, port, type=socket.SOCK_STREAM)[0]
            server = socket.create_server(address[:2], family=family, backlog=2048)
            port = server.getsockname()[1]
            options["master_listen_fd"] = server.detach()  # the store closes it
            listening.add((host_name, port))
        return store(host_name, port, *args, is_master=is_master, **options)

    return listen


def _authenticated(create: Any, token: bytes) -> Any:
    """The transfer queue's only maker of sockets, with CURVE keys from the run's token.

    A client must know the server's public key to be heard at all, and the key is nowhere public: it follows from the
    token. No list of clients' keys is needed then.
    """
    import zmq
    from zmq.utils import z85

    def pair(role: str) -> tuple[bytes, bytes]:
        secret = z85.encode(sha256(f"transfer queue, {role}: ".encode() + token).digest())
        return zmq.curve_public(secret), secret

    server, client = pair("server"), pair("client")

    @functools.wraps(create)
    def with_keys(ctx: Any, socket_type: Any, *args: Any, **options: Any) -> Any:
        made = create(ctx, socket_type, *args, **options)
        if socket_type == zmq.ROUTER:  # every server is one; between threads (inproc) the keys are not used
            made.curve_publickey, made.curve_secretkey = server
            made.curve_server = True
        else:
            made.curve_publickey, made.curve_secretkey = client
            made.curve_serverkey = server[0]
        return made

    return with_keys


install()
