"""TEPO's KL on other tokens: everywhere (Panel A); where A < 0 and the entropy rises, or there too (Panel E)."""

from methods import options
from methods.options import Settings, method
from methods.parts import Part, Parts, advantages, masks, penalties, ratios, reducers, surrogates

NO_KL = (options.ADV_STD, *options.SEQUENCE_CLIP, options.GRADIENT, options.AGG_SCOPE)


def with_kl(s: Settings, mask: Part, norm: str) -> Parts:
    """TEPO's loss with its KL on the tokens of `mask`."""
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.sequence(gradient=s["gradient"]),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], form=s["clip-form"], dual=s["dual-clip"]),
        penalties=(
            penalties.kl(
                beta=s["beta"],
                estimator=s["kl-estimator"],
                anchor=s["kl-anchor"],
                mask=mask,
                norm=norm,
                clamp=s["kl-clamp"],
            ),
        ),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


@method(
    key="tepo_kl_all",
    title="TEPO with undifferentiated KL",
    source="arXiv 2604.12736v1",
    paper_rows=tuple(f"Table 3, Panel A: w. beta = {beta}" for beta in ("1", "0.1", "0.01", "0.001", "0.0001")),
    differs_from_grpo="TEPO's sequence weight, and a KL to the old policy on every token.",
    quote="Panel A demonstrates the fragility of undifferentiated KL-Divergence",
    quoted_from="Table 3",
    equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - beta KL_t(pi || pi_old) M_t }\nM_t = 1",
    options=(
        *NO_KL,
        options.BETA.with_(printed="1, 0.1, 0.01, 0.001, 0.0001, Panel A", why="TEPO's"),
        options.KL_ANCHOR,
        options.KL_ESTIMATOR,
        options.KL_CLAMP,
    ),
)
def tepo_kl_all(s: Settings) -> Parts:
    return with_kl(s, masks.everywhere(), norm="tokens")  # all tokens are masked tokens: the norms are the same


@method(
    key="tepo_kl_neg",
    title="TEPO with KL where A < 0 and dH > 0",
    source="arXiv 2604.12736v1",
    paper_rows=("Table 3, Panel E: TEPO-w. KL(A < 0 and dH > 0)",),
    differs_from_grpo="TEPO's sequence weight, and a KL to the old policy on tokens with A < 0 and rising entropy.",
    quote="The performance drop observed under the condition [A < 0 and dH > 0] suggests that misleading responses "
    "in this regime fail to provide reliable gradient directions",
    quoted_from="section 3.3.2",
    equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - beta KL_t(pi || pi_old) M_t }\n"
    "M_t = 1[A_i < 0 and dH_t > 0]",
    options=(*NO_KL, *options.MASKED_KL),
)
def tepo_kl_neg(s: Settings) -> Parts:
    entropy_change = masks.entropy_change(s["dh-def"], tolerance=s["dh-tol"])
    return with_kl(s, masks.rising_entropy_on_negative(dh=entropy_change), norm=s["mask-norm"])


@method(
    key="tepo_kl_both",
    title="TEPO with KL on both misaligned sets",
    source="arXiv 2604.12736v1",
    paper_rows=("Table 3, Panel E: TEPO-w. KL((A > 0 and dH < 0) or (A < 0 and dH > 0))",),
    differs_from_grpo="TEPO's sequence weight, and a KL to the old policy on tokens whose entropy moves against "
    "A's sign.",
    quote="the misalignment condition [(A > 0 and dH < 0) or (A < 0 and dH > 0)] holds",
    quoted_from="section 3.3.2",
    equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - beta KL_t(pi || pi_old) M_t }\n"
    "M_t = 1[A_i > 0 and dH_t < 0, or A_i < 0 and dH_t > 0]",
    options=(*NO_KL, *options.MASKED_KL),
)
def tepo_kl_both(s: Settings) -> Parts:
    entropy_change = masks.entropy_change(s["dh-def"], tolerance=s["dh-tol"])
    return with_kl(s, masks.misaligned(dh=entropy_change), norm=s["mask-norm"])
