"""verl's training engine against the plain model, packed, in a process of its own (`tests.gpu.engine`)."""

from importlib.util import find_spec

import pytest

from core.files import read_json
from tests.gpu.conftest import Check, Place


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.gpu(f"verl {name}")) for name in ("losses", "unchanged")]
)
def test_the_engine(name: str, check: Check, place: Place) -> None:
    if find_spec("verl") is None:
        pytest.skip("verl is not installed")
    folder = place.folder / f"engine {name}"
    folder.mkdir()
    place.run("tests.gpu.engine", name, place.device, folder)
    check.holds(**read_json(folder / f"{name}.json"))
