"""GRPO/DAPO without a ratio clip that removes a token's gradient: weighted A log pi, or a smooth gate."""

from core.errors import ConfigError
from methods import options
from methods.options import Option, Settings, method
from methods.parts import Part, Parts, advantages, masks, objective

CISPO_LOW = options.LOW.with_(
    default=None, reading="cispo", why="the original's", printed="-", original="none: set to a large value, 2506.13585"
)


@method(
    key="cispo",
    title="CISPO",
    source="arXiv 2506.13585",
    paper_rows=("Table 3, Panel C: w. CISPO/Reinforce (token-level)",),
    differs_from_grpo="The clipped ratio carries no gradient; it weights A log pi.",
    equation="J = (1/N) sum_i sum_t sg[clip(r_t, 1 - low, 1 + high)] A_i log pi(y_t)",
    options=(
        options.ADV_STD,
        CISPO_LOW,
        CISPO_LOW.with_(
            name="high",
            default=options.HIGH.default,
            why="Clip-Higher, as in the other rows",
            original="tuned, not disclosed, 2506.13585",
        ),
        options.AGG_SCOPE,
    ),
)
def cispo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=objective.token(),  # its gradient does not matter: `weighted` detaches the weight
        surrogate=objective.weighted(low=s["low"], high=s["high"]),
        reduce=objective.token_mean(scope=s["agg-scope"]),
    )


GPG_SCALE = options.of_reading(
    "gpg-scale", "one", "std", "informative", "inverse-accuracy",
    original="F_norm 1 or std; alpha = B/(B - M) in print, off in code, 2504.02546",
)  # fmt: skip


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
    paper_rows=("Table 1: w. GPG", "Table 3, Panel C: w. GPG (remove IS)"),
    differs_from_grpo="A log pi instead of a clipped ratio; the advantage is centred but not divided by the deviation.",
    equation="J = (1/N) sum_i sum_t A_i log pi(y_t),  A = alpha (R - mean R) / F_norm",
    options=(
        GPG_SCALE,
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
    differs_from_grpo="No ratio and no clip: A log pi, and a quadratic penalty on the log ratio of each token, as in "
    "verl and Tinker. In the paper the square is that of the whole response's log ratio, which is another gradient "
    "([names](names.md#dro)).",
    equation="J = (1/N) sum_i sum_t { A_i log pi(y_t) - (beta/2) (log r_t)^2 }",
    options=(
        options.ADV_STD,
        Option("beta", 0.05, why="Tinker's; verl demands a number", original="0.05, Tinker's documentation"),
        options.AGG_SCOPE,
    ),
)
def dro(s: Settings) -> Parts:
    loss = without_ratio(advantages.group_zscore(std=s["adv-std"]), s)
    return options.with_kl(loss, {**s, "kl-estimator": "k2", "kl-anchor": "old"}, masks.everywhere())


# least=1: a smaller cap would change the weight of an on-policy token, which is 1
CAP = Option(
    "cap", 20.0, reading="dppo-cap", why="verl's default for this loss", original="large, section 5.4", blank="none",
    least=1.0,
)  # fmt: skip
ANCHOR = options.of_reading("dppo-anchor", "old", "sampler", original="sampler, 2602.04879's code and verl's example")
TV = Option("low", 0.15, why="verl's example", original="0.15, verl's examples/dppo_trainer")
KL = Option("low", 0.05, why="verl's example", original="0.05, verl's examples/dppo_trainer")


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
    differs_from_grpo="Not the ratio but the change of the token's probability decides which tokens are left out; the "
    "ratio, capped, is a constant weight.",
    equation="J = (1/N) sum_i sum_t M_t sg[min(r_t, cap)] A_i log pi(y_t)\n"
    "M_t: pi - pi_old <= high where A_i > 0, pi - pi_old >= -low elsewhere",
    options=(options.ADV_STD, TV, TV.with_(name="high"), CAP, ANCHOR, options.AGG_SCOPE),
)
def dppo_tv(s: Settings) -> Parts:
    return near(s, masks.within_tv(low=s["low"], high=s["high"], anchor=s["dppo-anchor"]))


@method(
    key="dppo_kl",
    title="DPPO, KL",
    source="arXiv 2602.04879",
    differs_from_grpo="A KL between the token's old and new probability decides which tokens are left out; the ratio, "
    "capped, is a constant weight.",
    equation="J = (1/N) sum_i sum_t M_t sg[min(r_t, cap)] A_i log pi(y_t)\n"
    "M_t: D_t <= high or pi <= pi_old where A_i > 0, D_t <= low or pi >= pi_old elsewhere\n"
    "D_t = pi_old log(pi_old / pi) + (1 - pi_old) log((1 - pi_old) / (1 - pi))",
    options=(options.ADV_STD, KL, KL.with_(name="high"), CAP, ANCHOR, options.AGG_SCOPE),
)
def dppo_kl(s: Settings) -> Parts:
    return near(s, masks.within_kl(low=s["low"], high=s["high"], anchor=s["dppo-anchor"]))


@method(
    key="sapo",
    title="SAPO",
    source="arXiv 2511.20347",
    differs_from_grpo="No clip: the gradient fades with the ratio's distance from 1, faster where A < 0; every "
    "sequence counts the same.",
    equation="J = (1/B) sum_i (1/|y_i|) sum_t (4/tau) sigmoid(tau (r_t - 1)) A_i\n"
    "tau = tau-pos where A_i > 0, else tau-neg",
    options=(
        options.ADV_STD,
        # least: the gate is undefined at 0
        Option("tau-pos", 1.0, why="the original's", original="1.0; TRL and verl too", least=1e-6),
        Option("tau-neg", 1.05, why="the original's", original="1.05; TRL and verl too", least=1e-6),
    ),
)
def sapo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=objective.token(),
        surrogate=objective.soft_gate(tau_positive=s["tau-pos"], tau_negative=s["tau-neg"]),
        reduce=objective.seq_mean_token_mean(),
    )
