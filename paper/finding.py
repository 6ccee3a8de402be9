"""One line of the audit, and what its words mean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from records.csv_files import to_csv
from records.errors import ConfigError

STATUS = {
    "ok": "follows from the other printed numbers",
    "not_run": "printed as -",
    "undecodable": "no count over this denominator prints like this, truncated or rounded",
    "outside": "does not follow from the row's (or rows') own cells",
    "unlikely": "possible, but only if the ten repeated OMNI-MATH rows went unlike in the model's other rows",
    "other_baseline": "not the difference to the named row, but to another one",
    "no_baseline": "not the difference to any row of the block",
    "differs": "another value follows from the printed tables, or from the same sentence",
    "approximate": "the sentence says about; the exact value stands beside it",
    "close": "two seeds nearer to each other than generation noise alone makes likely (5 %)",
    "far": "two seeds further apart than generation noise alone makes likely (5 %)",
    "listed": "an observation without a verdict",
}
"""Every status an audit line can have."""

CLEAN = ("ok", "not_run", "listed", "approximate")


@dataclass(frozen=True)
class Finding:
    """table, row, cell: where (column heading, or empty for a whole row); printed: what stands there; admissible: what
    the other printed numbers allow."""

    table: str
    row: str
    cell: str
    check: str
    printed: str
    admissible: str
    status: str
    note: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUS:
            raise ConfigError(f"audit: status {self.status!r} is not one of {', '.join(STATUS)}")


def as_csv(findings: Iterable[Finding]) -> str:
    names = [field.name for field in fields(Finding)]
    return to_csv(names, ({name: getattr(finding, name) for name in names} for finding in findings))
