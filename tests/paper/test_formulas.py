"""The formulas counted again: the kept counts, which the claims are judged on, and the catalog's own losses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.files import read_csv
from methods import catalog
from methods.batch import Batch
from paper.claims.tests import FORMULAS
from tests.paper import formulas
from tests.paper.formulas import CHECKS, POPULATIONS, Responses

KEPT = {row["check"]: row for row in read_csv(FORMULAS, "counts of the formulas", ())}
OF_SAMPLERS = {"sequence_weight_has_less_bias", "sequence_weight_has_less_noise", "tepo_has_less_bias"}


def test_the_kept_counts_are_those_of_the_formulas() -> None:
    assert KEPT.keys() - OF_SAMPLERS == CHECKS.keys()
    for name, (check, population) in CHECKS.items():
        holds_N = check(POPULATIONS[population]())
        found = int(holds_N.sum()), len(holds_N), population
        row = KEPT[name]
        assert (int(row["holds"]), int(row["policies"]), row["drawn"]) == found, name


def _few(count: int) -> tuple[Responses, list[tuple[torch.Tensor, torch.Tensor]]]:
    """The first policies, and their logits and old logits as tensors."""
    w = formulas.responses()
    few = Responses(w.logits_NXV[:count], w.old_NXV[:count], w.reward_NS[:count], w.length_S, w.mask_ST)
    tensors = [(torch.tensor(new), torch.tensor(old)) for new, old in zip(few.logits_NXV, few.old_NXV, strict=True)]
    return few, tensors


def _logp(logits_XV: torch.Tensor, mask_ST: np.ndarray) -> torch.Tensor:
    return logits_XV.log_softmax(-1)[formulas._NODE_ST, formulas._TOKEN_ST] * torch.tensor(mask_ST)


@pytest.mark.parametrize(
    ("key", "side"),
    [
        ("tepo_nokl+clip-form=none+gradient=alg1_line21", "printed"),
        ("tepo_nokl+clip-form=none", "true"),
        ("gspo+clip-form=none", "gspo"),
    ],
)
def test_algorithm_1_by_the_catalogs_losses(key: str, side: str) -> None:
    w, tensors = _few(8)
    seen = formulas.algorithm_1(w)
    for n, (new, old) in enumerate(tensors):
        new.requires_grad_()
        chosen = seen.responses[n]
        batch = Batch(
            logp=_logp(new, w.mask_ST)[chosen],
            old_logp=_logp(old, w.mask_ST)[chosen],
            advantage=torch.tensor(seen.advantage[n]),
            mask=torch.tensor(w.mask_ST[chosen] == 1),
            group=torch.zeros(len(chosen)).long(),
        )
        (gradient,) = torch.autograd.grad(-catalog.parse(key).loss(batch), new)
        assert getattr(seen, side)[n] == pytest.approx(gradient.numpy().ravel(), rel=1e-9, abs=1e-14)
