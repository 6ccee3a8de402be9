"""`docs/formulas.md`, from `paper.claims.lemmas`: `python -m report.docs.formulas`."""

from __future__ import annotations

from pathlib import Path

from paper.claims import lemmas
from paper.claims.claims import Claim, read_claims
from paper.claims.lemmas import ACTIONS, CHECKS, EQUAL, LENGTH, LISTED, POLICIES, WORDS
from records import errors
from records.errors import Parser
from records.files import write_text
from report.docs import table

_PAGE = """\
# The paper's formulas, evaluated

Every equation, lemma, proof step and line of Algorithm 1 that can be evaluated, on {policies:,} random softmax policies
in float64. No model and no run is involved. Verdicts and intervals are in [claims.md](claims.md) under the same names;
made by `python -m report.docs.formulas --out docs/formulas.md`.

- One state: {actions} actions, from nearly uniform to nearly decided policies.
- Responses of up to {length} tokens over {words} words, the last of which ends a response; every response is listed, so
  that an expectation is a sum. The old policy is a random step away. Read orders there, not sizes.

Derivatives that a formula is held against are taken by a complex step, which is exact to rounding. "Equal" is a
relative distance below {equal:g}; where a formula holds on a share of 1, its error is below that on every policy.

## One state

{state}
## Responses of several tokens

{responses}
## Lemma 3.2, case by case

The inner product is one number of a policy, and the lemma speaks of one action's A: it is read as the gradients of one
sampled action a, as a token gives them. Then the inner product is

    A (Cov(π, log π) - π(a) (log π(a) + H)),

with the covariance under π itself. Whether the lemma holds at an action does not depend on the sign of A, so its two
columns are equal. The covariance is positive, because π and log π rise together. Where the proof's premise
log π(a) + H < 0 is true, both terms are positive and the lemma's sign is wrong; it is right only where the premise is
false, and there not always. The proof takes the premise of case 1 (A < 0) from rare actions, for which the lemma never
holds, and that of case 2 (A > 0) from π → 1, where the premise is never true.

"Drawn" is how often sampling takes one of these actions.

{cases}"""


def page() -> str:
    claims = [claim for claim in read_claims() if claim.test.kind == "algebra"]
    checked = [(claim, str(claim.test.arguments["check"])) for claim in claims]
    rows = {
        listed: [
            _row(claim, check) for claim, check in checked if check in CHECKS and (CHECKS[check][1] == LISTED) == listed
        ]
        for listed in (False, True)
    }
    head = ("claim", "place", "what is tested", "holds on", "and")
    cases = [
        (case.actions, case.n, f"{case.drawn:.4f}", *(f"{x:.3f}" for x in (case.negative, case.positive, case.premise)))
        for case in lemmas.cases()
    ]
    return _PAGE.format(
        policies=POLICIES,
        actions=ACTIONS,
        length=LENGTH,
        words=WORDS,
        equal=EQUAL,
        state=table(head, rows[False]),
        responses=table(head, rows[True]),
        cases=table(("actions", "number", "drawn", "holds, A < 0", "holds, A > 0", "premise true"), cases),
    )


def _row(claim: Claim, check: str) -> tuple[str, ...]:
    seen = lemmas.look(check)
    sizes = "; ".join(f"{name} {value:.3g}" for name, value in seen.sizes)
    return claim.id, claim.declared.where, claim.declared.says, f"{seen.holds.mean():.3g}", sizes


def main() -> None:
    parser = Parser(description="Write the page about the paper's formulas.")
    parser.add_argument("--out", type=Path, default=Path("docs/formulas.md"))
    args = parser.parse_args()
    write_text(args.out, page())
    print(args.out)


if __name__ == "__main__":
    errors.run(main)
