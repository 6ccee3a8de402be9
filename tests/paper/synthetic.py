"""Invented tables whose every number follows from counts; tests plant one defect at a time."""

from __future__ import annotations

from pathlib import Path

from paper.printed import COLUMN, HEADINGS, printed

RESPONSES = 8844
COPIES_RIGHT = 4

COUNTS = {
    "T1.1": (101, 53, 801, 201, 403, 151, 61),
    "T1.2": (163, 88, 1102, 352, 707, 251, 97),
    "T1.3": (171, 93, 1140, 361, 719, 263, 91),
    "T1.4": (187, 99, 1187, 377, 767, 277, 103),
    "T2.1": (163, 88, 1102, 352, 707, 251, 97),
    "T2.2": (172, 95, 1091, 343, 722, 246, 101),
}
"""Right responses per column; T2.1 repeats T1.2, the run of T2.2 is its other seed."""

ROWS = """row,panel,kind,model,method,seed,steps,of
T1.1,,base,q7,base,,,
T1.2,,run,q7,grpo,1,72,
T1.3,,run,q7,gspo,1,72,
T1.4,,run,q7,tepo,1,72,
T1.5,,delta,q7,,,,T1.4 T1.2
T2.1,,run,q7,grpo,1,72,
T2.2,,run,q7,grpo,2,72,
T2.3,,mean,q7,,,,T2.1 T2.2
"""


def cells() -> dict[str, list[str]]:
    """Row id -> the eight printed cells, all truncated."""
    found = {}
    for id, counts in COUNTS.items():
        average = printed(sum(counts) + COPIES_RIGHT, RESPONSES)[0]
        found[id] = [*(printed(k, n)[0] for k, n in zip(counts, COLUMN.values(), strict=True)), average]
    found["T1.5"] = [_text(_cents(a) - _cents(b)) for a, b in zip(found["T1.4"], found["T1.2"], strict=True)]
    found["T2.3"] = [_text((_cents(a) + _cents(b) + 1) // 2) for a, b in zip(found["T2.1"], found["T2.2"], strict=True)]
    return found


def write(folder: Path, planted: dict[tuple[str, str], str] | None = None) -> Path:
    """The tables in `folder`, with `planted` {(row, heading): text} in place of what follows."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = cells()
    for (id, heading), text in (planted or {}).items():
        rows[id][list(HEADINGS.values()).index(heading)] = text
    (folder / "rows.csv").write_text(ROWS, encoding="utf-8")
    for table in "12":
        lines = [",".join(("row", "label", *HEADINGS.values()))]
        order = sorted((id for id in rows if id.startswith(f"T{table}.")), key=lambda id: int(id.split(".")[1]))
        lines += [",".join((id, f"row {id}", *rows[id])) for id in order]
        (folder / f"table{table}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _cents(text: str) -> int:
    return int(text.replace(".", ""))


def _text(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"
