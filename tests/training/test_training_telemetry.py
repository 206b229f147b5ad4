"""What a worker measures and reports."""

from __future__ import annotations

import pytest

from tfckpt_trainer.rundir.records.worker import SaveStatus
from tfckpt_trainer.training.telemetry.save_tally import LONGEST_PROBLEM, SaveTally

pytestmark = pytest.mark.tensorflow


def test_the_tally_counts_from_the_newest_checkpoint():
    tally = SaveTally()
    tally.set_intervals(10, None)
    for _ in range(4):
        tally.step_done(0.5)
    assert tally.status(4) == SaveStatus(unsaved_steps=4, unsaved_seconds=2.0, every_steps=10)
    tally.begin()
    tally.step_done(0.5)  # while it is written in the background
    tally.saved(4)
    said = tally.status(5)
    assert (said.saved_step, said.unsaved_steps, said.unsaved_seconds) == (4, 1, 0.5)
    assert said.saved_at is not None
    for problem in ("one", "two"):
        tally.begin()
        tally.failed(problem)
    said = tally.status(5)
    assert (said.failed, said.problem, said.saved_step) == (2, "two", 4)
    tally.restored(2)
    said = tally.status(2)
    assert (said.failed, said.saved_step, said.unsaved_steps, said.unsaved_seconds) == (2, 2, 0, 0)
    tally.begin()
    tally.saved(3)
    assert (tally.status(3).failed, tally.status(3).problem) == (0, "")


def test_a_long_problem_is_cut_so_that_the_heartbeat_fits_on_a_full_disk():
    tally = SaveTally()
    tally.failed("x" * 5000)
    problem = tally.status(0).problem
    assert len(problem) == LONGEST_PROBLEM
    assert problem.endswith("…")
