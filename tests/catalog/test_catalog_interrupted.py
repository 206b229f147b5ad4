"""States against reality: TensorFlow's saves, interrupted at every step and at random moments.

TensorFlow writes the files; each step of its save (as seen with strace) is done again with them,
one file operation at a time, and after each one the directory is kept. TensorFlow itself says
which checkpoints of a kept directory it restores, every value from one save.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorflow_processes import TensorFlowProcess
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.paths import RunDirectory
from waiting import wait_until
from weekly import weekly

SCRIPT = Path(__file__).parent / "scripts" / "saves.py"
KINDS = ("plain", "rotating", "sharded", "again", *weekly("asynchronous"))
"""An asynchronous save writes the files of a plain one, in the same order."""
MOMENTS = 12
AGE = 600.0
QUIET = 3600.0

pytestmark = pytest.mark.tensorflow


class TensorFlow:
    """A process that has imported it."""

    def __init__(self, place: Path) -> None:
        requests = place / "requests"
        os.mkfifo(requests)
        output, answers = os.pipe()
        with open(answers, "wb") as theirs, open(os.devnull, "wb") as errors:
            self.process = TensorFlowProcess([SCRIPT, requests], os.environ, theirs, errors)
        self._requests = os.fdopen(os.open(requests, os.O_WRONLY), "w", buffering=1)
        self._answers = os.fdopen(output)

    def ask(self, do: str, directory: Path, **more: str):
        request = {"do": do, "directory": str(directory), **more}
        print(json.dumps(request), file=self._requests)
        line = self._answers.readline()
        assert line, f"TensorFlow's process ended at {request}"
        return json.loads(line)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._requests.close()
        self._answers.close()


@pytest.fixture(scope="module")
def tensorflow(tmp_path_factory) -> Iterator[TensorFlow]:
    started = TensorFlow(tmp_path_factory.mktemp("tensorflow"))
    yield started
    started.end()


def states(directory: Path, later: float) -> dict[str, CheckpointState]:
    found = Catalog(RunDirectory(directory)).scan(time.time() + later)
    return {checkpoint.name: checkpoint.state for checkpoint in found}


def check_quiet(tensorflow: TensorFlow, directory: Path) -> dict[str, CheckpointState]:
    """Long after: what TensorFlow restores is called so, and nothing else is."""
    whole = tensorflow.ask("check", directory)
    found = states(directory, QUIET)
    assert set(whole) <= set(found)
    for name, state in found.items():
        assert state.restorable == whole.get(name, False), f"{name} in {directory.name}: {state}"
        assert state is not CheckpointState.WRITING
    return found


def check_fresh(tensorflow: TensorFlow, directory: Path) -> dict[str, CheckpointState]:
    """Right after: nothing is called restorable that is not; it may still be being written."""
    whole = tensorflow.ask("check", directory)
    found = states(directory, 0)
    for name, state in found.items():
        what = f"{name} in {directory.name}: {state}"
        assert whole.get(name, False) or not state.restorable, what
        assert state.restorable or not whole.get(name) or state is CheckpointState.WRITING, what
    return found


class Replay:
    """Goes through a save of TensorFlow's again, and keeps the directory after each step."""

    def __init__(self, before: Path, after: Path, kept: Path, name: str) -> None:
        self.live = kept / "live"
        shutil.copytree(before, self.live)
        long_ago = time.time() - AGE
        for path in self.live.iterdir():
            os.utime(path, (long_ago, long_ago))
        self._after, self._kept, self._name = after, kept, name
        self.steps: dict[str, Path] = {}

    def run(self) -> dict[str, Path]:
        """Returns the directories by the step after which the save was killed."""
        live, name = self.live, self._name
        data = sorted(self._after.glob(f"{name}.data-*"))
        index = (self._after / f"{name}.index").read_bytes()
        temporary = live / f"{name}_temp"
        temporary.mkdir()
        self._keep("1 mkdir")
        for number, path in enumerate(data):
            part = f"part-{number:05d}-of-{len(data):05d}"
            moving = temporary / f"{part}.data-00000-of-00001.tempstate123"
            moving.write_bytes(path.read_bytes()[:100])
            self._keep(f"2 data {number} half")
            moving.write_bytes(path.read_bytes())
            os.rename(moving, temporary / f"{part}.data-00000-of-00001")
            self._keep(f"3 data {number}")
            (temporary / f"{part}.index").write_bytes(index)
            self._keep(f"4 index {number}")
        for number, path in reversed(list(enumerate(data))):
            part = f"part-{number:05d}-of-{len(data):05d}.data-00000-of-00001"
            os.rename(temporary / part, live / path.name)
            self._keep(f"5 data {number} in place")
        with open(live / f"{name}.index", "wb", buffering=0) as file:
            self._keep("6 index empty")
            file.write(index[: len(index) // 2])
            self._keep("6 index half")
            file.write(index[len(index) // 2 :])
            self._keep("6 index")
        for path in temporary.iterdir():
            path.unlink()
        self._keep("7 parts gone")
        temporary.rmdir()
        self._keep("7 temp gone")
        self._state_file("8")
        for path in sorted(live.glob("ckpt-*.index")) + sorted(live.glob("ckpt-*.data-*")):
            if not (self._after / path.name).exists():
                path.unlink()
                self._keep(f"9 {path.suffix[:6]} of an old one gone")
        self._state_file("10")
        shutil.rmtree(live)
        return self.steps

    def _state_file(self, step: str) -> None:
        moving = self.live / f"checkpoint.tmp{'0a' * 16}"
        moving.write_bytes((self._after / "checkpoint").read_bytes())
        self._keep(f"{step} state file aside")
        os.rename(moving, self.live / "checkpoint")
        self._keep(f"{step} state file")

    def _keep(self, step: str) -> None:
        directory = self._kept / f"{len(self.steps):02d} {step}"
        shutil.copytree(self.live, directory)
        self.steps[step] = directory


def replayed(tensorflow: TensorFlow, place: Path, kind: str) -> dict[str, Path]:
    """Returns every state of the second save of a kind, or of a save over the second."""
    written = place / "written"
    if kind == "again":
        tensorflow.ask("write", written, kind="sharded")
        shutil.copytree(written, place / "before")
        assert tensorflow.ask("again", written) == "ckpt-2"
    else:
        names = tensorflow.ask("write", written, kind=kind)
        assert names == ["ckpt-1", "ckpt-2"]
        only_first = place / "first"
        tensorflow.ask("write_one", only_first, kind=kind)
        os.rename(only_first, place / "before")
    return Replay(place / "before", written, place, "ckpt-2").run()


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_each_step(tensorflow, tmp_path, kind):
    steps = replayed(tensorflow, tmp_path, kind)
    committed = False
    for step, directory in steps.items():
        committed |= step == "6 index"
        fresh = check_fresh(tensorflow, directory)
        # Nothing is written yet: an empty directory may be anybody's.
        untouched = step == "1 mkdir"
        if untouched and kind != "again":
            assert "ckpt-2" not in fresh
            continue
        expected = CheckpointState.COMPLETE if committed or untouched else CheckpointState.WRITING
        assert fresh["ckpt-2"] is expected, step
        quiet = check_quiet(tensorflow, directory)
        if kind != "again" and not committed:
            assert quiet["ckpt-2"] is {
                "6 index empty": CheckpointState.INCOMPLETE,
                "6 index half": CheckpointState.CORRUPT,
            }.get(step, CheckpointState.ORPHANED), step
        if not step.startswith(("9", "10")):
            assert quiet["ckpt-1"] is CheckpointState.COMPLETE, step
    if kind == "again":
        assert quiet_of(steps, "4 index 0") is CheckpointState.COMPLETE
        assert quiet_of(steps, "5 data 0 in place") is CheckpointState.CORRUPT


def quiet_of(steps: dict[str, Path], step: str) -> CheckpointState:
    return states(steps[step], QUIET)["ckpt-2"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_manager_goes_on_after_it(tensorflow, tmp_path, kind):
    for step, directory in replayed(tensorflow, tmp_path, kind).items():
        went_on = tensorflow.ask("go_on", directory, kind="sharded" if kind == "again" else kind)
        fresh = check_fresh(tensorflow, directory)
        assert fresh[went_on["saved"]] is CheckpointState.COMPLETE, step
        found = Catalog(RunDirectory(directory)).scan(time.time())
        assert [c.name for c in found if c.is_head] == [went_on["saved"]], step
        check_quiet(tensorflow, directory)


@pytest.mark.parametrize("kind", ["sharded", *weekly("rotating", "asynchronous")])
def test_killed_at_random_moments(tensorflow, tmp_path, kind):
    """A process that is stopped leaves on disk what it would leave if it were killed there."""
    chance = random.Random(20_240_601)
    saver, live = TensorFlow(tmp_path), tmp_path / "live"
    try:
        assert saver.ask("loop", live, kind=kind) == "saving"
        wait_until(lambda: (live / "checkpoint").exists(), 30, "a first save")
        seen = set()
        for number in range(MOMENTS):
            time.sleep(chance.uniform(0, 0.03))
            stop(saver.process.pid)
            kept = tmp_path / f"stopped-{number}"
            shutil.copytree(live, kept)
            os.kill(saver.process.pid, signal.SIGCONT)
            check_fresh(tensorflow, kept)
            seen |= set(check_quiet(tensorflow, kept).values())
            if number % 5 == 0:
                tensorflow.ask("go_on", kept, kind=kind)
                check_quiet(tensorflow, kept)
            shutil.rmtree(kept)
    finally:
        saver.end()
    check_quiet(tensorflow, live)
    assert CheckpointState.COMPLETE in seen


def stop(pid: int) -> None:
    """Stops a process; returns when none of its threads runs."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(
        lambda: all(is_stopped(task) for task in Path(f"/proc/{pid}/task").iterdir()), 10, ""
    )


def is_stopped(task: Path) -> bool:
    return (task / "stat").read_text().rpartition(") ")[2][0] == "T"
