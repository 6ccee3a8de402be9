"""GRPO/DAPO with tokens selected or weighted by entropy, or by the covariance of A and log pi that drives it."""

from dataclasses import replace

from methods import options
from methods.options import Option, Settings, method
from methods.parts import Parts, advantages, masks

ALPHA = Option(
    "alpha", 0.4, reading="entropy-alpha", why="the paper says its baselines' values are the original papers'",
    printed="4e-4, section 4.1", original=".4 for GRPO, .1 for PPO, 2506.14758",
)  # fmt: skip
ABS = options.KL_ESTIMATOR.with_(
    default="abs", original="KL(old || new) in print, abs in code", why="the original's code"
)
SHARE = Option(
    "share", 0.2, least=1e-6, most=1.0, why="the original's",
    original="0.2, 2506.01939; TRL's top_entropy_quantile is 1, all tokens, until it is set",
)  # fmt: skip


@method(
    key="clip_cov",
    title="Clip-Cov",
    source="arXiv 2505.22617",
    paper_rows=("Table 1: w. CLIP-Cov", "Table 3, Panel B: w. CLIP-Cov"),
    differs_from_grpo="A random share of the tokens with 1 < cov < 5 loses its term; the ratio is clipped to [0, 2] "
    "only.",
    equation="J = (1/N) sum_i sum_t (1 - I_t) min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
    "cov_t = (A_i - mean A)(log pi_t - mean log pi)\n"
    "I: max(1, int(fraction N)) unclipped tokens with lower < cov_t < upper, drawn uniformly",
    options=(
        options.ADV_STD,
        options.TOKEN_RATIO,
        # 1 and 1 keep the ratio in [0, 2], which is almost no clip: the covariance decides
        options.COV_LOW.with_(default=1.0),
        options.COV_HIGH.with_(default=1.0),
        options.DUAL_CLIP,
        Option("fraction", 2e-4, why="printed", printed="r = 2e-4, section 4.1", original="2e-4, 2505.22617"),
        Option("lower", 1.0, why="the original's", original="1, 2505.22617's script"),
        Option("upper", 5.0, why="the original's", original="5, 2505.22617's script"),
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
    paper_rows=("Table 1: w. KL-Cov", "Table 3, Panel B: w. KL-Cov"),
    differs_from_grpo="No ratio clip; the tokens of highest covariance pay |log ratio|.",
    equation="J = (1/N) sum_i sum_t { r_t A_i - beta |log r_t| I_t }\n"
    "cov_t = (A_i - mean A)(log pi_t - mean log pi)\n"
    "I: the max(1, int(fraction N)) tokens of largest cov_t",
    options=(
        options.ADV_STD,
        options.TOKEN_RATIO,
        options.COV_LOW.with_(default=None),
        options.COV_HIGH.with_(default=None),
        options.DUAL_CLIP,
        Option("fraction", 2e-3, why="printed", printed="k = 2e-3, section 4.1", original="2e-3 for 7B, 2e-4 for 32B"),
        Option("beta", 1.0, why="printed", printed="1, section 4.1", original="1, 2505.22617's script"),
        options.KL_ANCHOR.with_(printed="-", original="old, 2505.22617", why="the original's"),
        ABS,
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
    paper_rows=("Table 1: w. Entropy-based Term", "Table 3, Panel B: w. Entropy-based Term"),
    differs_from_grpo="Tokens of high entropy gain advantage, at most |A|/kappa, so that no sign flips.",
    equation="J = (1/N) sum_i sum_t min(r_t A'_t, clip(r_t, 1 - low, 1 + high) A'_t)\n"
    "A'_t = A_i + min(alpha sg[H_t], |A_i| / kappa)",
    options=(
        options.ADV_STD,
        ALPHA,
        # least=1: with a smaller kappa the bonus could exceed |A| and flip its sign
        Option("kappa", 2.0, why="printed", printed="2, section 4.1", original="2, 2506.14758", least=1.0),
        options.of_reading("entropy-of", "current", "old", original="current, 2506.14758's code"),
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
    differs_from_grpo="Only the 20 % of the minibatch's tokens with the highest entropy keep their term. A group of "
    "equal rewards has advantage 0, but its tokens are ranked with the others.",
    equation="J = (1/N) sum_i sum_t 1[H_t >= tau] min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
    "tau: the (1 - share) quantile of the entropies of the minibatch's tokens",
    options=(
        options.ADV_STD,
        *options.TOKEN_CLIP,
        SHARE,
        options.AGG_SCOPE,
    ),
)
def top_entropy(s: Settings) -> Parts:
    """Mask the surrogate; the divisor still counts all tokens."""
    return replace(options.clipped_loss(s), mask=masks.top_entropy(share=s["share"]))
