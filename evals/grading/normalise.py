r"""Normalise golds and answers to one canonical text.

Typesetting must not matter, content must. Nothing is computed and nothing is repaired. Delimiters,
spacing, sizes, thousands separators, degree signs and units written as text are removed; `\dfrac` becomes `\frac`,
`\frac12` becomes `\frac{1}{2}`. Callers bound the length of the text (`LONGEST_ANSWER`), because models write it.
"""

import math
import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache, partial

from evals.grading.boxes import balanced, last_box
from evals.grading.quantities import AND_PART, FACTORS, NO_LEAD, NO_UNIT, PART_WORD, PARTS, REMARK, counted, proper

Rules = dict[str, str | Callable[[re.Match[str]], str]]  # pattern -> replacement, applied in this order

DEEPEST_FRACTION = 30  # nested; deeper ones stay as they are
_FIRST = re.compile(r"\\frac\s*(\\[A-Za-z]+|[^\s{}])")
_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*\})*\}"  # five braces deep
_SECOND = re.compile(rf"(\\frac\s*{_GROUP})\s*(\\[A-Za-z]+|[^\s{{}}])")
LONGEST_ANSWER = 4000  # characters; the longest gold of the seven benchmarks has under 500

# Commands that print their argument as it is.
WRAPPER = (
    r"\\(?:text|textbf|textit|textrm|textnormal|textsf|mbox|hbox"
    r"|mathrm|mathbf|mathit|mathsf|operatorname|bold|boldsymbol|bm)\*?"
)
_TEXT = re.compile(rf"{WRAPPER}\s*\{{([^{{}}]*)\}}")
_LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")  # a single one
_STARTS_NUMBER = re.compile(r"\s*(?:[-+]|\.?\d)")
_HOUR = r"(?:0?[1-9]|1[0-2])(?::\d{2})?"
# The letter of a choice, with or before its content: \textbf{(E) } 81, \text{(C) Plane}, B) 5, E: a score, \text{Option
# E}. Not where several letters occur.
_LETTERED = re.compile(
    rf"(?s)^({WRAPPER}\s*\{{)?\s*(?:(?i:option|choice|answer)\s+)?\(?([A-E])(?:(?:\)[.:]?|[.:])(\s*\}}[\s~]*|\s*)|\s*\}}?$)"
    r"(?!.*(?<![A-Za-z\\])[A-E][).:])(.*)"
)
# Content that is not the choice's: (B) + 5 is a sum. Without a text command it is a number, because the letter may
# otherwise be a factor.
_NO_CONTENT = re.compile(
    r"[\s}]|[,;&+*/=^_]|\\(?:cup|cap|and|or|land|lor|to|times|cdot)(?![A-Za-z])|(?:and|or|to)(?![A-Za-z])|$"
)
_NUMBER_AHEAD = re.compile(r"\.?\d|\\(?:frac|sqrt|pi|text)")
# Words that announce a value: \text{Answer: } 23, \text{There are } 359, \text{The answer is 7}
_ANNOUNCED = r"[A-Za-z' ]*?(?::|(?<![A-Za-z])(?:is|are|equals)(?![A-Za-z]))\s*"
_LEAD = re.compile(
    rf"^(?:{WRAPPER}\s*\{{{NO_LEAD}\s*{_ANNOUNCED}\}}\s*(?=\S)"
    rf"|({WRAPPER}\s*\{{){NO_LEAD}\s*{_ANNOUNCED}(?=[-+]?\.?\d)"
    r"|(?:[Tt]he )?(?:[Ff]inal )?[Aa]nswer(?::| is)\s*(?=\S))"
)
_REMARK = re.compile(rf"({WRAPPER}\s*\{{[^{{}}()]*){REMARK}(?=[\s.]*\}}\s*$)")
_ARTICLE = re.compile(r"\s*(?:an?|the)\s+(?=[A-Za-z]{2})", re.IGNORECASE)
_UNIT_LETTER = "[mgsNJKVWACFhlLTHdMuDGPBÅ]"
_RELATION = re.compile(r"[<>]|\\[lgn]eq(?![A-Za-z])")
# A unit written as text at the end, after something that can have a unit.
_UNIT_TEXT = re.compile(
    r"(?<=[\d})!a-zA-Z|])\s*(?:\\cdot|/)?\s*"
    rf"(?:\\(?:text|textrm|textbf|textnormal|mbox|hbox)\s*\{{(?:\s*{_UNIT_LETTER}?\s*|(?!\s*(?:.|[xyz]+|pi|\\[a-z]+)\s*\}})"
    rf"{NO_UNIT}[^{{}}]*)\}}"
    # a quotient of them: \frac{\text{m}}{\text{s}^2}
    r"|\\frac\s*(?:\{\s*\\(?:text|mathrm|mbox)\s*\{[^{}]*\}(?:\s*\^\s*(?:\{\s*-?\d\s*\}|-?\d))?\s*\}\s*){2}"
    # \mathrm{e} and \mathrm{i} are numbers
    rf"|\\mathrm\s*\{{(?:\s*[mgsNJKVWACFhlLTH]\s*|{NO_UNIT}[^{{}}]{{2,}})\}}"
    # m s^{-2}: with an exponent in braces; not of a letter that is not a unit alone
    r"|\\(?:text|mathrm)\s*\{(?=[^{}]*\^\{)(?!\s*[a-fijkn-rt-z]\s*\^)"
    r"(?:[A-Za-z\s/.*]|\\cdot|\\mu|\^\{\s*-?\d\s*\}|\^-?\d)+\})"
    r"(?:\s*\^\s*(?:\{\s*-?\d\s*\}|-?\d))?\s*$",
)
# A unit written as a bare word at the end. No one-letter units: `5 m` may be a product with a variable.
_UNIT_WORDS = re.compile(
    r"(?i)(?<=[\d}\s)])\s*(?:(?:square|cubic|sq\.?)\s+)?(?:cm|mm|km|kg|nm|ms|ft|feet|foot|inch(?:es)?|yards?|miles?|"
    r"met(?:er|re)s?|"
    r"centimet(?:er|re)s?|units?|degrees?|deg|radians?|rad|seconds?|secs?|minutes?|mins?|hours?|"
    r"days?|weeks?|months?|years?|cents?|dollars?|"
    r"mph|lbs?|grams?|kilograms?|lit(?:er|re)s?)(?:\s*\^\s*(?:\{\s*\d\s*\}|\d))?\s*$"
)
# `1 \text{ and } 2` is the list 1,2
_CONJUNCTION = re.compile(
    rf",?\s*(?:{WRAPPER}\s*\{{\s*,?\s*(and|or)\s*\}}|(?<![A-Za-z\\])(and|or)(?![A-Za-z])|\\(land|lor)(?![A-Za-z]))\s*",
    re.IGNORECASE,
)
# The name before a member of a list: \text{Anna: } 18, Ben: 14, (a) 18
_BETWEEN = r"(^\s*|[,;]\s*|(?<![A-Za-z])and(?:\s*\})?\s*)"
_VALUE = r"(?=[-+.\d\\(])"
_LABEL = re.compile(rf"{_BETWEEN}(?:{WRAPPER}\s*\{{\s*)?([A-Za-z][A-Za-z ]*?)\s*(?:\}}\s*:|:\s*\}}|:)\s*{_VALUE}")
_PART = re.compile(rf"{_BETWEEN}\(([a-h]|i{{1,3}}|iv)\)\s*{_VALUE}")
_TRAILING = ".,;:"
COMMAND = re.compile(r"\\[A-Za-z]+")
# `3, 125` and `$3$, $5$` are lists, although three digits follow the comma of the first
_LISTED = re.compile(r"(?<=\d)\s*,\s+(?=\d{3}(?!\d))|(?<=\d)\$\s*,\s*\$(?=\d)")
# In `7,500, 2,500` the comma without a space groups digits, so the one with a space separates members.
_COMMA_GROUP = re.compile(r"\d,\d{3}(?!\d)")
_COMMA_SPACE = re.compile(r"(?<=\d),\s+(?=[-+]?\d)")
_SPACING = re.compile(r"(?<!\\)\\(?:[,;:>!]|\s)|~")  # not the row break `\\` of a matrix
_DELIMITERS = re.compile(r"\\[()\[\]]|\\?\$")
# Degrees of an angle or a temperature: 90^\circ, 20^\circ C.
_DEGREE = r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\})"
_CELSIUS = r"\s*(?:\\(?:text|mathrm|mbox)\s*\{\s*[CF]\s*\}|[CF](?![A-Za-z]))"
_ANGLE = re.compile(rf"(?:(?<![\d.}}])(\d+(?:\.\d+)?)\s*)?{_DEGREE}(?!{_CELSIUS})")
_ANGLE_WORD = re.compile(r"(?<=[\d}])\s*(?:\\(?:text|mathrm|mbox)\s*\{\s*)?deg(?:ree)?s?(?![A-Za-z])\.?(?:\s*\})?")

# A condition after an answer: `\text{ for all } x`, `\text{ where } k \ge 0`, `, x \in \mathbb{R}`. In the canonical
# text a statement about one letter follows the mark. An "if" or "when" makes the answer a case, which is kept whole.
WHERE = "\\where "
LONGEST_CONDITIONED = 600  # characters; longer texts are not searched for a condition or a noun
_STATES = r"(?:\\in|\\[lgn]eq)(?![A-Za-z])|[<>]"
_TAIL = re.compile(
    rf"(?is)[\s,;(]*(?:{WRAPPER}\s*\{{[\s,(]*)?"
    r"(?:(?<![A-Za-z\\])(?:where|with|for|given|provided)(?![A-Za-z])|\\forall(?![A-Za-z]))(.*)"
    rf"|\s*[,;(][\s(]*((?:[A-Za-z]\s*,\s*)*[A-Za-z]\s*(?:{_STATES}).*)"
)
_TELLING = re.compile(r"all|any|every|each|some|arbitrary|integer|real|natural|constant|positive", re.IGNORECASE)
_STATED = re.compile(rf"([A-Za-z])\s*({_STATES})\s*(.*?)[\s)]*$", re.DOTALL)
# Words for a number or a set.
_SAID = {
    r"none|(?:there(?:is|are)|(?:the(?:equation|system))?has)?no(?:real|integer|such|valid)*"
    r"(?:solution|root|value|number|integer)s?(?:exists?)?": r"\emptyset",
    "(?:the)?(?:setof)?(?:all)?(?:the)?real(?:number|value)?s[a-z]?": r"\mathbb{R}",
    "(?:the)?(?:setof)?(?:all)?(?:the)?integers": r"\mathbb{Z}",
    "infinitelymany(?:solutions)?|infinit[ey]": r"\infty",
    "dne|(?:thelimit|it)?doesnotexist": r"\text{doesnotexist}",
}

# Unicode signs as LaTeX, full-width signs as ASCII, special blanks as plain ones; zero-width characters, marks of
# direction and signs of currencies disappear.
_GREEK = "αβγδεζηθικλμνξπρςστυφχψωΓΔΘΛΞΠΣΦΨΩ"
_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma sigma tau upsilon phi chi"
    " psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
)
_SYMBOLS = str.maketrans(
    {
        **{chr(0xFEE0 + at): chr(at) for at in range(0x21, 0x7F)},
        **dict.fromkeys(map(chr, (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF)), ""),
        **dict.fromkeys("€£¥₹₩₽₺₫₴₦₱₪₡฿¢￥￡￦", ""),
        **{letter: f"\\{name} " for letter, name in zip(_GREEK, re.findall(r"\w+", _NAMES), strict=True)},
        "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": r"\div ", "π": r"\pi ",
        "∞": r"\infty ", "°": r"^\circ ", "≤": r"\leq ", "≥": r"\geq ", "≠": r"\neq ", "∪": r"\cup ", "∩": r"\cap ",
        "∈": r"\in ", "±": r"\pm ", "²": "^2", "³": "^3", "\u00a0": " ", "\u3000": " ", "⩽": r"\leq ", "⩾": r"\geq ",
        "\u2009": " ", "\u202f": " ", "′": "'", "″": "''", "\x00": " ", "⊙": r"\odot ", "‐": "-", "‑": "-", "⁄": "/",
        "℃": r"^\circ C", "℉": r"^\circ F", "µ": r"\mu ", "\u2126": r"\Omega ", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]",
        "≈": r"\approx ", "≡": r"\equiv ", "√": r"\sqrt ",
        "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "∀": r"\forall ", "…": r"\ldots ",
        "∨": r"\lor ", "∧": r"\land ",
    }
)  # fmt: skip
_SPELLINGS = {
    r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac", r"\dbinom": r"\binom", r"\tbinom": r"\binom",
    r"\le": r"\leq", r"\leqslant": r"\leq", r"\ge": r"\geq", r"\geqslant": r"\geq", r"\ne": r"\neq", r"\lt": "<",
    r"\gt": ">", r"\vee": r"\lor", r"\wedge": r"\land", r"\ast": "*", r"\varnothing": r"\emptyset", r"\lbrace": r"\{",
    r"\rbrace": r"\}", r"\lbrack": "[", r"\rbrack": "]", r"\lvert": "|", r"\rvert": "|", r"\vert": "|",
    r"\degree": r"^\circ", r"\infinity": r"\infty", r"\quad": " ", r"\qquad": " ", r"\R": r"\mathbb{R}",
    r"\Z": r"\mathbb{Z}", r"\N": r"\mathbb{N}", r"\colon": ":", r"\dots": r"\ldots", r"\cdots": r"\ldots",
    r"\dotsc": r"\ldots", r"\backslash": r"\setminus",
}  # fmt: skip

_compiled = cache(re.compile)
_THIN = r"(?:\{,\}|,\\!|\\[,;: !]|~)"  # separators used only between groups of three digits
_ascii = partial(unicodedata.normalize, "NFKC")
# Signs of Unicode, before _SYMBOLS
_SIGNS: Rules = {
    "[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]{2,}|[⁰¹⁴⁵⁶⁷⁸⁹]": lambda m: f"^{{{_ascii(m[0])}}}",  # 10⁻¹² is 10^{-12}
    "[₀-₉]+": lambda m: f"_{{{_ascii(m[0])}}}",
    "[¼-¾⅐-⅞]": lambda m: "\\frac{{{}}}{{{}}}".format(*_ascii(m[0]).split("⁄")),  # ⅔
    # √51 is \sqrt{51}, although TeX would end a bare root after its first digit
    r"([√∛∜])\s*(\d+(?:\.\d+)?)": r"\1{\2}",
}
_SETS = {
    r"(?i)non-?\s?negative (?:integer|whole)|\\mathbb\{[ZN]\}_(?:\{\\geq ?0\}|0)": r"\geq0",
    r"(?i)positive (?:integer|whole)|\\mathbb\{[ZN]\}[_^](?:\{?\+\}?|\*|\{>0\}|\{\\geq ?1\})": r"\geq1",
    r"(?i)natural|\\mathbb\{N\}": r"\in\mathbb{N}",
    r"(?i)integer|\\mathbb\{Z\}": r"\in\mathbb{Z}",
    "": r"\in\mathbb{R}",  # carries no information
}
_TYPESETTING: Rules = {
    rf"(?<=\d)(?:{_THIN}\s*)+(?=\d{{3}}(?!\d))": "",  # 10{,}000 and 10\,000; then 10'000, 10_000 and 1.000.000
    r"(?<![\w.'])\d{1,3}(?:(?:'\d{3})+|(?:\\?_\d{3})+|(?:\.\d{3}){2,})(?![\d.'_])": lambda m: re.sub(r"\D", "", m[0]),
    _DELIMITERS.pattern: "",
    r"\\(?:(?:text)?color(?:box)?|fcolorbox\s*\{[^{}]*\})\s*(?:\[\w+\])?\s*\{[^{}]*\}|\\bbox\s*\[[^\]]*\]": "",
    # Commands that only change size or font. Each is matched whole, so that `\le` does not match inside `\left`.
    r"\\(?:textdollar|left|middle|right|displaystyle|textstyle|limits|[bB]ig[lr]?|[bB]igg|rm|bf|bfseries|cal|underline"
    r"|ensuremath|tiny|small|normalsize|[lL]arge|LARGE|[hH]uge)(?![A-Za-z])": "",
    r"\\(?:operatorname|mathrm)\*? ?\{ ?((?:arc|a)?(?:sin|cos|tan|cot|sec|csc)|cis|log|ln|exp) ?\}": r"\\\1 ",
    COMMAND.pattern: lambda m: _SPELLINGS.get(m[0], m[0]),
    rf"(?:{_SPACING.pattern}|\s)+": " ",  # one blank: the rules below are quadratic in a run of them
    r"(?<![\d.])\d{1,3}(?: \d{3})+(?!\d)": lambda m: m[0].replace(" ", ""),  # 10 000
    r"\^\s*(?:\{\s*((?:\\prime\s*)+)\}|(\\prime)(?![A-Za-z]))": lambda m: "'" * m[0].count("\\prime"),
    r"<\s?=|=\s?<": r"\\leq ",
    r">\s?=": r"\\geq ",
    r"\*\* ?(-?\d+(?:\.\d+)?|[A-Za-z]|\((?:[^()]|\([^()]*\))*\))": r"^{\1}",  # 2**10
    r"(?<=\s)!=": r"\\neq ",  # directly after a number or letter it is a factorial: 5!=120
    r"(?<=\d)\s*\.{3}": r"\\ldots ",
    r"(?s)(?:\\\{ ?)?\\begin ?\{(cases|aligned|align\*?|gathered|split|array)\} ?(?:\{[lcr| ]*\})?"
    r"((?:(?!\\begin|\\text).)*?)\\end ?\{\1\}(?: ?\.(?!\d))?": lambda m: _system(m),
    # degrees, minutes and seconds: 45^\circ 30' is 91/2 degrees
    rf"(?<![\d.])(\d+)\s*{_DEGREE}\s*(\d+)\s*'(?!')(?:\s*(\d+)\s*'')?": lambda m: _minutes(m),
}
# Rows of a matrix, in one spelling
_ROWS: Rules = {
    r"\\\\\s*\[[^\[\]]*\]|\\(?:cr|tabularnewline)(?![A-Za-z])": r"\\\\",
    r"\\hline(?![A-Za-z])": "",
    r"(?<=\{)smallmatrix(?=\})": "pmatrix",
}
_ESCAPES: Rules = {r"\\\\(?=[A-Za-z])": r"\\"}
_SIGN = r"(?:[=<>]|\\[lgn]eq(?![A-Za-z]))"
_UNITS: Rules = {
    rf"{_DEGREE}(?:{_CELSIUS})?": "",
    # 2.5 M_\odot as a whole: a mass, luminosity or radius in solar units
    r"^([-+]?[\d.,]+(?:\s*\\(?:times|cdot)\s*10\s*\^\s*(?:\{\s*-?\d+\s*\}|\d))?)\s*[MLR]_\s*\{?\s*\\odot\s*\}?$": r"\1",
    # 231_{\text{five}}, 231_{(5)}, 231 \text{ (base 5)}, 231 \text{ in base } 5
    rf"^([^{{}}]*\d\)?)\s*(?:_|(?=[a-z\\\s{{(]*base))[\s{{]*(?:{WRAPPER}\s*\{{)?[\s(]*(?:(?:in\s+)?base[\s}}-]*)?"
    r"(\d+|[a-z]+)"
    r"[\s)}]*$": lambda m: f"{m[1]}_{{{value}}}" if (value := m[2] if m[2].isdigit() else counted(m[2])) else m[0],
    r"\\%|%|(?<=[\d}\s)])(?:\\(?:text|mbox|mathrm)\s*\{\s*)?\s*(?i:per ?cent(?:age)?|pct)(?:\s*\})?\s*$": "%",
}
_WORDS: Rules = {
    # 4:30 p.m., 6\text{ p.m.}; only after an hour: 361\text{ pm} are picometres
    rf"(?:^|(?<![\d.:,])(?=.*\{{))({_HOUR})\s*(?:\\(?:text|mathrm|mbox)\s*\{{\s*)?"
    r"([AaPp])\.?\s*[Mm]\.?\s*\}?$": lambda m: f"{m[1]}{m[2].lower()}m",
    rf"^(\d+)\s*\^\s*(?:\{{\s*)?(?:{WRAPPER}\s*\{{\s*)?(st|nd|rd|th)[\s}}]*$": r"\1\2",  # 12^{th}
    rf"^(\d+)\s*(?:{WRAPPER}\s*\{{\s*to\s*\}}|to)\s*(\d+)$": r"\1:\2",  # 5 to 2
    r"(?<=\d)\s*\\(?:text|textrm|mbox)\s*\{\s*k\s*\}": r"\\cdot1000",  # 540\text{k}; K is a unit
    rf"(?<![\d.^_/])(\d+)\s*({WRAPPER}\s*\{{)?\s*"
    rf"{AND_PART}": lambda m: f"{m[1]}{part}{m[2] or ' '}" if (part := proper(m[3], m[4])) else m[0],
    rf"(?<=[\d}}])\s*({WRAPPER}\s*\{{)?\s*"
    rf"{PART_WORD}": lambda m: f"\\cdot\\frac{{1}}{{{PARTS[m[2].lower()]}}}{m[1] or ' '}",
    rf"(?<=[\d}}])\s*({WRAPPER}\s*\{{)?\s*"
    rf"(?i:({'|'.join(FACTORS)})s?)(?![A-Za-z])": lambda m: f"\\cdot{FACTORS[m[2].lower()]}{m[1] or ' '}",
}
_MATHEMATICS: Rules = {
    r"(?<![A-Za-z\\])infinity(?![A-Za-z])": r"\\infty ",
    # Functions without a backslash or as code, np.arcsin(10/13): some golds of Minerva are written so.
    r"(?<![A-Za-z\\])(?:(?:np|math|sp|sympy|numpy)\.)?"
    r"(arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|cis|log|ln|exp|sqrt|pi|infty)(?![A-Za-z])": r"\\\1 ",
    r"(?<![A-Za-z\\])cbrt ?\(([^()]*)\)": r"\\sqrt[3]{\1}",
    r"\\(?:mathcal|mathscr) ?\{ ?O ?\}": "O",
    r"\\sqrt\s*(\d)": r"\\sqrt{\1}",
    r"(?s)^.*\\frac.*$": lambda m: braced_fractions(m[0]),
    # One blank stays between a command and a letter, and between two numbers, which are then not one number.
    r"(\\[A-Za-z]+)\s+(?=[A-Za-z])|(?<=\d)(\s)\s*(?=[\d.])|\s+": lambda m: f"{m[1]} " if m[1] else " " if m[2] else "",
    # 3 1/2; 3 5/2 is not a mixed number
    r"(?<![\d./^_])(\d+) (\d+)"
    r"/(\d+)(?![\d/.^])": lambda m: f"{m[1]}\\frac{{{m[2]}}}{{{m[3]}}}" if int(m[2]) < int(m[3]) else m[0],
    r"([\^_])\{([A-Za-z0-9])\}(?!\d)": r"\1\2",  # x^{2} is x^2
}
_ENDINGS: Rules = {
    # a sign in front of a value, without a left side or with a single letter: `= 211`, `x \approx 468`
    r"^(?:=|(?:[A-Za-z](?:_\w)?)?\\(?:approx|simeq)(?![A-Za-z])) ?(?=[-+.\d\\(])": "",
    r"^(-?\d*\.)\((\d+)\)$": r"\1\\overline{\2}",  # 0.(6)
    r"^(-?\d*\.\d*)\\(?:overline|bar) ?(\d)$": r"\1\\overline{\2}",  # 0.8\bar3
    r"^(\d*\.\d*)\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?$": r"\1\\overline{\2\3\4}",  # 0.\dot{2}\dot{7}
    # 0.1666\ldots: a period is printed twice, one digit three times
    r"^(\d*\.\d{0,20}?)(?:(\d)\2{2,}|(\d{2,12}?)\3+)\\ldots$": r"\1\\overline{\2\3}",
    r"^(\d*\.\d+)\\ldots$": r"\1",
    r"(?<=\d)_\{base(\d+)\}$": r"_\1",
    r"^\\\{\\\}$": r"\\emptyset",
    r"^\d+(?::\d+){2,}$": lambda m: _reduced(m[0]),  # 2:4:6 is 1:2:3
    # a vector is a point: \langle 1, 2 \rangle, and a column, with a factor multiplied in
    r"^((?:[A-Za-z]=)?)\\langle ?(.*,.*)\\rangle$": r"\1(\2)",
    r"^((?:[A-Za-z]=)?)(-?(?:(?!\\begin)[^-+=\[(])*?)(?:\\cdot ?)?[\[(]?\\begin\{([pbB]?matrix|array)\}(?:\{c\})?"
    r"((?:(?!\\begin)[^&])*?\\\\(?:(?!\\begin)[^&])*?)(?:\\\\)?\\end\{\3\}"
    r"[\])]?$": lambda m: (
        f"{m[1]}({','.join(f'{m[2]}({cell})' if m[2] else cell for cell in m[4].split(2 * chr(92)))})"
    ),
}
# \{x \mid x < 4\}, \{x \in \mathbb{R} : x < 4\}; \{2k+1 : k \in \mathbb{Z}\}
_BUILT = re.compile(
    r"\\\{(?:([A-Za-z]|\\[A-Za-z]+)(?: ?\\in ?\\mathbb\{R\})?|((?:(?!\\in(?![a-z]))[^|:])+?))"
    r"(?:\\mid ?|:|\|)((?:(?!\\\}).)+)\\\}"
)


def clean(text: str) -> str:
    """Return `text` with lone surrogates, which no file can store, replaced."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


@lru_cache(maxsize=20_000)
def normalise(text: str, radians: bool = False) -> str:
    r"""Return the canonical form of a gold or an extracted answer. Idempotent.

    radians: convert degrees of an angle to radians; otherwise their sign is dropped, as a unit is.

    >>> normalise(r"$\dfrac12\text{ cm}$"), normalise(r"10{,}000"), normalise(r"90^{\circ}.")
    ('\\frac{1}{2}', '10000', '90')
    >>> normalise(r"90^{\circ}", radians=True)
    '\\frac{90\\pi}{180}'
    """
    if text.isascii() and text.isdigit():  # most answers
        return text
    if not text.isascii():
        text = applied(_SIGNS, clean(text))
    text = text.translate(_SYMBOLS).strip()[: 3 * LONGEST_ANSWER]  # signs become commands; some rules are quadratic
    if text.endswith("\\") and not text.endswith("\\\\"):
        text = text[:-1]  # `\ ` at the end, whose blank is stripped
    if "\\boxed" in text or "\\fbox" in text:
        text = last_box(text, several=True) or text
    # a doubled backslash is an escaped command, except as a matrix row break
    text = applied(_ROWS if "\\begin" in text else _ESCAPES, text)
    # Mark lists by `;` and join digit groups first: later steps remove the spacing that distinguishes them.
    text = _LISTED.sub(";", text)
    if _COMMA_GROUP.search(text):  # in `7,500, 2,500` the comma with a space separates members
        text = _COMMA_SPACE.sub(";", text)
    text, condition = _parted(applied(_TYPESETTING, text))
    # Units and words: after the spellings, because the commands around them locate them.
    if radians:
        text = _ANGLE_WORD.sub(r"^\\circ ", text)
        text = _ANGLE.sub(lambda m: f"\\frac{{{m[1]}\\pi}}{{180}}" if m[1] else "\\cdot\\frac{\\pi}{180}", text)
    text = _without_text(applied(_UNITS, text.strip()).strip().rstrip(_TRAILING))
    # Mathematics in one spelling; blanks last, because until here they end the names of commands.
    text = _unwrapped(applied(_MATHEMATICS, text.strip()).rstrip(_TRAILING))
    text = applied(_ENDINGS, text)
    if len(text) <= LONGEST_CONDITIONED:  # cubic time on an unclosed set
        text = _BUILT.sub(_built, text)
    return _unwrapped(text) + condition


def applied(rules: Rules, text: str) -> str:
    """Return `text` after all replacements, in order."""
    for pattern, made in rules.items():
        text = _compiled(pattern).sub(made, text)
    return text


def _parted(text: str) -> tuple[str, str]:
    """Return a text without its trailing condition, and the condition after its mark; empty without one."""
    head, mark, condition = text.partition(WHERE)
    if mark or len(text) > LONGEST_CONDITIONED:
        return head, mark + condition
    for match in _TAIL.finditer(text):
        head, said = text[: match.start()], _TEXT.sub(r" \1 ", match[1] or match[2])
        side = COMMAND.sub("", head.rpartition("=")[2])  # the condition is on a letter in it
        letters = [name for name in _LETTER.findall(said) if name in side]
        stated = _STATED.search(said)
        bare = match[2] is not None and (not letters or re.search(_STATES, head))
        closed = all(head.count(opening) == head.count(closing) for opening, closing in ("{}", "()", "[]"))
        if head.strip() and closed and "=" not in said and not bare and (stated or _TELLING.search(said)):
            statement = next(statement for pattern, statement in _SETS.items() if re.search(pattern, said))
            if stated and statement == _SETS[""]:
                statement = (stated[2] + stated[3]).replace(" ", "")
            return head, f"{WHERE}{stated[1] if stated else letters[-1] if letters else 'x'}{statement}"
    return text, ""


def _built(match: re.Match[str]) -> str:
    """Rewrite set-builder sets: a set of letters as its condition, a set of expressions with the condition after it."""
    if match[1]:  # a blank ends the name of a command before it, such as `\cup`
        return (" " if match.start() else "") + normalise(match[3])
    return f"{match[2]}{WHERE}{match[3]}" if match.group() == match.string else match.group()


def _system(match: re.Match[str]) -> str:
    r"""Rewrite lines of equations, aligned at their signs, as a list; `\\ &= 5` continues the line above."""
    rows: list[str] = []
    for row in (row.strip() for row in match[2].split("\\\\")):
        cells = re.sub(rf"&\s*(?={_SIGN})|(?<=[=<>])\s*&", "", row).strip()
        if "&" in cells or (row and not re.search(_SIGN, cells)):
            return match[0]  # a matrix, or a function by cases
        if rows and re.match(_SIGN, cells):
            rows[-1] += cells
        elif row:
            rows.append(cells)
    return ",".join(rows)


def _minutes(angle: re.Match[str]) -> str:
    degrees = Fraction(int(angle[1]) * 3600 + int(angle[2]) * 60 + int(angle[3] or 0), 3600)
    return f"\\frac{{{degrees.numerator}}}{{{degrees.denominator}}}^\\circ "


def _reduced(ratio: str) -> str:
    numbers = [int(number) for number in ratio.split(":")]
    return ":".join(str(number // (math.gcd(*numbers) or 1)) for number in numbers)


def choice(answer: str) -> str | None:
    """Return the letter of a choice, alone or before its content, in a raw answer; None without one."""
    lettered = _LETTERED.match(_SPACING.sub(" ", _DELIMITERS.sub("", answer)).strip())
    return None if lettered is None or _NO_CONTENT.match(lettered[4].lstrip(" },;") or "x") else lettered[2]


def _without_letter(text: str) -> str:
    """Return `text` without the letter of a choice before its content."""
    lettered = _LETTERED.match(text)
    if lettered is None or lettered[3] is None or _NO_CONTENT.match(lettered[4]):
        return text
    command, _, blank, content = lettered.groups()
    if not (command or (blank and _NUMBER_AHEAD.match(content))):
        return text
    return (command if command and "}" not in blank else "") + content


def words(text: str) -> str:
    """Return letters and digits only, without case, to compare answers in words."""
    return "".join(c for c in _TEXT.sub(r"\1", text).casefold() if c.isalnum())


def _without_text(text: str) -> str:
    r"""Return `text` without units. An answer in words becomes `\text{words}`; of other wrappers the content stays."""
    if text.lower() == text.upper():  # without letters
        return text.rstrip(" /")
    text = _LEAD.sub(r"\1", _labelled(_without_letter(text)))
    whole = _TEXT.fullmatch(text)
    said = _TEXT.sub(r"\1", text)
    if said.replace(" ", "").replace("-", "").isalpha():
        names = (name for pattern, name in _SAID.items() if re.fullmatch(pattern, words(said)))
        if known := counted(_UNIT_WORDS.sub("", said)) or next(names, None):
            return known
    if whole and not _STARTS_NUMBER.match(whole.group(1)):
        inner = words(_ARTICLE.sub("", whole.group(1)) if _ARTICLE.match(whole.group(1)) else text)
        return next(c for c in whole.group(1) if c.isalnum()) if len(inner) == 1 else f"\\text{{{inner}}}"
    if whole:
        text = whole.group(1).strip()
    text = applied(_WORDS, _REMARK.sub(r"\1", text))
    text = _joined(text)
    for _ in range(3):  # a unit may have three parts: kilometres, per, hour
        text = _UNIT_WORDS.sub("", _UNIT_TEXT.sub("", text)).rstrip().removesuffix("/").rstrip()
    return _TEXT.sub(lambda m: f" {m.group(1).strip()} ", text)


def _labelled(text: str) -> str:
    r"""Put `=` after the names before members: `\text{Anna: } 18, \text{ Ben: } 14`, `(a) 18, (b) 14`."""
    for pattern in (_LABEL, _PART):
        if len({label[2] for label in pattern.finditer(text)}) > 1:
            return pattern.sub(lambda m: f"{m[1]}{m[2].replace(' ', '')}=", text)
    return text


def _joined(text: str) -> str:
    r"""Replace words between parts by signs: `x<2 \text{ or } x>3` is a union, `1 \text{ and } 2` a list."""
    # in `2,500 \text{ and } 7,500` commas group digits
    separator = ";" if _COMMA_GROUP.search(text) else ","
    parts, at = [], 0
    for match in _CONJUNCTION.finditer(text):
        word = (match[1] or match[2] or match[3]).lower()
        ranges = _RELATION.search(text, at, match.start()) and _RELATION.search(text, match.end())
        if word in ("land", "lor") and not ranges:
            continue  # a logical sign between statements of another kind
        parts += [text[at : match.start()], "\\cup " if ranges and word in ("or", "lor") else separator]
        at = match.end()
    return "".join(parts) + text[at:]


def braced_fractions(text: str) -> str:
    r"""Put braces around both arguments of every `\frac`: `\frac12`, `\frac1{2}`, `\frac{1}2`."""
    for _ in range(DEEPEST_FRACTION):
        before, text = text, _SECOND.sub(r"\1{\2}", _FIRST.sub(r"\\frac{\1}", text))
        if text == before:
            break
    return text


def _unwrapped(text: str) -> str:
    """Return `text` without redundant braces around all of it."""
    while text[:1] == "{" and text[-1:] == "}" and balanced(text, 1) == text[1:-1]:
        text = text[1:-1]
    return text
