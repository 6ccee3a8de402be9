"""Workers that are killed, by clock, memory, signals or what they must not do; and text that wants time or a shell."""

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import BenchError, ConfigError
from core.files import write_json, write_text
from core.provenance import ROOT, sha256_file
from evals import benchmark as data
from evals.benchmark import definition
from evals.grade import grade
from evals.grading import Verdict
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question, cheap_grade
from evals.grading.pool import Answer, Pool, Task
from tests import planted

FRAGILE = "tests.evals.grading.fragile_worker"
GOLD = gold("7")


def tasks(answers: list[str]) -> list[Task]:
    return [Task(GOLD, answer) for answer in answers]


ENDINGS = {
    "burn 5": ("timeout", "CPU seconds"),
    "kill 9": ("error", "killed by SIGKILL"),
    "kill 11": ("error", "killed by SIGSEGV"),
    "exit 3": ("error", "ended with exit code 3"),
    "memory": ("error", "memory"),
    "raise": ("error", "KeyError: 'a bug'"),
    "write {}/a": ("error", "forbidden operation"),
    "read /etc/hostname": ("error", "forbidden operation"),
    "shell {}/b": ("error", "forbidden operation"),
    "eval 1+1": ("error", "PermissionError: text is not compiled here"),
}


@pytest.mark.slow
def test_every_death_has_its_reason_and_other_comparisons_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process is left, and workers got no secret of the environment."""
    for name, value in (planted.ENVIRONMENT | {"LC_TIME": "C"}).items():
        monkeypatch.setenv(name, value)
    bad = [answer.format(tmp_path) for answer in ENDINGS]
    with Pool(workers=2, cpu_seconds=0.4, module=FRAGILE) as pool:
        first, *found, last = pool.compare(tasks(["fine 1", *bad, "fine 2"]))
        worker = _worker(pool)
        given = Path(f"/proc/{worker.pid}/environ").read_bytes()
        assert worker.children() == []
    assert not worker.is_running()
    assert not list(tmp_path.iterdir())
    assert [(answer.outcome, answer.reason) for answer in found] == [*ENDINGS.values()]
    assert first.outcome == last.outcome == "correct"
    assert planted.told(given, planted.WORDS) == set()
    assert {b"LC_TIME=C", f"PATH={os.environ['PATH']}".encode()} <= set(given.split(b"\0"))
    with Pool(workers=1, wall_seconds=0.3, module=FRAGILE) as pool:
        assert pool.compare(tasks(["sleep 30"])) == [Answer("timeout", 0.0, "wall clock")]
    with Pool(module="tests.no_such_worker") as pool, pytest.raises(BenchError, match=r"did not start .exit code 1"):
        pool.compare(tasks(["fine"]))


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
def test_a_killed_comparison_is_tried_once_more(whole: bool) -> None:
    """Also when the worker is killed with it."""

    def kill() -> None:
        while not pool.worker or not (comparing := _worker(pool).children()):
            time.sleep(0.01)
        (_worker(pool) if whole else comparing[0]).kill()

    with Pool(workers=2, module=FRAGILE) as pool:
        thread = threading.Thread(target=kill)
        thread.start()
        found = pool.compare(tasks(["sleep 1.0"]))
        thread.join()
    assert [answer.outcome for answer in found] == ["correct"]


def _worker(pool: Pool) -> psutil.Process:
    assert pool.worker
    return psutil.Process(pool.worker[0].pid)


@pytest.mark.slow
def test_a_batch_shares_its_budget_whatever_the_order_and_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """First 0.05 s each; then 0.8 s for those that need more: all of 2, and too little for each of 10."""
    monkeypatch.setattr("evals.grading.pool.FIRST_SECONDS", 0.6)
    monkeypatch.setattr("evals.grading.pool.SLOW_SECONDS", 0.8)
    few = [*(f"fine {n}" for n in range(10)), "burn 0.2", "burn 9"]
    many = ["fine", "burn 0.2", *(f"burn {n}" for n in range(8, 18))]
    for workers, step in ((1, 1), (2, -1)):
        found = []
        with Pool(workers=workers, cpu_seconds=0.5, module=FRAGILE) as pool:
            for batch in (few, many):
                answers = pool.compare(tasks(batch[::step]), batch=len(batch))
                found.append(dict(zip(batch[::step], answers, strict=True)))
        assert [found[0][answer].outcome for answer in few] == ["correct"] * 11 + ["timeout"], workers
        assert [found[1][answer].outcome for answer in many] == ["correct"] + ["timeout"] * 11, workers
        assert found[0]["burn 9"].seconds > 0.3 > 0.1 > found[1]["burn 9"].seconds


# Outputs that want time, memory or a shell: each gets a verdict within its limit, and the next item its own.

PROOF = Path("/tmp/grading-was-here")
HOSTILE = {
    "tower of powers": "9^{9^{9^{9^{9}}}}",
    "huge factorial": "1000000000!",
    "endless sum": r"\sum_{n=1}^{10^{12}} \frac{1}{n^{2}+\sin n}",
    "integral": r"\int_0^1 \sin(\cos(\tan(x^x))) e^{x^{x}} dx",
    "a million digits": "9" * 10**6,
    "deep braces": "{" * 10**5 + "1" + "}" * 10**5,
    "open boxes": "\\boxed{" * 10**5,
    "deep roots": r"\sqrt{" * 300 + "x" + "}" * 300,
    "NUL and lone surrogates": "6\x00\ud800",
    "TeX shell": rf"\immediate\write18{{touch {PROOF}}}",
    "Python in a name": f"x_{{__import__('os').system('touch {PROOF}')}}+1",
    "long list": ",".join(f"\\sqrt{{{n}}}+x" for n in range(300)),
    "large power of a sum": "(" + "+".join(f"x_{{{n}}}" for n in range(12)) + ")^{40}",
    "fractions": "\\frac{" * 600 + "}" * 600,
}


@pytest.mark.slow
def test_hostile_outputs_are_never_right_and_run_nothing() -> None:
    for text in HOSTILE.values():
        for stored in ("1,2", "(1,2)"):
            cheap_grade(Question(gold(stored), f"\\boxed{{{text}}}"))  # without a limit: this comes to an end
    questions = [
        Question(gold(stored), f"\\boxed{{{text}}}") for text in HOSTILE.values() for stored in ("5", r"\sqrt{2}x")
    ]
    with Grader(cpu_seconds=1.0) as grader:
        *grades, next_one = grader.grade([*questions, Question(gold(r"\sqrt{8}"), r"\boxed{2\sqrt{2}}")])
    verdicts = [grade.verdict for grade in grades]
    assert set(verdicts) <= {Verdict.WRONG, Verdict.NO_ANSWER, Verdict.TIMEOUT, Verdict.ERROR}
    assert next_one.verdict == Verdict.CORRECT
    assert sum(verdict in (Verdict.TIMEOUT, Verdict.ERROR) for verdict in verdicts) <= 8
    assert not PROOF.exists()
    # kB; torch in the test process itself counts too
    used = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    assert max(used) < 3 * 2**20


# The command


def _data(folder: Path, golds: Sequence[str], **facts: Any) -> list[str]:
    """Define a benchmark with these golds, and return its item ids."""
    items = data.items([{"problem": f"Problem {n}", "answer": gold} | facts for n, gold in enumerate(golds)])
    write_text(folder / "mine.jsonl", data.text(items))
    digest = data.content_sha256(items)
    write_json(definition(folder, "mine"), {"title": "", "tool": "", "sha256": digest, "n": len(items)})
    return [item.item_id for item in items]


def _samples(folder: Path, ids: Sequence[str], texts: Sequence[bytes], stops: Sequence[str] = ()) -> Path:
    """Write samples of items, one of each; the texts may be broken."""
    folder.mkdir(exist_ok=True)
    count, path = len(texts), folder / "mine.parquet"
    response = pa.Array.from_buffers(pa.string(), count, pa.array(texts, pa.binary()).buffers())
    stop = [*stops, *["stop"] * (count - len(stops))]
    pq.write_table(pa.table({"item_id": ids, "sample": [0] * count, "response": response, "stop": stop}), path)
    write_json(folder / "samples.json", {"benchmarks": {"mine": {"sha256": sha256_file(path), "rows": count}}})
    return folder


def test_the_command_gives_one_verdict_per_response(tmp_path: Path) -> None:
    """Broken text is graded, not refused."""
    texts = [b"It is 5.", rb"so \boxed{", rb"\boxed{y}", rb"\boxed{1+", b"\xff\xfe \x00 \\boxed{\xc3}", rb"\boxed{5}"]
    samples = _samples(tmp_path / "samples", ids := _data(tmp_path, ["5"] * 6), texts, ["stop", "length"])
    words = ["--samples", str(samples), "--data", str(tmp_path), "--out", str(tmp_path / "grades")]
    done = subprocess.run([sys.executable, "-m", "evals.grade", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("mine: correct 1, wrong 2" in done.stdout, "6/6" in done.stderr) == (True, True)
    table = pq.read_table(tmp_path / "grades" / "mine.parquet").to_pydict()
    assert table["item_id"] == ids
    assert table["verdict"] == ["no_answer", "truncated", "wrong", "no_answer", "wrong", "correct"]
    assert table["extracted"][:3] == [None, None, "y"]


def test_other_golds_other_samples_and_damaged_grades_are_graded_anew(tmp_path: Path) -> None:
    written = tmp_path / "grades" / "mine.parquet"

    def verdicts(golds: Sequence[str], *texts: bytes) -> list[str]:
        grade(_samples(tmp_path / "samples", _data(tmp_path, golds), texts), tmp_path, written.parent)
        found: list[str] = pq.read_table(written)["verdict"].to_pylist()
        return found

    three, zero = rb"\boxed{3}", rb"\boxed{0}"
    assert verdicts("34", three, three) == ["correct", "wrong"]
    before = written.stat().st_ino
    assert verdicts("34", three, three) == ["correct", "wrong"]
    assert written.stat().st_ino == before  # these stay
    assert verdicts("43", three, three) == ["wrong", "correct"]
    assert verdicts("43", three, zero) == ["wrong", "wrong"]
    written.write_bytes(b"PAR1")
    assert verdicts("43", three, zero) == ["wrong", "wrong"]


def test_a_gold_that_cannot_be_read_is_named_with_its_benchmark_and_item(tmp_path: Path) -> None:
    (id,) = _data(tmp_path, ["2"], tolerance="much")
    samples = _samples(tmp_path / "samples", [id], [b""])
    with pytest.raises(ConfigError, match=f"^mine: item {id}: item: tolerance: 'much' is not a positive number$"):
        grade(samples, tmp_path, tmp_path / "grades")


def test_fast_integer_libraries_are_hidden_from_the_algebra(tmp_path: Path) -> None:
    """Their C code reaches no limit of Python; installed or not, sympy must not see them."""
    write_text(tmp_path / "gmpy2.py", "raise SystemExit('imported')")
    code = "import sys; from evals.grading import worker; worker.algebra(); import sympy; "
    code += "print(sympy.external.gmpy.GROUND_TYPES, sys.modules['gmpy2'])"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["python None"], done.stderr
