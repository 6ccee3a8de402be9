"""`report.show runs`: done, running, stopped, waiting, told from what a training process leaves in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from core import lock
from core.layout import Run
from core.results_tree import Tree
from report import show

Command = Callable[..., tuple[int, str, str]]
TEPO, GSPO, NOKL = (Run("tiny_qwen2", method, 1) for method in ("tepo", "gspo", "tepo_nokl"))
HEADER = "rollout,update,minibatch,reward,seconds_update,seconds_rollout\n"


def begun(tree: Tree, run: Run, rows: int, *, torn: bool = False) -> Path:
    """Make `run` one that has written `rows` updates, 4 to a rollout, of 1 s each and 2 s more per rollout."""
    folder = tree.layout.run(run)
    (folder / "run.json").unlink()
    state = folder / "state"
    state.mkdir()
    (state / "events.jsonl").write_text(json.dumps({"event": "start"}) + "\n")
    lines = [f"{n // 4 + 1},{n},{n % 4},{n / 100},1.0,{2.0 if n % 4 == 0 else ''}\n" for n in range(rows)]
    (state / "curve.csv").write_text(HEADER + "".join(lines) + ("9,9" if torn else ""))
    return state / "lock"


@pytest.fixture
def busy(scored_copy: Tree) -> Iterator[Tree]:
    """GRPO done, TEPO running in this process after 6 of 12 rollouts, GSPO stopped, TEPO without KL waiting."""
    with ExitStack() as held:
        held.enter_context(lock.held(begun(scored_copy, TEPO, 24, torn=True), "busy"))
        begun(scored_copy, GSPO, 5)
        (scored_copy.layout.run(NOKL) / "run.json").unlink()
        yield scored_copy


def test_every_state_is_told_from_the_folder(busy: Tree) -> None:
    found = {one.run: one.state for one in show.statuses(busy)}
    assert found == {Run("tiny_qwen2", "grpo", 1): "done", TEPO: "running", GSPO: "stopped", NOKL: "waiting"}


def test_a_lock_whose_process_is_gone_is_no_running_run(scored_copy: Tree) -> None:
    path = begun(scored_copy, TEPO, 8)
    with lock.held(path, "busy"):
        owner = json.loads(path.read_text())
    path.write_text(json.dumps(owner | {"pid": 2**22 + 1}))
    assert next(one.state for one in show.statuses(scored_copy) if one.run == TEPO) == "stopped"


def test_show_prints_counts_and_what_needs_a_look(busy: Tree, command: Command) -> None:
    code, out, err = command(show.main, "runs", "--results", busy.root)
    assert (code, err) == (0, "")
    assert "4 runs: 1 done, 1 running, 1 stopped, 1 waiting" in out
    assert "5 of 5 checkpoints evaluated" in out
    assert "running  tiny_qwen2/tepo/seed1  rollout 6" in out
    assert "stopped  tiny_qwen2/gspo/seed1  rollout 2; failed or interrupted" in out


def test_before_the_plan_is_written_the_folders_are_shown(busy: Tree, command: Command) -> None:
    busy.layout.matrix.unlink()
    code, out, _ = command(show.main, "runs", "--results", busy.root)
    assert code == 0
    assert "what else is planned is unknown" in out
    assert "running  tiny_qwen2/tepo/seed1  rollout 6" in out


def test_a_scale_is_short_for_its_folder(
    scored: Tree, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "results").symlink_to(scored.root.parent)
    monkeypatch.chdir(tmp_path)
    assert command(show.main, "runs", "--scale", "quick")[1] == command(show.main, "runs", "--results", scored.root)[1]
    code, _, err = command(show.main, "runs", "--scale", "quik")
    assert code == 2
    assert "nearest: quick" in err
