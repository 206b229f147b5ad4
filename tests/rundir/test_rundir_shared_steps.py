"""A step of the chief shows that the workers which made it lived."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.rundir.heartbeats.attention import (
    FREQUENT,
    IDLE_LOST_SECONDS,
    IDLE_SECONDS,
    MEMBER,
)
from tfckpt_trainer.rundir.heartbeats.clock import TOLERANCE_SECONDS
from tfckpt_trainer.rundir.heartbeats.health import WorkerState, is_late, worker_state
from tfckpt_trainer.rundir.heartbeats.shared_steps import with_shared_steps
from tfckpt_trainer.rundir.records.worker import Activity, Phase, WorkerStatus

NOW = 1_000_000.0
FIELDS = {
    "host": "elsewhere",
    "pid": 1,
    "process_started_at": NOW - 3600,
    "interval_seconds": IDLE_SECONDS,
    "lost_after_seconds": IDLE_LOST_SECONDS,
    "activity": Activity.TRAINING,
    "step": 5,
    "step_seconds": 0.5,
}


def beat(index: int, ago: float, **changes: object) -> WorkerStatus:
    told = {"index": index, "updated_at": NOW - ago, "last_step_at": NOW - ago, **changes}
    return WorkerStatus(**{**FIELDS, **told})  # type: ignore[arg-type]


CHIEF = beat(0, 1, step=9, branch=2)


def heard(*others: WorkerStatus, chief: WorkerStatus = CHIEF) -> list[WorkerStatus]:
    return with_shared_steps([chief, *others])[1:]


def test_a_worker_that_made_the_step_of_the_chief_is_heard_then():
    (other,) = heard(beat(1, 50, activity=Activity.SAVING, detail="ckpt-4", phase=Phase.STEP))
    assert (other.updated_at, other.measured_at) == (CHIEF.last_step_at, NOW - 50)
    assert (other.step, other.measured_step) == (9, 5)
    assert (other.step, other.branch, other.last_step_at) == (9, 2, CHIEF.last_step_at)
    assert (other.activity, other.detail, other.phase) == (Activity.TRAINING, "", None)
    assert worker_state(other, NOW) is WorkerState.TRAINING


def test_a_worker_that_the_next_step_waits_for_is_lost_no_later_than_one_step_after_its_limit():
    (other,) = heard(beat(1, 50))
    limit = CHIEF.updated_at + IDLE_LOST_SECONDS
    assert worker_state(other, limit + 0.4) is WorkerState.TRAINING
    assert worker_state(other, limit + 0.6) is WorkerState.LOST


def test_while_somebody_looks_a_worker_is_lost_after_five_seconds():
    often = {"interval_seconds": 1.0, "lost_after_seconds": None}
    (other,) = heard(beat(1, 50), chief=beat(0, 1, **often))
    assert worker_state(other, NOW + 3.9) is WorkerState.TRAINING
    assert worker_state(other, NOW + 4.1) is WorkerState.LOST


@pytest.mark.parametrize("ago", [0.5, 110], ids=["just before it died", "long before"])
def test_a_worker_with_rare_heartbeats_is_lost_as_soon_as_one_with_usual_ones(ago):
    rare = beat(1, ago, **MEMBER._asdict())
    (other,) = heard(rare, chief=beat(0, 1, **FREQUENT._asdict()))
    limit = max(rare.updated_at, NOW - 1) + IDLE_LOST_SECONDS
    assert worker_state(other, limit + 0.4) is not WorkerState.LOST
    assert worker_state(other, limit + 0.6) is WorkerState.LOST
    assert is_late(other, NOW + 4), "its own file is read before that"
    # Its own newer heartbeat, which it writes once there are no steps, counts again.
    newer = beat(1, -10, **FREQUENT._asdict())
    assert heard(newer) == [newer]


def test_only_rare_heartbeats_change_where_that_is_wanted():
    rare, usual = beat(1, 50, **MEMBER._asdict()), beat(2, 50)
    told = with_shared_steps([CHIEF, rare, usual], only_rare=True)
    assert told == [CHIEF, *heard(rare), usual]


@pytest.mark.parametrize(
    "other",
    [
        beat(1, 50, activity=Activity.EXITED),
        beat(1, 50, job="ps"),
        beat(1, 50, job="evaluator"),
        beat(1, 1 + TOLERANCE_SECONDS / 2),
        beat(1, 0.5, activity=Activity.SAVING),
    ],
    ids=["ended", "server", "evaluator", "as new", "newer"],
)
def test_what_another_heartbeat_tells_better_stays(other):
    assert heard(other) == [other]


@pytest.mark.parametrize("chief", [beat(0, 1, job="chief"), beat(0, 1, last_step_at=None)])
def test_a_chief_without_steps_of_all_shows_nothing(chief):
    assert heard(beat(1, 50), chief=chief) == [beat(1, 50)]
    assert with_shared_steps([beat(1, 50)]) == [beat(1, 50)]


ages = st.floats(0, 200)


@given(st.lists(st.tuples(ages, st.sampled_from(Activity)), max_size=5), ages, ages)
def test_no_heartbeat_gets_older_and_the_second_look_changes_nothing(others, ago, step_ago):
    chief = beat(0, ago, last_step_at=NOW - max(ago, step_ago))
    given = [chief, *(beat(n + 1, age, activity=what) for n, (age, what) in enumerate(others))]
    told = with_shared_steps(given)
    assert with_shared_steps(told) == told
    for before, after in zip(given, told, strict=True):
        assert after.updated_at >= before.updated_at
        if after.updated_at == before.updated_at:
            assert after == before
        else:
            assert after.updated_at == chief.last_step_at
            assert after.measured_at == before.updated_at
