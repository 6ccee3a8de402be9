"""A model out of a wheel: a small GGUF written by gguf's own writer becomes a model folder, or one line refuses it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from core.errors import BenchError
from core.files import read_json
from core.provenance import ROOT, sha256_file
from models import fetch, registry, wheel

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
        archive.writestr("../../outside", b"never written")
        archive.writestr(name, content)
    return path


@pytest.fixture(autouse=True)
def _gguf_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "find_spec", lambda name: name)


def test_what_is_no_such_wheel_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bomb = packed(tmp_path / "a.whl", b"GGUF"), packed(tmp_path / "b.whl", bytes(2**27))
    torn = tmp_path / "c.whl"
    torn.write_bytes(good.read_bytes()[:60])
    assert bomb.stat().st_size < 2**18
    for source, model, message in (
        (good, declared(good, sha256="0" * 64), r"a\.whl: sha256 is [0-9a-f]{64}; that of tiny==1 is 0{64}$"),
        (tmp_path / "no.whl", declared(good), r"no\.whl: wheel of tiny==1 is missing"),
        (good, declared(good, gguf="package/other.gguf"), r"a\.whl: holds no package/other\.gguf"),
        (bomb, declared(bomb), r"tiny\.gguf: 134,217,728 bytes; a model of its size has at most 67,1"),
        (torn, declared(torn), r"c\.whl: package/tiny\.gguf: cannot be read"),
    ):
        with pytest.raises(BenchError, match=message) as caught:
            wheel.convert(model, tmp_path / "out", source)
        assert "\n" not in str(caught.value)
    monkeypatch.setattr(wheel, "find_spec", lambda name: None)
    with pytest.raises(BenchError, match=rf"package gguf: tiny is converted with it; pip install {wheel.GGUF}$"):
        wheel.convert(declared(good), tmp_path / "out", good)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.whl", "b.whl", "c.whl"]


def test_pip_without_an_index_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(BenchError, match=r"tiny==1: pip cannot download it \(.*No matching.*--from WHEEL") as caught:
        wheel.convert(declared(packed(tmp_path / "a.whl", b"")), tmp_path / "out")
    assert "\n" not in str(caught.value)


def written(path: Path, *, pre: str = "smollm", seed: int = 0) -> Path:
    """A random Llama in GGUF with Q8_0 weights and a tokenizer whose merges hold two spaces and `he`."""
    gguf, numpy = pytest.importorskip("gguf", reason=f"needs {wheel.GGUF}"), pytest.importorskip("numpy")
    from tokenizers import pre_tokenizers

    words = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĠĠ", "he"]
    words += [f"unused{n}" for n in range(SHAPE["vocab_size"] - len(words))]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(SHAPE["hidden_size"])
    writer.add_block_count(1)
    writer.add_feed_forward_length(SHAPE["intermediate_size"])
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(SHAPE["vocab_size"])
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
    record = fetch.fetch_model("tiny", out, source=path)
    assert fetch.fetch_model("tiny", out) == record == read_json(out / "base.json"), "a complete folder is left alone"
    assert (record["wheel"], record["wheel_sha256"]) == ("tiny==1", sha256_file(path))
    assert record["weights"] == "Q8_0, dequantised to float32"
    assert record["gguf"]["sha256"] == sha256_file(file)
    import torch
    from gguf import GGUFReader, quants
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    stored = {tensor.name: quants.dequantize(tensor.data, tensor.tensor_type) for tensor in GGUFReader(file).tensors}
    state = loaded.state_dict()
    for name, of in (("model.embed_tokens", "token_embd"), ("model.layers.0.mlp.down_proj", "blk.0.ffn_down")):
        assert torch.equal(state[f"{name}.weight"], torch.tensor(stored[f"{of}.weight"]))
        assert state[f"{name}.weight"].dtype == torch.float32
    for of in (tokenizer, loaded.config, loaded.generation_config):
        assert (of.bos_token_id, of.eos_token_id, of.pad_token_id) == (1, 2, 0)
    text = "<|im_start|>the  12  x\u2581\n34<|im_end|>"
    assert tokenizer.tokenize(text)[:9] == ["<|im_start|>", "t", "he", "ĠĠ", "1", "2", "Ġ", "Ġ", "x"]
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    other = packed(tmp_path / "other.whl", written(tmp_path / "o.gguf", pre="tekken").read_bytes())
    with pytest.raises(BenchError, match="tokenizer gpt2, tekken; allowed: gpt2 with smollm"):
        wheel.convert(declared(other), tmp_path / "none", other)


def test_the_shipped_model_declares_what_decides_its_folder() -> None:
    shipped = registry.model("smollm2_135m")
    assert shipped.wheel is not None
    assert shipped.shape is not None
    assert shipped.shape.parameters == 134_515_008
    other = shipped.wheel.model_copy(update={"pad": "<|im_end|>"})
    assert re.fullmatch("[0-9a-f]{40}", shipped.version)
    assert other.digest != shipped.version
    assert shipped.fetched_by("smollm2_135m") == "--model smollm2_135m"
    (line,) = [line for line in (ROOT / "pyproject.toml").read_text().splitlines() if '"gguf==' in line]
    assert wheel.GGUF in line
