"""The researcher's hour, typed: an idea of one's own against GRPO, then its learning rate.

First `pip install .` and an editor leave their files, which harm nothing. In a copy of this checkout, on the smallest
sizes that train at all: what is asserted is that everything trained is compared and shown, not what it scored.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

from tests.workflow.conftest import checkout as copy_of_checkout

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "results/cache"
SMALL = ["training.rollouts=3", "training.prompts_per_rollout=8", "evaluation.benchmarks=syn_as3,syn_mix2"]
PAGE = (ROOT / "docs/extend.md").read_text(encoding="utf-8")
METHOD = re.findall(r"^```python file=methods/catalog/grpo_centred\.py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
FORMULA = textwrap.dedent(re.findall(r"^    @part\(\).*?\n\n", PAGE, re.MULTILINE | re.DOTALL)[0])
SURROGATE = 'objective.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"])'

pytestmark = [pytest.mark.slow, pytest.mark.demo]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git has, and of the demo's base model, prompts and benchmarks."""
    here = copy_of_checkout(tmp_path_factory.mktemp("hour"))
    assert CACHE.is_dir(), "results/cache is missing: run make demo"
    shutil.copytree(CACHE, here / "results/cache", symlinks=True)
    # with a formula of one's own as the page has it, in the place of the clip
    own = METHOD.replace("import Parts,", "import Parts, part,").replace("@method", f"{FORMULA}\n\n@method")
    own = own.replace(SURROGATE, "soft(tau=0.3)").replace(
        "(*options.TOKEN_CLIP, options.AGG_SCOPE)", "(options.AGG_SCOPE,)"
    )
    assert "TOKEN_CLIP" not in own
    assert "surrogate=soft(" in own
    (here / "methods/catalog/grpo_centred.py").write_text(own, encoding="utf-8")
    venv.create(here / ".venv", with_pip=False)
    pip = [sys.executable, "-m", "pip", "install", "--prefix", here / ".venv", "--ignore-installed", "--no-deps"]
    for words, said in ((["."], ""), (["-e", "."], "pip install -e: not supported")):
        command = [*pip, "--no-index", "--no-build-isolation", *words]
        done = subprocess.run(command, cwd=here, capture_output=True, text=True)
        assert said in done.stderr
        assert (done.returncode == 0) == (said == ""), done.stderr
    assert {"build", "tepo_bench.egg-info"} <= {path.name for path in here.iterdir()}
    for name in ("methods/parts/masks.py~", "methods/catalog/.#mine.py", "methods/catalog/#mine.py#", ".idea/mine.py"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text("1 / 0\n", encoding="utf-8")
    return here


def typed(checkout: Path, *words: str) -> str:
    """Run a command as a user would in the copy; its output."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=checkout, env=environment, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def snakemake(checkout: Path, *words: str) -> str:
    targets, settings = [w for w in words if "=" not in w], [w for w in words if "=" in w]
    quick = ["--configfile", "config/quick.yaml", "--config", *settings]
    return typed(checkout, "snakemake", "--cores", "2", *targets, *quick)


def cells(checkout: Path, name: str) -> dict[tuple[str, str], dict[str, str]]:
    with open(checkout / f"results/{name}/tables/tableruns.tidy.csv", encoding="utf-8", newline="") as stream:
        return {(line["row"], line["column"]): line for line in csv.DictReader(stream)}


def test_an_idea_of_ones_own_is_compared_with_grpo(checkout: Path) -> None:
    snakemake(checkout, "methods=grpo,grpo_centred", "seeds=1,2", "name=mine", *SMALL)
    for record in (checkout / "results/mine/runs").glob("**/run.json"):
        assert "code_warning" not in record.read_text(encoding="utf-8")
    found = cells(checkout, "mine")
    mine = found["tiny_qwen2/grpo_centred/step3", "avg_pooled"]
    assert (mine["label"], mine["state"], mine["seeds"]) == ("GRPO/DAPO, centred advantage", "measured", "1 2")
    assert (mine["baseline"], mine["versus_n"], mine["versus_level"]) == ("tiny_qwen2/grpo/step3", "2", "seed")
    assert found["tiny_qwen2/grpo_centred/step3", "area"]["state"] == "measured"
    page = (checkout / "results/mine/report.html").read_text(encoding="utf-8")
    assert "GRPO/DAPO, centred advantage" in page[page.index('id="tableruns"') :].partition("</section>")[0]
    assert "4 done" in typed(checkout, sys.executable, "-m", "report.show", "runs", "--scale", "mine")


def test_three_rates_choose_one_each_and_fresh_seeds_compare_them(checkout: Path) -> None:
    asked = [
        "methods=grpo,grpo_centred",
        "seeds=1",
        "name=rates",
        "sweep.training.learning_rate=5e-5,1e-4,2e-4",
        *SMALL,
    ]
    said = snakemake(checkout, *asked)
    assert "type the same command again" in said
    with open(checkout / "results/rates/sweep/choice.csv", encoding="utf-8", newline="") as stream:
        choice = list(csv.DictReader(stream))
    chosen = {line["row"]: line["method"] for line in choice if line["chosen"] == "yes"}
    assert (len(choice), set(chosen)) == (6, {"grpo", "grpo_centred"})
    for line in choice:
        own = [float(other["mean"]) for other in choice if other["row"] == line["row"]]
        assert line["chosen"] == "no" or float(line["mean"]) == max(own)
    snakemake(checkout, *asked)
    found = cells(checkout, "rates")
    fresh = found[f"tiny_qwen2/{chosen['grpo_centred']}/fresh-chosen/step3", "avg_pooled"]
    assert (fresh["seeds"], fresh["baseline"]) == ("2", f"tiny_qwen2/{chosen['grpo']}/fresh-chosen/step3")
    page = (checkout / "results/rates/report.html").read_text(encoding="utf-8")
    assert "Sweep of learning rate" in page
