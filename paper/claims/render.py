"""The ledgers as Markdown: claims.md beside a results tree's claims.csv, and docs/claims.md for the printed numbers.

Both pages are rendered from entries alone (`paper.claims.entries`); nothing is computed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from paper.claims.entries import MEANING, Entry, amount, figure, margin, setting, shown_verdict

if TYPE_CHECKING:
    from paper.claims.claims import Margin

COMMAND = "python -m paper.claims --page docs/claims.md"
SHORT = {"not testable at this scale": "not testable here"}  # verdicts as table cells

RESULTS_HEAD = """Each line is one testable sentence of the paper. "Printed" asks whether the paper's own numbers put it
outside chance; "runs" asks the same of the runs of this scale, under each learning rate apart. Where tiny models stand
in for the paper's, the statement that is tested is about the tiny models, and no verdict on it is a verdict on the
paper.

Supported and contradicted need a 95 % interval that excludes the null, after Holm's correction over the claims of a
family. "Equal within the margin" needs a 95 % interval inside the margin that stands beside it. Undecided is no
evidence of equality: beside it stands how far the truth can lie on the claimed side, and the smallest difference that
would have been found. A claim about several models has a verdict over models, and one from the main model alone."""

PAPER_HEAD = """# Claims and verdicts

`paper/claims.yaml` lists the sentences of the paper that an experiment or a computation can test: quote, place,
tested statement, kind of test, and the data that the test needs. Each claim gets verdicts in two separate ledgers:

- **printed**: are the paper's own numbers outside chance? The table below; no run is needed.
- **runs**: what do the runs of a results tree say? `python -m paper.claims --results results/embedded` (or the target
  `claims`) writes `claims.csv` and `claims.md` there: quote, statement and evidence of every claim under each learning
  rate, with links to the runs.

VERDICTS

## How a verdict comes about

A test turns into contrasts. Each has an estimate, a 95 % interval, p, and the smallest distance from its null that it
would have found in 80 % of repetitions. A claim about several contrasts ("highest of all") holds when all of them hold:
the weakest decides, at its own p. It fails when one is on the other side, at that one's p after Holm over all of them.
Holm then corrects over the claims of a family, separately for each learning rate. The kinds of test are in
`paper/claims/tests.py`.

**Runs.** Runs with equal seeds share initial weights and prompts and are paired. A seed of a model made here is a base
of its own, so an interval over seeds speaks of other bases too. A claim about one model is tested by Student's t over
seeds (level "seed"), for itself: a table's cell shares the spread of its rows, and has another interval. A claim about
all models is tested by Student's t over the models' means, so that the interval covers other models too (level "model
and seed"). Five models are few: the same claim is also tested on the model with the most seeds alone, as an entry of
its own in a family of its own. One seed gives no verdict. A missing run gives `undecided`,
and the entry names the run. Where tiny models stand in for the paper's, the claim's `embedded` statement is tested,
which is about the tiny models only. The accuracy of the paper's models on the paper's problems is not testable there;
figures beside that verdict are observations. Rollouts until a reward and gradient norms are compared as ratios. A run
that never reaches the reward counts as one rollout more than it had, so its ratio is a lower bound. Spreads over seeds
are compared by Pitman and Morgan's test of paired variances.

**Margins.** A difference can be outside noise and too small to matter, or noise can be small enough to say that there
is no difference that matters. So each measure of runs has a margin of practical equivalence, stated with its reason
before the runs:

MARGINS

A claim is *equal within the margin* when the 95 % interval of each of its contrasts lies inside it, which is stricter
than two one-sided tests at 5 %: of differences as large as the margin, at most 2.5 % are called equal. That is per
claim; Holm corrects what is called supported or contradicted. The entry says if the interval excludes the null as well.
A claim whose null is not "no difference" (at most 72/132 of the rollouts; half of the gain) has no margin. Printed
numbers have none either: the paper claims differences down to .28 points.

**Mechanisms** are tested by intervention, on runs that no printed row has (`arms` in `paper/claims.yaml`). Entropy is
held where training starts, or brought at once to where it would end ([`tepo_held`](methods.md#tepo_held)): if reward
rises because entropy falls, the first should learn less and the second faster. Where entropy was not held (less than
75 % of the first rollout's is left in the last third), there is no verdict. The KL mask is compared with no KL and with
KL on all tokens at beta .001, .1 and 1. GRPO/DAPO is compared with itself without its clip, and TEPO with that: a gain
that only comes from clipping less is no longer there.

**Placebo rewards.** A supported claim about what is learnt (scores, reward, rollouts until a reward) is held against
every placebo reward under which both sides were trained ([configuration](../config/README.md)): its own test must also
be supported, at 5 %, for the contrast under the true reward minus the same contrast under the placebo, against 0,
paired by seed where both have the same seeds and otherwise as two samples (Welch's t). If one placebo is not exceeded
the claim is `undecided`, and the entry names it. Where none was trained the verdict reads `supported (no placebo run)`.
Claims about a loss itself (clipped tokens, gradient norm, entropy) are not
held against placebos.

**Printed.** There are two estimates of chance, and the wider interval counts. (1) Generation alone, from the counts
that the percentages decode to ([audit.md](audit.md)), with problems of unequal difficulty; normal law. (2) The three
pairs of seeds in Table 4: their mean squared distance, divided by the one that generation alone predicts, is a factor
for the column. It is applied to all rows and models, which have one seed; Student's t with 3 degrees of freedom. This
assumes the decoded counts, that spread of difficulty, and that other rows and models vary between seeds as the two
methods of Table 4 do on Qwen2.5-7B. Where a printed average does not follow from its row's cells, the claim is tested
with both; if the verdicts differ it is undecided, and the entry says so. What is only drawn (Figures 2 and 3) cannot
be tested from print.

**Formulas** (lemmas, equations, Appendix B, Algorithm 1) are evaluated on 2,000 random softmax policies; no run is
involved. A formula that is meant to hold always is tested against 99 %. [formulas.md](formulas.md) has what each leaves
out, and Lemma 3.2 case by case.

## Printed numbers

COUNT. Differences in percentage points with 95 % intervals. Written by `COMMAND`.
"""


def results_page(entries: Sequence[Entry], title: str, note: str) -> str:
    """claims.md of a results tree, with links to the runs beside it.

    title, note: what the results are and what they can show, as the configuration says it.
    """
    printed = [entry for entry in entries if entry.ledger == "paper"]
    ours = [entry for entry in entries if entry.ledger == "ours"]
    sections = ["# Claims", f"{title}. {note}".strip(), RESULTS_HEAD, _summary(printed, ours)]
    for claim in printed:
        quote = " ".join(claim.quote.split())
        sections += [f"### {claim.id}", _answer(claim, "Printed")]
        for entry in ours:
            if entry.id == claim.id:
                sections.append(_answer(entry, _sentence(setting(entry))))
        sections.append(f"> {quote}\n>\n> {claim.where}")
    return "\n\n".join(sections) + "\n"


def _summary(printed: Sequence[Entry], ours: Sequence[Entry]) -> str:
    """One row per claim: its verdict in print, under each training setting, and under other readings."""
    settings = list(dict.fromkeys(setting(entry) for entry in ours if entry.reading is None))
    rows = []
    for claim in printed:
        verdicts = {setting(entry): _short(entry) for entry in ours if entry.id == claim.id}
        readings = [f"{name}: {verdict}" for name, verdict in verdicts.items() if name not in settings]
        link = f"[{claim.id}](#{claim.id.replace('.', '')})"
        rows.append((link, _short(claim), *(verdicts.get(name, "") for name in settings), "; ".join(readings)))
    return _table(("claim", "printed", *(f"runs, {name}" for name in settings), "runs, other readings"), rows)


def _answer(entry: Entry, source: str) -> str:
    """What one source of numbers says about a claim, in a few lines."""
    lines = [f"**{source}: {shown_verdict(entry)}.** {entry.statement}"]
    if entry.estimate is not None:
        corrected = "" if entry.p_holm is None else f", p {entry.p_holm:.2g} after Holm over {entry.tests}"
        null = f"{amount(entry.null, entry.unit)} (claimed {entry.claimed})"
        equal = f", {margin(entry)}" if margin(entry) else ""
        lines.append(f"{entry.tested}: {figure(entry)} against {null}{equal}{corrected}.")
        lines.append(f"Level {entry.level}: {entry.how}.")
    if entry.reason and entry.reason not in entry.how:
        lines.append(f"{_sentence(entry.reason)}.")
    if entry.placebo:
        lines.append(f"Placebo rewards: {entry.placebo}.")
    if any(run.startswith("runs/") for run in entry.runs):
        links = [f"[{run.removeprefix('runs/')}]({run}/run.json)" for run in entry.runs]
        lines.append(f"Runs: {', '.join(links)}.")
    return "  \n".join(lines)


def _short(entry: Entry) -> str:
    return SHORT.get(entry.verdict, shown_verdict(entry))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def paper_page(printed: Sequence[Entry], margins: Mapping[str, Margin]) -> str:
    """docs/claims.md: how verdicts are made, and the ledger of the printed numbers."""
    meanings = "\n".join(f"- *{verdict}*: {meaning}" for verdict, meaning in MEANING.items())
    counts = Counter(entry.verdict for entry in printed)
    count = ", ".join(f"{counts[verdict]} {verdict}" for verdict in MEANING if counts[verdict])
    head = PAPER_HEAD.replace("VERDICTS", meanings).replace("COMMAND", COMMAND)
    head = head.replace("COUNT", f"{len(printed)} claims: {count}").replace("MARGINS", _margins(margins))
    rows = [(entry.id, _short(entry), figure(entry), entry.tested, _why(entry)) for entry in printed]
    return f"{head}\n{_table(('claim', 'verdict', 'estimate', 'of', 'why'), rows)}\n"


def _why(entry: Entry) -> str:
    """What stands beside a verdict; beside a formula's, what it was evaluated on and how large the error is."""
    return entry.reason or (entry.how if entry.level == "policy" else "")


def _margins(margins: Mapping[str, Margin]) -> str:
    rows = [(name, f"{each.around:g} ± {each.within:g}", each.why) for name, each in margins.items()]
    return _table(("measure", "margin", "why"), rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
