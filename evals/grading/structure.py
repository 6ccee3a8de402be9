r"""The structure of an answer: a single object, a tuple or interval (ordered), or a list or set (unordered).

`1,-2` and `\{-2,1\}` are the same list; `(1,2)` and `(2,1)` are different points; `(3,4]` and `[3,4]` different
intervals. Members are compared one by one, so that a list of numbers never needs a computer algebra system.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

from evals.grading.normalise import WHERE
from evals.grading.numbers import number

DEEPEST = 20  # nested brackets; the golds of the seven benchmarks have at most 5
SPARE_MEMBERS = 4  # a list longer than twice the gold's and these is not compared member by member
MOST_SIGNS = 4  # plus-minus signs of a member, each of which doubles it

_TOKEN = re.compile(r"\\[{}]|\\[A-Za-z]+|\\.|[()\[\]{},;=]", re.DOTALL)
_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![A-Za-z]) ?")
_OPENING = {"(", "[", "{", "\\{"}
_CLOSING = {")", "]", "}", "\\}"}
_BRACKET = re.compile(r"\\.|[(\[{}\])]", re.DOTALL)
_NAME = r"\\?[A-Za-z][A-Za-z ]*(?:_(?:\w|\\[A-Za-z]+ ?|\{[\w\\ ]*\}))?'*(?:\([A-Za-z_0-9,]*\))?"
# Allowed before the sign in `x=5`, `f(x)=2x`, `(x,y)=(1,2)`, `\frac{dv}{dt}=g`: a name for the right side.
NAMES = re.compile(rf"{_NAME}|\\frac\{{d\w\}}\{{d\w\}}|\({_NAME}(?:,{_NAME})*\)|{_NAME}(?:,{_NAME})+|\\text\{{\w*\}}")
# Marks of a single text that may still be a point, an interval or a set.
_MANIFOLD = re.compile(
    r"[=<>]|\\(?:n?leq|geq|neq|in|notin|begin|langle|mathbb|emptyset|setminus|cap|text|lt|gt)(?![A-Za-z])"
)

LIST, SET, UNION = ",", "{}", "∪"

Compare = Callable[[str, str], bool | None]
"""True: equal; False: different; None: a later stage must decide."""


class Structure(NamedTuple):
    """A single object (no form), an unordered list, set or union, or ordered members in the brackets of its form."""

    text: str = ""  # of a single object
    form: str = ""
    members: tuple["Structure", ...] = ()
    names: tuple[str, ...] = ()  # of ordered members, when each is the value of another letter

    @property
    def ordered(self) -> bool:
        return self.form not in ("", LIST, SET, UNION)

    @property
    def is_interval(self) -> bool:
        """Whether it is written as an interval or a union of intervals."""
        parts = self.members if self.form == UNION else (self,)
        return all(part.ordered and len(part.members) == 2 for part in parts)

    @property
    def surely_interval(self) -> bool:
        """Whether two members can only be an interval's ends. `(2,5)` may be a point, and counts as one."""
        return len(self.members) == 2 and (
            "[" in self.form or "]" in self.form or any("\\infty" in end.text for end in self.members)
        )


def too_deep(text: str) -> bool:
    """Return whether brackets are nested deeper than DEEPEST: an explicit bound, below Python's recursion limit.

    How deep Python can still recurse depends on the caller and on caches; a verdict must not.
    """
    depth = 0
    for match in _BRACKET.finditer(text):
        bracket = match.group()[-1]  # of an escaped brace as well
        depth += (bracket in "([{") - (bracket in "}])")
        if depth > DEEPEST:
            return True
        depth = max(depth, 0)  # an unmatched closing bracket
    return False


@lru_cache(maxsize=20_000)
def parse(text: str) -> Structure:
    r"""Return the structure of normalised `text`; text nested too deeply is one object.

    >>> [member.text for member in parse("(1,2),(3,4)").members[1].members]
    ['3', '4']
    """
    return Structure(text) if too_deep(text) else _parse(text)


def _parse(text: str) -> Structure:
    """Parse without the bound of `parse`. Each recursion has less text outside brackets, or one bracket fewer."""
    # From the loosest binding to the tightest: a union of intervals, a list, a set, a sign, a tuple, a named value.
    unions = split(text, ("\\cup",))
    if len(unions) > 1:
        return Structure(form=UNION, members=tuple(_parse(part) for part in unions))
    parts = split(text)
    if len(parts) > 1:
        return _grouped(_members(parts))
    # with a trailing comma, a balanced text ends with an empty part: `\{1\}+\{2\}` is not a set
    if text[:2] == "\\{" and text[-2:] == "\\}" and not (inner := split(f"{text[2:-2]},"))[-1]:
        return Structure(form=SET, members=_members(inner))
    if signs := _signed(text):
        return Structure(form=LIST, members=tuple(dict.fromkeys(_parse(sign) for sign in signs)))
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and len(inner := split(text[1:-1])) > 1:
        return Structure(form=text[0] + text[-1], members=tuple(_parse(part) for part in inner))
    named = sides(text)
    if len(named) == 2 and NAMES.fullmatch(named[0]):
        behind = _parse(named[1])
        if behind.form:
            return behind  # P=(1,2) is the point, x\in(1,2) the interval
    return Structure(text)


def _members(parts: Sequence[str]) -> tuple[Structure, ...]:
    """Return parsed parts; a part that is a bare list (`1\\pm2`) contributes its members."""
    parsed = [_parse(part) for part in parts if part]
    return tuple(member for part in parsed for member in (part.members if part.form == LIST else (part,)))


def _grouped(members: tuple[Structure, ...]) -> Structure:
    """Return a list; values of different letters are a point: `x=1,y=2`, and `x=1,y=2;x=3,y=4` a list of two."""
    named = [sides(member.text) for member in members]
    names = [side[0] for side in named if len(side) == 2 and NAMES.fullmatch(side[0])]
    letters = tuple(dict.fromkeys(names))
    size = len(letters)
    apart = {letter.partition("_")[0] for letter in letters}  # x_1 and x_2 are values of one letter
    if not len(apart) == size > 1 or len(names) < len(members) or tuple(names) != letters * (len(names) // size):
        return Structure(form=LIST, members=members)
    values = [Structure(side[1]) for side in named]
    points = [Structure("", "()", tuple(values[at : at + size]), letters) for at in range(0, len(values), size)]
    return points[0] if len(points) == 1 else Structure(form=LIST, members=tuple(points))


def split(text: str, separators: Sequence[str] = ",;") -> list[str]:
    """Split `text` at separators outside all brackets; return it whole when its brackets do not balance."""
    parts, depth, at = [], 0, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        depth += (token in _OPENING) - (token in _CLOSING)
        if depth < 0:
            return [text]
        if depth == 0 and token in separators:
            parts.append(text[at : match.start()])
            at = match.end()
    return [text] if depth else [*parts, text[at:]]


@lru_cache(maxsize=20_000)
def sides(text: str) -> tuple[str, ...]:
    r"""Split `text` at its equality or membership signs outside brackets.

    >>> sides("f(x)=2x"), sides(r"x\in[0,1]"), sides("7")
    (('f(x)', '2x'), ('x', '[0,1]'), ('7',))
    """
    return tuple(split(text, ("=", "\\in"))) if "=" in text or "\\in" in text else (text,)


# Inequalities as intervals

_RELATION = re.compile(r"<|>|\\[lg]eq(?![A-Za-z]) ?")
_VARIABLE = re.compile(r"\\?[A-Za-z]+(?:_(?:\w|\{\w*\}))?")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_ALL_BUT = re.compile(
    r"\\mathbb\{R\}(?:-|\\setminus ?)\\\{(.+)\\\}|\(?(?:all)?realnumbers?except(.+?)\)?|([A-Za-z])\\neq ?(.+)"
)
_ABSOLUTE = re.compile(r"\|([A-Za-z])\|(<|\\leq ?)([^<>,;|=\\]+|\\sqrt\{\w+\})")  # |x|<3


def as_interval(text: str) -> tuple[str, str] | None:
    r"""Return the variable and the interval, or union of intervals, of inequalities; None for another text.

    All reals but some numbers have an empty variable, unless it is written: `\mathbb{R}-\{3\}`, `x\neq3`.
    Inequalities joined by a comma or "and" are their common interval; when their ends are numbers with nothing in
    common, the union is meant.

    >>> as_interval(r"x<2\cup x\geq3"), as_interval("1<x,x<3"), as_interval("x<y")
    (('x', '(-\\infty,2)\\cup[3,\\infty)'), ('x', '(1,3)'), None)
    """
    if excepted := _ALL_BUT.fullmatch(text):
        return _all_but(excepted)
    if not _RELATION.search(text):
        return None
    names: set[str] = set()
    pieces: list[str] = []
    for part in split(_ABSOLUTE.sub(r"-\3\2\1\2\3", text), ("\\cup", "\\lor")):
        ranges = [_range(inequality.strip()) for inequality in split(part, (",", ";", "\\land"))]
        found = [piece for piece in ranges if piece]
        names |= {name for name, *_ in found}
        if not len(ranges) == len(found) <= 2 or len(names) > 1:
            return None
        ends = [(low, high) for _, low, high in found]
        if len(ends) == 2:
            lows, highs = ([end for end in side if "\\infty" not in end] for side in zip(*ends, strict=True))
            low, high = (number(lows[0][1:]), number(highs[0][:-1])) if len(lows) == len(highs) == 1 else (None, None)
            if low is None or high is None:
                return None
            apart = low.value > high.value
            ends = [("(-\\infty", highs[0]), (lows[0], "\\infty)")] if apart else [(lows[0], highs[0])]
        pieces += [f"{low},{high}" for low, high in ends]
    return names.pop(), "\\cup".join(pieces)


def _all_but(found: re.Match[str]) -> tuple[str, str] | None:
    r"""Return `as_interval` of `\mathbb{R}-\{3\}`, `\text{all real numbers except }3`, `x\neq3` and `x\neq3,x\neq4`."""
    listed, excepted, name, unequal = found.groups()
    if unequal and f"\\cup {name}\\neq" in unequal:  # every number is unequal to one of two
        return name, "(-\\infty,\\infty)"
    joined = _GROUPED.sub(lambda m: m[0].replace(",", ""), listed or excepted or unequal)
    ends = (end.removeprefix(f"{name}\\neq").strip() for end in split(joined))
    values = {number(end): end for end in ends}
    if None in values:
        return None
    ordered = [values[found] for found in sorted(filter(None, values), key=lambda found: found.value)]
    union = "\\cup".join(f"({low},{high})" for low, high in pairwise(["-\\infty", *ordered, "\\infty"]))
    return name or "", union


def _range(text: str) -> tuple[str, str, str] | None:
    r"""Return the variable and the ends, with their brackets, of `x<2`, `2>x` or `1<x<2`: `x`, `(-\infty` and `2)`."""
    parts, signs = _RELATION.split(text), [sign.strip() for sign in _RELATION.findall(text)]
    if set(signs) <= {">", "\\geq"}:
        parts, signs = parts[::-1], signs[::-1]
    elif not set(signs) <= {"<", "\\leq"}:
        return None
    named = [_VARIABLE.fullmatch(part) is not None for part in parts]
    if len(parts) == 2 and named[0] != named[1]:
        parts, signs = (["-\\infty", *parts], ["<", *signs]) if named[0] else ([*parts, "\\infty"], [*signs, "<"])
    if len(parts) != 3 or sum(named) != 1 or not _VARIABLE.fullmatch(parts[1]) or "=" in text or not all(parts):
        return None
    return parts[1], "(["[len(signs[0]) > 1] + parts[0], parts[2] + ")]"[len(signs[1]) > 1]


def _signed(text: str) -> list[str]:
    r"""Return the texts of `\pm`: `a\pm b` is `a+b` and `a-b`, two signs are four texts. Empty without a sign.

    With a `\mp` as well, all upper and all lower signs belong together.
    """
    signs = _PLUS_MINUS.findall(text)
    if not 0 < len(signs) <= MOST_SIGNS:
        return []
    together = zip(*("+-" if sign == "pm" else "-+" for sign in signs), strict=True)  # all upper, all lower
    choices = together if "mp" in signs else product("+-", repeat=len(signs))
    parts = _PLUS_MINUS.split(text)[::2]  # without the signs
    made = ("".join(map("".join, zip(parts, (*choice, ""), strict=True))) for choice in choices)
    return [re.sub(r"(^|[({\[,;=])\+", r"\1", one) for one in made]


# Comparison


def compare(gold: Structure, answer: Structure, leaf: Compare) -> bool | None:
    """Return whether two structures are equal, with `leaf` for the single objects. None: undecided."""
    if not (gold.form or answer.form):
        return leaf(gold.text, answer.text)
    if answer.names and (gold.names or all(len(name) == 1 for name in answer.names)):
        # by name, or relative to a gold without names by the order of Latin letters; (r,\theta) stays unchanged
        gold, answer = _by_name(gold), _by_name(answer)
        if gold.names and gold.names != answer.names:
            return False
    if gold.ordered and answer.ordered:
        # With two members the bracket determines an interval's ends; with more, ( and [ may both enclose a vector.
        vectors = {gold.form, answer.form} == {"()", "[]"} and len(gold.members) > 2
        if gold.form != answer.form and len(gold.members) == len(answer.members) and not vectors:
            return None if {gold.form[0], answer.form[0]} == {"(", "["} and len(gold.members) > 2 else False
        return _ordered(gold, answer, leaf)
    if LIST in (gold.form, answer.form) and (gold.ordered or answer.ordered):
        # (6,5) answered as 6,5; but the ends of an interval are not the interval
        return not (gold.surely_interval or answer.surely_interval) and _ordered(gold, answer, leaf)
    if (gold.form and not gold.ordered) or (answer.form and not answer.ordered):
        equal = _unordered(gold, answer, leaf)
        return None if UNION in (gold.form, answer.form) and not equal else equal  # (0,2) is (0,1) with [1,2)
    return None if _MANIFOLD.search(gold.text or answer.text) else False


def _by_name(side: Structure) -> Structure:
    order = sorted(range(len(side.names)), key=side.names.__getitem__)
    members, names = tuple(side.members[at] for at in order), tuple(side.names[at] for at in order)
    return Structure("", side.form, members, names) if side.names else side


def _unordered(gold: Structure, answer: Structure, leaf: Compare) -> bool | None:
    """Compare as sets: every member has an equal on the other side. Repetitions (a double root) add nothing."""
    golds, answers = (side.members if side.form and not side.ordered else (side,) for side in (gold, answer))
    # bounds the number of comparisons, each of which may need algebra; more than double is not a repetition of roots
    if len(answers) > 2 * len(golds) + SPARE_MEMBERS:
        return False
    table: list[list[bool | None]] = []
    for g in golds:
        table.append([compare(g, a, leaf) for a in answers])
        if not {True, None} & {*table[-1]}:
            return False
    lines = [*table, *([row[at] for row in table] for at in range(len(answers)))]
    ends = [True if True in line else None if None in line else False for line in lines]
    return False if False in ends else None if None in ends else True


def _ordered(gold: Structure, answer: Structure, leaf: Compare) -> bool | None:
    if len(gold.members) != len(answer.members):
        return False
    results = [compare(g, a, leaf) for g, a in zip(gold.members, answer.members, strict=True)]
    return False if False in results else None if None in results else True


# Conditions after an answer

_DECLARED = re.compile(r"([A-Za-z])\\in\\mathbb\{[ZNR]\}|([k-n])(?:>|\\geq)-?\d+")


def integers(gold: str, answer: str) -> tuple[str | None, str | None, bool] | None:
    """Return the integer letters of gold and answer, and whether they run through all integers, by the conditions
    after the two; None when one condition contradicts the other, as k >= 0 contradicts k >= 1."""
    conditions = [text.partition(WHERE)[2] for text in (gold, answer)]
    said = [condition[1:].replace(" ", "") for condition in conditions]
    meant = [{"\\geq0", "\\geq1"} if text == r"\in\mathbb{N}" else {text} for text in said]
    if all(said) and r"\in\mathbb{R}" not in said and not meant[0] & meant[1]:
        return None
    found = [_DECLARED.fullmatch(condition) for condition in conditions]
    # a constant that only one side declares may be given in the problem
    constant = [text == r"\in\mathbb{R}" and said[0] != said[1] for text in said]
    own, other = (None if no or not match else match[1] or match[2] for match, no in zip(found, constant, strict=True))
    return own, other, not set(said) - {"", r"\in\mathbb{Z}", r"\in\mathbb{R}"}
