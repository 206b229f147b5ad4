"""Who holds up a run, as far as heartbeats tell."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from tfckpt_trainer.rundir.heartbeats.stragglers import find_straggler, likely_straggler
from tfckpt_trainer.rundir.records.worker import Activity, Phase, TaskShare, WorkerStatus
from waiting import wait_until

NOW = 1_000_000.0


def worker(index, **facts):
    known = {
        "index": index,
        "host": "elsewhere",
        "pid": 1,
        "process_started_at": 0.0,
        "updated_at": NOW - 0.5,
        "interval_seconds": 1.0,
        "activity": Activity.TRAINING,
        "step": 10,
        "step_seconds": 0.1,
        "last_step_at": NOW - 8,
        "cpu_percent": 5.0,
        "phase": Phase.STEP,
        "phase_since": NOW - 8,
    }
    return WorkerStatus(**{**known, **facts})


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"updated_at": NOW - 9}, "has sent no heartbeat for 9 s"),
        ({"phase": Phase.INPUT, "phase_since": NOW - 7}, "has waited for input for 7 s"),
        ({"phase": Phase.SCRIPT, "phase_since": NOW - 6}, "has run code between two steps for 6 s"),
        ({"cpu_stall_ratio": 0.6}, "waits for a free core 60% of the time (CPU stall)"),
        ({"cpu_percent": 98.0}, "is the only worker that computes"),
    ],
)
def test_the_one_that_differs_is_named_with_what_it_does(facts, words):
    index, why = likely_straggler([worker(0), worker(1, **facts), worker(2)], NOW)
    assert index == 1
    assert words in why


def test_where_all_do_the_same_nobody_is_blamed():
    assert likely_straggler([worker(0), worker(1)], NOW) is None
    busy = {"cpu_percent": 90.0}
    assert likely_straggler([worker(0, **busy), worker(1, **busy)], NOW) is None
    slowed = {"cpu_stall_ratio": 0.7}
    assert likely_straggler([worker(0, **slowed), worker(1, **slowed)], NOW) is None


def test_silence_is_a_surer_sign_than_anything_else():
    waits = worker(0, phase=Phase.INPUT)
    assert likely_straggler([waits, worker(1, updated_at=NOW - 20)], NOW)[0] == 1


def test_steps_since_a_rare_heartbeat_are_not_missing():
    rare = {"updated_at": NOW - 8, "lost_after_seconds": 15.0, "cpu_percent": 90.0}
    trains = worker(0, last_step_at=NOW - 8.1, **rare)
    assert find_straggler([trains, worker(1, **rare)], NOW) is None
    stands = {"last_step_at": NOW - 13, "updated_at": NOW - 8, "lost_after_seconds": 15.0}
    waits = worker(1, phase=Phase.INPUT, phase_since=NOW - 13, **stands)
    assert find_straggler([worker(0, **stands), waits], NOW)[0] == 1


def test_a_run_that_goes_well_is_left_in_peace():
    fresh = {"last_step_at": NOW - 0.2}
    assert find_straggler([worker(0, **fresh), worker(1, phase=Phase.INPUT, **fresh)], NOW) is None
    slow = {"step_seconds": 30.0}
    assert find_straggler([worker(0, **slow), worker(1, phase=Phase.INPUT, **slow)], NOW) is None


def test_a_worker_with_a_cpu_stall_is_named_while_steps_go_on():
    fresh = {"last_step_at": NOW - 0.2}
    statuses = [worker(0, **fresh), worker(1, cpu_stall_ratio=0.5, **fresh)]
    assert find_straggler(statuses, NOW) == (1, "waits for a free core 50% of the time (CPU stall)")


def test_while_a_worker_saves_or_pauses_nobody_holds_it_up():
    assert find_straggler([worker(0), worker(1, activity=Activity.SAVING)], NOW) is None


def test_a_process_that_was_stopped_by_a_signal_is_found_at_once():
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        os.kill(sleeper.pid, signal.SIGSTOP)
        mine = worker(1, host=socket.gethostname(), pid=sleeper.pid)
        found = wait_until(lambda: likely_straggler([worker(0), mine], NOW), 10, "a straggler")
        assert found == (1, f"is stopped by a signal; resume it with `kill -CONT {mine.pid}`")
    finally:
        sleeper.kill()
        sleeper.wait()


def test_one_that_serves_holds_up_a_chief_that_makes_no_step():
    serving = {"activity": Activity.SERVING, "step": 0, "phase": None, "last_step_at": None}
    calm = [worker(0), worker(1, **serving), worker(2, **serving)]
    assert find_straggler([calm[0], calm[1], worker(2, **serving, updated_at=NOW - 9)], NOW) == (
        2,
        "has sent no heartbeat for 9 s",
    )
    going = worker(0, last_step_at=NOW - 0.1)
    assert find_straggler([going, *calm[1:]], NOW) is None


def test_a_worker_that_computes_less_than_half_of_what_others_do_is_named():
    def cluster(*rates):
        shares = [TaskShare(job="worker", task=n, steps_per_second=r) for n, r in enumerate(rates)]
        chief = worker(
            0, job="chief", last_step_at=NOW - 0.2, shares=[*shares, TaskShare(job="ps", task=0)]
        )
        served = {"activity": Activity.SERVING, "phase": None}
        workers = [worker(1 + n, job="worker", **served) for n in range(len(rates))]
        return [chief, *workers, worker(1 + len(rates), job="ps", **served)]

    assert find_straggler(cluster(10.0, 4.0, 9.0), NOW) == (2, "computes 4 steps/s, and others 10")
    assert find_straggler(cluster(10.0, 6.0, 9.0), NOW) is None
    assert find_straggler(cluster(0.0, 0.0), NOW) is None
    assert find_straggler(cluster(10.0), NOW) is None
