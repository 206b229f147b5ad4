"""What counts as time without a step."""

from __future__ import annotations

from tfckpt_trainer.launch.supervision.watch import Standstill
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus


def of(index: int, activity: Activity, step: int, step_at: float) -> WorkerStatus:
    """A heartbeat."""
    return WorkerStatus(
        index=index,
        host="here",
        pid=1,
        process_started_at=1000.0,
        updated_at=1000.0,
        interval_seconds=1.0,
        activity=activity,
        step=step,
        last_step_at=step_at,
    )


def test_time_in_which_workers_wait_for_something_else_does_not_count() -> None:
    standstill = Standstill(2, began=1000.0)
    both = [(0, 5), (1, 5)]
    trains = [of(index, Activity.TRAINING, step, 1010.0) for index, step in both]
    paused = [of(index, Activity.PAUSED, step, 1010.0) for index, step in both]
    assert standstill.seconds(trains, 1010.0) == 0.0
    assert standstill.seconds(trains, 1015.0) == 5.0
    assert standstill.seconds(paused, 1300.0) == 0.0
    assert standstill.seconds(trains, 1301.0) == 0.0
    assert standstill.seconds(trains, 1310.0) == 9.0


def test_a_worker_that_saves_after_a_step_of_its_own_waits_for_the_others() -> None:
    standstill = Standstill(2, began=1000.0)
    for behind, expected in ((4, 7.0), (5, 0.0)):
        saves = of(0, Activity.SAVING, 5, 1011.0), of(1, Activity.TRAINING, behind, 1010.0)
        assert standstill.seconds(saves, 1011.0) == 0.0
        assert standstill.seconds(saves, 1018.0) == expected


def test_before_all_have_made_a_step_there_is_none() -> None:
    standstill = Standstill(2, began=1000.0)
    one = [of(0, Activity.TRAINING, 5, 1001.0)]
    assert standstill.seconds(one, 1100.0) == 0.0
    of_an_earlier_start = [of(index, Activity.TRAINING, 5, 999.0) for index in range(2)]
    assert standstill.seconds(of_an_earlier_start, 1100.0) == 0.0
