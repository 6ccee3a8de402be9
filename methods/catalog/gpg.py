"""GPG: GRPO/DAPO without importance sampling: A log pi, no clip, and A is not divided by the group's deviation."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.parts import Parts, advantages, ratios, reducers, surrogates


def gpg(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_centred(scale=s["gpg-scale"], reward=s["reward"]),
        ratio=ratios.none(),  # also in later minibatches of a rollout, which GPG does not correct for being off-policy
        surrogate=surrogates.log_likelihood(),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


METHODS = [
    CatalogEntry(
        key="gpg",
        title="GPG",
        source="arXiv 2504.02546",
        paper_rows=("Table 1: w. GPG", "Table 3, Panel C: w. GPG (remove IS)"),
        differs_from_grpo="A log pi instead of a clipped ratio; the advantage is centred but not divided by the "
        "deviation.",
        quote="GPG [...], which removes the reference model and abandons importance sampling",
        quoted_from="section 4.1",
        equation="J = (1/N) sum_i sum_t A_i log pi(y_t),  A = alpha (R - mean R) / F_norm",
        options=(
            options.of_reading(
                "gpg-scale", original="F_norm 1 or std; alpha = B/(B - M) in print, off in code, 2504.02546"
            ),
            options.of_reading("reward"),
            options.AGG_SCOPE,
        ),
        parts=gpg,
    ),
]
