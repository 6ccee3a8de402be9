"""A sweep: values to try by `training.<key>` or by an option of a method, chosen on some seeds, compared on others.

    sweep:
      training.learning_rate: [5.0e-5, 1.0e-4, 2.0e-4]
      select_seeds: [1, 2]   # default: the seeds of the matrix
      test_seeds: [3, 4]     # default: as many seeds after the last of them; none of the two may be in both
      by: [score]            # or area: what a value is chosen by
      fresh: [chosen]        # or chosen, own: on the test seeds also each method at the scale's own value; or none: the
                             # sweep only compares methods at equal movement

It makes blocks of the matrix. Every method is trained with every value on the selection seeds (not evaluated where the
area chooses); `report.sweep --choose` then writes `sweep/choice.csv`, and with that file there the same command trains
each method with its chosen value on the test seeds. Blocks with a variant of their own are not swept.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from core import digests
from core.declared import Where
from core.errors import ConfigError, unknown
from core.files import read_csv
from core.layout import Results
from core.provenance import sha256_bytes
from methods import catalog
from methods.training.spec import Training
from workflow import matrix

SETTINGS = ("select_seeds", "test_seeds", "by", "fresh")  # keys of `sweep` that are no axis
MEASURES = ("score", "area")
FRESH = ("chosen", "own", "none")  # values that the second round may train
CHOICE = "sweep/choice.csv"
COLUMNS = ("model", "row", "method", "chosen", "question")  # of it that are read here; `report.sweep` writes it
TRAINING = "training."

Values = dict[str, Any]  # axis -> value


def expanded(config: Mapping[str, Any], results: Results, where: Where) -> dict[str, Any]:
    """`matrix`, `variants` and `swept` of the configuration with its sweep applied; nothing without a sweep.

    config: with `matrix.blocks` applied.
    """
    sweep = config["sweep"]
    axes = {key: values for key, values in sweep.items() if key not in SETTINGS}
    if not axes:
        if sweep:
            raise ConfigError(f"{where(['sweep'])}: sweep: has no values to try, such as training.learning_rate")
        return {}
    _check_options(config, axes, where)
    at = where(["sweep"])
    swept_blocks = [block for block in config["matrix"] if block.get("variant") is None]
    select = _seeds(sweep.get("select_seeds") or sorted({s for b in swept_blocks for s in b["seeds"]}), at)
    fresh = sweep.get("fresh", ["chosen"])
    if wrong := [value for value in fresh if value not in FRESH]:
        raise unknown(at, "sweep.fresh", str(wrong[0]), FRESH)
    if "chosen" not in fresh and fresh != ["none"]:
        raise ConfigError(f"{at}: sweep.fresh: lacks chosen, which the test seeds are for; set chosen or none")
    after = [max(select) + n + 1 for n in range(len(select))]
    test = [] if fresh == ["none"] else _seeds(sweep.get("test_seeds", after), at)
    if both := sorted(set(select) & set(test)):
        raise ConfigError(f"{at}: sweep.test_seeds: {both[0]} also selects: values are compared on other seeds")
    by = sweep.get("by", ["score"])
    if len(by) != 1 or by[0] not in MEASURES:
        raise unknown(at, "sweep.by", ",".join(map(str, by)), MEASURES)

    variants, points, blocks = dict(config["variants"]), [], []
    for block in config["matrix"]:
        if block.get("variant") is not None:
            blocks.append(block)
            continue
        for text in block["methods"]:
            for method, values, variant in _points(config, text, axes):
                if variant is not None:
                    variants[variant] = _variant(values)
                last = values.get(f"{TRAINING}rollouts")
                steps = block["steps"] if last is None else sorted({min(step, last) for step in block["steps"]})
                here = {"models": list(block["models"]), "methods": [method], "seeds": select, "steps": steps}
                here |= {} if variant is None else {"variant": variant}
                blocks.append(here if by[0] == "score" else here | {"evaluate": False})
                key = matrix.canonical(config, method, at)
                at_variant = "" if variant is None else f"@{variant}"
                point = {"row": text, "base": matrix.canonical(config, text, at), "text": method}
                point |= {"method": key + at_variant, "values": values}
                points += [{"model": model, **point, "steps": steps} for model in block["models"]]
    points = [point for n, point in enumerate(points) if point not in points[:n]]
    swept = {"axes": axes, "select_seeds": select, "test_seeds": test, "by": by[0], "fresh": fresh, "points": points}
    swept["question"] = _question(swept)
    return {"variants": variants, "swept": swept, "matrix": blocks + list(_fresh(swept, results))}


def _points(
    config: Mapping[str, Any], text: str, axes: Mapping[str, Sequence[Any]]
) -> Iterator[tuple[str, Values, str | None]]:
    """Each combination of the values that a method has: the method with its options, the values, the variant."""
    written = {option.partition("=")[0] for option in text.split("+")[1:]}
    own = {a: v for a, v in axes.items() if a.startswith(TRAINING) or (a in _options(text) and a not in written)}
    for combination in product(*own.values()):
        values = dict(zip(own, combination, strict=True))
        method = "+".join([text, *(f"{a}={v}" for a, v in values.items() if not a.startswith(TRAINING))])
        training = _training(values)
        # With the scale's own values a run is what it is without a sweep, and is not trained twice.
        own_values = {key: config["training"].get(key, Training.model_fields[key].default) for key in training}
        yield method, values, None if own_values == training else variant_name(training)


def variant_name(training: Mapping[str, Any]) -> str:
    """`learning_rate-2e-4_passes-4`: what a folder may be called."""
    return "_".join(f"{key}-{_spelt(value)}" for key, value in training.items())


def _spelt(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    digits, _, exponent = f"{value:.12e}".partition("e")
    digits, power = digits.replace(".", "").rstrip("0") or "0", int(exponent)
    # no dot is allowed in the name of a variant: 2.5e-4 is 25e-5
    return f"{digits}e{power - len(digits) + 1}"


def _training(values: Values) -> dict[str, Any]:
    return {a.removeprefix(TRAINING): v for a, v in values.items() if a.startswith(TRAINING)}


def _variant(values: Values) -> dict[str, Any]:
    training = _training(values)
    title = ", ".join(
        f"{a.replace('_', ' ')} {v:g}" if isinstance(v, float) else f"{a} {v}" for a, v in training.items()
    )
    return {"title": title, "note": "", "training": training}


def _fresh(swept: Mapping[str, Any], results: Results) -> Iterator[dict[str, Any]]:
    """Blocks of the chosen values (and the scale's own) on the test seeds; none before the choice was made."""
    if not is_chosen(swept, results) or not swept["test_seeds"]:
        return
    chosen = {(row["model"], row["method"]) for row in _choice(results) if row["chosen"] == "yes"}
    for point in swept["points"]:
        if (point["model"], point["method"]) in chosen or ("own" in swept["fresh"] and is_own(point)):
            variant = point["method"].partition("@")[2]
            block = {"models": [point["model"]], "methods": [point["text"]], "seeds": list(swept["test_seeds"])}
            yield block | {"steps": point["steps"]} | ({"variant": variant} if variant else {})


def is_own(point: Mapping[str, Any]) -> bool:
    """Whether a point is the method as the scale has it without the sweep."""
    return bool(point["method"] == point["base"])


def fresh_runs(swept: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A point for each run of the second round, at most: what it costs can be said before the values are known."""
    points = list({(point["model"], point["row"]): point for point in swept["points"]}.values())
    if "own" in swept["fresh"]:
        points += [point for point in swept["points"] if is_own(point) and point["values"]]
    return [point for point in points for _ in swept["test_seeds"]]


def is_chosen(swept: Mapping[str, Any], results: Results) -> bool:
    """Whether the values are chosen. A choice.csv of another sweep is none: this one has its own selection first."""
    there = (results.root / CHOICE).is_file()
    return there and {row["question"] for row in _choice(results)} == {swept["question"]}


def _choice(results: Results) -> list[dict[str, str]]:
    """The rows of choice.csv, which is what the hash beside it says; an older one has none."""
    digests.check(results.root / CHOICE, advice="delete it and type the command again")
    return read_csv(results.root / CHOICE, "the choice of a sweep", COLUMNS)


def _question(swept: Mapping[str, Any]) -> str:
    """What a choice answers: a choice of other points, seeds or another measure is another sweep's."""
    points = sorted(f"{point['model']} {point['row']} {point['method']}" for point in swept["points"])
    asked = [points, swept["select_seeds"], swept["by"]]
    return sha256_bytes(repr(asked).encode())[:12]


def _options(text: str) -> tuple[str, ...]:
    name = text.split("+")[0]
    name = catalog.aliases().get(name, (name, {}))[0]
    return tuple(option.name for option in catalog.entries()[name].options)


def _check_options(config: Mapping[str, Any], axes: Mapping[str, Any], where: Where) -> None:
    methods = dict.fromkeys(text for block in config["matrix"] for text in block["methods"])
    known = dict.fromkeys(option for text in methods for option in _options(text))
    for axis in axes:
        if not axis.startswith(TRAINING) and axis not in known:
            raise unknown(where(["sweep", axis]), "sweep", axis, [*known, f"{TRAINING}learning_rate", *SETTINGS])


def _seeds(seeds: Sequence[Any], where: str) -> list[int]:
    for seed in seeds:
        if type(seed) is not int or seed < 0:
            raise ConfigError(f"{where}: sweep: seeds: {seed!r} is not a whole number from 0 on")
    return list(seeds)
