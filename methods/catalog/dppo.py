"""DPPO: GRPO/DAPO, except that a token leaves when its probability, and not its ratio, has moved too far."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.options import Option
from methods.parts import Part, Parts, advantages, masks, ratios, reducers, surrogates
from records.errors import ConfigError


def dppo_tv(s: Settings) -> Parts:
    return _dppo(s, masks.within_tv(low=s["low"], high=s["high"], anchor=s["dppo-anchor"]))


def dppo_kl(s: Settings) -> Parts:
    return _dppo(s, masks.within_kl(low=s["low"], high=s["high"], anchor=s["dppo-anchor"]))


def _dppo(s: Settings, near: Part) -> Parts:
    to_sampler = s["dppo-anchor"] == "sampler"
    if to_sampler and s["correction"] != "none":
        raise ConfigError(f"correction={s['correction']}: dppo-anchor=sampler has the sampler in its ratio already")
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        # its gradient does not matter: `weighted` detaches the weight
        ratio=ratios.to_sampler() if to_sampler else ratios.token(),
        surrogate=surrogates.weighted(low=None, high=None if s["cap"] is None else s["cap"] - 1),
        mask=near,
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


# least=1: a smaller cap would act on the weight of an on-policy token, which is 1
CAP = Option(
    "cap", 20.0, reading="dppo-cap", why="verl's default for this loss", original="large, section 5.4", blank="none",
    least=1.0,
)  # fmt: skip
TV = Option("low", 0.15, why="verl's example", original="0.15, verl's examples/dppo_trainer")
ANCHOR = options.of_reading("dppo-anchor", original="sampler, 2602.04879's code and verl's example")
KL = Option("low", 0.05, why="verl's example", original="0.05, verl's examples/dppo_trainer")

METHODS = [
    CatalogEntry(
        key="dppo_tv",
        title="DPPO, total variation",
        source="arXiv 2602.04879",
        differs_from_grpo="Not the ratio but the change of the token's probability decides which tokens are left out; "
        "the ratio, capped, is a constant weight.",
        equation="J = (1/N) sum_i sum_t M_t sg[min(r_t, cap)] A_i log pi(y_t)\n"
        "M_t: pi - pi_old <= high where A_i > 0, pi - pi_old >= -low elsewhere",
        options=(options.ADV_STD, TV, TV.with_(name="high"), CAP, ANCHOR, options.AGG_SCOPE),
        parts=dppo_tv,
    ),
    CatalogEntry(
        key="dppo_kl",
        title="DPPO, KL",
        source="arXiv 2602.04879",
        differs_from_grpo="A KL between the token's old and new probability decides which tokens are left out; the "
        "ratio, capped, is a constant weight.",
        equation="J = (1/N) sum_i sum_t M_t sg[min(r_t, cap)] A_i log pi(y_t)\n"
        "M_t: D_t <= high or pi <= pi_old where A_i > 0, D_t <= low or pi >= pi_old elsewhere\n"
        "D_t = pi_old log(pi_old / pi) + (1 - pi_old) log((1 - pi_old) / (1 - pi))",
        options=(options.ADV_STD, KL, KL.with_(name="high"), CAP, ANCHOR, options.AGG_SCOPE),
        parts=dppo_kl,
    ),
]
