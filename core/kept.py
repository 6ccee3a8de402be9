"""Kept results trees: one archive in the repository, unpacked once into the user's cache folder on first use.

results/reference/<name>/tree.tar.xz                       the tree in its normal layout
results/reference/<name>/{README.md, *.md, figures/*.png}  for the web view; the Markdown tables are in both
"""

import io
import lzma
import os
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from core.errors import CorruptInputError, MissingInputError
from core.provenance import sha256_file

ARCHIVE = "tree.tar.xz"


def pack(folder: Path, names: Iterable[str], archive: Path) -> None:
    """Write the files `names` of a folder as an archive; equal files give an equal archive."""
    # Files of one kind are adjacent: they are similar and compress to a third.
    ordered = sorted(names, key=lambda name: (name.startswith("runs/"), name.rpartition("/")[2], name))
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for name in ordered:
            data = (folder / name).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def unpacked(root: Path) -> Path:
    """Return the folder with the files of the kept tree at `root`, in the user's cache (XDG_CACHE_HOME).

    Raises MissingInputError without the archive, CorruptInputError for a damaged one.
    """
    archive = root / ARCHIVE
    if not archive.is_file():
        raise MissingInputError(f"{archive}: missing")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # Keyed by content: another version of the tree gets another folder, and an existing one is complete.
    target = cache / "tepo-bench" / sha256_file(archive)[:16] / root.absolute().name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as scratch:
        made = Path(scratch, "tree")
        try:
            data = lzma.decompress(archive.read_bytes())  # in one piece: the checksum is at the end
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                tar.extractall(made, filter="data")  # no files outside the folder, no links to elsewhere
        except (lzma.LZMAError, tarfile.TarError, OSError, ValueError) as error:
            raise CorruptInputError(f"{archive}: damaged ({error}); restore it with git checkout") from error
        try:
            made.rename(target)
        except OSError:  # another process was faster
            if not target.is_dir():
                raise
    return target
