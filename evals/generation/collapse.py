"""Are k samples really k draws? Telling a broken seed from a model that has only one answer left.

Equal samples alone prove nothing: a converged or collapsed policy repeats itself at temperature .6 too. But then it
repeats its likeliest answer, the greedy one. Samples that equal each other and not the greedy response come from one
draw, copied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from evals.generation.store import Response
from records.errors import CorruptInputError

SUSPECT = 0.5  # share of items whose samples are all equal
PROBED = 20  # items asked once more, greedily
FEWEST_SAMPLES = 4


def by_item(responses: Sequence[Response]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for response in responses:
        found[response.item_id].append(response.response)
    return dict(found)


def distinct_fraction(responses: Sequence[Response]) -> float | None:
    """Mean over items of (different responses - 1) / (samples - 1): 0 all equal, 1 all different; None for k = 1."""
    texts = by_item(responses)
    shares = [(len(set(own)) - 1) / (len(own) - 1) for own in texts.values() if len(own) > 1]
    return sum(shares) / len(shares) if shares else None


def suspects(responses: Sequence[Response]) -> list[str]:
    """Items to probe: those with all samples equal, at most `PROBED`, when they are most of the set; else none."""
    texts = {item: own for item, own in by_item(responses).items() if len(own) >= FEWEST_SAMPLES}
    equal = [item for item, own in texts.items() if len(set(own)) == 1]
    return equal[:PROBED] if texts and len(equal) > SUSPECT * len(texts) else []


def check(benchmark: str, responses: Sequence[Response], greedy: Mapping[str, str]) -> None:
    """CorruptInputError when most probed items repeat something else than their greedy response."""
    texts = by_item(responses)
    other = [item for item, text in greedy.items() if set(texts[item]) != {text}]
    if len(other) > SUSPECT * len(greedy):
        raise CorruptInputError(
            f"{benchmark}: the samples of an item are copies of one draw: on {len(other)} of {len(greedy)} probed items"
            " all are equal and differ from the greedy response; look for a seed that the engine uses for every sample"
        )
