"""What a command did use of the project, compared with what was hashed for it: anything else ends it in one line.

A command calls `start` with the code it may use (`core.code_hashes`), and `check` before it writes its result:

- its hash must be the one that it was planned with (`TEPO_CODE`, which the rules set), then and at the end;
- no file may have been written between `start` and its use, not even with the content that it had;
- every project file that it imported, opened or started must be among those that were hashed (an audit hook sees them);
- Python must not have run bytecode of another content.
"""

import hashlib
import importlib.util
import marshal
import os
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from core import code_hashes, errors
from core.code_hashes import Code, check_environment, command
from core.errors import CorruptInputError
from core.provenance import ROOT

AFFECTS_RESULTS = False  # refuses a result, and changes none

VARIABLE = "TEPO_CODE"
# Set for every job (workflow/rules/common.smk): with other values the same code gives other bits.
NUMERIC = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Folders of the root whose files are results or hashed inputs: whoever reads them holds them against their own hashes.
WRITTEN = ("results", "logs", "build", "data")
# What is read there is installed with Python or the system, and a record has the versions.
SYSTEM = tuple(
    f"{folder}/" for folder in {sys.prefix, sys.base_prefix, "/usr", "/lib", "/etc", "/proc", "/sys", "/dev", "/opt"}
)
# Who reads code to run it or to show a line of it.
CODE = (".py", ".pyc", ".so")
READERS_OF_CODE = ("<frozen importlib", "<frozen zipimport", "/linecache.py", "/tokenize.py", "/core/used_code.py")

Facts = tuple[int, int, int]  # what every write of a file changes, also one that restores its content and its times

_PREFIX = f"{ROOT}/"
_INSTALLED = (f"{sys.prefix}/", f"{sys.base_prefix}/lib/")
_used: dict[str, Facts] = {}  # project files that were executed or opened, by path, when that first happened
_executed: set[str] = set()  # those of them that are code, and whose code ran
_opened: set[tuple[str, frozenset[str]]] = set()  # files that were read or started, and the project files on the stack


class UsedCode:
    """The code of a command that has started. inputs: files and folders that it may read, with hashes of their own."""

    def __init__(self, code: Code, inputs: Iterable[Path | str] = (), *, processes: bool = False):
        self.code, self.files, self.hash = code, code.files, code.hash
        self.processes = processes  # other processes run it too, and what they imported is not seen here
        self._watches = _command() == code.command  # else a function of it is called by somebody else
        self._began = {file: facts(ROOT / file) for file in self.files}
        self._inputs = [Path(path).resolve() for path in [*sys.argv[1:], *inputs] if path and len(str(path)) < 4096]

    def check(self, *, last: bool = True) -> None:
        """CorruptInputError unless all that was used is what was hashed. last: also look for what was not hashed."""
        if not self._watches:
            return
        written = sorted(file for file, then in self._began.items() if facts(ROOT / file) != then)
        if written:
            code_hashes.forget()
            if self.processes or self.code.hash != self.hash:
                raise CorruptInputError(f"{written[0]}: was written while this command ran; run it again")
        for file, then in self._began.items():
            if _used.get(f"{_PREFIX}{file}", then) != then:
                raise CorruptInputError(f"{file}: was written before this command used it; run it again")
        if last:
            self._check_modules()
            self._check_opened()

    def _check_modules(self) -> None:
        imported = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
        for path in sorted(filter(is_ours, imported | _executed)):
            file = path.removeprefix(_PREFIX)
            module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            left_out = any(f"{module}.".startswith(f"{name}.") for name in self.code.unhashed)  # on purpose
            if file not in self.files and not left_out and counts(file):
                raise CorruptInputError(
                    f"{file}: was imported and is in no hash, so an edit would change results in silence; import it by "
                    "a name that stands in the code"
                )
            if runs_old_bytecode(Path(path)):
                raise CorruptInputError(
                    f"{file}: Python ran bytecode of an earlier content of the same size and second; remove "
                    f"{importlib.util.cache_from_source(path)} and run it again"
                )

    def _check_opened(self) -> None:
        for path, users in sorted(_opened, key=lambda entry: entry[0]):
            file = path.removeprefix(_PREFIX)
            counted = {user for user in users if counts(user)}
            # By modules that are left out of the hash on purpose: others were named above. Where no counted module
            # reads, the worker hashed the file for another command.
            if not counted <= self.files or (users and not counted):
                continue
            is_input = any(folder != ROOT and Path(path).is_relative_to(folder) for folder in self._inputs)
            if is_input or (file in self.files and not file.endswith(".py")):
                continue
            own = counted & self.code.own
            if os.path.isdir(path) and (not own or any(name.startswith(f"{file}/") for name in self.files)):
                continue
            if own or (is_ours(path) and not file.endswith(".py")):
                raise CorruptInputError(
                    f"{file}: was read{f' by {min(own)}' if own else ''} and is in no hash, so an edit would change "
                    f'results in silence; keep it in the project and add DATA = ("{file}",) to the module that reads it'
                )


def start(code: Code, inputs: Iterable[Path | str] = (), *, processes: bool = False) -> UsedCode:
    """Begin a command with this code. CorruptInputError where it was planned with another one."""
    check_environment(code.own)
    wanted = os.environ.pop(VARIABLE, None)
    if wanted and (own := planned(code.hash, os.environ)) != wanted:
        raise CorruptInputError(
            f"code: planned with {wanted}, found {own}: a file or a thread variable is another one than when Snakemake "
            "read them; run snakemake again"
        )
    used = UsedCode(code, inputs, processes=processes)
    used.check(last=False)
    return used


def planned(code: str, variables: Mapping[str, str] = NUMERIC) -> str:
    """What a job with this code is planned with: the hash of it, and of the variables that decide bits."""
    text = ",".join(f"{name}={variables.get(name, '')}" for name in NUMERIC)
    return f"{code}.{hashlib.sha256(text.encode()).hexdigest()[:4]}"


def run(main: Callable[[], int | None]) -> None:
    """`errors.run` for a command whose imports name all that it may use."""

    def checked() -> int | None:
        used = start(command(str(_command())))
        status = main()
        used.check()
        return status

    errors.run(checked)


def forget(others: Callable[[str], bool]) -> None:
    """Forget what was used by, or of, project files that are `others`: those of another command of a worker."""
    for path in [path for path in _used if others(path.removeprefix(_PREFIX))]:
        del _used[path]
        _executed.discard(path)
    _opened.difference_update([entry for entry in _opened if any(map(others, entry[1]))])


def changed() -> list[str]:
    """Project files that this process has used and that were written since."""
    return sorted(path.removeprefix(_PREFIX) for path, then in _used.items() if facts(path) != then)


def facts(path: str | Path) -> Facts | None:
    """None for a file that is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ctime_ns, found.st_size, found.st_ino


def runs_old_bytecode(path: Path) -> bool:
    """Whether the cached bytecode of a file passes for current by second and size, and is of another content."""
    cached, found = Path(importlib.util.cache_from_source(path)), path.stat()
    try:
        if cached.stat().st_ctime_ns > found.st_ctime_ns:  # compiled after the last write of the source
            return False
        with open(cached, "rb") as file:  # by this module and not by pathlib: READERS_OF_CODE
            data = file.read()
    except OSError:
        return False
    if struct.unpack("<II", data[8:16]) != (int(found.st_mtime) & 0xFFFFFFFF, found.st_size & 0xFFFFFFFF):
        return False  # so Python did not take it
    return bool(marshal.loads(data[16:]) != compile(path.read_bytes(), str(path), "exec", dont_inherit=True))


def counts(file: str) -> bool:
    """Whether a project file is one of those that decide numbers."""
    return file.endswith(".py") and code_hashes.source(file).counts


def _command() -> str | None:
    """The module of this project that this process is `python -m` of."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec.name if spec is not None and is_ours(str(spec.origin)) else None


def is_ours(path: str) -> bool:
    """Whether a file is one of the project, and neither written by it nor installed in a folder of it."""
    if not path.startswith(_PREFIX):
        return False
    parts = path.removeprefix(_PREFIX).split("/")
    hidden = any(part.startswith(".") for part in parts) or "site-packages" in parts
    return not hidden and parts[0] not in WRITTEN and not path.startswith(f"{sys.prefix}/")


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    """The audit hook."""
    if event == "exec":
        path = getattr(arguments[0], "co_filename", "")
        if path.startswith(_PREFIX) and not path.startswith(_INSTALLED) and (found := facts(path)):
            _used.setdefault(path, found)
            _executed.add(path)
    elif event == "open":
        path, mode, flags = arguments
        if not (set("wax") & set(mode or "") or (flags or 0) & (os.O_WRONLY | os.O_RDWR)):
            _note_file(path)
    elif event in ("os.listdir", "os.scandir", "ctypes.dlopen", "sqlite3.connect"):
        _note_file(arguments[0])
    elif event == "subprocess.Popen":
        for argument in (arguments[0], *(arguments[1] or ())):
            if isinstance(argument, str | bytes | os.PathLike) and os.path.isfile(argument):
                _note_file(argument)


def _note_file(given: Any) -> None:
    if not isinstance(given, str | bytes | os.PathLike):  # a descriptor
        return
    path = os.fsdecode(given)
    if path.startswith(_INSTALLED):  # most of them: the imports of libraries
        return
    frame = sys._getframe(2)  # who opens
    if path.endswith(CODE) and any(name in frame.f_code.co_filename for name in READERS_OF_CODE):
        return
    path = os.path.abspath(path)
    found = facts(path)
    if found is None or (path.startswith(SYSTEM) and not is_ours(path)):
        return
    users, at = set(), frame
    while at is not None:
        if is_ours(at.f_code.co_filename):
            users.add(at.f_code.co_filename.removeprefix(_PREFIX))
        at = at.f_back  # type: ignore[assignment]
    _opened.add((path, frozenset(users)))
    if is_ours(path):
        _used.setdefault(path, found)


if _command():
    sys.addaudithook(_note)
    for _module in list(sys.modules.values()):  # what was imported before there was a hook
        _path = str(getattr(_module, "__file__", None) or "")
        if is_ours(_path) and (_found := facts(_path)):
            _used[_path] = _found
