"""Which grader made a verdict: its own source and everything below it that can change a verdict."""

from __future__ import annotations

import hashlib
import json
from functools import cache

from records.provenance import code_hash, version

PACKAGES = ("math-verify", "latex2sympy2-extended", "sympy", "mpmath", "antlr4-python3-runtime")


@cache
def versions() -> dict[str, str | None]:
    """Package versions; verdicts on percentages differ between antlr runtimes, so that one is in it too."""
    return {package: version(package) for package in PACKAGES}


@cache
def grader_version() -> str:
    """`g-` and 12 digits over the grading sources and `versions()`."""
    facts = json.dumps([code_hash(["evals/grading"]), versions()], sort_keys=True)
    return "g-" + hashlib.sha256(facts.encode()).hexdigest()[:12]
