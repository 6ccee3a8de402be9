"""The answer of a response: the content of its last box, and nothing else.

A box is required. Without one, the last number of the prose would be the answer, and "There are 3 cases." would count
as 3.
"""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def last_box(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` or `\fbox{...}`, stripped; None without one, or when it is unbalanced.

    An escaped brace (`\{`) does not count. Of nested boxes the inner one is the last. Linear in the text's length.

    >>> last_box(r"first \boxed{1}, then \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    >>> last_box(r"\boxed{3} no: \boxed{4") is None
    True
    """
    opening = None
    for opening in _BOX.finditer(text):  # noqa: B007 - the last one is wanted; the bare word "\\boxed" does not match
        pass
    inside = None if opening is None else balanced(text, opening.end())
    return None if inside is None else inside.strip()


def balanced(text: str, start: int) -> str | None:
    """The text from `start` to the brace that closes the one before it, or None when none does."""
    depth = 1
    for token in _BRACE.finditer(text, start):
        if token.group() == "{":
            depth += 1
        elif token.group() == "}":
            depth -= 1
            if depth == 0:
                return text[start : token.start()]
    return None
