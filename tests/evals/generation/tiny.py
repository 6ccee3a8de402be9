"""A tiny random model with the project's tokenizer: `python -m tests.evals.generation.tiny --out FOLDER`."""

import argparse
from pathlib import Path


def save_tiny(folder: Path, seed: int, *, kind: str = "qwen2", head_dim: int = 16) -> Path:
    """Write it to `folder` in Hugging Face's layout."""
    from models import tiny
    from models.registry import Architecture

    sizes = {"hidden_size": 2 * head_dim, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    architecture = Architecture(model_type=kind, num_key_value_heads=2, head_dim=head_dim, **sizes)
    tiny.fresh(architecture, seed=seed).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path)
    print(save_tiny(parser.parse_args().out, seed=0))
