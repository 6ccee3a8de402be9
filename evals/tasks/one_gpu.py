"""The paper's sets as one GPU can draw them in an evening: the same items, fewer samples, shorter responses.

Keys end with the samples of an item (`aime24_8`), so that no cell can be read as one of the paper's scale. An item is
that of the set it is taken from: problem "Find $1+1$.", answer "2".
"""

from dataclasses import replace

from evals.benchmark import Benchmark
from evals.tasks.paper import AIME24, AIME25, AMC, MATH500

# Responses of small models that are longer than this are nearly all repetitions without an end. Training stops at 1024.
MAX_TOKENS = 2048


def _fewer(benchmark: Benchmark, samples: int) -> Benchmark:
    return replace(
        benchmark,
        key=f"{benchmark.key}_{samples}",
        title=f"{benchmark.title} @{samples}",
        stands_for=benchmark.key,
        decoding=replace(benchmark.decoding, samples=samples, max_tokens=MAX_TOKENS),
        files=(benchmark.key, *benchmark.files),
    )


BENCHMARKS = [
    _fewer(AIME24, 8),
    _fewer(AIME25, 8),
    _fewer(AMC, 8),
    _fewer(MATH500, 1),
]
