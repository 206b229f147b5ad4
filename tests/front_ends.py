"""What each front end says about a run: `status`, `runs`, and the snapshot that the app shows."""

from __future__ import annotations

import threading
import time

from recorded_slurm import RecordedSlurm
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.monitor.job_watch import JobWatch
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.batch.job_list import JobList
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.report import status_report

Said = tuple[str, int | None, int]
"""State, step and branch."""


def read_snapshot(run: RunDirectory, slurm: RecordedSlurm) -> RunSnapshot:
    """Returns the snapshot of a run; if it has a batch job, Slurm has answered about it."""
    answered = threading.Event()
    reader = SnapshotReader(run, jobs=JobWatch(JobReader(slurm), answered.set))
    reader.read(time.time())
    if run.job_file.exists():
        assert answered.wait(60)
    return reader.read(time.time())


def what_all_say(run: RunDirectory, slurm: RecordedSlurm | None = None) -> dict[str, Said]:
    """Returns state, step and branch of a run, by front end."""
    slurm = slurm or RecordedSlurm("")
    status = status_report(run, jobs=JobReader(slurm))["run"]
    (listed,) = JobList(slurm).read([run.root], with_others=False)
    snapshot = read_snapshot(run, slurm)
    return {
        "status": (status["state"], status["step"], status["branch"]),
        "runs": (listed.state.value, listed.step, listed.branch),
        "app": (snapshot.state.value, snapshot.step, snapshot.branch),
    }
