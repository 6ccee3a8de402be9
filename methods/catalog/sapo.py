"""SAPO: GRPO/DAPO, except that a sigmoid of the ratio stands where the clip is, and every sequence counts the same."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.options import Option
from methods.parts import Parts, advantages, ratios, reducers, surrogates


def sapo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.token(),
        surrogate=surrogates.soft_gate(tau_positive=s["tau-pos"], tau_negative=s["tau-neg"]),
        reduce=reducers.seq_mean_token_mean(),
    )


METHODS = [
    CatalogEntry(
        key="sapo",
        title="SAPO",
        source="arXiv 2511.20347",
        differs_from_grpo="No clip: the gradient fades with the ratio's distance from 1, faster where A < 0; every "
        "sequence counts the same.",
        equation="J = (1/B) sum_i (1/|y_i|) sum_t (4/tau) sigmoid(tau (r_t - 1)) A_i\n"
        "tau = tau-pos where A_i > 0, else tau-neg",
        options=(
            options.ADV_STD,
            # least: at 0 the gate is not defined
            Option("tau-pos", 1.0, why="the original's", original="1.0; TRL and verl too", least=1e-6),
            Option("tau-neg", 1.05, why="the original's", original="1.05; TRL and verl too", least=1e-6),
        ),
        parts=sapo,
    ),
]
