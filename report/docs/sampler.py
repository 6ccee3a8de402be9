"""`docs/sampler.md` and its picture, made from `paper/sampler.csv`: `python -m report.docs.sampler`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from methods import catalog
from paper import sampler
from paper.sampler import (
    COMMAND,
    EXACT,
    FULL_WEIGHT,
    GROUP,
    LENGTH,
    LENGTHS,
    POLICIES,
    TEMPERATURE,
    TOKEN_WEIGHT,
    TOP_P,
    WORDS,
    Row,
)
from records import errors
from records.errors import Parser
from records.files import atomic, write_text
from report.docs import table
from report.figures.draw import SETTINGS, TEXT, WIDTH
from report.figures.spec import GRID, PAPER, STYLES

OLD = "old, KL 0.01"  # the sampler that the picture shows
_SHOWN = ("grpo", "tepo", "cispo")  # methods that the sentences name
_HEAD = f"""\
# What the sampler changes

The responses that a gradient is made of come from a sampler, and the sampler is not quite the policy that is
trained: an engine computes in fewer bits, cuts the tail of the distribution or divides by a temperature, and within
a rollout its weights are some updates old. Importance weights are to repair this. Here is what they do, exactly: a
random policy over {WORDS} words and responses of a few tokens is small enough to list every response, so that
expectation and variance of the gradient are sums. The losses are the catalog's own. {POLICIES} random policies,
{GROUP} responses to a prompt, reward 0 or 1; medians over the policies, in the weights' table with quartiles. No
trained model is involved, and responses have at most {max(LENGTHS)} tokens: read orders, not sizes.

`bias` is the distance of the expected gradient from the one that the policy's own responses give, and `noise` the
standard deviation of the gradient of one group, both in units of the latter's length. `less` counts the policies on
which a figure is below the reference's.

Made by `{COMMAND}` (minutes) and `python -m report.docs.sampler --out docs/sampler.md`; all figures are in
[paper/sampler.csv](../paper/sampler.csv). The claims about bias and variance ([claims.md](claims.md)) are judged on
it.

| sampler | what it is | KL(sampler, policy) per token |
|---|---|---|
"""
_WHAT = {
    EXACT: "an exact copy",
    "bfloat16": "logits rounded to bfloat16",
    "float8": "logits rounded to 8 bits (e4m3)",
    f"temperature {TEMPERATURE}": f"samples at temperature {TEMPERATURE}, the trainer takes it for 1",
    f"top-p {TOP_P}": f"only the most probable words that reach {TOP_P} together",
}
_SAYS = """
## What it says

- Only the full product leaves no bias, and only where the sampler can draw every response that the policy can (a
  nucleus cannot). Its noise grows fastest: {full_noise} against {token_noise} with token weights at `old, KL 0.1`
  and {longest} tokens.
- The geometric mean of a response's ratios, TEPO's and GSPO's weight, leaves less bias than token ratios on
  {less_bias} of {policies} policies at `{old}` and {longest} tokens, and less noise on {less_noise}; the medians of
  the bias are {sequence_bias} and {token_bias}, so that most of it stays. With two tokens the order is the other
  way round ({short_sequence} and {short_token}).
- What decides between the methods as they are run is the clip: at the same bounds it takes most of the gradient of
  token ratios, and almost none of their mean's. At `{old}` the expected gradient of GRPO/DAPO is {grpo_bias} away
  from the exact one (cosine with the gradient of the reward {grpo_cosine}), TEPO's {tepo_bias} ({tepo_cosine});
  CISPO, which clips weights and removes no gradient, {cispo_bias}.
- For a sampler that differs in bits or temperature, a weight for the whole sequence (`seq-tis`) removes nearly all
  bias on responses this short; token weights (`tis`, `icepop`) take away at most a quarter of it, and where the
  temperature differs they can add to it.
"""
_WEIGHTS = f"""
## The weight

No clip and A = R - mean: only the importance weight differs. "none" is REINFORCE; "sequence, full product" is
importance sampling of whole responses; "sequence, geometric mean" is the weight of TEPO and GSPO. Responses of
{max(LENGTHS)} tokens; `less` is against token weights, of {POLICIES}.

![Bias and noise by length of the response](sampler.svg)

"""
_METHODS = f"""
## The methods

Every method at its defaults, clips and penalties included, first update of a rollout except under an old sampler,
whose log-probabilities the trainer holds as the old policy's. Responses of {LENGTH} tokens; bias by sampler, then
noise and the cosine with the gradient of the expected reward, both under `{OLD}`. Left out, because statistics of
the whole minibatch decide about each token: {{left_out}}.

"""
_CORRECTIONS = f"""
## Corrections

The sampler's own log-probabilities are known to the trainer, which weighs or masks tokens or responses with them
([readings.md](readings.md)). `own ratio`: no correction, but the method's old policy is the sampler, so that its
own weight corrects. Responses of {LENGTH} tokens; bias by sampler, and noise under `temperature {TEMPERATURE}`.

Each kind has the bounds of its source ([methods.md](methods.md#rollout-correction)). A bound that is not reached
changes nothing: ratios under these samplers hardly leave [0.5, 2], so that `token-rs` and `seq-rs` equal no correction
and `icepop` equals `tis`. The bounds of `geo-rs` are meant for an engine nearer to the policy: from `float8` on it
rejects most or all responses, and a bias near 1 means that hardly any gradient is left.

"""


def page(rows: Sequence[Row]) -> str:
    """The page as Markdown."""
    weights = [row for row in rows if row.study == "weights" and row.length == max(LENGTHS)]
    methods = [row for row in rows if row.study == "methods"]
    corrections = [row for row in rows if row.study == "corrections"]
    kl = {row.sampler: row.kl for row in weights}
    old = "weights before a step up the gradient of the expected reward"
    lines = [_HEAD + "".join(f"| {name} | {_WHAT.get(name, old)} | {_short(value)} |\n" for name, value in kl.items())]
    lines += [
        _says(rows),
        _WEIGHTS,
        table(["sampler", "weight", "bias", "noise", "less bias", "less noise"], map(_weight, weights)),
    ]
    left_out = [key for key in catalog.entries() if not sampler.separable(catalog.parse(key))]
    lines += [
        _METHODS.format(left_out=", ".join(f"`{key}`" for key in left_out)),
        _by_sampler(methods, OLD, cosine=True),
    ]
    lines += [_CORRECTIONS, _by_sampler(corrections, f"temperature {TEMPERATURE}", cosine=False)]
    return "".join(lines)


def _says(rows: Sequence[Row]) -> str:
    """What a reader should take along, with its figures."""
    at = {(row.study, row.length, row.sampler, row.loss): row for row in rows}
    longest, sequence, far = max(LENGTHS), "sequence, geometric mean", "old, KL 0.1"
    weight, method = at["weights", longest, OLD, sequence], {key: at["methods", LENGTH, OLD, key] for key in _SHOWN}
    return _SAYS.format(
        full_noise=_short(at["weights", longest, far, FULL_WEIGHT].noise),
        token_noise=_short(at["weights", longest, far, TOKEN_WEIGHT].noise),
        longest=longest,
        less_bias=weight.less_bias,
        less_noise=weight.less_noise,
        policies=weight.policies,
        old=OLD,
        sequence_bias=_short(weight.bias),
        token_bias=_short(at["weights", longest, OLD, TOKEN_WEIGHT].bias),
        short_sequence=_short(at["weights", min(LENGTHS), OLD, sequence].bias),
        short_token=_short(at["weights", min(LENGTHS), OLD, TOKEN_WEIGHT].bias),
        **{f"{key}_bias": _short(row.bias) for key, row in method.items()},
        **{f"{key}_cosine": _cosine(row) for key, row in method.items()},
    )


def _weight(row: Row) -> tuple[str, ...]:
    bias = f"{_short(row.bias)} [{_short(row.bias_q1)}, {_short(row.bias_q3)}]"
    noise = f"{_short(row.noise)} [{_short(row.noise_q1)}, {_short(row.noise_q3)}]"
    same = row.loss == row.reference
    return row.sampler, row.loss, bias, noise, "" if same else str(row.less_bias), "" if same else str(row.less_noise)


def _by_sampler(rows: Sequence[Row], shown: str, *, cosine: bool) -> str:
    """One line a loss: its bias under every sampler, and further figures under the sampler `shown`."""
    names = [name for name in dict.fromkeys(row.sampler for row in rows) if name != EXACT]
    cells = {(row.loss, row.own_ratio and row.study == "corrections", row.sampler): row for row in rows}
    lines = []
    for loss, own in dict.fromkeys((loss, own) for loss, own, _ in cells):
        last = cells[loss, own, shown]
        label = f"`{loss}`" + (", own ratio" if own else "")
        figures = [_short(cells[loss, own, name].bias) for name in names]
        lines.append((label, *figures, _short(last.noise), *([_cosine(last)] if cosine else [])))
    return table(["loss", *names, "noise", *(["cosine"] if cosine else [])], lines)


def _cosine(row: Row) -> str:
    return "-" if row.cosine is None else f"{row.cosine:.2f}"


def _short(x: float) -> str:
    return "0" if abs(x) < 1e-9 else f"{x:.2g}" if abs(x) < 0.1 else f"{x:.2f}"


def picture(rows: Sequence[Row]) -> bytes:
    """SVG: bias and noise of every weight by the length of the response, under the sampler `OLD`."""
    import matplotlib
    from matplotlib.figure import Figure

    shown = [row for row in rows if row.study == "weights" and row.sampler == OLD]
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
        axes = figure.subplots(1, 2)
        for letter, axis, name in zip("ab", axes, ("bias", "noise"), strict=True):
            for (colour, dash, width), loss in zip(STYLES, dict.fromkeys(row.loss for row in shown), strict=False):
                line = [row for row in shown if row.loss == loss]
                x = [row.length for row in line]
                axis.plot(
                    x,
                    [getattr(row, name) for row in line],
                    label=loss,
                    lw=width,
                    color=colour,
                    ls=(0, dash) if dash else "-",
                )
                low, high = ([getattr(row, f"{name}_{end}") for row in line] for end in ("q1", "q3"))
                axis.fill_between(x, low, high, color=colour, alpha=0.12, lw=0)
            axis.set_title(f"({letter}) {name} of the gradient", loc="left")
            axis.set_xlabel("tokens of a response")
            axis.set_xticks(LENGTHS)
            axis.grid(color=GRID, lw=0.5)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel("in lengths of the exact gradient", fontsize=TEXT)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        out = io.BytesIO()
        # no date, no version: equal data gives equal bytes
        figure.savefig(out, format="svg", facecolor=PAPER, metadata={"Date": None, "Creator": None})
    return out.getvalue()


def main() -> None:
    parser = Parser(description="Write the page about samplers, and its picture beside it.")
    parser.add_argument("--out", type=Path, default=Path("docs/sampler.md"))
    args = parser.parse_args()
    rows = sampler.read()
    write_text(args.out, page(rows))
    with atomic(args.out.with_suffix(".svg")) as temporary:
        temporary.write_bytes(picture(rows))
    print(args.out)


if __name__ == "__main__":
    errors.run(main)
