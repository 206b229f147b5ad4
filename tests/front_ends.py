"""What each front end says about a run: `status`, `runs`, Python, and the snapshot of the app."""

from __future__ import annotations

import re
import threading
import time

from recorded_slurm import RecordedSlurm
from tfckpt_trainer.launch.slurm.slurm_scheduler import Slurm
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.monitor.job_watch import JobWatch
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.reading.run_reader import RunReader
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.runs.account import RunAccount
from tfckpt_tui.services.runs.job_list import JobList
from tfckpt_tui.services.runs.reading import read_account
from tfckpt_tui.services.runs.report import status_report
from waiting import MOST_SECONDS

Said = tuple[str, int | None, int]
"""State, step and branch."""


def read_snapshot(run: RunDirectory, slurm: RecordedSlurm) -> RunSnapshot:
    """Returns the snapshot of a run; if it has a batch job, Slurm has answered about it."""
    answered = threading.Event()
    reader = SnapshotReader(run, jobs=JobWatch(JobReader(Slurm(slurm)), answered.set))
    reader.read(time.time())
    if run.job_file.exists():
        assert answered.wait(MOST_SECONDS)
    return reader.read(time.time())


def what_all_say(run: RunDirectory, slurm: RecordedSlurm | None = None) -> dict[str, Said]:
    """Returns state, step and branch of a run, by front end."""
    slurm = slurm or RecordedSlurm("")
    status = status_report(run, jobs=JobReader(Slurm(slurm))).run
    (listed,) = JobList(Slurm(slurm)).read([run.root], with_others=False)
    snapshot = read_snapshot(run, slurm)
    opened = RunReader(*read_account(run, time.time(), JobReader(Slurm(slurm))))
    return {
        "status": (status.state.value, status.step, status.branch),
        "Python": (opened.state.value, opened.step, opened.branch),
        "runs": (listed.state.value, listed.step, listed.branch),
        "app": (snapshot.state.value, snapshot.step, snapshot.branch),
    }


def accounts_of(run: RunDirectory, slurm: RecordedSlurm) -> dict[str, dict[str, object]]:
    """Returns all that the account of a run says, by the front end that shows it."""
    (listed,) = JobList(Slurm(slurm)).read([run.root], with_others=False)
    return {
        "status": _said(read_account(run, time.time(), JobReader(Slurm(slurm)))[1]),
        "runs": _said(listed),
        "app": _said(read_snapshot(run, slurm)),
    }


def _said(account: RunAccount) -> dict[str, object]:
    """Returns an account without what depends on the moment of reading, or what some leave out."""
    left_out = {"at", "info", "job", "alerts", "workers", "reason", "problems"}
    left_out |= {"glance", "failure"}
    said = {
        name: getattr(account, name)
        for name in RunAccount.__struct_fields__
        if name not in left_out
    }
    workers = [(one.status, one.state, _steady(one.straggling)) for one in account.workers]
    derived = {
        name: getattr(account, name) for name in ("words", "position", "total_steps", "gpus")
    }
    return {
        **said,
        **derived,
        "reason": _steady(account.reason),
        "job": account.job_in_short,
        "alerts": [(one.kind, one.title) for one in account.alerts],
        "workers": workers,
        "failure": _steady(str(account.failure)),
    }


def _steady(words: str) -> str:
    """Returns words without the seconds that pass between two reads."""
    return re.sub(r"\b\d+ s\b", "N s", words)
