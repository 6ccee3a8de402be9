"""Style sheet and scripts of the page, and the policy that lets nothing else run or load."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from report.site import vendor

HTML = Path(__file__).resolve().parents[1] / "html"
SCRIPTS = ("bench", "charts", "tables", "pairs", "typeset", "samples", "views")  # each stands on those before it
BEFORE = 'document.documentElement.classList.add("js")'  # before anything is drawn


def style() -> str:
    return vendor.text("uplot/uPlot.min.css") + (HTML / "style.css").read_text(encoding="utf-8")


def script() -> str:
    own = [(HTML / "js" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return "\n".join([vendor.text("uplot/uPlot.iife.min.js"), *own])


def data(value: Mapping[str, Any]) -> str:
    """JSON that can stand inside a script element: no text of anybody's can end it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def policy(*scripts: str) -> str:
    """Content security policy: these scripts, files beside the page, and nothing from anywhere else."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes} 'self' file:; style-src 'unsafe-inline' 'self' file:; "
        "font-src data:; img-src data:; base-uri 'none'; form-action 'none'"
    )
