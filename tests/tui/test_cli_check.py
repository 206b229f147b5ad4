"""The command `check`, with real scripts and real workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from json_reference import check as check_json

from command_running import BINARY, Said, Tool
from tensorflow_processes import python_with_tensorflow
from tfckpt_trainer.errors import ExitCode
from tfckpt_tui.reports.checking import CheckReport
from waiting import MOST_SECONDS, wait_until
from weekly import weekly

SCRIPTS = Path(__file__).parents[1] / "training" / "scripts"
OWN_PLACES = ["--directory", "own/run", "--tensorboard", "own/events"]
"""Directories that a script names itself. A check leaves them alone."""
DEMO = ["-m", "tfckpt_trainer.examples.language_model"]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of all scratch directories; results are stored beside it."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return directory


def assert_nothing_left(scratch: Path) -> None:
    assert list(scratch.glob("tfckpt-check-*")) == []


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "script",
    [
        [SCRIPTS / "exact.py", "--log", "log", *OWN_PLACES],
        *weekly(DEMO),
    ],
    ids=["script", "demo"],
)
def test_a_script_is_exact_on_two_workers(
    tool: Tool, scratch: Path, script: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(scratch.parent)
    said = tool(
        "check",
        "--workers",
        "2",
        "--steps",
        "5",
        "--json",
        "--",
        *python_with_tensorflow(),
        *script,
    )
    assert said.code == ExitCode.DONE, said
    check_json(CheckReport, said.json)
    assert said.json["exact"] and said.json["workers"] == 2 and said.json["input_compared"]
    assert [one["steps"] for one in said.json["passes"]] == [5, 5]
    assert Path(said.json["stored"]).is_file()
    assert not (scratch.parent / "own").exists()
    assert said.words.splitlines() == [
        "starting the script",
        "saved step 3",
        "training: step 1 of 5",
        "restored step 3 in place",
        "repeating in place: step 1 of 5",
        "starting again, from the checkpoint",
        "restored step 3 in a new process",
        "repeating in a new process: step 1 of 5",
    ]
    assert_nothing_left(scratch)


@pytest.mark.matrix
@pytest.mark.weekly
@pytest.mark.tensorflow
def test_an_omission_is_named_and_the_directories_of_the_script_stay_untouched(
    tool: Tool, tmp_path: Path, scratch: Path
) -> None:
    run, tensorboard = tmp_path / "run", tmp_path / "tensorboard"
    # The training has fewer steps than the check would repeat.
    script = (*python_with_tensorflow(), SCRIPTS / "hard_coded.py", run, tensorboard)
    said: Said = tool("check", "--", *script)
    assert said.code == ExitCode.PROBLEM
    assert said.data.count("The tf.random.Generator noise was not passed to TrainingRun") == 2
    assert "TrainingRun(…, extra={'noise': noise})" in said.data
    assert not run.exists()
    assert not tensorboard.exists()
    assert_nothing_left(scratch)


@pytest.mark.e2e
def test_a_script_without_a_run_cannot_be_checked(tool: Tool, scratch: Path) -> None:
    said = tool("check", "--", "echo", "no training here")
    assert said.code == ExitCode.PROBLEM
    assert "without 3 steps of a TrainingRun" in said.words
    assert "no training here" in said.words
    assert_nothing_left(scratch)


@pytest.mark.e2e
def test_a_script_that_fails_is_told_with_its_log(tool: Tool, scratch: Path) -> None:
    said = tool("check", "--", sys.executable, "-c", "raise SystemExit('no such data')")
    assert said.code == ExitCode.PROBLEM
    assert "no such data" in said.words
    assert_nothing_left(scratch)


WORKER_THAT_CANNOT_SAVE = """
import msgspec, os
from pathlib import Path
from tfckpt_trainer.rundir.storage.documents import encode
from tfckpt_trainer.rundir.records.check import CheckedStep, CheckOrder, Pass
order = msgspec.json.decode(os.environ["TFCKPT_CHECK"], type=CheckOrder)
line = CheckedStep(phase=Pass.FIRST, step=3, problem="No checkpoint can be saved: no room")
Path(order.trace(0)).write_bytes(encode(line) + b"\\n")
raise SystemExit("a traceback")
"""


@pytest.mark.e2e
def test_a_script_whose_state_cannot_be_saved_is_told_without_its_log(
    tool: Tool, scratch: Path
) -> None:
    said = tool("check", "--", sys.executable, "-c", WORKER_THAT_CANNOT_SAVE)
    assert said.code == ExitCode.PROBLEM
    problem = "There is nothing to compare. No checkpoint can be saved: no room"
    assert said.words.splitlines() == ["starting the script", f"tfckpt-tui: {problem}"]
    assert_nothing_left(scratch)


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_check_leaves_no_process(scratch: Path, number: int) -> None:
    process = subprocess.Popen(
        [BINARY, "check", "--", "sh", "-c", f"echo started > {scratch}/started; sleep 300"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    try:
        wait_until((scratch / "started").exists, 60, "the script runs")
        process.send_signal(number)
        assert process.wait(MOST_SECONDS) == ExitCode.INTERRUPTED
    finally:
        process.kill()
    assert_nothing_left(scratch)
