"""Figures on the page: the numbers of the interactive ones, and the SVG files as parts of the page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from records.errors import CorruptInputError, MissingInputError, written_by
from records.files import content, stored
from records.results_tree import Tree
from report import captions
from report.figures import drawing
from report.figures.drawing import Drawing, Line
from report.figures.spec import LETTERS, STYLES, css_colours, offered
from report.site.dynamics import look, rounded


def views(tree: Tree) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Every figure that the plan offers: for the template, and the numbers that the page's scripts draw by key."""
    from markupsafe import Markup

    figures, numbers = [], {}
    for figure in offered(tree):
        with written_by(f"python -m report.figure --results {tree.root} --figure {figure.key}"):
            needed = (f"figures/{figure.key}{suffix}" for suffix in (".csv", ".seeds.csv", ".json", ".svg"))
            tree.check_written(f"figures/{figure.key}", *needed)
        drawn = drawing.read(figure, tree.layout.figures)
        key, title = figure.key, figure.title
        number = key.removeprefix("figure")
        with written_by(f"python -m report.figure --results {tree.root} --figure {key}"):
            svg = inline(tree.layout.figures / f"{key}.svg", key, title, css_colours())
        figures.append(
            {
                "key": key,
                "title": f"Figure {number}: {title}" if number != key else title,
                "svg": Markup(svg),
                "caption": captions.paragraphs(key),
                "notes": drawn.notes,
            }
        )
        numbers[key] = chart(drawn)
    return figures, numbers


def chart(drawn: Drawing) -> dict[str, Any]:
    """Panels and, for each, its lines with their seeds by rollout; where there are several, also mean and range.

    Lines that stand for the same thing in several panels share title and look; `alone` marks one that its panel is
    named after.
    """
    panels = []
    letters = iter(LETTERS)
    for block in drawn.blocks:
        for panel in block.panels:
            quantity = panel.panel.quantity
            panels.append(
                {
                    "id": panel.panel.id,
                    "letter": None if block.block.repeated else next(letters),
                    "title": f"{panel.title}, {panel.setting}" if panel.setting else panel.title,
                    "label": quantity.label,
                    "quantity": quantity.key,
                    "log": quantity.log,
                    "bands": block.block.bands,
                    "lines": [_line(line) for line in panel.lines],
                }
            )
    return {"panels": panels, "notes": list(drawn.notes)}


def _line(line: Line) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        "title": line.title,
        "alone": line.alone,
        **look(*STYLES[line.place]),
        "seeds": {str(seed): _rounded(values) for seed, values in line.by_seed.items()},
        "ended": {str(seed): rollout for seed, rollout in line.ended.items()},
    }
    if len(line.by_seed) > 1:
        numbers["mean"] = _rounded(point.value for point in line.points)
        numbers["low"] = _rounded(point.low for point in line.points)
        numbers["high"] = _rounded(point.high for point in line.points)
    return numbers


def _rounded(values: Iterable[float | None]) -> list[float | None]:
    return [rounded(value) for value in values]


# An SVG file of ours as a part of a page: own ids, colours from the page's style sheet, nothing that acts or loads.

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# What matplotlib writes; anything else in a figure's file is refused.
ALLOWED = {"svg", "g", "defs", "path", "text", "tspan", "use", "clipPath", "rect"}
DROPPED = {"style", "metadata"}  # matplotlib's style has a rule for `*`, which would reach the whole page
ID_REFERENCE = re.compile(r"url\(\s*#([^)\s]+)\s*\)")
NUMBER = re.compile(r"(?<![#\w])-?\d+\.\d{3,}")  # matplotlib writes six decimals of a point
FAMILIES = re.compile(r"font-family: [^;]+;? ?")  # the page's style sheet says which
COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")


def inline(path: Path, prefix: str, title: str, colours: dict[str, str]) -> str:
    """The `<svg>` element of the file at `path` as text for an HTML page.

    Ids and references get `prefix`, so that several figures live in one page; `colours` maps a hex colour to the CSS
    variable of the page that takes its place. Raises for a missing file, for XML that is none, and for
    elements or references that our figures never have (scripts, links, images).
    """
    if stored(path) is None:
        raise MissingInputError(f"{path}: the figure is missing")
    try:
        root = ET.fromstring(content(path))
    except ET.ParseError as error:
        raise CorruptInputError(f"{path}: not an SVG file ({error})") from error
    for parent in list(root.iter()):
        for child in list(parent):
            if _name(child) in DROPPED:
                parent.remove(child)
    variables = {colour: f"var({name})" for colour, name in colours.items()}
    for element in root.iter():
        _check(element, path)
        _rewrite(element, prefix, variables)
        if _name(element) not in ("text", "tspan") and not (element.text or "").strip():
            element.text = None
        if not (element.tail or "").strip():
            element.tail = None
    _forget_ids(root)
    _flatten(root)
    for side in ("width", "height"):  # the viewBox says the proportions, the page's style sheet the size
        root.attrib.pop(side, None)
    root.attrib |= {"role": "img", "aria-label": title, "class": "figure", "stroke-linejoin": "round"}
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    return ET.tostring(root, encoding="unicode")


def _check(element: ET.Element, path: Path) -> None:
    name = _name(element)
    if name not in ALLOWED:
        raise CorruptInputError(f"{path}: holds <{name}>, which a figure of ours never does")
    for key, value in element.attrib.items():
        plain = key.rsplit("}", 1)[-1].lower()
        if plain.startswith("on") or (plain in {"href", "src"} and not value.startswith("#")):
            raise CorruptInputError(f"{path}: <{name}> holds {plain}={value!r}, which a figure of ours never does")


def _rewrite(element: ET.Element, prefix: str, variables: dict[str, str]) -> None:
    for key, value in list(element.attrib.items()):
        plain = key.rsplit("}", 1)[-1]
        if plain == "id":
            value = f"{prefix}-{value}"
        elif plain == "href":
            value = f"#{prefix}-{value[1:]}"
        else:
            value = ID_REFERENCE.sub(lambda match: f"url(#{prefix}-{match[1]})", value)
            if plain in {"d", "x", "y", "transform"}:
                value = NUMBER.sub(lambda match: f"{float(match[0]):.2f}", " ".join(value.split()))
            if plain == "style":
                value = FAMILIES.sub("", value).replace("; ", ";").replace(": ", ":")
            if plain in {"style", "fill", "stroke"}:
                value = COLOUR.sub(lambda match: variables.get(match[0].lower(), match[0]), value)
        element.set(key, value)


def _forget_ids(root: ET.Element) -> None:
    """Drop the ids that nothing refers to: matplotlib names every tick."""
    used = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            used.update(ID_REFERENCE.findall(value))
            if key.rsplit("}", 1)[-1] == "href":
                used.add(value[1:])
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)


def _flatten(element: ET.Element) -> None:
    """Replace groups without attributes by their content, and drop rotations by 0: a third of the bytes."""
    for child in list(element):
        _flatten(child)
        if child.get("transform", "").startswith("rotate(-0 "):
            del child.attrib["transform"]
        if _name(child) == "g" and not child.attrib:
            place = list(element).index(child)
            element.remove(child)
            for number, grandchild in enumerate(child):
                element.insert(place + number, grandchild)


def _name(element: ET.Element) -> str:
    return str(element.tag).rsplit("}", 1)[-1]
