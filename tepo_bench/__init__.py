"""The losses as a library, installed by `pip install .`. It needs only torch.

    method = tepo_bench.parse("tepo+beta=1")
    advantage = method.advantage(reward, group, mask.sum(1))
    batch = tepo_bench.Batch(logp=..., old_logp=..., advantage=advantage, mask=..., group=group, ...)
    method.loss(batch).backward()

docs/extend.md describes every name below. The code is in `methods/`: in a checkout these are the same classes as
`methods.batch.Batch` and so on, in a wheel they are `tepo_bench.methods.batch.Batch` (setup.py gives the reason).
"""

from core.errors import BenchError, ConfigError, CorruptInputError
from methods import catalog, diagnostics, parts
from methods.batch import Batch
from methods.catalog import parse
from methods.method import Method
from methods.options import CatalogEntry, Option
from methods.parts import Part, Parts, Terms
from methods.parts.entropy import logp_and_entropy

__version__ = "0.1.0"  # read by pyproject.toml
__all__ = [
    "Batch",
    "BenchError",
    "CatalogEntry",
    "ConfigError",
    "CorruptInputError",
    "Method",
    "Option",
    "Part",
    "Parts",
    "Terms",
    "catalog",
    "diagnostics",
    "logp_and_entropy",
    "parse",
    "parts",
]
