"""DRO: GRPO/DAPO, except that there is no ratio: A log pi, less half the squared log ratio to the old policy."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.options import Option
from methods.parts import Parts, advantages, masks, penalties, ratios, reducers, surrogates


def dro(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.none(),
        surrogate=surrogates.log_likelihood(),
        penalties=(penalties.kl(beta=s["beta"], estimator="k2", anchor="old", mask=masks.everywhere()),),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


METHODS = [
    CatalogEntry(
        key="dro",
        title="DRO",
        source="arXiv 2405.19107; verl 0.9.1, policy loss dro",
        differs_from_grpo="No ratio and no clip: A log pi, and a quadratic penalty on the log ratio of each token, as "
        "in verl and Tinker. In the paper the square is that of the whole response's log ratio, which is another "
        "gradient ([names](names.md#dro)).",
        equation="J = (1/N) sum_i sum_t { A_i log pi(y_t) - (beta/2) (log r_t)^2 }",
        options=(
            options.ADV_STD,
            Option("beta", 0.05, why="Tinker's; verl demands a number", original="0.05, Tinker's documentation"),
            options.AGG_SCOPE,
        ),
        parts=dro,
    ),
]
