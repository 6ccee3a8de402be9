"""A table of an invented tree as the renderings see it, without a file in between."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

from core import digests
from core.results_tree import Tree
from core.scores import read_scores
from evals.stats import compare
from report.tables import fill, render
from report.tables.tidy import Cell, Table, declaration, read_table, view


@cache
def filled(tree: Tree, key: str) -> Table:
    declared = declaration(tree, key)
    return view(declared, tree, fill.fill(declared, tree))


def cell(table: Table, row: str, column: str) -> Cell:
    return next(c for c in table.cells if (c.row, c.column) == (row, column))


def spread(
    tree: Tree, step: int, benchmark: str, variant: str | None = None, model: str = "tiny_qwen2"
) -> dict[str, Any]:
    """What a model's rows on a benchmark share, from scores.csv: arguments of `compare.over_seeds`, `compare_seeds`."""
    table = read_scores(tree.layout.scores)
    variants = table.method.str.partition("@")[2]
    like_it = (table.model == model) & (table.step == step) & (table.benchmark == benchmark)
    table = table[like_it & (variants == (variant or ""))]
    rows = {method: dict(zip(group.seed, group.score, strict=True)) for method, group in table.groupby("method")}
    answers = float(table.responses.min()) if len(table) else math.inf
    return {"answers": answers, "shared": compare.shared_spread(rows, answers=answers)}


def write(tree: Tree, key: str) -> None:
    """What `report.table` writes."""
    paths = [fill.write(declaration(tree, key), tree)]
    paths += render.write(read_table(tree, key), tree.layout)
    digests.write_list(tree.layout.sums(f"tables/table{key}"), map(Path, paths))
