"""A command for tests of `core.worker`: it does what its first argument names."""

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from core import worker


def inside() -> bool:
    """Whether this process is a child of a worker."""
    return b"core.worker" in Path(f"/proc/{os.getppid()}/cmdline").read_bytes()


def main() -> int:
    what, *rest = sys.argv[1:]
    worker.hand_over("tests.worker_command", ("missing.library" if what == "unshared" else "json:dumps",))
    print(f"{what} in {os.getcwd()} for {os.environ.get('FOR')}, worker: {inside()}", flush=True)
    if what == "fail":
        return 7
    if what == "raise":
        raise ValueError("of the command")
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "text":
        sys.exit("why it ends")
    if what == "leave":  # what the interpreter does at the end of a process, and a line in a buffer
        atexit.register(print, "what was registered")
        threading.Timer(0.2, print, ["a thread"]).start()
        print("the end of the command")
    if what == "show":  # what a process can see of others
        print(sorted(name for name in os.environ if name in (worker.VARIABLE, "SECRET_OF")))
        print([link for link in map(_link, Path("/proc/self/fd").iterdir()) if "socket" in link or "pidfd" in link])
    if what == "wait":  # beside another process, until a signal, or until a file is there
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
        other = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        Path(rest[0]).write_text(f"{other.pid} {os.getpid()} {os.getppid()}", encoding="utf-8")
        while not Path(f"{rest[0]}.end").exists():
            time.sleep(0.02)
        other.kill()
    return 0


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:  # of the listing itself
        return ""


if __name__ == "__main__":
    sys.exit(main())
