"""Expand sweeps: values of `training.<key>` or of a method's option, chosen on some seeds, compared on others.

A sweep (config/README.md has its keys) expands into blocks of the matrix. Every method is trained with every value on
the selection seeds, not evaluated where the area chooses. `report.sweep --choose` then writes `sweep/choice.csv`, and
with that file the same command trains each method with its chosen value on the test seeds. Blocks with a variant are
not swept.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from core.declared import Where
from core.errors import ConfigError, check_known, unknown
from core.files import read_csv
from core.layout import Results
from core.provenance import sha256_bytes
from methods import catalog
from methods.training.spec import Training
from workflow import matrix

SETTINGS = ("select_seeds", "test_seeds", "by", "fresh")  # keys of `sweep` that are not axes
MEASURES = ("score", "area")
FRESH = ("chosen", "own", "none")  # values that the second round may train
CHOICE = "sweep/choice.csv"
COLUMNS = ("model", "row", "method", "chosen", "question")  # its columns that are read here; `report.sweep` writes it
TRAINING = "training."


def expanded(config: Mapping[str, Any], results: Results, where: Where) -> dict[str, Any]:
    """Return `matrix`, `variants` and `swept` of the configuration with its sweep applied; empty without a sweep.

    config: with `matrix.blocks` applied, each of which has one model.
    """
    sweep, at = config["sweep"], where(["sweep"])
    axes = {key: values for key, values in sweep.items() if key not in SETTINGS}
    if sweep and not axes:
        raise ConfigError(f"{at}: sweep: has no values to try, such as training.learning_rate")
    if not axes:
        return {}
    known = dict.fromkeys(o for block in config["matrix"] for text in block["methods"] for o in _options(text))
    for axis in axes:
        if not axis.startswith(TRAINING) and axis not in known:
            raise unknown(where(["sweep", axis]), "sweep", axis, [*known, f"{TRAINING}learning_rate", *SETTINGS])
    swept = {"axes": axes} | _settings(sweep, [b for b in config["matrix"] if b.get("variant") is None], at)
    variants, blocks, points = dict(config["variants"]), [], []
    for block in config["matrix"]:
        if block.get("variant") is not None:
            blocks.append(block)  # not swept
            continue
        for text, (method, values) in ((t, p) for t in block["methods"] for p in _points(t, axes)):
            training = {a.removeprefix(TRAINING): v for a, v in values.items() if a.startswith(TRAINING)}
            # With the scale's own values a run is the same as without a sweep, and is not trained twice.
            own = {key: config["training"].get(key, Training.model_fields[key].default) for key in training}
            variant = {} if training == own else {"variant": variant_name(training)}
            for name in variant.values():
                variants[name] = {"title": _title(training), "note": "", "training": training}
            last = training.get("rollouts")
            steps = block["steps"] if last is None else sorted({min(step, last) for step in block["steps"]})
            here = {"models": block["models"], "methods": [method], "seeds": swept["select_seeds"], "steps": steps}
            blocks.append(here | variant | ({} if swept["by"] == "score" else {"evaluate": False}))
            key = "@".join([matrix.canonical(config, method, at), *variant.values()])
            point = {"row": text, "base": matrix.canonical(config, text, at), "text": method, "method": key}
            points.append({"model": block["models"][0], **point, "values": values, "steps": steps})
    swept["points"] = [point for n, point in enumerate(points) if point not in points[:n]]
    # A choice depends on these: other points, seeds or another measure belong to another sweep.
    names = sorted(f"{point['model']} {point['row']} {point['method']}" for point in swept["points"])
    swept["question"] = sha256_bytes(repr([names, swept["select_seeds"], swept["by"]]).encode())[:12]
    return {"variants": variants, "swept": swept, "matrix": blocks + list(_fresh(swept, results))}


def _settings(sweep: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]], at: str) -> dict[str, Any]:
    """Return `select_seeds` (by default those of the matrix), `test_seeds` (by default as many after the last of them;
    the two must not overlap), `by` (the measure that chooses a value) and `fresh`."""
    fresh, by = sweep.get("fresh", ["chosen"]), sweep.get("by", ["score"])
    check_known(at, "sweep.fresh", map(str, fresh), FRESH)
    check_known(at, "sweep.by", [",".join(map(str, by))], MEASURES)
    select = list(sweep.get("select_seeds") or sorted({seed for block in blocks for seed in block["seeds"]}))
    test = list(sweep.get("test_seeds", ()))
    for seed in [*select, *test]:
        if type(seed) is not int or seed < 0:
            raise ConfigError(f"{at}: sweep: seeds: {seed!r} is not a whole number from 0 on")
    if "test_seeds" not in sweep:
        test = [max(select) + n + 1 for n in range(len(select))]
    test = [] if fresh == ["none"] else test
    if both := sorted(set(select) & set(test)):
        raise ConfigError(f"{at}: sweep.test_seeds: {both[0]} also selects: values are compared on other seeds")
    return {"select_seeds": select, "test_seeds": test, "by": by[0], "fresh": fresh}


def _points(text: str, axes: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each combination of a method's values: the method with its options, and the values by axis."""
    written = {option.partition("=")[0] for option in text.split("+")[1:]}
    own = {a: v for a, v in axes.items() if a.startswith(TRAINING) or (a in _options(text) and a not in written)}
    for combination in product(*own.values()):
        values = dict(zip(own, combination, strict=True))
        yield "+".join([text, *(f"{a}={v}" for a, v in values.items() if not a.startswith(TRAINING))]), values


def _options(text: str) -> tuple[str, ...]:
    name = text.split("+")[0]
    name = catalog.aliases().get(name, (name, {}))[0]
    return tuple(option.name for option in catalog.entries()[name].options)


def variant_name(training: Mapping[str, Any]) -> str:
    """Return `learning_rate-2e-4_passes-4`, a valid folder name."""
    return "_".join(f"{key}-{_spelt(value)}" for key, value in training.items())


def _spelt(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    # the name of a variant must not contain a dot: 2.5e-4 is 25e-5
    digits, _, exponent = f"{value:.12e}".replace(".", "").partition("e")
    digits = digits.rstrip("0") or "0"
    return f"{digits}e{int(exponent) - len(digits) + 1}"


def _title(training: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{a.replace('_', ' ')} {v:g}" if isinstance(v, float) else f"{a} {v}" for a, v in training.items()
    )


def _fresh(swept: Mapping[str, Any], results: Results) -> Iterator[dict[str, Any]]:
    """Yield blocks of the chosen values (and the scale's own) on the test seeds; none before the choice was made."""
    best = chosen(swept, results)
    for point in swept["points"] if best and swept["test_seeds"] else ():
        if (point["model"], point["method"]) in best or ("own" in swept["fresh"] and point["method"] == point["base"]):
            variant = point["method"].partition("@")[2]
            block = {"models": [point["model"]], "methods": [point["text"]], "seeds": list(swept["test_seeds"])}
            yield block | {"steps": point["steps"]} | ({"variant": variant} if variant else {})


def chosen(swept: Mapping[str, Any], results: Results) -> set[tuple[str, str]]:
    """Return the chosen (model, method) of choice.csv. Empty before the choice, and if another sweep made
    it: this one selects first."""
    if not (results.root / CHOICE).is_file():
        return set()
    rows = read_csv(results.root / CHOICE, "the choice of a sweep", COLUMNS)
    ours = {row["question"] for row in rows} == {swept["question"]}
    return {(row["model"], row["method"]) for row in rows if ours and row["chosen"] == "yes"}
