"""GPG: GRPO/DAPO without importance sampling: A log pi, no clip, and A is not divided by the group's deviation."""

from methods import recipe
from methods.parts import Parts, advantages, ratios, surrogates
from methods.readings import option
from methods.recipe import Recipe, Settings

SCALE = option("gpg-scale", original="F_norm 1 or std; alpha = B/(B - M) in print, off in code, 2504.02546")


def gpg(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_centred(scale=s["gpg-scale"]),
        ratio=ratios.none(),
        surrogate=surrogates.log_likelihood(),
        reduce=recipe.token_mean(s),
    )


METHODS = [
    Recipe(
        key="gpg",
        title="GPG",
        source="arXiv 2504.02546",
        rows=("Table 1: w. GPG", "Table 3, Panel C: w. GPG (remove IS)"),
        differs="A log pi instead of a clipped ratio; the advantage is centred but not divided by the deviation.",
        quote="GPG [...], which removes the reference model and abandons importance sampling",
        where="section 4.1",
        equation="J = (1/N) sum_i sum_t A_i log pi(y_t),  A = alpha (R - mean R) / F_norm",
        options=(SCALE, recipe.AGG_SCOPE),
        parts=gpg,
    ),
]
