"""What is decided in the calling process, and how fast; placebos."""

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from evals import placebo, reward
from evals.grading.boxes import last_box
from evals.grading.decide import gold
from evals.grading.grader import Question, cheap_grade
from evals.reward import boxed
from methods.training.rollouts import derive
from tests.evals.grading.test_cases import FOLDER, rows


def test_the_last_balanced_box() -> None:
    """`boxes.tsv`: the box of a response; whether its members may be in several, with words between them."""
    found = rows(FOLDER / "boxes.tsv", ("members", "response", "box"))
    for row in found:
        box = last_box(row["response"], several=row["members"] == "list")
        assert ("(none)" if box is None else box) == row["box"], row
    assert last_box("\\boxed{\n 5\n}") == "5"
    assert last_box("- $\\boxed{1}$\n- $\\boxed{2}$", several=True) == r"1 \text{ and } 2"


SLOW = (
    "\\{\\mid " * 570,  # sets without an end
    "\\{" * 20 + "\\mid x" * 560,
    "1:" * 1990 + "1",
    "{" * 1990 + "5" + "}" * 1990,
)


def test_no_answer_takes_long_in_the_callers_process() -> None:
    """Each took from half a second to ten; a long text of quadratic time hours."""
    for text in SLOW:
        began = time.process_time()
        cheap_grade(Question(gold("7"), f"\\boxed{{{text}}}"))
        assert time.process_time() - began < 0.2, text[:20]
    for part in ("\\boxed{", "\\boxed ", "\\boxed{1}, ", "{"):
        last_box("\\boxed{" + part * 200_000 + "}" * 200_001)


def test_what_numbers_cannot_decide_goes_to_a_worker_from_any_thread() -> None:
    def work() -> list[float | None]:
        return boxed(["", ""], [r"\boxed{\sqrt{8}}", r"\boxed{\sqrt{7}}"], [r"2\sqrt{2}"] * 2)

    with ThreadPoolExecutor(2) as threads:
        found = [thread.result() for thread in [threads.submit(work) for _ in range(2)]]
    assert found == [[1.0, 0.0]] * 2
    for grader in reward._GRADER.values():
        grader.close()


# Placebos


def test_what_each_placebo_makes_of_the_rewards() -> None:
    """A number for each response, which depends on nothing but the arguments; of the coin's, not on the rewards."""
    rng, size, drawn = random.Random(0), 8, []  # responses of a group
    for n in range(1000):
        rewards, texts, seed = rng.choices([0.0, 1.0], k=size), [r"\boxed{1}"] * size, derive(1, "placebo", n, 0)
        before, other = list(rewards), [1.0 - reward for reward in rewards]
        first = {name: function(rewards, texts, seed) for name, function in placebo.CATALOG.items()}
        random.seed(n)
        assert {name: function(rewards, texts, seed) for name, function in placebo.CATALOG.items()} == first
        assert rewards == before  # the true rewards, which the curve records
        assert placebo.coin(other, [""] * size, seed) == first["coin"]
        assert (first["inverted"], first["format"]) == (other, [1.0] * size)
        assert Counter(first["shuffled"]) == Counter(rewards)
        drawn.append(first["coin"])
    for place in zip(*drawn, strict=True):  # each a fair coin: four standard deviations, with fixed seeds
        assert abs(sum(place) - 500) < 4 * 250**0.5
