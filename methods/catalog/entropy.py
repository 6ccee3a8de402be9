"""GRPO/DAPO with tokens selected or weighted by entropy, or by the covariance of A and log pi that drives it."""

from dataclasses import replace

from methods import options
from methods.options import Option, Settings, method
from methods.parts import Parts, advantages, masks


@method(
    key="clip_cov",
    title="Clip-Cov",
    source="arXiv 2505.22617",
    options=(
        options.ADV_STD,
        options.TOKEN_RATIO,
        # 1 and 1 keep the ratio in [0, 2], which is almost no clip: the covariance decides
        options.LOW.with_(default=1.0),
        options.HIGH.with_(default=1.0),
        options.DUAL_CLIP,
        Option("fraction", 2e-4),
        Option("lower", 1.0),
        Option("upper", 5.0),
        options.AGG_SCOPE,
    ),
)
def clip_cov(s: Settings) -> Parts:
    band = masks.random_in_band(fraction=s["fraction"], lower=s["lower"], upper=s["upper"])
    return replace(options.clipped_loss(s), mask=masks.all_but(of=band))


@method(
    key="kl_cov",
    title="KL-Cov",
    source="arXiv 2505.22617",
    options=(
        options.ADV_STD,
        options.TOKEN_RATIO,
        options.LOW.with_(default=None),
        options.HIGH.with_(default=None),
        options.DUAL_CLIP,
        Option("fraction", 2e-3),
        Option("beta", 1.0),
        options.KL_ANCHOR,
        options.KL_ESTIMATOR.with_(default="abs"),
        options.AGG_SCOPE,
    ),
)
def kl_cov(s: Settings) -> Parts:
    """Return KL-Cov, whose surrogate is not clipped by default."""
    top = masks.top_covariance(fraction=s["fraction"])
    return options.with_kl(options.clipped_loss(s), s, top)


@method(
    key="entropy_adv",
    title="Entropy-based advantage",
    source="arXiv 2506.14758",
    options=(
        options.ADV_STD,
        Option("alpha", 0.4),
        # least=1: with a smaller kappa the bonus could exceed |A| and flip its sign
        Option("kappa", 2.0, least=1.0),
        options.of_reading("entropy-of", "current", "old"),
        *options.TOKEN_CLIP,
        options.AGG_SCOPE,
    ),
    aliases={"entropy_adv_printed": {"alpha": 4e-4}, "entropy_adv_original": {"alpha": 0.4}},
)
def entropy_adv(s: Settings) -> Parts:
    bonus = advantages.entropy_bonus(alpha=s["alpha"], kappa=s["kappa"], of=s["entropy-of"])
    return replace(options.clipped_loss(s), shape=bonus)


@method(
    key="top_entropy",
    title="Top-entropy tokens (80/20)",
    source="arXiv 2506.01939",
    options=(options.ADV_STD, *options.TOKEN_CLIP, Option("share", 0.2, least=1e-6, most=1.0), options.AGG_SCOPE),
)
def top_entropy(s: Settings) -> Parts:
    """Mask the surrogate; the divisor still counts all tokens."""
    return replace(options.clipped_loss(s), mask=masks.top_entropy(share=s["share"]))
