"""`docs/benchmarks.md`, made from the registry: `python -m report.docs.benchmarks --out docs/benchmarks.md`."""

from __future__ import annotations

from pathlib import Path

from evals.benchmark import PAPER, Benchmark, benchmark, keys
from records import errors
from records.errors import Parser
from records.files import write_text
from report.docs import table

_HEAD = """\
# Benchmarks

Made from `evals/tasks/` by `python -m report.docs.benchmarks --out docs/benchmarks.md`; a test compares the two.
How to add one: [add-a-benchmark.md](add-a-benchmark.md).

Problems never enter this repository: `python -m evals.fetch --benchmarks all --data DIR` downloads them from the
sources below and writes nothing unless row count and sha256 are the registered ones. Offline: `--mirror FOLDER` or
`--from FILE`.

`n x k` is items times samples per item. Decoding: `T 0.6` samples at that temperature with top_p 1 and no top_k,
`greedy` takes the likeliest token; `max` bounds the response in tokens. Prompts longer than 2048 tokens lose their
beginning. A model without positions for the longest prompt and `max` gets what the prompt leaves, at least half.
"""
_PAPER = "## The paper's seven\n"
_FEWER = """
## The same sets on one GPU

The same items with fewer samples and shorter responses, for [one GPU](one-gpu.md). Each stands in the place of its
set in a table; what it shows is not comparable with that set's numbers.
"""
_SYNTHETIC = """
## Synthetic stand-ins

Problems for tiny models ([evals/arithmetic.py](../evals/arithmetic.py)), drawn from the held-out fifth of all prompts,
generated and checked at every load. Each stands in the place of one of the paper's sets in a table and says nothing
about that set. The first seven are the embedded scale's, seven abilities; the others are the quick run's.
"""
_BAD = """
## Known-bad items

Broken upstream. They are listed and graded as they are, never silently repaired.
"""


def page() -> str:
    """The page as Markdown."""
    entries = [benchmark(key) for key in keys()]
    paper = [entry for entry in entries if entry.key in PAPER]
    fewer = [entry for entry in entries if not entry.synthetic and entry.key not in PAPER]
    synthetic = [entry for entry in entries if entry.synthetic]
    facts = [(f"`{e.key}`", e.title, _size(e), _decoding(e), e.prompt, e.duplicates, e.licence) for e in paper]
    sources = [
        (f"`{e.key}`", f"{e.source} @ {e.revision[:12]}", f"`{e.sha256[:16]}`", e.checked_against) for e in paper
    ]
    stand_ins = []
    for entry in synthetic:
        made_by = f"`{str(entry.source).removeprefix('evals.arithmetic: ')}`"
        sha256 = f"`{entry.sha256[:16]}`"
        stand_ins.append(
            (f"`{entry.key}`", entry.title, entry.stands_for, _size(entry), _decoding(entry), made_by, sha256)
        )
    bad_items = [(f"`{e.key}`", f"`{bad.item_id}`", bad.why) for e in (*paper, *synthetic) for bad in e.known_bad]
    return "\n".join(
        [
            _HEAD,
            _PAPER,
            table(("key", "title", "n x k", "decoding", "prompt", "copies", "licence"), facts),
            table(("key", "source @ commit", "sha256 of the content", "checked against"), sources),
            *[f"- `{entry.key}`: {entry.notes}" for entry in paper if entry.notes],
            _FEWER,
            table(
                ("key", "title", "stands for", "n x k", "decoding"),
                [(f"`{e.key}`", e.title, e.stands_for, _size(e), _decoding(e)) for e in fewer],
            ).rstrip(),
            _SYNTHETIC,
            table(("key", "title", "stands for", "n x k", "decoding", "made by", "sha256"), stand_ins).rstrip(),
            _BAD,
            table(("set", "item", "what is wrong"), bad_items),
        ]
    )


def _decoding(entry: Benchmark) -> str:
    how = "greedy" if entry.decoding.greedy else f"T {entry.decoding.temperature}"
    return f"{how}, max {entry.decoding.max_tokens}"


def _size(entry: Benchmark) -> str:
    return f"{entry.n} x {entry.decoding.samples}"


def main() -> int:
    parser = Parser()
    parser.add_argument("--out", required=True, type=Path, metavar="FILE")
    args = parser.parse_args()
    write_text(args.out, page())
    return 0


if __name__ == "__main__":
    errors.run(main)
