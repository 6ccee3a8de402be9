"""Entropy-based advantage: GRPO/DAPO, except that a token's advantage gains a bonus for the policy's entropy there."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.options import Option
from methods.parts import Parts, advantages, ratios, reducers, surrogates


def entropy_adv(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        shape=advantages.entropy_bonus(alpha=s["alpha"], kappa=s["kappa"], of=s["entropy-of"]),
        ratio=ratios.token(),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"]),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


METHODS = [
    CatalogEntry(
        key="entropy_adv",
        title="Entropy-based advantage",
        source="arXiv 2506.14758",
        paper_rows=("Table 1: w. Entropy-based Term", "Table 3, Panel B: w. Entropy-based Term"),
        differs_from_grpo="Tokens of high entropy gain advantage, at most |A|/kappa, so that no sign flips.",
        quote="An entropy-based method [...] incorporates entropy regularization into advantage estimation, "
        "with scale [alpha = 4e-4] and clipping parameter [kappa = 2].",
        quoted_from="section 4.1",
        equation="J = (1/N) sum_i sum_t min(r_t A'_t, clip(r_t, 1 - low, 1 + high) A'_t)\n"
        "A'_t = A_i + min(alpha sg[H_t], |A_i| / kappa)",
        options=(
            options.ADV_STD,
            Option(
                "alpha",
                0.4,
                reading="entropy-alpha",
                why="the paper says its baselines' values are the original papers'",
                printed="4e-4, section 4.1",
                original=".4 for GRPO, .1 for PPO, 2506.14758",
            ),
            # least 1: below, the bonus could exceed |A| and flip its sign
            Option("kappa", 2.0, why="printed", printed="2, section 4.1", original="2, 2506.14758", least=1.0),
            options.of_reading("entropy-of", original="current, 2506.14758's code"),
            *options.TOKEN_CLIP,
            options.AGG_SCOPE,
        ),
        parts=entropy_adv,
        aliases={"entropy_adv_printed": {"alpha": 4e-4}, "entropy_adv_original": {"alpha": 0.4}},
    ),
]
