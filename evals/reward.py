"""The training reward: the evaluation's own grader, so that a policy is trained and judged by one rule.

Named in a run specification as `evals.reward:boxed`. Decided by text and exact numbers wherever they can tell, which on
integer answers is always: microseconds per response, no process started.
"""

from __future__ import annotations

from collections.abc import Sequence

from evals.grading.decide import decide, gold
from evals.grading.extract import last_box
from evals.grading.normalise import LONGEST_ANSWER, normalise
from records.errors import CorruptInputError


def boxed(prompts: Sequence[str], responses: Sequence[str], answers: Sequence[str]) -> list[float]:
    r"""1.0 for each response whose last box equals the answer, else 0.0; in the order given.

    Raises CorruptInputError when the three lists differ in length.

    >>> boxed(["2+2?", "2+2?"], [r"so \boxed{4}", "4"], ["4", "4"])
    [1.0, 0.0]
    """
    if not len(prompts) == len(responses) == len(answers):
        raise CorruptInputError(
            f"reward: {len(prompts)} prompts, {len(responses)} responses, {len(answers)} answers: must be equal"
        )
    return [_score(response, answer) for response, answer in zip(responses, answers, strict=True)]


def _score(response: str, answer: str) -> float:
    found = last_box(response)
    if not found or len(found) > LONGEST_ANSWER:
        return 0.0
    decision = decide(gold(answer), normalise(found))
    return float(decision is not None and decision.equal)
