"""Options that several methods share, each default with its source, and the parts they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from methods import advantages, penalties, ratios, reducers, selections, surrogates
from methods.options import Option
from methods.parts import Part
from methods.readings import option
from records.errors import ConfigError

Settings = Mapping[str, Any]

LOW = Option("low", 0.2, "printed", printed="0.2, section 4.1", original="0.2, DAPO", blank="none")
HIGH = Option("high", 0.28, "printed", printed="0.28, section 4.1", original="0.28, DAPO", blank="none")
SEQ_LOW = LOW.but(
    printed="epsilon, eq. 4", original="3e-4, GSPO", why="Clip-Higher for all, section 4.1", reading="seq-eps"
)
SEQ_HIGH = HIGH.but(
    printed="epsilon, eq. 4", original="4e-4, GSPO", why="Clip-Higher for all, section 4.1", reading="seq-eps"
)
COV_LOW = LOW.but(printed="-", original="1 Clip-Cov, none KL-Cov", why="the official scripts", reading="cov-clip")
COV_HIGH = COV_LOW.but(name="high")
DUAL_CLIP = option("dual-clip", default=None, choices=(), blank="off", least=1.0, original="3, verl; 10, DAPO's script")
ADV_STD = option("adv-std", printed="std, eq. 9, no eps")
AGG_SCOPE = option("agg-scope", printed="group, eq. 4", original="minibatch, verl and TRL; micro-batch, lineage")
CLIP_FORM = option("clip-form", printed="eq4, eq. 4; none, Algorithm 1", original="ppo, GSPO")
GRADIENT = option("gradient", printed="alg1_line21, Algorithm 1; autograd, eq. 4", original="autograd, GSPO")
KL_ANCHOR = option("kl-anchor", printed="old, eq. 4", original="ref, GRPO")
KL_ESTIMATOR = option("kl-estimator", original="k3, GRPO")
DH_DEF = option("dh-def")
DH_TOL = option("dh-tol", default=None, choices=(), blank="auto")
MASK_NORM = option("mask-norm", printed="tokens, eq. 4")
TOKEN_RATIO = Option(
    "ratio", "token", "the row is Table 1's, digit for digit", choices=("token", "sequence"), reading="panel-b-base"
)
SEQUENCE_RATIO = TOKEN_RATIO.but(default="sequence", why="Panel B is said to be on TEPO without KL")

TOKEN_CLIP = (LOW, HIGH, DUAL_CLIP)
SEQUENCE_CLIP = (SEQ_LOW, SEQ_HIGH, DUAL_CLIP, CLIP_FORM)
KL = (KL_ANCHOR, KL_ESTIMATOR)
ENTROPY_CHANGE = (DH_DEF, DH_TOL)


def z_score(s: Settings) -> Part:
    """The group-normalised advantage by `adv-std`."""
    return advantages.group_zscore(std=s["adv-std"])


def clip(s: Settings) -> Part:
    """The clipped objective by the options `low`, `high`, `dual-clip` and, where there is one, `clip-form`."""
    form = s.get("clip-form", "ppo")
    if form != "ppo" and s["dual-clip"] is not None:
        raise ConfigError(f"dual-clip: has no meaning with clip-form={form}")
    if form == "none" and (s["low"], s["high"]) != (LOW.default, HIGH.default):
        raise ConfigError("low, high: have no meaning with clip-form=none")
    if form == "none" or s["low"] is s["high"] is s["dual-clip"] is None:
        return surrogates.plain()
    return surrogates.clipped(low=s["low"], high=s["high"], form=form, dual=s["dual-clip"])


def token_mean(s: Settings) -> Part:
    """The token mean by `agg-scope`."""
    return reducers.token_mean(scope=s["agg-scope"])


def ratio(s: Settings) -> Part:
    """The level named by the option `ratio`."""
    return {"token": ratios.token, "sequence": ratios.sequence}[s["ratio"]]()


def kl(s: Settings, *, where: Part) -> Part:
    """beta KL on the tokens of `where` by `beta`, `kl-estimator`, `kl-anchor` and, where there is one, `mask-norm`."""
    norm = s.get("mask-norm", "tokens")
    return penalties.kl(beta=s["beta"], estimator=s["kl-estimator"], anchor=s["kl-anchor"], where=where, norm=norm)


def delta_entropy(s: Settings) -> Part:
    """Delta H by the options `dh-def` and `dh-tol`."""
    if s["dh-def"] != "entropy_diff" and s["dh-tol"] is not None:
        raise ConfigError(f"dh-tol: has no meaning with dh-def={s['dh-def']}, which measures no entropy difference")
    return selections.delta_entropy(s["dh-def"], s["dh-tol"])
