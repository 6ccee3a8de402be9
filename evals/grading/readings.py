r"""Read a raw answer for a gold that is a number: the words, currencies and signs around it then carry no meaning.

These readings are not in `normalise`: for a symbolic gold a word may be a product of letters. They are tried only after
the unchanged answer has failed, so they can only accept.
"""

import re

from evals.grading.normalise import LONGEST_CONDITIONED, WRAPPER, Rules, applied
from evals.grading.quantities import NO_UNIT, counted

_SPACE = r"(?:\s|~|\\[ ,;:!])"
_BLANK = f"{_SPACE}*"
# Currencies. US5 and 5CA are names or products and 5CAD a numeral: those need a blank, a text command or a dollar sign.
_CODES = r"USD|EUR|GBP|INR|JPY|CNY|RMB|CHF|KRW|AUD|HKD|NZD|Rs\.?"
_APART = "US|CAD?|AU|HK|NZ"
_MICRO = "(?:m|s|g|l|L|C|F|A|V|W|H|J|N|T|Pa|Hz|mol|Ci|Sv|M)"
_ARGUMENT = r"(?:\{\s*(\d{1,9})\s*\}|(\d))"
_RULES: Rules = {
    r"^\s*\\(?:implies|to|(?:long)?(?:[Rr]ight|[Ll]ongright)arrow|therefore)(?![A-Za-z])": "",
    rf"^\s*{WRAPPER}\s*\{{\s*(?i:thus|so|hence|therefore|then|finally|exactly|precisely|just|only|about"
    r"|approximately|(?:a )?total(?: of)?)\s*[,:]?\s*\}": "",
    rf"^\s*(?:{WRAPPER}\s*\{{\s*(?i:negative|minus)\s*\}}|(?i:negative|minus)\s){_BLANK}(?=[\d.\\])": "-",
    rf"^\s*(?:{WRAPPER}\s*\{{\s*(?:{_CODES}|{_APART})\s*\}}|(?:{_CODES})(?![A-Za-z])|(?:{_APART})(?={_SPACE}|\\?\$))"
    rf"{_BLANK}\\?\$?(?=\s*-?[\d.])": "",
    r"\\(?:yen|euro|EUR|pounds|rupee|text(?:sterling|euro|yen|won))(?![A-Za-z])": "",
    rf"(?<=[\d}}])(?:{_BLANK}(?:{_CODES})|{_SPACE}+(?:{_APART}))\s*$": "",
    # units with a Greek letter: \Omega, k\Omega, \mu\text{m}
    rf"(?<=[\d}}]){_BLANK}(?:{WRAPPER}\s*\{{\s*)?[kMGTmnp]?\s*\}}?\s*"
    r"(?:\\(?:Omega|AA|ohm)(?![A-Za-z])|[ΩΩ])[\s}]*$": "",
    # not without \text or the sign μ: 5\mu mg is a formula
    rf"(?<=[\d}}]){_BLANK}\\(?:mu|micro)(?![A-Za-z])\s*{WRAPPER}\s*\{{\s*{_MICRO}\s*\}}\s*$": "",
    rf"(?<=[\d}}]){_BLANK}(?:(?:{WRAPPER}\s*\{{\s*)?[μµ]|{WRAPPER}\s*\{{\s*\\mu)\s*{_MICRO}[\s}}]*$": "",
    rf"(?<=\d){_BLANK}(?:{WRAPPER}\s*\{{\s*)?quarters[\s}}]*$": "",  # coins, or a fraction
    # 1 \text{ and } \frac14 is a mixed number, 1 \text{ and } \frac54 is not; a list keeps its comma
    rf"^(\s*-?\d+)\s*(?:{WRAPPER}\s*\{{\s*and\s*\}}|\sand\s)\s*"
    rf"(?=\\[dt]?frac\s*{_ARGUMENT}\s*{_ARGUMENT})": lambda m: m[1] if int(m[2] or m[3]) < int(m[4] or m[5]) else m[0],
    r"^\s*(\d+)\s*\(([A-Za-z -]+)\)\s*$": lambda m: m[1] if counted(m[2]) == m[1] else m[0],  # 5 (five)
}

# A number with the noun that it counts, for a gold that is a number: 12 ways, \text{7 apples}, 5 million people.
_COUNTED_NOUN = re.compile(
    rf"(?s)({WRAPPER}\s*\{{)?(.*[\d}})$](?:\s+(?:dozen|hundred|[a-z]+illion|thousand))?)(?:\s|~|\\[ ,;:!])+"
    r"([A-Za-z][a-z]{2,}(?:[\s-]+[A-Za-z][a-z]{2,}){0,5})[.\s]*(\})?[.\s]*"
)
# Further words that name nothing to count: functions, letters, signs and relations.
_NO_NOUN = re.compile(
    r"(?i)(?:arc|a)?(?:sin|cos|tan|cot|sec|csc)h?|log|exp|sqrt|min|max|gcd|lcm|det|arg|abs|floor|ceil|choose|permute"
    r"|alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|rho|sigma|tau|phi|chi|psi|omega|inf(?:inity|ty)?"
    r"|times|over|percent(?:age|s)?|pct|per|power|base|equals?|and|but|for|from|into|between|through"
    r"|when|where|with"
)


def beside_number(answer: str) -> str | None:
    r"""Return a raw answer without the parts that carry no meaning around a number; None if it has none.

    >>> beside_number("Rs. 12"), beside_number("5 (five)"), beside_number(r"\text{Thus, } 12 ways"), beside_number("12")
    ('12', '5', '12', None)
    >>> beside_number("12 different ways"), beside_number(r"\text{7 apples}"), beside_number("12 xyz")
    ('12', '\\text{7}', None)
    """
    if len(answer) > LONGEST_CONDITIONED:
        return None
    before = " ".join(answer.split())
    text = applied(_RULES, before).strip()
    # a word follows a blank and has a vowel; letters in alphabetical order are a product, as in 12 abc
    if (noun := _COUNTED_NOUN.fullmatch(text)) and bool(noun[1]) == bool(noun[4]) and re.match(NO_UNIT, noun[3]):
        names = re.split(r"[\s-]+", noun[3].lower())
        # four sorted letters in text are a word: 12 boys
        products = [list(name) == sorted(name) and not (noun[1] and len(name) > 3) for name in names]
        if not any(products) and all(re.search("[aeiou]", name) and not _NO_NOUN.fullmatch(name) for name in names):
            text = (noun[1] or "") + noun[2] + (noun[4] or "")
    return None if text == before else text
