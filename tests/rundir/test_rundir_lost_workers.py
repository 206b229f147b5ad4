"""The status files tell which worker was lost first, and why."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
import time

import psutil
import pytest

from tfckpt_trainer.rundir.heartbeats.lost_workers import (
    describe_lost_connection,
    explain_lost_worker,
)
from tfckpt_trainer.rundir.heartbeats.process_ids import process_namespace
from tfckpt_trainer.rundir.heartbeats.status_files import store_status
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, Ending, WorkerStatus


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    return directory


def beat(run, index, *, pid=None, at=None, ending=None, detail="", **facts):
    pid = os.getpid() if pid is None else pid
    exists = psutil.pid_exists(pid)
    status = WorkerStatus(
        index=index,
        host=facts.pop("host", socket.gethostname()),
        pid=pid,
        process_started_at=psutil.Process(pid).create_time() if exists else time.time(),
        namespace=facts.pop("namespace", process_namespace()),
        updated_at=time.time() if at is None else at,
        interval_seconds=1.0,
        activity=Activity.EXITED if ending else Activity.TRAINING,
        step=3,
        ending=ending,
        detail=detail,
        **facts,
    )
    store_status(run.worker_status(index), status)


def dead_process():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_the_worker_that_failed_first_is_named_with_its_error(run):
    now = time.time()
    beat(run, 0, at=now)
    beat(run, 1, at=now + 2, ending=Ending.FAILED, detail="train.py:9: KeyError: 'b'")
    beat(run, 2, at=now + 1, ending=Ending.FAILED, detail="train.py:7: KeyError: 'a'")
    beat(run, 3, at=now, ending=Ending.PEER_LOST, detail="Worker 2 failed.")
    assert explain_lost_worker(run, 0, now, 0) == "Worker 2 failed: train.py:7: KeyError: 'a'"


def test_a_worker_whose_process_is_gone_is_named(run):
    pid = dead_process()
    began = time.time()
    beat(run, 0)
    beat(run, 1, pid=pid)
    beat(run, 2)
    told = explain_lost_worker(run, 0, began, 0)
    assert told == f"Worker 1 was lost: its process {pid} on {socket.gethostname()} is gone."


def test_nothing_is_told_of_this_worker_nor_of_an_earlier_start(run):
    began = time.time()
    beat(run, 0, ending=Ending.FAILED, detail="of its own")
    beat(run, 1, at=began - 60, ending=Ending.FAILED, detail="yesterday's")
    beat(run, 2, at=began - 60, pid=dead_process())
    assert explain_lost_worker(run, 0, began, 0) == ""


def test_it_waits_for_the_last_heartbeat_of_a_worker_that_is_about_to_fail(run):
    began = time.time()
    beat(run, 0)
    beat(run, 1)
    late = threading.Timer(0.2, beat, (run, 1), {"ending": Ending.FAILED, "detail": "no room"})
    late.start()
    assert explain_lost_worker(run, 0, began, 60) == "Worker 1 failed: no room"
    late.join()


ELSEWHERE = {"host": "b", "namespace": "another"}


def test_a_worker_of_another_host_is_lost_by_its_heartbeat(run):
    now = time.time()
    beat(run, 0, at=now)
    beat(run, 1, at=now - 100, **ELSEWHERE)
    said = explain_lost_worker(run, 0, now - 200, 0)
    assert re.fullmatch(r"Worker 1 was lost: its last heartbeat from b is 10\d s old\.", said)


@pytest.mark.parametrize(
    ("ending", "age", "advice"),
    [
        (None, 0, "Its heartbeats still arrive: check the network between the two."),
        (Ending.PEER_LOST, 0, "Its heartbeats still arrive: check the network between the two."),
        (None, 100, r"The last heartbeat of worker 1 is 10\d s old."),
        (Ending.STOPPED, 0, None),
    ],
)
def test_a_lost_connection_names_both_ends_and_its_duration(run, ending, age, advice):
    now = time.time()
    beat(run, 0, at=now, host="a", last_step_at=now - 7)
    beat(run, 1, at=now - age, ending=ending, **ELSEWHERE)
    pair = r"Worker 0 on a lost worker 1 on b for [78] s\."
    expected = f"{pair} {advice}" if advice else pair
    assert re.fullmatch(expected, describe_lost_connection(run, 0, 1))


def test_a_lost_connection_is_described_without_heartbeats(run):
    assert describe_lost_connection(run, 0, 1) == "Worker 0 lost worker 1."
