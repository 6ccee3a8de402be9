"""CISPO: GRPO/DAPO, except that the clipped ratio is a constant weight on A log pi: no token loses its gradient."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.parts import Parts, advantages, ratios, reducers, surrogates


def cispo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.token(),  # its gradient does not matter: `weighted` detaches the weight
        surrogate=surrogates.weighted(low=s["low"], high=s["high"]),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


METHODS = [
    CatalogEntry(
        key="cispo",
        title="CISPO",
        source="arXiv 2506.13585",
        paper_rows=("Table 3, Panel C: w. CISPO/Reinforce (token-level)",),
        differs_from_grpo="The clipped ratio carries no gradient; it weights A log pi.",
        quote="CISPO [...], which performs single-step policy updates by employing [sg(.) A_i log pi], "
        "where sg means stop policy gradient",
        quoted_from="section 4.1",
        equation="J = (1/N) sum_i sum_t sg[clip(r_t, 1 - low, 1 + high)] A_i log pi(y_t)",
        options=(
            options.ADV_STD,
            options.LOW.with_(
                default=None,
                reading="cispo",
                why="the original's",
                printed="-",
                original="none: set to a large value, 2506.13585",
            ),
            options.HIGH.with_(
                reading="cispo",
                why="Clip-Higher, as in the other rows",
                printed="-",
                original="tuned, not disclosed, 2506.13585",
            ),
            options.AGG_SCOPE,
        ),
        parts=cispo,
    ),
]
