"""The reward of a run: one function of the user, or the weighted sum of several.

A function has TRL's arguments or ours, and returns a number, or None (not graded), for each response:

    def length(completions, **columns): ...         TRL's; called by name with `prompts`, `completions`, `answer`
    def correct(prompts, responses, answers): ...   ours

It runs in the trainer's process. One that raises, returns something else or does not return in time ends the run with
one line. After the function is corrected, the same command resumes the run (`methods.training.run_folder`).
"""

from __future__ import annotations

import faulthandler
import inspect
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from core.errors import BenchError, ConfigError, CorruptInputError
from methods.adapters import checked, late, resolved

_PRINTED: set[tuple[type[BaseException], str]] = set()  # errors of this process
COLUMNS = ("prompts", "completions", "answer")  # arguments with TRL's names


class Reward:
    """Callable on lists of prompts, responses and answers.

    names: `package.module:function` each. weights: one per function; empty for 1 each. seconds: limit of one call;
    None: TEPO_REWARD_TIMEOUT, or 120. It is not part of a run's specification, because it changes no number.
    Raises ConfigError for a function that cannot be imported or takes other arguments.
    """

    def __init__(self, names: Sequence[str], weights: Sequence[float] = (), seconds: float | None = None):
        self.names, self.weights = tuple(names), tuple(weights) or (1.0,) * len(names)
        self.seconds = _limit() if seconds is None else seconds
        if not names or len(self.weights) != len(names):
            raise ConfigError(
                f"spec: reward_weights: {len(weights)} weights for {len(names)} rewards; give one for each"
            )
        self.functions = [resolved(name) for name in names]
        self.calls = [_call(name, function) for name, function in zip(names, self.functions, strict=True)]

    def __call__(
        self, prompts: Sequence[str], responses: Sequence[str], answers: Sequence[str], where: str = ""
    ) -> list[float | None]:
        """Return the weighted sum for each response; None if one of the functions did not grade it.

        where: beginning of errors, `rollout 3: `. Raises CorruptInputError that names function and response for a
        function that fails or returns something else.
        """
        total: list[float | None] = [0.0] * len(responses)
        for name, weight, call in zip(self.names, self.weights, self.calls, strict=True):
            found = _values(f"{where}reward {name}", call, prompts, responses, answers)
            total = [None if a is None or b is None else a + weight * b for a, b in zip(total, found, strict=True)]
        return checked(f"{where}reward_weights", total, responses, missing=True)

    @property
    def unanswered(self) -> Callable[[Sequence[str]], float] | None:
        """The first function's share of responses that cannot be right (`evals.reward.boxed`); None if it has none."""
        return getattr(self.functions[0], "unanswered", None)

    @property
    def bounded(self) -> bool:
        """Whether every function limits its own time, as `evals.reward.boxed` does."""
        return all(getattr(function, "bounded", False) for function in self.functions)

    @property
    def lock(self) -> Any:
        """The lock of a function that serves one caller at a time, such as `evals.reward.boxed`."""
        return next((function.lock for function in self.functions if hasattr(function, "lock")), nullcontext())

    @contextmanager
    def limited(self, where: str, responses: Sequence[str]) -> Iterator[None]:
        """End the process, with one line, if the block takes longer than the limit, unless the functions have one.

        Neither a signal nor a thread around the function: graders of other projects set alarms of their own, which
        work only in the main thread. The run continues from its last state, as after a kill.
        """

        def end() -> None:
            print(f"error: {where}{self.late(responses)}", file=sys.stderr, flush=True)
            os._exit(2)

        if self.bounded:
            yield
            return
        timer = threading.Timer(self.seconds, end)
        timer.daemon = True
        timer.start()
        # `re` holds the interpreter's lock while it matches, so that `end` would wait; this needs no lock.
        faulthandler.dump_traceback_later(self.seconds + 5, exit=True, file=2)
        try:
            yield
        finally:
            timer.cancel()
            faulthandler.cancel_dump_traceback_later()

    def late(self, responses: Sequence[str]) -> str:
        return late(self.names, self.seconds, responses)

    @property
    def text(self) -> str:
        """The arguments of the constructor as text, for `parsed` in another process."""
        return json.dumps([self.names, self.weights, self.seconds])


def _limit() -> float:
    text = os.environ.get("TEPO_REWARD_TIMEOUT", "120")
    try:
        if 0 < (seconds := float(text)) < threading.TIMEOUT_MAX:
            return seconds
    except ValueError:
        pass
    raise ConfigError(f"TEPO_REWARD_TIMEOUT: {text!r}; allowed: seconds above 0")


def parsed(text: str) -> Reward:
    """Return the reward whose `text` this is."""
    return Reward(*json.loads(text))


def _call(name: str, function: Any) -> Callable[..., Any]:
    """Return the function as one of prompts, responses and answers."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"spec: reward: {name}: its arguments cannot be read ({error})") from error
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"spec: reward: {name}: is async; allowed: a function that returns a list")
    only_columns = all(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    by_name = only_columns or "completions" in signature.parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    names = [key for key in COLUMNS if takes_all or key in signature.parameters]
    try:
        signature.bind(**dict.fromkeys(names)) if by_name else signature.bind(*COLUMNS)
    except TypeError as error:
        raise ConfigError(
            f"spec: reward: {name}: cannot be called ({error}); allowed arguments: (prompts, responses, answers), or "
            f"those of TRL among {', '.join(COLUMNS)}"
        ) from error

    def call(*columns: Sequence[str]) -> Any:
        return function(**{key: column for key, column in zip(COLUMNS, columns, strict=True) if key in names})

    return call if by_name else function


def _values(where: str, call: Callable[..., Any], *columns: Sequence[str]) -> list[float | None]:
    responses = columns[1]
    try:
        return checked(where, call(*map(list, columns)), responses, missing=True)
    except BenchError:
        raise
    except (Exception, SystemExit) as error:  # of the user's code: its traceback comes first, then our line
        own = error.__traceback__
        while own is not None and own.tb_frame.f_code.co_filename == __file__:
            own = own.tb_next
        if (type(error), str(error)) not in _PRINTED:  # verl's worker calls it for each response
            _PRINTED.add((type(error), str(error)))
            traceback.print_exception(type(error), error, own)
        # The response that failed, if it is a variable there.
        variables = {id(value) for frame, _ in traceback.walk_tb(own) for value in frame.f_locals.values()}
        response = next((text for text in responses if id(text) in variables), responses[0])
        message = " ".join(str(error).split())
        raise CorruptInputError(
            f"{where}: {type(error).__name__}: {message} (response {response[:60]!r}); correct the function "
            "and run the same command"
        ) from error
