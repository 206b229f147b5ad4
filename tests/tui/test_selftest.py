"""`selftest`: every row can fail, and nothing is left behind."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from json_reference import check as check_json

from command_running import BINARY, Tool
from tfckpt_trainer.catalog.verification.verify_checkpoint import Verified
from tfckpt_trainer.cluster.strategy_names import StrategyName
from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.exactness.step_differences import StepDifference, What
from tfckpt_trainer.rundir.records.check import Pass
from tfckpt_trainer.rundir.records.checkpoint import (
    CheckpointRecord,
    FoundFault,
    SaveCost,
    VerificationRecord,
)
from tfckpt_trainer.rundir.records.selftest import (
    KilledWorker,
    MemoryPeaks,
    RecordedStep,
    StepCost,
    WorkerDevices,
)
from tfckpt_tui.reports.checking import SelfTestReport
from tfckpt_tui.services.exactness import scratch_run
from tfckpt_tui.services.exactness.check import CheckOptions, CheckResult, Repetition
from tfckpt_tui.tools.selftest import self_test
from tfckpt_tui.tools.selftest.evidence import TrainingEvidence, describe_machine
from tfckpt_tui.tools.selftest.rows import MEASURED, Outcome, Row, restores
from tfckpt_tui.tools.selftest.self_test import choose_options
from waiting import MOST_SECONDS, wait_until

GB = 1 << 30
DEVICES = WorkerDevices(
    gpus=["card"],
    driver_gpus=["0"],
    strategy="OneDeviceStrategy",
    replicas=2,
    local_replicas=1,
    state_bytes=1000,
    versions={"TensorFlow": "2.21.0"},
)
COST = StepCost(plain_seconds=0.02, added_seconds=[0.0001, 0.0002, 0.0003], blocks=8, steps=8)
FIRST, SECOND = 100, 200
"""Processes of a worker."""


def steps_of_worker() -> tuple[RecordedStep, ...]:
    """Steps 1 to 5; a save after step 3; killed after step 5; then steps 4 to 6."""
    first = [step(FIRST, number) for number in range(1, 6)]
    first[0] = replaced(first[0], devices=DEVICES)
    first[1] = replaced(first[1], cost=COST)
    first[2] = replaced(first[2], before_save=MemoryPeaks(host=GB, devices=[GB]))
    first[3] = replaced(first[3], after_save=MemoryPeaks(host=GB + 100, devices=[GB]))
    again = [step(SECOND, number) for number in range(4, 7)]
    again[0] = replaced(again[0], devices=DEVICES)
    return (*first, *again)


def step(process: int, number: int) -> RecordedStep:
    return RecordedStep(process=process, step=number, loss=(5.0 / number).hex())


def replaced(one: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(one, **fields)


def save(name: str, *, background: bool, stall: float = 0.01) -> CheckpointRecord:
    return CheckpointRecord(
        name=name,
        step=3,
        branch=0,
        sequence=1,
        saved_at=0.0,
        trigger="",
        duration_seconds=0.2,
        cost=SaveCost(background=background, stall_seconds=stall),
    )


def verified(*findings: FoundFault) -> Verified:
    record = VerificationRecord(
        name="ckpt-3",
        verified_at=0.0,
        seconds=0.1,
        bytes=10,
        tensors=2,
        files={},
        findings=list(findings),
    )
    return Verified(record)


GOOD = TrainingEvidence(
    steps=(steps_of_worker(), steps_of_worker()),
    killed=KilledWorker(worker=1, process=FIRST, step=5),
    restarts=1,
    records=(save("ckpt-3", background=True), save("ckpt-6", background=False)),
    verified={"ckpt-3": verified(), "ckpt-6": verified()},
)

WRONG_BYTE = FoundFault(
    severity="error",
    kind="checksum",
    file="ckpt-3.data-00000-of-00001",
    tensor="v",
    message="v does not match its checksum",
)


def on_all_workers(change: Callable[[RecordedStep], RecordedStep]) -> TrainingEvidence:
    steps = tuple(tuple(change(one) for one in worker) for worker in GOOD.steps)
    return replace(GOOD, steps=steps)


def with_devices(**fields: Any) -> TrainingEvidence:
    changed = replaced(DEVICES, **fields)
    return on_all_workers(lambda one: replaced(one, devices=one.devices and changed))


def after_save(host: int, device: int) -> TrainingEvidence:
    peaks = MemoryPeaks(host=host, devices=[device])
    return on_all_workers(lambda one: replaced(one, after_save=one.after_save and peaks))


def with_added(*seconds: float) -> TrainingEvidence:
    cost = replaced(COST, added_seconds=list(seconds))
    return on_all_workers(lambda one: replaced(one, cost=one.cost and cost))


def on_one_worker(change: Callable[[RecordedStep], RecordedStep]) -> TrainingEvidence:
    return replace(GOOD, steps=(GOOD.steps[0], on_all_workers(change).steps[1]))


def other_loss(one: RecordedStep) -> RecordedStep:
    """The smallest difference that there is, in one step after the restart."""
    if (one.process, one.step) != (SECOND, 5):
        return one
    return replaced(one, loss=math.nextafter(float.fromhex(one.loss), 2.0).hex())


FAILURES = [
    ("GPUs", with_devices(gpus=[]), "0 of 2 GPUs"),
    ("training", on_all_workers(lambda one: replaced(one, loss=(2.0).hex())), "loss 2.000"),
    ("training", on_all_workers(lambda one: replaced(one, loss="nan")), "NaN"),
    ("training", TrainingEvidence(steps=()), "no step"),
    (
        "checkpoints",
        replace(GOOD, verified={**GOOD.verified, "ckpt-3": verified(WRONG_BYTE)}),
        "ckpt-3: v does not match its checksum",
    ),
    ("checkpoints", replace(GOOD, verified={}), "0 checkpoints"),
    ("killed worker", replace(GOOD, killed=None), "no worker was killed"),
    ("killed worker", replace(GOOD, restarts=0), "was not restarted"),
    ("killed worker", on_one_worker(other_loss), "worker 1, step 5: 1.0, then 1.0000000000000002"),
    (
        "killed worker",
        replace(GOOD, steps=(GOOD.steps[0], GOOD.steps[1][:5])),
        "no step was trained again",
    ),
    (
        "stall of a save",
        replace(GOOD, records=(save("ckpt-3", background=True, stall=0.19),)),
        "190 ms of 200 ms",
    ),
    (
        "stall of a save",
        replace(GOOD, records=(save("ckpt-3", background=False),)),
        "no save in the background",
    ),
    ("memory of the host", after_save(2 * GB, GB), "a save added 1.07 GB"),
    (
        "memory of the host",
        on_all_workers(lambda one: replaced(one, after_save=None)),
        "no worker saw the end of a save",
    ),
    ("memory of the GPUs", after_save(GB, 2 * GB), "2.15 GB while it saved"),
    (
        "memory of the GPUs",
        on_all_workers(lambda one: replaced(one, after_save=None)),
        "no worker saw the end of a save",
    ),
    ("cost per step", with_added(0.003, 0.004, 0.005), "+4,000 µs"),
    (
        "cost per step",
        on_all_workers(lambda one: replaced(one, cost=None)),
        "no step was measured",
    ),
]


def judged(evidence: TrainingEvidence) -> dict[str, Row]:
    return {subject.name: judge(evidence) for subject, judge in MEASURED.items()}


def test_a_good_training_passes_every_row() -> None:
    assert {row.outcome for row in judged(GOOD).values()} == {Outcome.PASSED}
    assert {row.advice for row in judged(GOOD).values()} == {""}


@pytest.mark.parametrize(("name", "evidence", "found"), FAILURES)
def test_each_row_fails_for_what_it_compares(
    name: str, evidence: TrainingEvidence, found: str
) -> None:
    row = judged(evidence)[name]
    assert row.outcome is Outcome.FAILED
    assert found in row.found
    assert row.advice


def test_every_row_has_a_failure_that_is_tested() -> None:
    assert {name for name, *_ in FAILURES} == {subject.name for subject in MEASURED}


def test_a_loaded_machine_does_not_fail_the_cost_per_step() -> None:
    """Most pairs are slower, one of four is not: the difference is not the library's."""
    assert judged(with_added(-0.01, 0.03, 0.08))["cost per step"].outcome is Outcome.PASSED


def test_without_a_gpu_nothing_is_claimed_about_one() -> None:
    rows = judged(with_devices(gpus=[], driver_gpus=[]))
    measured = {name: row for name, row in rows.items() if row.outcome is Outcome.NOT_MEASURED}
    assert {name: row.found for name, row in measured.items()} == {
        "GPUs": "no GPU",
        "memory of the GPUs": "no GPU",
    }


def test_a_restore_that_differs_fails_its_row_with_the_cause() -> None:
    difference = StepDifference(Pass.COLD, What.METRIC, "loss", worker=0, step=4, after_steps=1)
    result = CheckResult(
        options=CheckOptions(("python",), "/"),
        repetitions=(Repetition(Pass.IN_PLACE, 10, None), Repetition(Pass.COLD, 10, difference)),
        workers=1,
        metrics=("loss",),
        objects=1,
        has_input=True,
        seconds=1.0,
    )
    in_place, cold = restores(result)
    assert (in_place.outcome, in_place.found) == (Outcome.PASSED, "10 steps equal")
    assert cold.outcome is Outcome.FAILED
    assert "loss" in cold.found and cold.advice
    nothing = replace(result, repetitions=(Repetition(Pass.IN_PLACE, 0, None),))
    assert restores(nothing)[0].outcome is Outcome.FAILED


def test_the_machine_names_its_gpus_and_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '550.54.15\\n550.54.15\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    facts = describe_machine(GOOD, tmp_path)
    # A restarted process does not count again.
    assert facts["GPUs"] == "2 × card"
    assert facts["driver"] == "550.54.15"
    assert facts["strategy"] == "OneDeviceStrategy, 2 workers, 2 replicas"


@pytest.mark.parametrize(
    ("gpus", "strategy", "workers", "chosen"),
    [
        ("", None, None, (StrategyName.ONE_DEVICE, 1)),
        ("0", None, None, (StrategyName.ONE_DEVICE, 1)),
        ("0,1,2", None, None, (StrategyName.MIRRORED, 1)),
        ("0,1,2", "multi-worker", None, (StrategyName.MULTI_WORKER, 3)),
        ("", None, 3, (StrategyName.MULTI_WORKER, 3)),
        ("", "multi-worker", None, (StrategyName.MULTI_WORKER, 2)),
        # Two workers would have to share the GPU, and a process uses one MIG instance.
        ("0", "multi-worker", None, (StrategyName.MULTI_WORKER, 1)),
        ("MIG-a,MIG-b", None, None, (StrategyName.ONE_DEVICE, 1)),
        ("MIG-a,MIG-b", "multi-worker", None, (StrategyName.MULTI_WORKER, 2)),
    ],
)
def test_the_default_is_what_the_machine_has(
    monkeypatch: pytest.MonkeyPatch,
    gpus: str,
    strategy: str | None,
    workers: int | None,
    chosen: tuple[StrategyName, int],
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    options = choose_options(strategy, workers)
    assert (options.strategy, options.workers) == chosen


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of all scratch directories, beside the home of a new user."""
    directory = tmp_path / "scratch"
    for place in (directory, tmp_path / "home"):
        place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        monkeypatch.delenv(name)
    return directory


def assert_nothing_left(scratch: Path) -> None:
    assert list(scratch.iterdir()) == []
    assert list((scratch.parent / "home").iterdir()) == []


def test_several_workers_need_a_strategy_that_has_them(tool: Tool) -> None:
    said = tool("selftest", "--strategy", "mirrored", "--workers", "2")
    assert said.code == ExitCode.USAGE
    assert "--strategy multi-worker --workers 2" in said.words


def test_a_training_that_fails_is_told_with_its_log(
    tool: Tool, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_test, "MODULE", "module_that_does_not_exist")
    said = tool("selftest")
    assert said.code == ExitCode.PROBLEM
    assert "No module named module_that_does_not_exist" in said.words
    assert said.data.count("not run: ") == 2 * len(judged(GOOD)) + 4
    assert "failed: 0 passed, 10 failed, 0 not measured" in said.data
    assert_nothing_left(scratch)


def test_a_self_test_that_takes_too_long_ends(
    tool: Tool, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_test, "LIMIT_SECONDS", 0.0)
    said = tool("selftest")
    assert said.code == ExitCode.PROBLEM
    assert "It takes longer than 0 ms" in said.words
    assert_nothing_left(scratch)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("number", "begun"), [(signal.SIGTERM, "*"), (signal.SIGINT, "*/run/.tfckpt/logs/*")]
)
def test_an_interrupted_self_test_leaves_nothing(scratch: Path, number: int, begun: str) -> None:
    """Neither while its supervisor starts, nor while a worker does."""
    process = subprocess.Popen(
        [BINARY, "selftest"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ
    )
    try:
        wait_until(lambda: list(scratch.glob(begun)), 60, f"{begun} exists")
        process.send_signal(number)
        assert process.wait(MOST_SECONDS) == ExitCode.INTERRUPTED
    finally:
        process.kill()
    assert_nothing_left(scratch)


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_does_not_keep_the_first_from_cleaning_up(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, second: int
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr(scratch_run, "_end_processes", lambda _: os.kill(os.getpid(), second))
    with pytest.raises(KeyboardInterrupt), scratch_run.scratch_run("test", "The test"):
        os.kill(os.getpid(), signal.SIGTERM)
    assert_nothing_left(scratch)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.weekly
@pytest.mark.tensorflow
def test_the_self_test_passes_here(
    tool: Tool, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests beside this one take most of the machine.
    monkeypatch.setattr(self_test, "LIMIT_SECONDS", 570.0)
    said = tool("selftest", "--strategy", "one-device", "--json")
    check_json(SelfTestReport, said.json)
    outcomes = {row["name"]: row["outcome"] for row in said.json["rows"]}
    # A machine that also does other things may be slow, but never wrong.
    measured = {"stall of a save", "cost per step"}
    assert {name for name, outcome in outcomes.items() if outcome == "failed"} <= measured
    assert outcomes["killed worker"] == outcomes["restore in a new process"] == "passed"
    # The save takes as long as some steps.
    assert re.match(
        "starting the training\ntraining on 1 worker: step 1\nkilled worker 0 after step \\d+\n"
        "training on 1 worker: step 41\n",
        said.words,
    ), said.words
    assert_nothing_left(scratch)
