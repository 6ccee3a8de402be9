r"""The structure of an answer: a single object, a tuple or interval (ordered), or a list or set (order-free).

`1,-2` and `\{-2,1\}` are the same list; `(1,2)` and `(2,1)` are different points; `(3,4]` and `[3,4]` different
intervals. Members are compared one by one, so that a list of numbers never needs a computer algebra system.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from evals.grading.normalise import WHERE
from evals.grading.numbers import number

DEEPEST = 20  # nested brackets; the golds of the seven benchmarks have at most 5
SPARE_MEMBERS = 4  # a list with more than twice the gold's members and these is not compared member by member

_TOKEN = re.compile(r"\\[{}]|\\cup(?![A-Za-z])|\\pm(?![A-Za-z])|\\[A-Za-z]+|\\.|[()\[\]{},;=]", re.DOTALL)
_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![A-Za-z]) ?")
MOST_SIGNS = 4  # of a member, each of which doubles it
_OPENING = {"(", "[", "{", "\\{", "\\langle"}
_CLOSING = {")", "]", "}", "\\}", "\\rangle"}

_BRACKET = re.compile(r"\\.|[(\[{}\])]", re.DOTALL)
_NAME = r"\\?[A-Za-z][A-Za-z ]*(?:_(?:\w|\\[A-Za-z]+ ?|\{[\w\\ ]*\}))?'*(?:\([A-Za-z_0-9,]*\))?"
# What stands before the sign in `x=5`, `f(x)=2x`, `(x,y)=(1,2)`, `\frac{dv}{dt}=g`: a name for what follows.
NAMES = re.compile(rf"{_NAME}|\\frac\{{d\w\}}\{{d\w\}}|\({_NAME}(?:,{_NAME})*\)|{_NAME}(?:,{_NAME})+|\\text\{{\w*\}}")
# Marks of a single text that may still be a point, an interval or a set.
_MATRIX = re.compile(r"(-?(?:(?!\\begin)[^-+])*?)(?:\\cdot ?)?\\begin\{([pbB]?matrix|array)\}(?:\{[clr|]*\})?((?:(?!\\begin).)*)\\end\{\2\}", re.DOTALL)
_ANGLE_BRACKETS = re.compile(r"\\langle ?(.*)\\rangle")
_LETTERED = re.compile(r"(.+?)(?:_.*)?")  # a name without its index: x_1 and x_2 are values of one letter
_MANIFOLD = re.compile(
    r"[=<>]|\\(?:n?leq|geq|neq|in|notin|begin|langle|mathbb|emptyset|setminus|cap|text|lt|gt)(?![A-Za-z])"
)

Compare = Callable[[str, str], bool | None]
"""True: equal; False: different; None: a later stage must look."""


@dataclass(frozen=True)
class Leaf:
    """One mathematical object."""

    text: str


@dataclass(frozen=True)
class Tuple:
    """Ordered members within brackets: a point, a vector written as a row, an interval."""

    opening: str
    members: tuple[Leaf | Tuple | Listing, ...]
    closing: str
    names: tuple[str, ...] = ()  # of the members, when each is the value of another letter


@dataclass(frozen=True)
class Listing:
    """Members without order."""

    members: tuple[Leaf | Tuple | Listing, ...]
    braces: bool = False  # written as a set
    union: bool = False  # joined by a union sign


Structure = Leaf | Tuple | Listing


def too_deep(text: str) -> bool:
    """Whether brackets are nested deeper than DEEPEST. An explicit bound, so that no recursion can reach Python's.

    How deep Python can still recurse depends on the caller and on what caches hold; a verdict must not.
    """
    depth = 0
    for match in _BRACKET.finditer(text):
        bracket = match.group()[-1]  # of an escaped brace as well
        depth += (bracket in "([{") - (bracket in "}])")
        if depth > DEEPEST:
            return True
        depth = max(depth, 0)  # a bracket that closes nothing
    return False


@lru_cache(maxsize=20_000)
def parse(text: str) -> Structure:
    r"""The structure of normalised `text`; what is nested too deeply is one object.

    >>> parse("(1,2),(3,4)").members[1].members
    (Leaf(text='3'), Leaf(text='4'))
    """
    return Leaf(text) if too_deep(text) else _parse(text)


def _parse(text: str) -> Structure:
    """`parse` without its bound. Each call within itself has less text outside brackets, or one bracket less."""
    # From the loosest binding to the tightest: a union of intervals, a list, a set, a tuple, a named value, a sign.
    unions = _split(text, ("\\cup",))
    if len(unions) > 1:
        return Listing(tuple(_parse(part) for part in unions), union=True)
    parts = _split(text, ",;")
    if len(parts) > 1:
        return _grouped(parts)
    if text[:2] == "\\{" and text[-2:] == "\\}" and _encloses(text, 2):
        return Listing(_members(_split(text[2:-2], ",;")), braces=True)
    if signs := _signed(text):
        return Listing(tuple(dict.fromkeys(_parse(sign) for sign in signs)))
    angle = _ANGLE_BRACKETS.fullmatch(text)  # a vector
    inner_text = angle[1] if angle else text[1:-1]
    if angle or (text[:1] in ("(", "[") and text[-1:] in (")", "]") and _encloses(text, 1)):
        inner = _split(inner_text, ",;")
        if len(inner) > 1:
            opening, closing = "()" if angle else (text[0], text[-1])
            return Tuple(opening, tuple(_parse(part) for part in inner), closing)
    named = sides(text)
    if len(named) == 2 and NAMES.fullmatch(named[0]):
        behind = _parse(named[1])
        if not isinstance(behind, Leaf):
            return behind  # P=(1,2) is the point, x\\in(1,2) the interval
    if matrix := _MATRIX.fullmatch(text):
        return _matrix(matrix[1], matrix[3])
    ratio = text.split(":")
    if len(ratio) > 2 and all(values := [number(part) for part in ratio]):
        first = values[0].value or 1  # type: ignore[union-attr]
        return Tuple(":", tuple(Leaf(str(value.value / first)) for value in values), ":")  # type: ignore[union-attr]
    return Leaf(text)


def _members(parts: Sequence[str]) -> tuple[Structure, ...]:
    """Parsed parts; a part that is itself a bare list (`1\\pm2`) gives its members."""
    members: list[Structure] = []
    for part in parts:
        if part:
            parsed = _parse(part)
            members.extend(
                parsed.members if isinstance(parsed, Listing) and not parsed.braces and not parsed.union else [parsed]
            )
    return tuple(members)


def _grouped(parts: Sequence[str]) -> Structure:
    """A list; values of different letters are a point: `x=1,y=2`, and `x=1,y=2;x=3,y=4` a list of two."""
    members = _members(parts)
    named = [sides(member.text) if isinstance(member, Leaf) else () for member in members]
    if not all(len(pair) == 2 and NAMES.fullmatch(pair[0]) for pair in named):
        return Listing(members)
    names = tuple(name for name, _ in named)
    letters = tuple(dict.fromkeys(names))
    size = len(letters)
    if names != letters * (len(names) // size) or len({_LETTERED.fullmatch(name)[1] for name in letters}) < max(2, size):  # type: ignore[index]
        return Listing(members)
    points = [
        Tuple("(", tuple(Leaf(value) for _, value in named[at : at + size]), ")", letters)
        for at in range(0, len(named), size)
    ]
    return points[0] if len(points) == 1 else Listing(tuple(points))


def _matrix(factor: str, body: str) -> Structure:
    """A matrix as a tuple of rows, and one of a single column as a point; a factor is multiplied into the members."""
    rows = [row.split("&") for row in body.removesuffix("\\\\").split("\\\\")]
    made = [tuple(Leaf(f"{factor}({cell})" if factor else cell) for cell in row) for row in rows]
    if all(len(row) == 1 for row in made) and len(made) > 1:
        return Tuple("(", tuple(row[0] for row in made), ")")
    return Tuple("row", tuple(Tuple("row", row, "row") for row in made), "row")


def _split(text: str, separators: Sequence[str]) -> list[str]:
    """`text` cut at separators outside all brackets; whole when its brackets do not balance."""
    parts, depth, at = [], 0, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in _OPENING:
            depth += 1
        elif token in _CLOSING:
            depth -= 1
            if depth < 0:
                return [text]
        elif depth == 0 and token in separators:
            parts.append(text[at : match.start()])
            at = match.end()
    return [text] if depth else [*parts, text[at:]]


@lru_cache(maxsize=20_000)
def sides(text: str) -> tuple[str, ...]:
    r"""`text` cut at its equality or membership signs outside brackets.

    >>> sides("f(x)=2x"), sides(r"x\in[0,1]"), sides("7")
    (('f(x)', '2x'), ('x', '[0,1]'), ('7',))
    """
    if "=" not in text and "\\in" not in text:
        return (text,)
    return tuple(_split(text, ("=", "\\in")))


# Inequalities as intervals

_RELATION = re.compile(r"<|>|\\[lg]eq(?![A-Za-z]) ?")
_VARIABLE = re.compile(r"\\?[A-Za-z]+(?:_(?:\w|\{\w*\}))?")


def as_interval(text: str) -> tuple[str, str] | None:
    r"""The variable and the interval, or union of intervals, that inequalities stand for; None for another text.

    Inequalities joined by a comma or "and" are the interval that they have in common; when their ends are numbers that
    leave nothing in common, the union is meant.

    >>> as_interval(r"x<2\cup x\geq3"), as_interval("1<x,x<3"), as_interval("x<y")
    (('x', '(-\\infty,2)\\cup[3,\\infty)'), ('x', '(1,3)'), None)
    """
    if not _RELATION.search(text):
        return None
    pieces = []
    for part in _split(text, ("\\cup", "\\lor")):
        ranges = [_range(inequality.strip()) for inequality in _split(part, (",", ";", "\\land"))]
        common = _common(ranges)
        if common is None:
            return None
        pieces += common
    names = {piece.variable for piece in pieces}
    return (names.pop(), "\\cup".join(map(str, pieces))) if len(names) == 1 else None


@dataclass(frozen=True)
class _Range:
    """The interval that one inequality says."""

    variable: str
    low: str = "-\\infty"
    high: str = "\\infty"
    low_closed: bool = False
    high_closed: bool = False

    def __str__(self) -> str:
        opening, closing = "[" if self.low_closed else "(", "]" if self.high_closed else ")"
        return f"{opening}{self.low},{self.high}{closing}"


def _range(text: str) -> _Range | None:
    """`x<2`, `2>x` or `1<x<2`."""
    sides, signs = _RELATION.split(text), [sign.strip() for sign in _RELATION.findall(text)]
    upwards = {sign in ("<", "\\leq") for sign in signs}
    if len(signs) not in (1, 2) or len(upwards) != 1 or not all(sides):
        return None
    if upwards == {False}:
        sides, signs = sides[::-1], signs[::-1]
    closed = [sign.startswith("\\") for sign in signs]
    named = [side for side in sides if _VARIABLE.fullmatch(side)]
    if len(named) != 1 or any("=" in side for side in sides):
        return None
    if len(sides) == 3:
        return _Range(sides[1], sides[0], sides[2], *closed) if sides[1] == named[0] else None
    if sides[0] == named[0]:
        return _Range(sides[0], high=sides[1], high_closed=closed[0])
    return _Range(sides[1], low=sides[0], low_closed=closed[0])


def _common(ranges: Sequence[_Range | None]) -> list[_Range] | None:
    """What inequalities joined by commas stand for; None when one is none, or when it is not clear."""
    if None in ranges:
        return None
    first, *others = ranges
    assert first is not None
    if not others:
        return [first]
    second = others[0]
    assert second is not None
    low, high = (second, first) if "\\infty" in first.low else (first, second)
    ends = number(low.low), number(high.high)
    if len(ranges) != 2 or low.variable != high.variable or "\\infty" not in low.high or "\\infty" not in high.low:
        return None
    if ends[0] is None or ends[1] is None:
        return None
    if ends[0].value > ends[1].value:
        return [high, low]
    return [_Range(low.variable, low.low, high.high, low.low_closed, high.high_closed)]


def is_interval(text: str) -> bool:
    """Whether `text` is written as an interval or a union of such."""
    parsed = parse(text)
    members = parsed.members if isinstance(parsed, Listing) and parsed.union else (parsed,)
    return all(isinstance(member, Tuple) and len(member.members) == 2 for member in members)


def leaves(structure: Structure) -> list[str]:
    """The texts of all single objects in it."""
    if isinstance(structure, Leaf):
        return [structure.text]
    return [text for member in structure.members for text in leaves(member)]


def split(text: str) -> list[str]:
    """The texts of a bare list's members, in order."""
    return _split(text, ",;")


def is_plus_minus(text: str) -> bool:
    r"""Whether `text` stands for several values by a `\pm`."""
    return _PLUS_MINUS.search(text) is not None


def _encloses(text: str, width: int) -> bool:
    """Whether the bracket that opens `text` is closed only by its end."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token.group() in _OPENING) - (token.group() in _CLOSING)
        if depth == 0:
            return token.end() == len(text)
    return False


def _signed(text: str) -> list[str]:
    r"""The texts that `\\pm` stands for: `a\\pm b` is `a+b` and `a-b`, two signs are four texts. Where there is also a `\\mp`, all
    upper and all lower signs belong together. Empty without a sign."""
    parts = _PLUS_MINUS.split(text)  # text, sign, text, sign, ...
    signs = parts[1::2]
    if not 0 < len(signs) <= MOST_SIGNS:
        return []
    if "mp" in signs:
        choices = [signs, ["pm" if sign == "mp" else "mp" for sign in signs]]
    else:
        choices = [list(choice) for choice in product(("pm", "mp"), repeat=len(signs))]
    made = []
    for choice in choices:
        done = parts[0]
        for sign, part in zip(choice, parts[2::2], strict=True):
            plus = "" if not done or done[-1] in "({[,;=" else "+"
            done += ("-" if sign == "mp" else plus) + part
        made.append(done)
    return made


def compare(gold: Structure, answer: Structure, leaf: Compare) -> bool | None:
    """Whether two structures say the same, with `leaf` for the single objects. None: undecided."""
    if isinstance(gold, Leaf) and isinstance(answer, Leaf):
        return leaf(gold.text, answer.text)
    gold, answer = _in_one_order(gold, answer)
    if isinstance(gold, Tuple) and isinstance(answer, Tuple):
        if len(gold.members) != len(answer.members) or (gold.names and answer.names and gold.names != answer.names):
            return False
        # With two members the bracket decides an interval's ends; with more, ( and [ may both enclose a vector.
        if (gold.opening, gold.closing) != (answer.opening, answer.closing):
            return None if {gold.opening, answer.opening} == {"(", "["} and len(gold.members) > 2 else False
        return _ordered(gold.members, answer.members, leaf)
    if isinstance(gold, Tuple) and isinstance(answer, Listing) and not (answer.braces or answer.union):
        # (6,5) answered as 6,5; but the ends of an interval are not the interval
        return not _surely_interval(gold) and _ordered(gold.members, answer.members, leaf)
    if isinstance(gold, Listing) and isinstance(answer, Tuple) and not (gold.braces or gold.union):
        return not _surely_interval(answer) and _ordered(gold.members, answer.members, leaf)
    if isinstance(gold, Listing) or isinstance(answer, Listing):
        equal = _unordered(_as_members(gold), _as_members(answer), leaf)
        union = (isinstance(gold, Listing) and gold.union) or (isinstance(answer, Listing) and answer.union)
        return None if union and not equal else equal  # (0,2) is (0,1) with [1,2)
    single = answer if isinstance(answer, Leaf) else gold
    assert isinstance(single, Leaf)
    return None if _MANIFOLD.search(single.text) else False


def _in_one_order(gold: Structure, answer: Structure) -> tuple[Structure, Structure]:
    """Named members in the order of their names: both sides', or those of an answer by letters to a gold without."""
    if isinstance(answer, Tuple) and answer.names:
        if isinstance(gold, Tuple) and gold.names:
            return _sorted(gold), _sorted(answer)
        if all(len(name) == 1 or name[0] == "\\" for name in answer.names):
            return gold, _sorted(answer)
    return gold, answer


def _sorted(side: Tuple) -> Tuple:
    names, members = zip(*sorted(zip(side.names, side.members, strict=True), key=lambda pair: pair[0]), strict=True)
    return Tuple(side.opening, members, side.closing, names)


def _surely_interval(pair: Tuple) -> bool:
    """Whether two members can only be an interval's ends. `(2,5)` may be a point, and counts as one."""
    return len(pair.members) == 2 and (
        pair.opening == "["
        or pair.closing == "]"
        or any(isinstance(end, Leaf) and "\\infty" in end.text for end in pair.members)
    )


def _as_members(structure: Structure) -> Sequence[Structure]:
    return structure.members if isinstance(structure, Listing) else (structure,)


def _unordered(gold: Sequence[Structure], answer: Sequence[Structure], leaf: Compare) -> bool | None:
    """As sets: every member has its equal on the other side. Repetitions (a double root) say nothing new."""
    # bounds the number of comparisons, each of which may need algebra; more than double is no repetition of roots
    if len(answer) > 2 * len(gold) + SPARE_MEMBERS:
        return False
    met: list[bool | None] = [False] * len(answer)
    undecided = False
    for g in gold:
        matched: bool | None = False
        for index, a in enumerate(answer):
            if matched and met[index]:
                continue  # both have their equal already: one comparison less
            equal = compare(g, a, leaf)
            matched = _either(matched, equal)
            met[index] = _either(met[index], equal)
        if matched is False:
            return False
        undecided |= matched is None
    if False in met:
        return False
    return None if undecided or None in met else True


def _either(a: bool | None, b: bool | None) -> bool | None:
    """`a or b`, with None for unknown."""
    if a or b:
        return True
    return None if None in (a, b) else False


def _ordered(gold: Sequence[Structure], answer: Sequence[Structure], leaf: Compare) -> bool | None:
    if len(gold) != len(answer):
        return False
    results = [compare(g, a, leaf) for g, a in zip(gold, answer, strict=True)]
    if False in results:
        return False
    return None if None in results else True


# Conditions behind an answer

_DECLARED = re.compile(r"([A-Za-z])\\in\\mathbb\{[ZNR]\}|([k-n])(?:>|\\geq)-?\d+")


def given(text: str) -> tuple[str, str]:
    r"""A text, and the condition that stands behind it; empty without one.

    >>> given(r"5k+3\where k\geq0")
    ('5k+3', 'k\\geq0')
    """
    head, _, condition = text.partition(WHERE)
    return head, condition


@dataclass(frozen=True)
class Integers:
    """The letters of gold and answer that run through the integers, as the conditions behind them have it."""

    letters: tuple[str | None, str | None] = (None, None)
    all: bool = True  # through all of them, not from a first one on


def integers(gold: str, answer: str) -> Integers | None:
    """What two conditions say together; None when one contradicts the other, as k >= 0 does k >= 1."""
    said = [condition[1:].replace(" ", "") for condition in (gold, answer)]
    meant = [{"\\geq0", "\\geq1"} if text == r"\in\mathbb{N}" else {text} for text in said]
    if all(said) and r"\in\mathbb{R}" not in said and not meant[0] & meant[1]:
        return None
    found = [_DECLARED.fullmatch(condition) for condition in (gold, answer)]
    letters = [match and (match[1] or match[2]) for match in found]
    if r"\in\mathbb{R}" in said and said[0] != said[1]:  # a constant of one side may be given in the problem
        letters = [None if text == r"\in\mathbb{R}" else letter for text, letter in zip(said, letters, strict=True)]
    return Integers((letters[0], letters[1]), not set(said) - {"", r"\in\mathbb{Z}", r"\in\mathbb{R}"})
