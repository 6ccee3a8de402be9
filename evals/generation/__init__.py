"""Draw responses: prompts, engines, and the responses drawn from them."""

from methods import sampling

# External imports of drawing with `hf`: a worker (`core.worker`) makes them once for many models.
LIBRARIES = (
    "pydantic", "yaml", "lm_eval.models.huggingface", "transformers.modeling_utils", "pandas", "pyarrow.dataset",
    "pyarrow.parquet", *sampling.LIBRARIES,
)  # fmt: skip
