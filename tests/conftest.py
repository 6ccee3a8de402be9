"""The order of test files: those that take minutes start first, so that no worker is left alone with one at the end."""

import pytest

LONGEST = (
    "slurm/test_faults.py", "adapters/test_verl_run.py", "test_smollm.py", "test_docs.py", "test_one_gpu.py",
    "browser/test_views.py", "adapters/test_trl_run.py", "test_researchers_hour.py",
    "report/test_reference.py", "methods/test_mutations.py", "workflow/test_config.py",
    "adapters/test_loss.py", "core/test_code.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by the place of the file in `LONGEST`; the others follow in their order."""
    places = {f"tests/{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONGEST)))
