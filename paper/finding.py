"""One line of the audit, and what its statuses mean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from records.errors import ConfigError
from records.files import to_csv

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
CLEAN = ("ok", "not_run", "listed", "approximate")  # statuses that are no defect


@dataclass(frozen=True)
class Finding:
    """One row of audit.csv."""

    table: str
    row: str  # ids of the printed rows, a blank between several
    cell: str  # column heading; empty for a whole row
    check: str  # kind of check
    printed: str
    admissible: str  # what the other printed numbers allow
    status: str  # a key of STATUS
    note: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUS:
            raise ConfigError(f"audit: status {self.status!r} is not one of {', '.join(STATUS)}")


def as_csv(findings: Iterable[Finding]) -> str:
    names = [field.name for field in fields(Finding)]
    return to_csv(names, ({name: getattr(finding, name) for name in names} for finding in findings))
