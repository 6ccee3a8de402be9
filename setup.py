"""Builds the wheel: the loss library as one package, `tepo_bench`. Everything else is declared in pyproject.toml.

Installed as `methods` and `core` the rooms would hide, or be hidden by, packages of the user. So the wheel holds
`tepo_bench.methods` and `tepo_bench.core`, with their import statements rewritten, as far as `import tepo_bench`
reaches them.
"""

import ast
import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOMS = ("methods", "core")
PACKAGE = "tepo_bench"
FROM_A_ROOM = re.compile(rf"^(\s*from )({'|'.join(ROOMS)})\b", re.MULTILINE)


def imported(source: str) -> set[str]:
    """The modules of `ROOMS` that a file may import: `from a import b` may mean a.b. Type checkers' imports count."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
    return {name for name in names if name.split(".")[0] in ROOMS}


def library() -> set[Path]:
    """Every file of the library, relative to this folder."""
    files: set[Path] = set()
    # the catalog imports its files by their names in the folder, which no import statement shows
    waiting = [Path(PACKAGE, "__init__.py"), *Path("methods/catalog").glob("*.py")]
    while waiting:
        file = waiting.pop()
        if file in files or not file.is_file():  # `from a import b`, where b is not a module
            continue
        files.add(file)
        waiting += [folder / "__init__.py" for folder in file.parents if folder.parts]
        for name in imported(file.read_text(encoding="utf-8")):
            path = Path(*name.split("."))
            waiting += [path.with_suffix(".py"), path / "__init__.py"]
    return files


class BuildLibrary(build_py):
    """Copies the library's files and no others, with imports of a room turned into imports of `tepo_bench.<room>`."""

    def run(self) -> None:
        if self.editable_mode:  # the files would be used where they lie, with imports that only work in the repository
            raise SystemExit(
                "error: pip install -e: not supported; in the repository `import tepo_bench` works as it is"
            )
        # pip builds in this folder and keeps build/: the file of a method that was deleted would be installed again
        shutil.rmtree(Path(self.build_lib, PACKAGE), ignore_errors=True)
        super().run()

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        return [found for found in super().find_package_modules(package, package_dir) if Path(found[2]) in FILES]

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        target, copied = super().build_module(module, module_file, package)
        code = FROM_A_ROOM.sub(rf"\1{PACKAGE}.\2", Path(target).read_text(encoding="utf-8"))
        if left := imported(code):
            raise SystemExit(f"error: {module_file}: write `from {min(left)} import ...`, which the wheel can rewrite")
        Path(target).write_text(code, encoding="utf-8")
        return target, copied


FILES = library()
FOLDERS = {file.parent for file in FILES}
PLACES = {".".join(dict.fromkeys((PACKAGE, *folder.parts))): folder.as_posix() for folder in FOLDERS}

setup(
    packages=sorted(PLACES),
    package_dir=PLACES,
    package_data={PACKAGE: ["py.typed"]},
    cmdclass={"build_py": BuildLibrary},
)
