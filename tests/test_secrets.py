"""No secret of the environment reaches a file or a command line: a small pipeline.

Runs of verl have the same search in tests/adapters/test_verl_run.py, because it takes as long as the run itself, and
requests to an endpoint in tests/evals/generation/test_endpoint.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import planted
from tests.slurm.conftest import clone

SMALL = {"matrix": [{"models": ["tiny_qwen2"], "methods": ["grpo"], "seeds": [1], "steps": [2]}],
         "training": {"rollouts": 2}, "evaluation": {"benchmarks": ["syn_add2q"], "table_step": 2}}  # fmt: skip


def started(folder: Path, *line: str, **environment: str) -> tuple[int, str, set[tuple[str, str]]]:
    """Exit code of a program, what it said, and the secrets in command lines meanwhile."""
    variables = {**os.environ, **planted.ENVIRONMENT, **environment}
    variables["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    said = folder / "said"
    with open(said, "a", encoding="utf-8") as stream:
        program = subprocess.Popen(line, cwd=folder, env=variables, stdout=stream, stderr=stream)
        with planted.told_by_arguments(program.pid) as in_arguments:
            code = program.wait()
    return code, said.read_text(encoding="utf-8"), in_arguments


@pytest.mark.slow
def test_the_pipeline_tells_no_secret(tmp_path: Path) -> None:
    """From training to the page; then once more with a step that fails, which prints a traceback."""
    folder, home = clone(tmp_path / "clone"), tmp_path / "home"
    home.mkdir()
    (folder / "one.yaml").write_text(yaml.safe_dump(SMALL))
    configuration = ("--configfile", "config/quick.yaml", "tests/slurm/small.yaml", "one.yaml")
    code, said, in_arguments = started(folder, "snakemake", "report", *configuration, "--cores", "1", HOME=str(home))
    assert code == 0, said[-3000:]
    assert (folder / "results/small/report.html").is_file()
    assert in_arguments == set()
    assert planted.told_by_files(folder, home) == set()

    (folder / "results/small/scores.csv").unlink()
    (folder / "evals/score.py").write_text("import os\n\nos.environ['NOT_SET']\n")
    code, said, in_arguments = started(folder, "snakemake", "report", *configuration, "--cores", "1", HOME=str(home))
    assert code != 0
    assert "KeyError: 'NOT_SET'" in (folder / "logs/small/score.log").read_text()
    assert (in_arguments, planted.told_by_files(folder, home)) == (set(), set())
