r"""Define words of quantity: numbers, factors and parts in words, and words that change the number before them."""

import re

ONES = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    "|eighteen|nineteen"
)
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_DIGITS = ONES.split("|")[1:10]
_BELOW_100 = [*ONES.split("|"), *(ten + one for ten in _TENS.split("|") for one in ("", *_DIGITS))]
_VALUES = {word: value for value, word in enumerate(_BELOW_100)} | {
    f"{digit}hundred{rest}": 100 * count + value
    for count, digit in enumerate(_DIGITS, 1)
    for value, word in enumerate(["", *_BELOW_100[1:]])
    for rest in (word, word and f"and{word}")
}
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
_PART, _END = "|".join(PARTS), r"(?=[\s.)}]*$)"
_MEASURE = (  # after a part: 3 quarter cups, but 12 sixth graders
    r"(?=\s+(?:parts?|cups?|inch(?:es)?|f(?:oo|ee)t|miles?|hours?|minutes?|seconds?|met(?:er|re)s?|pounds?|lit(?:er|re)s?)"
    r"(?![A-Za-z]))"
)
PART_WORD = rf"(?i:({_PART})(?:s(?![A-Za-z])|{_END}))"
AND_PART = rf"(?i:and\s+(an?|{ONES})\s+){PART_WORD}"
_AND_PART = re.compile(rf"(.*\S)\s+{AND_PART}")
# Text after a number with one of these words, or with a number, changes the value. A word that may describe a noun
# counts only at the end (12 sixth graders), squared only at the beginning.
NO_UNIT = (
    r"(?![\s(]*(?i:squared|cubed)|[^{}]*(?i:(?<![\w^.-])\d|n['’]t(?![A-Za-z])|(?<![A-Za-z])(?:"
    rf"(?:{ONES}|{_TENS})(?!-?[A-Za-z])|half(?!-)|tens|ones|scores?|gross|dozens?"
    r"|(?:hundred|thousand|lakh|crore|[a-z]+illion)s?|permille|per mille"
    rf"|(?:{_PART}|eleventh|twelfth|(?:ten|hundred|thousand|[a-z]+(?:teen|tie|illion))th)(?:s|{_END}|{_MEASURE})"
    rf"|(?:fold|double|triple|negative|reciprocal|inverse|false|minimum|maximum|under|over|up){_END}"
    r"|negated|doubled|tripled|quadrupled|halved|twice|thrice|factorial|bn|mn|upwards?|onwards?|beyond"
    r"|extraneous|rejected|discarded|invalid|impossible|wrong|incorrect"
    rf"|not|never|neither|nor|none|cannot|except|excluding|unless|without{_END}|than|or so|or above|or below"
    r"|(?<!the )(?:more|less|greater|fewer|larger|smaller|higher|lower|least|most)"
    r"|plus|minus|modulo|multiplied|divided|add(?:ed)?|subtract(?:ed)?|raised"
    r"|(?:times|over)(?=\s+(?:[b-z]|pi|itself|over)(?![A-Za-z]))"  # not 3 times as many
    r"|to the (?:power|[a-z]+th|third|second))(?![A-Za-z])))"
)
# Not after words that announce a value: a condition, a bound, a negation, arithmetic.
NO_LEAD = (
    r"(?![^{}]*(?<![A-Za-z])(?i:not|no|if|when|for|unless|except|minus|negative|least|most|than|less|below|above|up to"
    r"|exceeds|twice|half|opposite|reciprocal|negation|squared?)(?![A-Za-z]))"
)
# A remark in brackets that leaves a value as it is: to the nearest cent, 2 d.p., not 6
REMARK = (
    r"\((?i:\s*not\s+-?[\d.]+(?:\s*(?:,|or)\s*-?[\d.]+)*"
    r"|(?:\s*(?:rounded|correct|accurate|approximated)(?: (?:up|down|off))?)?(?:\s*to)?(?:(?:\s*the)?\s*nearest\s"
    r"(?![^()]*\b(?:not|plus|minus|less|more|than)\b)(?:[a-z\s-]+|[\d.,]+)|\s*(?:\d+|[a-z]+)\s*(?:decimals?"
    r"|decimal places?|sig(?:nificant|\.)? ?fig(?:ure)?s?\.?|significant digits?|d\.?p\.?|s\.?f\.?)))\s*\)"
)


def counted(words: str) -> str | None:
    r"""Return the digits of a number word below a thousand, as a mixed number with a part after "and".

    >>> counted("Twenty-nine"), counted("one hundred and one half"), counted("two and three halves"), counted("pair")
    ('29', '100\\frac{1}{2}', None, None)
    """
    found = _AND_PART.fullmatch(words.strip())
    words, part = (found[1], proper(found[2], found[3])) if found else (words, "")
    value = _VALUES.get(re.sub(r"[\s-]", "", words).lower())
    return None if value is None or part is None else f"{value}{part}"


def proper(count: str, part: str) -> str | None:
    """Return the fraction of `a half` or `three quarters`; None unless it is below one."""
    over, under = _VALUES.get(count.lower(), 1), PARTS[part.lower()]
    return f"\\frac{{{over}}}{{{under}}}" if over < under else None
