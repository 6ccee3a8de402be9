"""GRPO/DAPO without a ratio clip that removes a token's gradient: weighted A log pi, or a smooth gate."""

from core.errors import ConfigError
from methods import options
from methods.options import Option, Settings, method
from methods.parts import Part, Parts, advantages, masks, objective


@method(
    key="cispo",
    title="CISPO",
    source="arXiv 2506.13585",
    options=(options.ADV_STD, options.LOW.with_(default=None), options.HIGH, options.AGG_SCOPE),
)
def cispo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=objective.token(),  # its gradient does not matter: `weighted` detaches the weight
        surrogate=objective.weighted(low=s["low"], high=s["high"]),
        reduce=objective.token_mean(scope=s["agg-scope"]),
    )


def without_ratio(advantage: Part, s: Settings) -> Parts:
    """Return A log pi for all minibatches of a rollout; later ones are not corrected for being off-policy."""
    return Parts(
        advantage=advantage,
        ratio=objective.none(),
        surrogate=objective.log_likelihood(),
        reduce=objective.token_mean(scope=s["agg-scope"]),
    )


@method(
    key="gpg",
    title="GPG",
    source="arXiv 2504.02546",
    options=(
        options.of_reading("gpg-scale", "one", "std", "informative", "inverse-accuracy"),
        options.of_reading("reward", "binary", "signed"),
        options.AGG_SCOPE,
    ),
)
def gpg(s: Settings) -> Parts:
    return without_ratio(advantages.group_centred(scale=s["gpg-scale"], reward=s["reward"]), s)


@method(
    key="dro",
    title="DRO",
    source="arXiv 2405.19107; verl 0.9.1, policy loss dro",
    options=(options.ADV_STD, Option("beta", 0.05), options.AGG_SCOPE),
)
def dro(s: Settings) -> Parts:
    loss = without_ratio(advantages.group_zscore(std=s["adv-std"]), s)
    return options.with_kl(loss, {**s, "kl-estimator": "k2", "kl-anchor": "old"}, masks.everywhere())


# least=1: a smaller cap would change the weight of an on-policy token, which is 1
CAP = Option("cap", 20.0, blank="none", least=1.0)
ANCHOR = options.of_reading("dppo-anchor", "old", "sampler")
TV = Option("low", 0.15)
KL = Option("low", 0.05)


def near(s: Settings, mask: Part) -> Parts:
    """Return DPPO: A log pi with a constant, capped weight, on tokens whose probability has not moved too far."""
    to_sampler = s["dppo-anchor"] == "sampler"
    if to_sampler and s["correction"] != "none":
        raise ConfigError(f"correction={s['correction']}: dppo-anchor=sampler has the sampler in its ratio already")
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        # its gradient does not matter: `weighted` detaches the weight
        ratio=objective.to_sampler() if to_sampler else objective.token(),
        surrogate=objective.weighted(low=None, high=None if s["cap"] is None else s["cap"] - 1),
        mask=mask,
        reduce=objective.token_mean(scope=s["agg-scope"]),
    )


@method(
    key="dppo_tv",
    title="DPPO, total variation",
    source="arXiv 2602.04879",
    options=(options.ADV_STD, TV, TV.with_(name="high"), CAP, ANCHOR, options.AGG_SCOPE),
)
def dppo_tv(s: Settings) -> Parts:
    return near(s, masks.within_tv(low=s["low"], high=s["high"], anchor=s["dppo-anchor"]))


@method(
    key="dppo_kl",
    title="DPPO, KL",
    source="arXiv 2602.04879",
    options=(options.ADV_STD, KL, KL.with_(name="high"), CAP, ANCHOR, options.AGG_SCOPE),
)
def dppo_kl(s: Settings) -> Parts:
    return near(s, masks.within_kl(low=s["low"], high=s["high"], anchor=s["dppo-anchor"]))


@method(
    key="sapo",
    title="SAPO",
    source="arXiv 2511.20347",
    options=(
        options.ADV_STD,
        # least: the gate is undefined at 0
        Option("tau-pos", 1.0, least=1e-6),
        Option("tau-neg", 1.05, least=1e-6),
    ),
)
def sapo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=objective.token(),
        surrogate=objective.soft_gate(tau_positive=s["tau-pos"], tau_negative=s["tau-neg"]),
        reduce=objective.seq_mean_token_mean(),
    )
