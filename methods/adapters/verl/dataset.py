"""Inputs of verl: the prompts as a parquet table, and the reward of one response.

verl loads this file by its path in reward workers (`reward.custom_reward_function.path`), a second time and under
another name. Code here must therefore not register anything with verl, and expensive imports stay inside functions.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from core.errors import BenchError
from core.files import atomic
from methods.adapters.reward import Reward, parsed

BOUNDED = 120.0  # seconds for a reward that limits itself; a later grade is dropped, so the limit must not be a setting


def write_parquet(prompts: Sequence[dict[str, Any]], reward: str, path: Path) -> None:
    """Write one row per prompt {prompt, answer}, in the given order; `reward` is `Reward.text` for `compute_score`.

    The trainer decides the order of prompts (`methods.training.rollouts.order`): verl never shuffles.
    """
    import pyarrow
    import pyarrow.parquet

    rows = [
        {
            "prompt": [{"role": "user", "content": row["prompt"]}],
            "data_source": reward,
            "reward_model": {"style": "rule", "ground_truth": row["answer"]},
            "extra_info": {"index": index, "prompt": row["prompt"]},
        }
        for index, row in enumerate(prompts)
    ]
    with atomic(path) as temporary:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), temporary)


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any], **_: object
) -> dict[str, Any]:
    """Return {score, acc, timeout, error} of one response; `data_source` is `Reward.text`. Never raises.

    verl silently removes a sample whose reward raised from its group. So a failure is returned as `error` next to a
    score, and the trainer ends the run with it before training on that score. None is not a failure: `timeout` is set,
    and the trainer drops the response's group. An own reward that is late, not counting the wait for its turn, ends
    the process.
    """
    began, loop = asyncio.Event(), asyncio.get_running_loop()
    reward: Reward | None = None
    found: float | None = None
    error: str | None = None
    try:
        reward = _parsed(data_source)
        begin = partial(loop.call_soon_threadsafe, began.set)
        arguments = extra_info["prompt"], solution_str, ground_truth
        scoring = asyncio.ensure_future(asyncio.to_thread(_score, begin, reward, *arguments))
        await began.wait()
        found = await asyncio.wait_for(scoring, BOUNDED if reward.bounded else reward.seconds)
    except TimeoutError:  # Python cannot end a thread, which keeps the reward's lock and a place in the executor
        if reward is not None and not reward.bounded:
            print(f"error: {reward.late([solution_str])}", file=sys.stderr, flush=True)
            os._exit(2)  # the trainer reports that a worker died
    except Exception as problem:  # the trainer raises it again
        error = str(problem) if isinstance(problem, BenchError) else f"reward: {type(problem).__name__}: {problem}"
    score = found or 0.0
    return {"score": score, "acc": score, "timeout": found is None and error is None, "error": error}


def _score(begin: Callable[[], object], reward: Reward, prompt: str, response: str, answer: str) -> float | None:
    """Compute the reward; None: not graded. begin: called when this response's turn comes, or at the end.

    A reward that serves one caller at a time has an attribute `lock`. It is acquired here, and may be acquired again
    inside.
    """
    try:
        with reward.lock:
            begin()
            return reward([prompt], [response], [answer])[0]
    finally:
        begin()


_parsed = cache(parsed)  # the functions' modules are imported once per process
