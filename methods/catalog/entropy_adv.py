"""Entropy-based advantage: GRPO/DAPO, except that a token's advantage gains a bonus for the policy's entropy there."""

from dataclasses import replace

from methods import recipe
from methods.catalog.grpo import grpo
from methods.options import Option
from methods.parts import Parts, advantages
from methods.recipe import Recipe, Settings

ALPHA = Option(
    "alpha",
    0.4,
    "the paper says its baselines' values are the original papers'",
    printed="4e-4, section 4.1",
    original=".4 for GRPO, .1 for PPO, 2506.14758",
    reading="entropy-alpha",
)
KAPPA = Option("kappa", 2.0, "printed", printed="2, section 4.1", original="2, 2506.14758", least=1.0)


def entropy_adv(s: Settings) -> Parts:
    return replace(grpo(s), shape=advantages.entropy_bonus(alpha=s["alpha"], kappa=s["kappa"]))


METHODS = [
    Recipe(
        key="entropy_adv",
        title="Entropy-based advantage",
        source="arXiv 2506.14758",
        rows=("Table 1: w. Entropy-based Term", "Table 3, Panel B: w. Entropy-based Term"),
        differs="Tokens of high entropy gain advantage, at most |A|/kappa, so that no sign flips.",
        quote="An entropy-based method [...] incorporates entropy regularization into advantage estimation, "
        "with scale [alpha = 4e-4] and clipping parameter [kappa = 2].",
        where="section 4.1",
        equation="J = (1/N) sum_i sum_t min(r_t A'_t, clip(r_t, 1 - low, 1 + high) A'_t)\n"
        "A'_t = A_i + min(alpha sg[H_t], |A_i| / kappa)",
        options=(recipe.ADV_STD, ALPHA, KAPPA, *recipe.TOKEN_CLIP, recipe.AGG_SCOPE),
        parts=entropy_adv,
        also={"entropy_adv_printed": {"alpha": 4e-4}},
    ),
]
