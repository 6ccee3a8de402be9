"""Drawing responses: prompts, the engines that answer, and what is drawn from them."""

from methods import sampling

# What drawing with `hf` imports of others: a worker (`core.worker`) does so once for many models.
LIBRARIES = (
    "pydantic", "yaml", "lm_eval.models.huggingface", "transformers.modeling_utils", "pandas", "pyarrow.dataset",
    "pyarrow.parquet", *sampling.LIBRARIES,
)  # fmt: skip
