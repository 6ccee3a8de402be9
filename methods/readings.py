"""Where the paper can be read in more than one way: what is printed of each ambiguity, from `readings.yaml`.

A method's reading is an option of its catalog entry: one of the reading's own name (`clip-form=eq4`), or several that a
label stands for (`seq-eps=gspo` means `low=0.0003+high=0.0004`); `methods.options` has those labels. What training and
evaluation settle is listed too, so that all ambiguities are in one place: docs/notebook/readings.md is written from it.
"""

from collections.abc import Mapping
from typing import Literal

from core.declared import Declared, validated
from core.files import read_yaml
from core.provenance import ROOT
from methods import options
from methods.options import Value

DATA = ("methods/readings.yaml",)


class Reading(Declared):
    """One ambiguity of the paper."""

    id: str  # R for training a method, E for evaluating it
    name: str  # as it is set in a key
    room: Literal["methods", "training", "evals"]  # the part of the code that settles it
    why: str  # why it is ambiguous, and why this default
    values: Mapping[str, str]  # label -> meaning, the default first
    # Label -> the setting that makes it so, or why nothing does; for what training and evaluation settle.
    how: Mapping[str, str] = {}

    @property
    def default(self) -> str:
        """The label in force unless another one is set."""
        return next(iter(self.values))

    @property
    def settings(self) -> Mapping[str, Mapping[str, Value]]:
        """Label -> the options that it stands for; empty where a label is the value of the option `name`."""
        return (options.READINGS[self.name].settings or {}) if self.room == "methods" else {}


NAMED = {
    name: validated(Reading, {"name": name, **entry}, f"{DATA[0]}: {name}")
    for name, entry in read_yaml(ROOT / DATA[0], "readings of the paper").items()
}
READINGS = tuple(NAMED.values())
