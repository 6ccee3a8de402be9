"""A warm worker: a process that has imported the large libraries once and forks a child for each command handed to it.

Snakemake offers one to its jobs (`offer`: an environment variable, no process). A command calls `hand_over`. The first
that does so starts the worker; each runs in a child of it, while the command's process passes signals on and ends as
the child ends. In all other cases `hand_over` returns and the command runs by itself: nothing is offered, the worker
refuses, is stopped, or died.

The worker refuses a command if a project file that it has read was written since, and if a variable differs that
libraries read while they are imported. It forks only while it has one thread, so that no lock of a library is copied in
use. No other user can connect. It ends when the process that offered it has ended (docs/notebook/worker.md).
"""

import argparse
import atexit
import ctypes
import gc
import io
import json
import os
import runpy
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

AFFECTS_RESULTS = False  # in which process a command runs, not what it computes

VARIABLE = "TEPO_WORKER"
SOCKET, PROCESS = "worker.socket", "process"  # in its folder: where it listens, and its number
ROOT = Path(__file__).resolve().parent.parent
# Read by libraries or by the interpreter when they start: a child cannot change its mind about them.
READ_AT_START = (
    "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "ATEN_", "TORCH", "PYTORCH", "CUDA", "NVIDIA", "HF_", "TRANSFORMERS",
    "DATASETS", "TOKENIZERS", "TRL_", "ACCELERATE", "TQDM", "PYTHON", "LD_", "MALLOC_", "ARROW", "LC_", "LANG", "TZ",
)  # fmt: skip
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
IDLE = 1800  # seconds without a command after which a worker ends; the next command starts another
PATIENCE = 5.0  # seconds for what takes none: to be started, to send a request, to report an end
LONGEST = 90  # letters of the folder: the system allows a socket's path 107 in all
GPUS = ("/dev/nvidiactl", "/dev/kfd")  # there where a machine has one, of NVIDIA or AMD
LIMIT = 2**20  # bytes of a message


# Sockets of packets: a message arrives whole or not at all, and file descriptors travel with it.


def _send(connection: socket.socket, message: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    socket.send_fds(connection, [json.dumps(message).encode()], list(descriptors))


def _receive(connection: socket.socket, descriptors: int = 0) -> tuple[dict[str, Any], list[int]]:
    """A message with at most so many descriptors. `EOFError` when the other side is gone."""
    data, found, _, _ = socket.recv_fds(connection, LIMIT, descriptors)
    if not data:
        raise EOFError
    return json.loads(data), list(found)


# --- The command's side -----------------------------------------------------------------------------------------------


def offer(log: Path) -> bool:
    """Let the commands that this process starts share a worker that writes to `log`; False where there cannot be one.

    So it is on a system without process handles (Linux has them since 5.3; some containers forbid them), and beside a
    GPU: a child cannot use one that its parent has asked about, and libraries ask when they are imported.
    """
    folder = Path(tempfile.gettempdir(), f"tepo-worker-{secrets.token_hex(8)}").resolve()
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    if len(str(folder)) > LONGEST or any(Path(gpu).exists() for gpu in GPUS):
        return False
    os.environ[VARIABLE] = json.dumps({"folder": str(folder), "owner": os.getpid(), "log": str(log.resolve())})
    return True


class _RefusedError(Exception):
    """Why a command runs by itself."""


def _connect(offered: Mapping[str, Any]) -> socket.socket:
    """To the worker; who can make its folder starts it."""
    folder = Path(offered["folder"])
    end = time.monotonic() + PATIENCE
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                _start(offered, folder)
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise PermissionError(f"{folder} is not ours alone")
            connection.settimeout(PATIENCE)
            connection.connect(str(folder / SOCKET))
        except ConnectionRefusedError:  # it was killed: the first that moves its folder away starts another
            connection.close()
            with suppress(OSError):
                shutil.rmtree(folder.rename(f"{folder}-{secrets.token_hex(2)}"))
        except OSError as error:
            connection.close()
            # Where nothing is found it is being started, or has just ended.
            if not isinstance(error, FileNotFoundError) or time.monotonic() > end:
                raise _RefusedError(f"no worker listens ({error.strerror or error})") from error
            time.sleep(0.02)
        else:
            connection.settimeout(None)
            return connection


def _start(offered: Mapping[str, Any], folder: Path) -> None:
    log = Path(offered["log"])
    log.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, open(log, "ab") as stream:
        # Under another name until it listens, so that nobody finds a socket that refuses, which is a dead worker's.
        listener.bind(str(folder / "new"))
        listener.listen(128)
        # A session of its own: an interrupt from the keyboard is for the commands, which pass it on.
        process = subprocess.Popen(
            [sys.executable, "-m", "core.worker", str(listener.fileno())], cwd=ROOT, start_new_session=True,
            env={**os.environ, VARIABLE: json.dumps(offered)}, pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
        )  # fmt: skip
        (folder / PROCESS).write_text(str(process.pid), encoding="utf-8")
        (folder / "new").rename(folder / SOCKET)


def _is_stopped(folder: Path) -> bool:
    """Whether the worker is stopped by a signal: it may stay so for ever."""
    try:
        number = (folder / PROCESS).read_text(encoding="utf-8")
        return Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False  # it has ended, and its socket shows that


def option(name: str, default: str) -> str:
    """An option of the command line, for a command that hands over before it reads its arguments."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument(name, dest="value", default=default)
    with suppress(argparse.ArgumentError):
        return str(parser.parse_known_args()[0].value)
    return ""  # the option without a value: the command's own parser refuses it


def _request(command: str, libraries: str) -> dict[str, Any]:
    mask = os.umask(0o077)
    os.umask(mask)
    return {
        "command": command,
        "libraries": libraries,
        "root": str(ROOT),
        "python": [sys.executable, sys.version],
        "argv": sys.argv[1:],
        "path": sys.path,
        "cwd": os.getcwd(),
        "umask": mask,
        "environment": dict(os.environ),
        "ignored": [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN],
    }


def _ask(connection: socket.socket, folder: Path, request: Mapping[str, Any]) -> tuple[int, int]:
    """The child that runs the command: a handle, which can never mean another process, and its number."""
    try:
        _send(connection, request)
        answer, _ = _answer(connection, folder, request["command"])
        if "refused" in answer:
            raise _RefusedError(f"the worker refuses: {answer['refused']}")
        # Only now: a stopped worker would keep the streams open, and whoever reads them would wait for their end.
        _send(connection, {}, (0, 1, 2))
        answer, (child,) = _answer(connection, folder, request["command"])
        return child, answer["child"]
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise _RefusedError("the worker does not answer") from error


def _answer(connection: socket.socket, folder: Path, command: str) -> tuple[dict[str, Any], list[int]]:
    """The next message. It may take long, because the worker may be importing."""
    began, told = time.monotonic(), False
    while not select.select([connection], [], [], 1.0)[0]:
        if _is_stopped(folder):
            raise _RefusedError("the worker is stopped")
        if not told and time.monotonic() - began > PATIENCE:
            told = True
            print(f"{command}: waiting for the worker's imports", file=sys.stderr, flush=True)
    return _receive(connection, 1)


def _wait(connection: socket.socket, child: int, group: int) -> int:
    """The status with which the child ends. group: of it and of the processes that it starts."""
    try:
        either: list[Any] = [connection, child]
        select.select(either, [], [])
        if not select.select([connection], [], [], PATIENCE)[0]:
            raise _RefusedError("the worker does not report the end of its child")
        return int(_receive(connection)[0]["status"])
    except (OSError, EOFError, ValueError):
        # The worker was killed, and the kernel kills its children with it, but not what these started. Until all are
        # gone they may hold locks.
        _signal(child, signal.SIGKILL)
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)
        select.select([child], [], [])
        raise _RefusedError("the worker is gone") from None


def _signal(child: int, number: int) -> None:
    with suppress(OSError):
        signal.pidfd_send_signal(child, number)


def hand_over(command: str, libraries: str) -> None:
    """Run `python -m command` in a child of the worker and end as it ends; return where that cannot be done.

    libraries: a module whose function `load` imports what the command needs.
    """
    text = os.environ.pop(VARIABLE, None)
    this = getattr(sys.modules["__main__"], "__spec__", None)
    if not text or this is None or this.name != command:  # who only calls its `main` does not end with it
        return
    offered = json.loads(text)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    # Until there is a child signals wait: they are for it, or for this process if there will be none.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        with _connect(offered) as connection:
            child, group = _ask(connection, Path(offered["folder"]), _request(command, libraries))
            for number in SIGNALS:
                signal.signal(number, lambda number, _frame: _signal(child, number))
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            status = _wait(connection, child, group)
    except _RefusedError as why:
        print(f"{command}: {why}; going on by itself", file=sys.stderr, flush=True)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return
    if os.WIFSIGNALED(status):  # end by the same signal: whoever waits for this process is to see it
        ending = os.WTERMSIG(status)
        if ending != signal.SIGKILL:
            signal.signal(ending, signal.SIG_DFL)
        os.kill(os.getpid(), ending)
    os._exit(os.waitstatus_to_exitcode(status))


# --- The worker's side ------------------------------------------------------------------------------------------------


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


class Child(NamedTuple):
    pid: int
    handle: int  # of the process; readable once it has ended
    connection: socket.socket  # to the command that it runs for


@dataclass
class Worker:
    """Answers requests one after another; children run beside it."""

    listener: socket.socket
    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: read_at_start(os.environ))
    loaded: dict[str, str | None] = field(default_factory=dict)  # libraries -> why they cannot be shared
    children: dict[int, Child] = field(default_factory=dict)  # by handle
    stopping: bool = False

    def refusal(self, request: Mapping[str, Any]) -> str | None:
        if (request["root"], request["python"]) != (str(ROOT), [sys.executable, sys.version]):
            return "another checkout or another Python"
        own, theirs = self.environment, read_at_start(request["environment"])
        if other := sorted(name for name in own.keys() | theirs.keys() if own.get(name) != theirs.get(name)):
            return f"it was started with another {', '.join(other)}"
        from core import used_code  # here: the command's side does without

        if written := used_code.changed():
            self.stopping = True  # what it has imported will not become new again; the next command starts another
            return f"{written[0]} was written since it was started"
        return None

    def load(self, command: str, libraries: str) -> str | None:
        """Import them once; why they cannot be shared."""
        if libraries not in self.loaded:
            try:
                self.loaded[libraries] = self._load(command, libraries)
            except Exception as error:  # the command by itself will name it better
                self.loaded[libraries] = f"{libraries}: {type(error).__name__}: {error}"
            # No collection in a child touches what is here now: it would copy the pages, and take its time.
            gc.collect()
            gc.freeze()
        threads = len(os.listdir("/proc/self/task"))
        if threads != 1:  # a fork copies one of them, and the locks that the others hold
            return f"{threads} threads after its imports"
        return self.loaded[libraries]

    def _load(self, command: str, libraries: str) -> str | None:
        from core import code_hashes, provenance

        load = getattr(import_module(libraries), "load", None)
        if load is None:
            return f"{libraries} shares no libraries"
        load()
        import_module(command)  # what it imports itself: a child executes it again and finds that there
        # Read what every child needs: its code, and the versions of what is imported.
        code_hashes.code_hash(code_hashes.closure(command, libraries))
        for package in provenance.PACKAGES:
            provenance.version(package)
        return None

    def answer(self, connection: socket.socket) -> dict[str, Any] | None:
        """Answer one request: in the child the request, in the worker None."""
        descriptors: list[int] = []
        try:
            connection.settimeout(PATIENCE)  # others wait meanwhile
            request, _ = _receive(connection)
            refused = self.refusal(request) or self.load(request["command"], request["libraries"])
            _send(connection, {"refused": refused} if refused else {})
            if refused:
                raise EOFError
            _, descriptors = _receive(connection, 3)
            if len(descriptors) != 3:
                raise EOFError
            worker = os.getpid()
            pid = os.fork()
            if pid == 0:
                _die_with(worker)
                os.setpgid(0, 0)  # what the command starts ends with it
                # Nothing of the worker's or of another command's stays open here.
                self.listener.close()
                connection.close()
                for other in self.children.values():
                    other.connection.close()
                    os.close(other.handle)
                return {**request, "descriptors": descriptors}
            handle = os.pidfd_open(pid)
            self.children[handle] = Child(pid, handle, connection)
            with suppress(OSError):  # else `serve` sees that the other end is closed, and ends the child
                _send(connection, {"child": pid}, (handle,))
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError):
            connection.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def ended(self, child: Child) -> None:
        """Tell the command that waits how its child ended."""
        _, status = os.waitpid(child.pid, 0)
        with suppress(OSError):
            _send(child.connection, {"status": status})
        child.connection.close()
        os.close(child.handle)
        del self.children[child.handle]

    def serve(self, owner: int) -> dict[str, Any] | None:
        """Until it is told to stop, is idle for long, or its owner (a process handle) is gone: then None, after the
        last child. In a child its request."""
        last = time.monotonic()
        while True:
            if self.stopping and self.listener.fileno() != -1:
                self.listener.close()
                # At once, and not after the last child: the next command may make them again.
                with suppress(OSError):
                    (self.folder / PROCESS).unlink()
                    (self.folder / SOCKET).unlink()
                    self.folder.rmdir()
            if self.stopping and not self.children:
                return None
            waits: list[Any] = [*self.children, *(child.connection for child in self.children.values())]
            waits += [] if self.stopping else [owner, self.listener]
            ready, _, _ = select.select(waits, [], [], 1.0)
            for child in list(self.children.values()):
                if child.handle in ready:
                    self.ended(child)
                elif child.connection in ready:  # nothing is ever sent: the command was killed, and so is its child
                    with suppress(OSError):
                        os.killpg(child.pid, signal.SIGKILL)
                    self.ended(child)
            if owner in ready:
                self.stopping = True
            elif self.listener in ready and (request := self.answer(self.listener.accept()[0])) is not None:
                os.close(owner)
                return request
            if self.children or ready:
                last = time.monotonic()
            elif time.monotonic() - last > IDLE:
                self.stopping = True


def _die_with(worker: int) -> None:
    """Ask the kernel to kill this process when the worker ends: the command has then gone on by itself."""
    ctypes.CDLL(None, use_errno=True).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != worker:
        os._exit(1)


def _become(request: Mapping[str, Any]) -> None:
    """Make this child what `python -m command` would be, and run it."""
    for number in SIGNALS:
        ignored = number in request["ignored"]
        own = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if ignored else own)
    for target, descriptor in enumerate(request["descriptors"]):
        os.dup2(descriptor, target)
        os.close(descriptor)
    for name, target in (("stdout", 1), ("stderr", 2)):
        # New ones: the worker's may be made for a file, which has positions, and these for a pipe or a terminal.
        old = getattr(sys, name)
        unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
        stream = io.TextIOWrapper(
            open(target, "wb", buffering=0 if unbuffered else -1, closefd=False),  # noqa: SIM115  as long as the command
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=target == 2 or os.isatty(target),
            write_through=unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = request["path"]
    sys.argv = [request["command"], *request["argv"]]
    _forget_others(request)
    runpy.run_module(request["command"], run_name="__main__", alter_sys=True)


def _forget_others(request: Mapping[str, Any]) -> None:
    """Leave only the project modules that the command may use, so that another one is imported anew, and seen."""
    from core import code_hashes, used_code

    command = request["command"]
    hashed = set(code_hashes.closure(command, request["libraries"]))

    def others(file: str) -> bool:
        return file not in hashed and used_code.counts(file)

    used_code.forget(others)
    for name, module in list(sys.modules.items()):
        path = str(getattr(module, "__file__", None) or "")
        if name == command or (used_code.is_ours(path) and others(path.removeprefix(f"{ROOT}/"))):
            parent, _, own = name.rpartition(".")
            del sys.modules[name]  # the command itself is executed again, as `__main__`
            if getattr(sys.modules.get(parent), own, None) is module:
                delattr(sys.modules[parent], own)


def _run(request: Mapping[str, Any]) -> None:
    """Run the command in this child and end as `multiprocessing` ends its children: as the interpreter would, but
    without taking apart all that the worker imported, which with torch takes .36 s (measured)."""
    try:
        _become(request)
        status = 0
    except SystemExit as ending:
        if not (ending.code is None or isinstance(ending.code, int)):
            raise  # a text to be printed; other exceptions, too, are for the interpreter to show
        status = ending.code or 0
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # what libraries print from C
    os._exit(status)


def keep_memory() -> None:
    """Let glibc keep what torch frees for the next tensor: on a tiny model 5 % of a run's time, at the same peak.

    A MALLOC_ variable of the user's stands.
    """
    # The numbers of <malloc.h>: M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD (at most 32 MiB); values in bytes.
    if not any(name.startswith("MALLOC_") for name in os.environ):
        with suppress(AttributeError):  # another C library
            for option, value in ((-1, 1 << 30), (-2, 1 << 26), (-3, 1 << 25)):
                ctypes.CDLL(None).mallopt(option, value)


def main() -> int:
    """`python -m core.worker N`, by `_start` alone: N is the descriptor of the socket that listens."""
    from core import used_code  # noqa: F401  notes from here on what is imported and read

    offered = json.loads(os.environ.pop(VARIABLE))
    listener = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(listener.fileno(), False)
    keep_memory()
    worker = Worker(listener, Path(offered["folder"]))
    # Arrow's allocator would start a thread of its own when pandas is imported.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    os.environ["TQDM_DISABLE"] = "1"  # tqdm reads it when it is imported: no bars in the logs of jobs
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # of a whole job: they are meant for the commands, which pass them on
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the command that started it has them wait
    # Told to stop: no new command; those that run end by themselves.
    signal.signal(signal.SIGTERM, lambda *_: setattr(worker, "stopping", True))
    print(f"worker {os.getpid()} of {offered['owner']}", flush=True)
    try:
        owner = os.pidfd_open(offered["owner"])
    except OSError:  # it has ended already
        owner, worker.stopping = -1, True
    request = worker.serve(owner)
    if request is not None:
        _run(request)
    return 0


if __name__ == "__main__":
    sys.exit(main())
