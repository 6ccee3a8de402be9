"""Numbers one slip away from a printed one. A hypothesis about how a digit may have changed, not a correction."""

from __future__ import annotations

from string import digits


def one_slip(text: str) -> list[str]:
    """Decimals with two places, 0-100, that become `text` by one digit changed, dropped or added, or two neighbours
    swapped; without `text` itself.

    >>> [x for x in one_slip("5.68") if x in ("0.68", "5.86", "6.58")]
    ['0.68', '5.86', '6.58']
    """
    whole, part = text.split(".")
    plain = whole + part
    made = {plain[:i] + d + plain[i + 1 :] for i in range(len(plain)) for d in digits}
    made |= {plain[:i] + plain[i + 1] + plain[i] + plain[i + 2 :] for i in range(len(plain) - 1)}
    made |= {plain[:i] + d + plain[i:] for i in range(len(whole) + 1) for d in digits}
    made |= {plain[:i] + plain[i + 1 :] for i in range(len(whole)) if len(whole) > 1}
    texts = {f"{int(m[:-2])}.{m[-2:]}" for m in made}
    return sorted(t for t in texts if t != text and int(t.replace(".", "")) <= 10000)
