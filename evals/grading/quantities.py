r"""Define words of quantity: numbers, factors and parts in words, and words that never occur in a unit."""

import re

ONES = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    "|eighteen|nineteen"
)
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
# 5\text{ million dollars}, 3 dozen, 7 hundredths: a factor, not a unit
FACTORS = {
    "dozen": "12", "hundred": "100", "thousand": "1000", "million": "1000000", "billion": "1000000000",
    "trillion": "1000000000000", "tenth": "10^{-1}", "hundredth": "10^{-2}", "thousandth": "10^{-3}",
    "millionth": "10^{-6}", "billionth": "10^{-9}",
}  # fmt: skip
# 2\text{ thirds}; the singular only at the end, unlike 12 sixth graders. 12\text{ and a half} is a mixed number.
PARTS = {
    "half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
    "ninth": 9,
}  # fmt: skip
PART_WORD = rf"({'|'.join(PARTS)})(?:s(?![A-Za-z])|(?=[\s.}}]*$))"
_COUNTED = re.compile(rf"({_TENS})(?:[\s-]*({ONES[5:48]}))?|({ONES})")
# Words of quantity, negation, comparison and arithmetic: text with one of them is not a unit after a number.
NOT_A_UNIT = (
    r"(?:(?=\s*\((?!\s*(?:or\s|,)))|"  # a remark: (to the nearest cent), (not 6)
    rf"(?![^{{}}]*(?:(?<![A-Za-z])(?:(?:{ONES}|{_TENS})(?!-?[A-Za-z])|half(?!-)|halves|(?:{'|'.join(PARTS)})s|tens"
    r"|scores?|gross|dozens?|hundreds?|thousands?|[a-z]+illions?|permille|per mille|not|never|neither|nor|except"
    r"|excluding|wrong|incorrect|than|or so|or above|or below|plus|minus|multiplied|divided|added|subtracted|raised"
    r"|(?<!the )(?:more|less|greater|fewer|larger|smaller|higher|lower|least|most)|twice|doubled|tripled|halved"
    r"|factorial|to the (?:power|[a-z]+th|third|second))(?![A-Za-z])"
    r"|n't(?![A-Za-z]))|\s*(?:squared|cubed)|[^{}(]*(?<![\w^.-])\d))"
)


def counted(words: str) -> str | None:
    """Return the digits of a number word below a hundred: `twenty-one` is 21."""
    found = _COUNTED.fullmatch(words.strip().lower())
    if not found:
        return None
    tens = 10 * (_TENS.split("|").index(found[1]) + 2) if found[1] else 0
    return str(tens + ONES.split("|").index(found[2] or found[3] or "zero"))
