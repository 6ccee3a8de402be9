r"""Third-party graders, called as their own code calls them, in workers that can be killed (`evals.grading.pool`).

    math_verify    math-verify with its defaults, the gold in a box, as its documentation shows
    minerva        lm-eval's minerva_math, its exact_match: the text after "Final Answer: The final answer is", by sympy
    exact_match    lm-eval's aime24 and aime25, their exact_match: the last box, else between dollars; MATH's rewriting

They receive the gold as stored, without an item's tolerance. Their time limits need signals, which a worker's thread
cannot use; its CPU limit replaces them. A task file of lm-eval is loaded alone, as lm-eval loads it: importing the
package takes 8 seconds more.

    python -m evals.others    a worker, as `python -m evals.grading.worker`
"""

import importlib.metadata
import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from core.errors import MissingInputError
from evals.grading import worker
from evals.grading.decide import Gold
from evals.grading.normalise import LONGEST_ANSWER

Judgement = tuple[bool, str | None]
"""(whether it accepts the response, the answer that it extracted)."""


@dataclass(frozen=True)
class Other:
    """A grader: its package, its call (module, gold, response), and the CPU seconds of one comparison."""

    package: str  # a distribution
    judge: Callable[[Any, str, str], Judgement]
    file: str = ""  # its file in `site-packages`; empty: the package is imported
    seconds: float = 5.0  # as in math-verify and minerva_math


def _math_verify(module: Any, gold: str, response: str) -> Judgement:
    expected, found = (module.parse(text, parsing_timeout=None) for text in (f"\\boxed{{{gold}}}", response))
    return bool(module.verify(expected, found, timeout_seconds=None)), str(found[-1]) if found else None


def _minerva(module: Any, gold: str, response: str) -> Judgement:
    module.timeout = lambda seconds: nullcontext()
    found = module.get_unnormalized_answer(response)
    answer = module.normalize_final_answer(found)
    right = bool(module.is_equiv(answer, module.normalize_final_answer(gold)))
    return right, None if found == "[invalidanswer]" else answer


def _exact_match(module: Any, gold: str, response: str) -> Judgement:
    right = module.process_results({"answer": gold}, [response])["exact_match"] == 1
    box: str | None = module.last_boxed_only_string(response)
    with suppress(AssertionError, IndexError):  # an \fbox
        box = None if box is None else str(module.remove_boxed(box))
    return right, box


OTHERS = {
    "math_verify": Other("math-verify", _math_verify),
    "minerva": Other("lm-eval", _minerva, "lm_eval/tasks/minerva_math/utils.py"),
    "exact_match": Other("lm-eval", _exact_match, "lm_eval/tasks/aime/utils.py"),
}


# In a worker


def _compare(name: str) -> worker.Compare:
    """Return the grader `name`, loaded and warm; if loading fails, every comparison raises the reason."""
    other, module, reason = OTHERS[name], ModuleType(name), ""
    try:
        if other.file:  # alone
            file = str(importlib.metadata.distribution(other.package).locate_file(other.file))
            SourceFileLoader(name, file).exec_module(module)
        else:
            module = importlib.import_module(other.package.replace("-", "_"))
        for response in (r"\boxed{x+2^{\frac{1}{2}}}", r"Final Answer: The final answer is $x+2^{\frac{1}{2}}$."):
            other.judge(module, r"\sqrt{2}+x", response)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"

    def judge(gold: Gold, response: str) -> str:
        if reason:
            raise MissingInputError(reason)
        right, extracted = other.judge(module, gold.text, response)
        return json.dumps([right, extracted and extracted[:LONGEST_ANSWER]])

    return judge


if __name__ == "__main__":
    worker.work(lambda: {name: _compare(name) for name in OTHERS})
