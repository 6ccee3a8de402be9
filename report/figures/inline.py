"""An SVG file of ours as a part of a page: own ids, colours from the page's style sheet, nothing that acts or loads."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from records.errors import CorruptInputError, MissingInputError

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# What matplotlib writes; anything else in a figure's file is refused.
ALLOWED = {"svg", "g", "defs", "path", "text", "tspan", "use", "clipPath", "rect"}
DROPPED = {  # the page has its own; matplotlib's `*` rule would reach all of it
    "style",
    "metadata",
}
REFERENCE = re.compile(r"url\(\s*#([^)\s]+)\s*\)")
NUMBER = re.compile(r"(?<![#\w])-?\d+\.\d{3,}")  # matplotlib writes six decimals of a point
FAMILIES = re.compile(r"font-family: [^;]+;? ?")  # the page's style sheet says which
COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")


def inline(path: Path | str, prefix: str, title: str, colours: dict[str, str]) -> str:
    """The `<svg>` element of the file at `path` as text for an HTML page.

    Ids and references get `prefix`, so that several figures live in one page; `colours` maps a hex colour to the CSS
    variable of the page that takes its place. Raises for a missing file, for XML that is none, and for
    elements or references that our figures never have (scripts, links, images).
    """
    path = Path(path)
    if not path.is_file():
        raise MissingInputError(f"{path}: the figure is missing")
    try:
        root = ET.fromstring(path.read_bytes())
    except ET.ParseError as error:
        raise CorruptInputError(f"{path}: not an SVG file ({error})") from error
    for parent in list(root.iter()):
        for child in list(parent):
            if _name(child) in DROPPED:
                parent.remove(child)
    for element in root.iter():
        _check(element, path)
        _rewrite(element, prefix, colours)
        if _name(element) not in ("text", "tspan") and not (element.text or "").strip():
            element.text = None
        if not (element.tail or "").strip():
            element.tail = None
    _forget_ids(root)
    _flatten(root)
    width, height = (root.attrib.pop(side, "") for side in ("width", "height"))
    root.set("viewBox", root.get("viewBox") or f"0 0 {_points(width)} {_points(height)}")
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


def _rewrite(element: ET.Element, prefix: str, colours: dict[str, str]) -> None:
    for key, value in list(element.attrib.items()):
        plain = key.rsplit("}", 1)[-1]
        if plain == "id":
            value = f"{prefix}-{value}"
        elif plain == "href":
            value = f"#{prefix}-{value[1:]}"
        else:
            value = REFERENCE.sub(lambda match: f"url(#{prefix}-{match[1]})", value)
            if plain in {"d", "x", "y", "transform"}:
                value = NUMBER.sub(lambda match: f"{float(match[0]):.2f}", " ".join(value.split()))
            if plain == "style":
                value = FAMILIES.sub("", value).replace("; ", ";").replace(": ", ":")
            if plain in {"style", "fill", "stroke"}:
                value = COLOUR.sub(lambda match: _variable(match[0], colours), value)
        element.set(key, value)


def _forget_ids(root: ET.Element) -> None:
    """Drop the ids that nothing refers to: matplotlib names every tick."""
    used = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            used.update(REFERENCE.findall(value))
            if key.rsplit("}", 1)[-1] == "href":
                used.add(value[1:])
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)


def _flatten(element: ET.Element) -> None:
    """Put the content of groups that say nothing in their place, and drop rotations by nothing."""
    for child in list(element):
        _flatten(child)
        if child.get("transform", "").startswith("rotate(-0 "):
            del child.attrib["transform"]
        if _name(child) == "g" and not child.attrib:
            place = list(element).index(child)
            element.remove(child)
            for number, grandchild in enumerate(child):
                element.insert(place + number, grandchild)


def _variable(colour: str, colours: dict[str, str]) -> str:
    name = colours.get(colour.lower())
    return f"var({name})" if name else colour


def _name(element: ET.Element) -> str:
    return str(element.tag).rsplit("}", 1)[-1]


def _points(text: str) -> str:
    return re.sub(r"[^0-9.]", "", text)
