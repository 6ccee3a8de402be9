"""Share the import of large libraries between the jobs of one Snakemake call, on one Linux machine without a GPU.

Snakemake starts the worker (`start`). A command calls `hand_over`: the worker imports the libraries once and forks a
child that runs the command with its arguments, environment and streams. The command waits and exits with its
status. The worker imports no project code, so a child always runs the code on disk. Without a worker a command runs in
its process.
"""

import atexit
import ctypes
import gc
import io
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

VARIABLE = "TEPO_WORKER"  # path of its socket
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
GPUS = ("/dev/nvidiactl", "/dev/kfd")  # a child cannot use a GPU that its parent has initialised
LIMIT = 2**20  # bytes of a message: arguments and environment
RETRY = 75  # sysexits' EX_TEMPFAIL


def start(log: Path, variables: Mapping[str, str]) -> None:
    """Start a worker for the children of this process. It ends with this process.

    variables: environment variables of the jobs that libraries read at import.
    """
    if not sys.platform.startswith("linux") or any(Path(gpu).exists() for gpu in GPUS):
        return
    folder = tempfile.mkdtemp(prefix="tepo-")  # private to this user
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, open(log, "ab") as stream:
        listener.bind(f"{folder}/socket")
        listener.listen(128)
        # Arrow's allocator would start a thread when pandas is imported, and a fork only copies one thread.
        quiet = {"TQDM_DISABLE": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
        # glibc reuses memory that torch frees: 5 % of the time of a run on a tiny model, at the same peak (bytes).
        memory = {
            "MALLOC_TRIM_THRESHOLD_": "1073741824",
            "MALLOC_TOP_PAD_": "67108864",
            "MALLOC_MMAP_THRESHOLD_": "33554432",
        }
        subprocess.Popen(
            [sys.executable, "-m", "core.worker", str(listener.fileno()), str(os.getpid())],
            pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            start_new_session=True,  # an interrupt from the keyboard goes to the commands, which pass it on
            env={**memory, **os.environ, **variables, **quiet},
        )  # fmt: skip
    os.environ[VARIABLE] = f"{folder}/socket"


def hand_over(module: str, libraries: Sequence[str]) -> None:
    """Run `python -m module` in a child of the worker and exit with its status; return if there is no worker."""
    path = os.environ.pop(VARIABLE, None)
    this = getattr(sys.modules["__main__"], "__spec__", None)
    if not path or this is None or this.name != module:  # code that calls `main` must not exit
        return
    request = {
        "module": module, "libraries": list(libraries), "argv": sys.argv[1:], "cwd": os.getcwd(),
        "environment": dict(os.environ), "ignored": [n for n in PASSED_ON if signal.getsignal(n) is signal.SIG_IGN],
    }  # fmt: skip
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until there is a child to forward them to
    try:
        server.connect(path)
        socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
        child = int(server.recv(64) or 0)
    except OSError:
        child = 0
    if not child:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return

    def pass_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    status = b""
    with suppress(OSError):
        status = server.recv(64)
    if not status:  # the worker was killed, and its child with it, but not the child's subprocesses
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        print(f"{module}: the worker was killed; run the same command again", file=sys.stderr)
    os._exit(int(status) if status else RETRY)


def serve(listener: socket.socket, owner: int) -> None:
    """Fork a child for each request; return in a child, end when the owner and the last child have ended."""
    waiting: dict[int, socket.socket] = {}  # child -> the connection of its command
    while Path(f"/proc/{owner}").exists() or waiting:
        ready, _, _ = select.select([listener, *waiting.values()], [], [], 0.2)
        for child, connection in waiting.items():
            if connection in ready:  # clients never send more: the command was killed
                with suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)
        while waiting and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with waiting.pop(ended[0]) as connection, suppress(OSError):
                code = os.waitstatus_to_exitcode(ended[1])
                connection.send(str(code if code >= 0 else 128 - code).encode())
        if listener in ready:
            connection, _ = listener.accept()
            streams: list[int] = []
            try:
                data, streams, _, _ = socket.recv_fds(connection, LIMIT, 3)
                request = json.loads(data)
                for name in request["libraries"]:
                    module, _, attribute = name.partition(":")  # transformers imports a class's file at first use
                    getattr(import_module(module), attribute or "__name__")
                if (threads := len(os.listdir("/proc/self/task"))) != 1:
                    raise RuntimeError(f"{threads} threads after the imports, and a fork copies one")
                gc.freeze()  # garbage collection in a child must not touch, and so copy, these objects
                child = os.fork()
            except Exception as error:  # the command runs without the worker
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                connection.close()
                child = -1
            if child == 0:
                listener.close()
                connection.close()
                for other in waiting.values():
                    other.close()
                _become(request, streams)
            for stream in streams:
                os.close(stream)
            if child > 0:
                waiting[child] = connection
                with suppress(OSError):  # of a killed command, which the next round detects
                    connection.send(str(child).encode())
    os._exit(0)


def _become(request: Mapping[str, Any], streams: list[int]) -> None:
    """Give this child the command's arguments, environment and streams, and run it."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG: end with the worker
    os.setpgid(0, 0)  # subprocesses of the command end with it
    for number in PASSED_ON:
        own = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else own)
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
        os.close(descriptor)
    for name, target in (("stdout", 1), ("stderr", 2)):
        # Reopened: the worker's streams were opened on a file, which is seekable; these may be a pipe or a terminal.
        raw = open(target, "wb", buffering=0, closefd=False)  # noqa: SIM115  open as long as the command runs
        text = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv = [request["module"], *request["argv"]]
    for name in [name for name in sys.modules if name.partition(".")[0] == "core"]:
        del sys.modules[name]  # may have been edited since this file was imported
    code = 0
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # output that libraries print from C
    os._exit(code)  # skips tearing down the worker's imports: .36 s with torch (measured)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
