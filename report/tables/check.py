"""`python -m report.tables.check`: whether `tables.yaml` is well declared and names methods of the catalog.

Snakemake asks this when it starts. Filling a table does not, so a correction of a method's file leaves it as it is.
"""

from pathlib import Path

from core import errors
from core.errors import ConfigError, Parser, unknown
from core.layout import BASE, split
from methods import catalog
from report.tables import spec


def check(table: spec.Table) -> None:
    """Raise ConfigError for a method that the catalog does not have, and for two rows of a block that are one method in
    different words."""
    for number, block in enumerate(table.blocks):
        at = f"tables.{table.key}.blocks.{number}"
        methods = {
            row.id: canonical(row.method, table.source, f"{at}: row {row.id}") for row in block.rows if row.method
        }
        for row in block.rows:
            for other in block.rows:
                # `grpo` and `grpo+high=0.28` are one method where 0.28 is the default: only the catalog knows that.
                same = (methods.get(row.id), row.seeds, row.step) == (methods.get(other.id), other.seeds, other.step)
                if row.method and same and other is not row:
                    raise ConfigError(f"{table.source}: {at}: rows {row.id} and {other.id} are the same ({row.method})")


def canonical(name: str, where: str, at: str) -> str:
    """The catalog's key of a method as the configuration names it, with its variant."""
    method, variant = split(name)
    if name == BASE:
        return BASE
    known = (BASE, *catalog.keys(), *catalog.aliases())
    if method.split("+")[0] not in known:
        raise unknown(where, f"{at}: method", method, known)
    try:
        key = catalog.parse(method).key
    except ConfigError as error:
        raise ConfigError(f"{where}: {at}: method: {error}") from error
    return key if variant is None else f"{key}@{variant}"


def main() -> None:
    parser = Parser(description="Check the tables of a specification against the catalog and the paper.")
    parser.add_argument("spec", type=Path, nargs="?", default=spec.TABLES, help="specification file")
    args = parser.parse_args()
    tables = spec.tables(args.spec)
    for table in tables.values():
        check(table)
    print(f"{args.spec}: {len(tables)} tables, every method and printed row known")


if __name__ == "__main__":
    errors.run(main)
