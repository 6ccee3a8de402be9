"""TEPO's KL on other tokens: everywhere (Panel A); where A < 0 and the entropy rises, or there too (Panel E)."""

from dataclasses import replace

from methods import recipe
from methods.catalog.tepo import BETA, MASKED_KL, NO_KL, tepo_nokl
from methods.parts import Parts, masks
from methods.recipe import Recipe, Settings

OBJECTIVE = "J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - beta KL_t(pi || pi_old) M_t }\n"


def tepo_kl_all(s: Settings) -> Parts:
    return replace(tepo_nokl(s), penalties=(recipe.kl(s, where=masks.everywhere()),))


def tepo_kl_neg(s: Settings) -> Parts:
    return replace(
        tepo_nokl(s), penalties=(recipe.kl(s, where=masks.unsure_and_spreading(dh=recipe.delta_entropy(s))),)
    )


def tepo_kl_both(s: Settings) -> Parts:
    return replace(tepo_nokl(s), penalties=(recipe.kl(s, where=masks.either(dh=recipe.delta_entropy(s))),))


METHODS = [
    Recipe(
        key="tepo_kl_all",
        title="TEPO with undifferentiated KL",
        source="arXiv 2604.12736v1",
        rows=tuple(f"Table 3, Panel A: w. beta = {beta}" for beta in ("1", "0.1", "0.01", "0.001", "0.0001")),
        differs="TEPO's sequence weight, and a KL to the old policy on every token.",
        quote="Panel A demonstrates the fragility of undifferentiated KL-Divergence",
        where="Table 3",
        equation=OBJECTIVE + "M_t = 1",
        options=(*NO_KL, BETA.but(printed="1, 0.1, 0.01, 0.001, 0.0001, Panel A", why="TEPO's"), *recipe.KL),
        parts=tepo_kl_all,
    ),
    Recipe(
        key="tepo_kl_neg",
        title="TEPO with KL where A < 0 and dH > 0",
        source="arXiv 2604.12736v1",
        rows=("Table 3, Panel E: TEPO-w. KL(A < 0 and dH > 0)",),
        differs="TEPO's sequence weight, and a KL to the old policy on tokens with A < 0 and rising entropy.",
        quote="The performance drop observed under the condition [A < 0 and dH > 0] suggests that misleading responses "
        "in this regime fail to provide reliable gradient directions",
        where="section 3.3.2",
        equation=OBJECTIVE + "M_t = 1[A_i < 0 and dH_t > 0]",
        options=(*NO_KL, *MASKED_KL),
        parts=tepo_kl_neg,
    ),
    Recipe(
        key="tepo_kl_both",
        title="TEPO with KL on both misaligned sets",
        source="arXiv 2604.12736v1",
        rows=("Table 3, Panel E: TEPO-w. KL((A > 0 and dH < 0) or (A < 0 and dH > 0))",),
        differs="TEPO's sequence weight, and a KL to the old policy on tokens whose entropy moves against A's sign.",
        quote="the misalignment condition [(A > 0 and dH < 0) or (A < 0 and dH > 0)] holds",
        where="section 3.3.2",
        equation=OBJECTIVE + "M_t = 1[A_i > 0 and dH_t < 0, or A_i < 0 and dH_t > 0]",
        options=(*NO_KL, *MASKED_KL),
        parts=tepo_kl_both,
    ),
]
