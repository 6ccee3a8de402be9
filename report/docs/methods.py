"""Pages written from the method catalog: docs/methods.md and docs/readings.md.

`python -m report.docs.methods` writes them; a test fails while one is out of date.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path

from core.errors import Parser, run
from core.files import write_text
from core.provenance import ROOT
from methods import catalog
from methods.method import Method
from methods.options import CAP, CORRECTION, FLOOR, REJECTION, CatalogEntry, Option
from methods.parts import Part
from methods.parts.corrections import BOUNDS, WIDEST_MEAN
from methods.readings import NAMED, READINGS, Reading
from report.docs import table

GENERATED = (
    "<!-- written by `python -m report.docs.methods`; edit methods/catalog or methods/readings.yaml instead -->\n"
)
BASELINE = "grpo"
OPTION = ("option", "default", "allowed", "TEPO prints", "original", "why this default")
METHODS_INTRO = """
# Methods

Every method of the catalog: equation, difference from GRPO/DAPO, options. A key may set options, as in
`tepo+beta=1+kl-estimator=k1`. An option that settles an ambiguity of the paper names its [reading](readings.md).
Other frameworks compute different losses under the same names: [names.md](names.md). To add a method:
[add-a-method.md](add-a-method.md).

In the equations i is a response, t a token of it, A_i the advantage, B the number of responses and N the number of
tokens of an update minibatch, sg[x] is x without gradient, H_t the entropy over the whole vocabulary, and dH_t its
change since the policy that sampled. J is maximised.

*Scope* says how a minibatch may be split into micro-batches: `token` and `sequence` losses are the same however the
rows are split, given the minibatch's counts; `sequence` needs whole rows; a `batch` loss takes statistics over all
tokens at hand, so that splitting the minibatch changes the method. *Needs* are the fields of a `Batch` that a loss
reads beyond log-probs, advantage and mask. Entropies of a large vocabulary: `methods.parts.entropy.logp_and_entropy`.

A run *through TRL* has TRL's tokenisation, rewards, reference model, head and training loop; its loss and its sampling
are replaced, and the advantages that TRL computes are thrown away. A run *through verl* has verl's FSDP2, vLLM, weight
sync, queue and optimizer; loss, advantage, replay buffer, order of the rows and agent loop are replaced.
"""
CORRECTION_INTRO = """
## Rollout correction

An option of every method: `grpo+correction=tis+correction-cap=3`. The sampler (an inference engine) computes other
log-probs than the trainer, even with the same weights; the correction weighs each token by what it did otherwise. With
rho = pi_old / pi_sampler, a constant of the loss, the surrogate is multiplied, after its clip, by

"""
CORRECTION_KINDS = {  # kind -> (rho of, weight, TRL's name, verl's name)
    "tis": ("token", "rho held in [floor, cap]", "`token_truncate`", "`rollout_is=token`"),
    "icepop": ("token", "rho, 0 outside [floor, cap]", "`token_mask`", "the same, two thresholds"),
    "seq-tis": ("sequence: product", "rho held in [floor, cap]", "`sequence_truncate`", "`rollout_is=sequence`"),
    "seq-mis": ("sequence: product", "rho, 0 outside [floor, cap]", "`sequence_mask`", "the same, two thresholds"),
    "token-rs": ("token", "1, 0 outside [floor, cap]", "-", "`rollout_rs=token_k1`"),
    "seq-rs": ("sequence: product", "1, 0 outside [floor, cap]", "-", "`rollout_rs=seq_sum_k1`"),
    "geo-rs": ("sequence: geometric mean", "1, 0 outside [floor, cap]", "-", "`rollout_rs=seq_mean_k1`"),
}
CORRECTION_END = f"""
A `rejection` multiplies the weight of a `correction` by that of a second one, `token-rs`, `seq-rs` or `geo-rs`:
`correction=tis+rejection=geo-rs` is verl's preset `decoupled_geo_rs_token_tis`. The bounds above are those that a kind
brings along; a key names them where they are not 2 and none. A bound of `geo-rs` beyond {1 / WIDEST_MEAN:g} or
{WIDEST_MEAN:g} is refused: engine and trainer differ by .01 to .02 nats a token, and it would reject nothing.

A corrected method needs `sampling_logp`. Where the frameworks differ: [names.md](names.md#rollout-correction).
"""
READINGS_INTRO = """
# Readings

Where the paper can be read in more than one way. **Bold** is the default. A method's reading is set in its key
(`tepo+clip-form=eq4`), and a run's `run.json` names every reading of its method. What training settles is in the same
file's specification; what evaluation settles is in `samples.json` and `grades.json`. Behind a value in brackets stands
what sets it, or why nothing does.

The paper names no codebase. *Lineage* means here the code that its baselines come from and whose sizes and settings it
prints: [PRIME-RL/Entropy-Mechanism-of-RL](https://github.com/PRIME-RL/Entropy-Mechanism-of-RL), built on an older verl.
"""


# docs/methods.md


def methods_page() -> str:
    entries = list(catalog.entries().values())
    shared = shared_options(entries)
    return "\n".join(
        [
            f"{GENERATED}{METHODS_INTRO}",
            table(("key", "method", "scope", "needs", "rows of the paper"), map(_summary, entries)),
            *(method_section(entry, shared) for entry in entries),
            "## Options of several methods\n",
            table(OPTION, map(_row, shared)),
            CORRECTION_INTRO
            + table(
                ("`correction`", "rho of", "weight", "floor, cap", "their source", "TRL 1.16.0", "verl 0.9.1"),
                map(_correction, BOUNDS),
            )
            + CORRECTION_END,
            table(OPTION, map(_row, (*CORRECTION, *REJECTION))),
            "## Formulas\n",
            table(("part", "formula"), formulas(entries)),
        ]
    )


def shared_options(entries: Iterable[CatalogEntry]) -> list[Option]:
    """The options that at least two methods have alike, in the order of their first appearance."""
    options = [option for entry in entries for option in entry.options]
    return [option for option in dict.fromkeys(options) if options.count(option) > 1]


def method_section(entry: CatalogEntry, shared: list[Option]) -> str:
    method = entry.method({})
    file = Path(inspect.getfile(entry.parts)).relative_to(ROOT)
    own = [option for option in entry.options if option not in shared]
    others = ", ".join(_at_default(option) for option in entry.options if option in shared)
    aliases = [f"`{name}` is `{entry.method(settings).key}`" for name, settings in entry.aliases.items()]
    lines = [
        f"## {entry.key}\n",
        f"**{entry.title}** ({entry.source}, [{file.name}](../{file.as_posix()})). {entry.differs_from_grpo}\n",
        *([f"> {entry.quote} (TEPO paper, {entry.quoted_from})\n"] if entry.quote else []),
        f"```text\n{entry.equation}\n```\n",
    ]
    lines.append(differences(method, catalog.parse(BASELINE)))
    if own:
        lines.append(table(OPTION, map(_row, own)))
    lines.append(f"Shared options: {others}.\n")
    if aliases:
        lines.append(f"Other names: {', '.join(aliases)}.\n")
    return "\n".join(lines)


def differences(method: Method, baseline: Method) -> str:
    """A line with the parts of a method that the baseline does not have; of the baseline itself, all parts."""
    here, there = method.parts.filled(), baseline.parts.filled()
    if method.key == baseline.key:
        return f"Parts: {'; '.join(f'{slot} {_code(part)}' for slot, part in here.items())}.\n"
    slots = sorted(here.keys() | there.keys(), key=[*here, *there].index)
    changed = [slot for slot in slots if str(here.get(slot)) != str(there.get(slot))]
    parts = "; ".join(f"{slot} {_code(here.get(slot))}" for slot in changed)
    return f"Parts that differ from [{baseline.title}'s](#{baseline.key}): {parts}.\n"


def formulas(entries: Iterable[CatalogEntry]) -> list[tuple[str, str]]:
    """Name and first docstring line of each part that some method has at its defaults."""
    methods = [*(entry.method({}) for entry in entries), catalog.parse(f"{BASELINE}+correction=tis")]
    todo = [part for method in methods for part in method.parts.filled().values()]
    found: dict[str, str] = {}
    for part in todo:
        todo += part.inner
        found[f"`{part.name}`"] = (inspect.getdoc(part.function) or "").split("\n")[0]
    return sorted(found.items())


def _summary(entry: CatalogEntry) -> list[str]:
    method = entry.method({})
    needs = ", ".join(sorted(method.needs)) or "-"
    return [f"[`{entry.key}`](#{entry.key})", entry.title, method.scope, needs, "; ".join(entry.paper_rows) or "-"]


def _row(option: Option) -> list[str]:
    allowed = ", ".join(f"`{choice}`" for choice in option.choices)
    if not allowed:
        allowed = f"number or `{option.blank}`" if option.blank else "number"
    reading, why = "", option.why or "the reading's"
    if option.reading:
        named = NAMED[option.reading]
        reading = f" ([{named.id}](readings.md#{named.id.lower()}-{named.name}))"
    default = option.spell(option.default)
    return [f"`{option.name}`{reading}", f"`{default}`", allowed, option.printed, option.original, why]


def _correction(kind: str) -> tuple[str, ...]:
    cap, floor, source = BOUNDS[kind]
    rho, weight, trl, verl = CORRECTION_KINDS[kind]
    return f"`{kind}`", rho, weight, f"{FLOOR.spell(floor)}, {CAP.spell(cap)}", source, trl, verl


def _at_default(option: Option) -> str:
    """`low=0.2` (R9): the reading tells options of the same name apart."""
    text = f"`{option.name}={option.spell(option.default)}`"
    return f"{text} ({NAMED[option.reading].id})" if option.reading else text


def _code(part: Part | None) -> str:
    return f"`{part}`" if part else "none"


# docs/readings.md


def readings_page() -> str:
    sections = [reading_section(reading) for reading in READINGS if reading.room == "methods"]
    return "\n".join(
        [
            f"{GENERATED}{READINGS_INTRO}",
            "## Settled by a method\n",
            *sections,
            "## Settled by training\n",
            settled_elsewhere("training"),
            "## Settled by evaluation\n",
            settled_elsewhere("evals"),
        ]
    )


def reading_section(reading: Reading) -> str:
    values = "".join(
        f"- {_value(reading, label)}: {meaning}{_sets(reading, label)}\n" for label, meaning in reading.values.items()
    )
    keys = [key for key, entry in catalog.entries().items() if reading.name in [r.name for r in entry.readings()]]
    of = ", ".join(f"`{key}`" for key in keys)
    return f"### {reading.id} {reading.name}\n\n{reading.why}\n\n{values}\nMethods: {of}.\n"


def settled_elsewhere(room: str) -> str:
    """The table of the readings that training or evaluation settles."""
    rows = []
    for reading in READINGS:
        if reading.room == room:
            values = "; ".join(
                f"{_value(reading, label)}: {meaning}" + (f" ({reading.how[label]})" if label in reading.how else "")
                for label, meaning in reading.values.items()
            )
            rows.append((reading.id, reading.name, values, reading.why))
    return table(("id", "reading", "values", "why"), rows)


def _value(reading: Reading, label: str) -> str:
    return f"**`{label}`**" if label == reading.default else f"`{label}`"


def _sets(reading: Reading, label: str) -> str:
    """The options that a label stands for; nothing where it is the value of an option of the reading's own name."""
    settings = reading.settings.get(label, {})
    options = ", ".join(f"`{name}={value}`" for name, value in settings.items())
    return f" ({options})" if options else ""


def pages() -> dict[str, str]:
    """Path below docs/ -> text, for both pages."""
    return {"methods.md": methods_page(), "readings.md": readings_page()}


def main() -> None:
    parser = Parser(description="Write the pages that are generated from the method catalog.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the pages")
    args = parser.parse_args()
    for name, text in pages().items():
        write_text(args.out / name, text)
    print(f"{len(pages())} pages in {args.out}")


if __name__ == "__main__":
    run(main)
