"""The state of a run as a text file for Prometheus."""

from __future__ import annotations

import os
import re

import pytest

from tfckpt_trainer.alerts import openmetrics
from tfckpt_trainer.alerts.alert import BY_ALERTS
from tfckpt_trainer.alerts.openmetrics import openmetrics_text
from tfckpt_trainer.alerts.sender import sending_alerts
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, SaveStatus, WorkerStatus
from tfckpt_trainer.rundir.run_config import read_run_config
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_trainer.rundir.storage.locks import take_lock
from waiting import wait_until

SAMPLE = re.compile(r'(tfckpt_\w+)\{run="(?:[^"\\]|\\.)*"((?:,\w+="(?:[^"\\]|\\.)*")*)\} (\S+)')


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / 'the "run"\\')
    run.create()
    return run


def heartbeat(run: RunDirectory, index: int = 0, **fields: object) -> None:
    status = {
        "index": index, "host": "other", "pid": 1, "process_started_at": 1.0, "branch": 2,
        "updated_at": 1000.0, "interval_seconds": 1.0, "activity": Activity.TRAINING, "step": 70,
    }  # fmt: skip
    store(run.worker_status(index), WorkerStatus(**{**status, **fields}))


def samples(text: str) -> dict[str, str]:
    """The samples by family and labels; each line is one, or a comment."""
    *lines, end, last = text.split("\n")
    assert (end, last) == ("# EOF", "")
    found = {}
    for line in lines:
        match = SAMPLE.fullmatch(line)
        assert match or line.startswith(("# HELP tfckpt_", "# TYPE tfckpt_")), line
        if match:
            found[match[1] + match[2]] = match[3]
    return found


def test_the_state_of_a_run_is_told(run):
    saves = SaveStatus(saved_at=900.5, failed=1)
    heartbeat(run, metrics={"loss": 0.5, 'a "b"\n': None}, step_seconds=0.25, saves=saves)
    heartbeat(run, 1, activity=Activity.EXITED, updated_at=990.0)
    assert samples(openmetrics_text(run, 1001.0)) == {
        'tfckpt_step,branch="2"': "70.0",
        'tfckpt_metric,name="loss"': "0.5",
        'tfckpt_metric,name="a \\"b\\"␊"': "NaN",
        "tfckpt_step_seconds": "0.25",
        "tfckpt_saved_timestamp_seconds": "900.5",
        "tfckpt_failed_saves": "1.0",
        'tfckpt_worker_up,worker="0"': "1.0",
        'tfckpt_worker_up,worker="1"': "0.0",
        'tfckpt_heartbeat_timestamp_seconds,worker="0"': "1000.0",
        'tfckpt_heartbeat_timestamp_seconds,worker="1"': "990.0",
    }
    assert samples(openmetrics_text(run, 2000.0))['tfckpt_worker_up,worker="0"'] == "0.0"


def test_each_family_is_declared_once_and_its_samples_follow(run):
    for index in range(3):
        heartbeat(run, index)
    names = [line.split()[2] if line[0] == "#" else line.split("{")[0]
             for line in openmetrics_text(run, 1.0).splitlines()[:-1]]  # fmt: skip
    begins = [n for n, name in enumerate(names) if names[n - 1 : n] != [name]]
    assert len({names[n] for n in begins}) == len(begins)


def test_a_run_without_processes_is_an_empty_file(tmp_path):
    assert openmetrics_text(RunDirectory(tmp_path), 1.0) == "# EOF\n"


def test_the_process_that_sends_alerts_writes_it_until_its_end(run, tmp_path, monkeypatch):
    monkeypatch.setattr(openmetrics, "EXPORT_SECONDS", 0.05)
    file = tmp_path / "collected" / "run.prom"
    run.config_file.write_text(f'[export]\nopenmetrics = "{file}"\n')
    with sending_alerts(run, take_lock(run.supervisor_lock)):
        # The directory is missing: it is one event, and tried again.
        wait_until(lambda: any(e.by == BY_ALERTS for e in read_entries(run)), 60, "the event")
        file.parent.mkdir()
        wait_until(file.exists, 60, "the file")
        heartbeat(run, 5, step=71)
    found = samples(file.read_text())
    assert 'tfckpt_heartbeat_timestamp_seconds,worker="5"' in found
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    (noted,) = [entry.message for entry in read_entries(run) if entry.by == BY_ALERTS]
    assert noted.startswith("Metrics cannot be exported: ")


def test_a_relative_path_is_refused(run):
    run.config_file.write_text('[export]\nopenmetrics = "run.prom"\n')
    with pytest.raises(UsageError, match="write the whole path of a file"):
        read_run_config(run)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives the file to another user")
def test_a_file_that_another_user_names_is_not_written(run, tmp_path):
    file = tmp_path / "run.prom"
    run.config_file.write_text(f'[export]\nopenmetrics = "{file}"\n')
    os.chown(run.config_file, 54322, -1)
    with sending_alerts(run, take_lock(run.supervisor_lock)):
        wait_until(lambda: read_entries(run), 60, "the event")
    assert "belongs to" in read_entries(run)[0].message
    assert not file.exists()
