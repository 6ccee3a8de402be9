"""List signs and commands of LaTeX and Unicode with the one spelling that the grader reads."""

import re

# Unicode signs as LaTeX, full-width signs as ASCII, special blanks as plain ones; zero-width characters, marks of
# direction and signs of currencies disappear.
_GREEK = "αβγδεζηθικλμνξπρςστυφχψωΓΔΘΛΞΠΣΦΨΩ"
_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma sigma tau upsilon phi chi"
    " psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
)
SYMBOLS = str.maketrans(
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
SPELLINGS = {
    r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac", r"\dbinom": r"\binom", r"\tbinom": r"\binom",
    r"\le": r"\leq", r"\leqslant": r"\leq", r"\ge": r"\geq", r"\geqslant": r"\geq", r"\ne": r"\neq", r"\lt": "<",
    r"\gt": ">", r"\vee": r"\lor", r"\wedge": r"\land", r"\ast": "*", r"\varnothing": r"\emptyset", r"\lbrace": r"\{",
    r"\rbrace": r"\}", r"\lbrack": "[", r"\rbrack": "]", r"\lvert": "|", r"\rvert": "|", r"\vert": "|",
    r"\degree": r"^\circ", r"\infinity": r"\infty", r"\quad": " ", r"\qquad": " ", r"\R": r"\mathbb{R}",
    r"\Z": r"\mathbb{Z}", r"\N": r"\mathbb{N}", r"\colon": ":", r"\dots": r"\ldots", r"\cdots": r"\ldots",
    r"\dotsc": r"\ldots", r"\backslash": r"\setminus",
}  # fmt: skip
