"""A run that trains checks its own next steps, and goes on as if it had not."""

from __future__ import annotations

import json

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.rundir.documents import load
from tfckpt_trainer.rundir.journal import read_entries
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.run import RunInfo

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(("strategy", "workers"), [("mirrored", 1), ("multi-worker", 2)])
def test_a_run_that_trains_is_checked_on_all_workers_and_goes_on(tmp_path, strategy, workers):
    with Cluster(tmp_path / "run", "steered.py", ["--save-every", "7"], workers, strategy) as c:
        steered = SteeredRun(c)
        steered.wait_for_step(5)
        checked = steered.ask(CommandKind.CHECK)
        assert checked.state is CommandState.DONE, checked
        assert checked.result["exact"], checked.message
        of = f"{workers} worker{'s' * (workers > 1)}"
        assert checked.message.startswith(
            f"Checked: exact over 3 steps, restored in place on {of}. Not covered: epoch ends, "
        )
        steered.progress()
        assert not steered.run.check_directory.exists()
        stopped = steered.ask(CommandKind.STOP)
        assert c.wait() == [0] * workers, c.output()
    found = load(steered.run.run_file, RunInfo).known_exactness
    assert found.words == f"exact over 3 steps, restored in place on {of}"
    # The steps were trained twice, and are recorded once.
    kinds = [e.kind for e in read_entries(steered.run)]
    assert JournalKind.RESTORE not in kinds
    steps = [json.loads(line)["step"] for line in steered.run.series.read_text().splitlines()]
    assert steps == sorted(set(steps))
    # The same steps without a check have the same checksums, that of the number of saves included.
    step = int(stopped.result["step"])
    arguments = ["--save-every", "7", "--steps", str(step)]
    with Cluster(tmp_path / "other", "steered.py", arguments, workers, strategy) as undisturbed:
        assert undisturbed.wait() == [0] * workers, undisturbed.output()
    name = stopped.result["name"]
    ours, theirs = (read_index(tmp_path / run / name).entries for run in ("run", "other"))
    assert {k: e.crc32c for k, e in ours.items()} == {k: e.crc32c for k, e in theirs.items()}
