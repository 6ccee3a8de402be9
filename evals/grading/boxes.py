r"""Extract the answer from a response: the content of its last box, outside the model's thoughts."""

import re
from collections import deque
from functools import cache

# Marks around a model's thoughts, which are not an answer: DeepSeek, Qwen (<think>), EXAONE, Seed, Magistral ([THINK]),
# Kimi, OpenThinker, Command A, and the channels of gpt-oss, of which only the final one is an answer.
_THOUGHT = r"(?:seed:)?(?:think|thinking|thoughts?|reasoning|reflection|analysis)"
_OPENS = (
    rf"<{_THOUGHT}>|\[THINK\]|◁think▷|<\|(?:begin_of_thought|start_thinking|inner_prefix|think(?:ing)?)\|>"
    r"|<\|channel\|>\s*(?:analysis|commentary)"
)
_CLOSES = (
    rf"</{_THOUGHT}>|\[/THINK\]|◁/think▷|<\|(?:end_of_thought|end_thinking|inner_suffix|/think(?:ing)?)\|>"
    r"|<\|channel\|>\s*final\s*(?:<\|constrain\|>[^<]*)?<\|message\|>"
)


@cache
def _marks(thoughts: tuple[str, ...]) -> list[re.Pattern[str]]:
    more = [f"|{re.escape(mark)}" for mark in thoughts] or ["", ""]
    return [re.compile(_OPENS + more[0], re.IGNORECASE), re.compile(_CLOSES + more[1], re.IGNORECASE)]


def spoken(text: str, thoughts: tuple[str, ...] = ()) -> str:
    """Return the part of a response after the last closed thought and before the first one that is left open.

    thoughts: the marks before and after a thought besides those above.

    >>> spoken("<think>5?</think> It is 6. <think>Or"), spoken("[THINK] 5, so 5"), spoken("(5?) It is 6.", ("(", ")"))
    (' It is 6. ', '', ' It is 6.')
    """
    opens, closes = _marks(thoughts)
    closed = deque(closes.finditer(text), 1)
    text = text[closed[0].end() :] if closed else text
    opened = opens.search(text)
    return text[: opened.start()] if opened else text


# Boxes that the last sentence of a response joins count as one answer.
#
# A box is required. If the last number in prose counted without one, "There are 3 cases." would answer 3.

_BOX = re.compile(
    r"\\(?:boxed|fbox)\s*(?:\{|([-+]?(?:\d+(?:[.,/]\d+)*|\\[dt]?frac\s*\{[^{}]*\}\s*\{[^{}]*\})))"  # \boxed 5 too
)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
# Allowed between two boxes of one answer, after blanks have replaced typesetting: a comma or "and", and the name of the
# next value. Between members of a list also a few words before them, or only list marks.
_MARKS = re.compile(r"(?:\\(?:text|mbox|textrm)\s*\{|[{}$&~\s]|\\[()\[\],;:! ]|\\\\|\\q?quad(?![A-Za-z]))+")
_NAME = r"[A-Za-z](?:_\w+)? ?= ?"
_JOINED = re.compile(rf" ?(?:[,;]|(?:[,;] ?)?(?<![A-Za-z])(?:and|(or))(?![A-Za-z])) ?(?:{_NAME})?")
_JOINED_IN_LIST = re.compile(rf"(?:[^.!?=]{{0,40}}?{_JOINED.pattern}|[ *\d.-]*(?:{_NAME})?)")
_NAMED = re.compile(rf"(?:^|.*[^A-Za-z\\])({_NAME})", re.DOTALL)
LONGEST_GAP, MOST_BOXES = 80, 64  # characters between the boxes of one answer; boxes


def last_box(text: str, *, several: bool = False, thoughts: tuple[str, ...] = ()) -> str | None:
    r"""Return the content of the last non-empty `\boxed{...}` or `\fbox{...}`, or of several joined by "and", "or" or a
    comma. None without a box, or when the last is unbalanced; an empty text when all are empty.

    A model's thoughts are not an answer (`spoken`). An escaped brace (`\{`) does not count. Of nested boxes the inner
    one is the last. several: the answer is a list, whose members may be in boxes with names or words between them.
    thoughts: as in `spoken`. Linear in the text's length.

    >>> last_box(r"first \boxed{1}, then \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    >>> last_box(r"\boxed{3} and $\boxed{4}$"), last_box(r"\boxed{3} no: \boxed{4")
    ('3 \\text{ and } 4', None)
    """
    text = spoken(text, thoughts)
    found: list[str] = []  # contents, from the last, with the words between them
    names: list[str] = []
    start = end = len(text)
    empty = None
    for box in reversed(deque(_BOX.finditer(text), MOST_BOXES)):
        inside = box[1] or balanced(text, box.end(), end)
        content = (inside or "").strip()
        if inside is None and not found:
            return None
        if found:
            gap = text[box.end() + (0 if box[1] else len(inside or "") + 1) : start]
            linking = _JOINED_IN_LIST if several else _JOINED
            link = content and len(gap) <= LONGEST_GAP and linking.fullmatch(_MARKS.sub(" ", gap))
            if not link:
                break
            found.append(r" \text{ or } " if link[1] else r" \text{ and } ")
        if content:
            start = box.start()
            name = _NAMED.fullmatch(_MARKS.sub(" ", text[max(0, start - 30) : start]))
            names.append(name[1] if name else "")
            found.append(content)
        end, empty = box.start(), ""
    if len(names) < 2 or (len(set(names)) > 1 and not several):
        return found[0] if found else empty  # of different quantities the last is the answer
    found[::2] = [name + content for name, content in zip(names, found[::2], strict=True)]
    return "".join(reversed(found))


def balanced(text: str, start: int, end: int | None = None) -> str | None:
    """Return the text from `start` to the brace that closes the one before it, or None if none does before `end`."""
    depth = 1
    for token in _BRACE.finditer(text, start, len(text) if end is None else end):
        depth += (token[0] == "{") - (token[0] == "}")
        if depth == 0:
            return text[start : token.start()]
    return None
