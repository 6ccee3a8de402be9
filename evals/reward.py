"""The training reward: the evaluation's grader, so that a policy is trained and evaluated by one rule.

Named in a run specification as `evals.reward:boxed`. Comparing texts and exact numbers decides every integer answer in
microseconds, without another process. Undecided answers go to a pool of workers, which is started when
first needed. It uses neither signals nor threads, so a trainer may call this from any thread and any forked child.
"""

import atexit
import os
import threading
from collections.abc import Sequence

from core.errors import CorruptInputError
from evals.grading import Grade, Verdict
from evals.grading.boxes import last_box
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question

_GRADER: dict[int, Grader] = {}  # by process: a forked child must not read its parent's pipes
# verl scores responses in several threads, and a grader serves one caller at a time. Reentrant, because a trainer that
# limits the time of a reward acquires it before starting the clock.
_LOCK = threading.RLock()


def boxed(prompts: Sequence[str], responses: Sequence[str], answers: Sequence[str]) -> list[float | None]:
    r"""Return 1.0 for each response whose last box equals the answer, else 0.0; in the given order.

    None where grading failed (killed, out of memory, a bug, a stalled machine): a trainer drops the
    response's group and counts it in `reward_timeouts`. Not an error, because a resumed run would meet the same answer
    again. An answer that exhausts the CPU seconds of its comparison is wrong.
    Raises CorruptInputError when the three lists differ in length.

    >>> boxed(["2+2?", "2+2?"], [r"so \boxed{4}", "4"], ["4", "4"])
    [1.0, 0.0]
    """
    if not len(prompts) == len(responses) == len(answers):
        raise CorruptInputError(
            f"reward: {len(prompts)} prompts, {len(responses)} responses, {len(answers)} answers: must be equal"
        )
    grades = graded([Question(gold(answer), response) for response, answer in zip(responses, answers, strict=True)])
    # A timeout without CPU seconds is one by the wall clock: the comparison never reached its limit.
    failed = [g.verdict is Verdict.ERROR or (g.verdict is Verdict.TIMEOUT and not g.seconds) for g in grades]
    return [None if bad else float(g.verdict is Verdict.CORRECT) for g, bad in zip(grades, failed, strict=True)]


# The share of responses that cannot be right: for a run in which all rewards are equal.
boxed.unanswered = lambda responses: sum(not last_box(text) for text in responses) / len(responses)  # type: ignore[attr-defined]
boxed.bounded = True  # type: ignore[attr-defined]  # for `methods.adapters.reward`: each comparison has a limit
boxed.lock = _LOCK  # type: ignore[attr-defined]  # for `methods.adapters.verl.dataset`


def graded(questions: Sequence[Question]) -> list[Grade]:
    """Grade with this process's grader, which ends with the process."""
    process = os.getpid()
    with _LOCK:
        if process not in _GRADER:
            _GRADER.clear()
            _GRADER[process] = Grader()
            atexit.register(_close, process)
        return _GRADER[process].grade(questions)


def _close(process: int) -> None:
    if os.getpid() == process and process in _GRADER:
        _GRADER.pop(process).close()
