"""How long a quick check of a run takes, before anyone asks for it."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.rundir.records.worker import WorkerStatus

QUICK_STEPS = 3
"""Steps that a quick check repeats by default."""

LONG_SECONDS = 15.0
"""A check that takes longer is not quick: the command line asks first."""


def estimated_seconds(
    workers: Iterable[WorkerStatus], checkpoints: Iterable[Checkpoint], steps: int = QUICK_STEPS
) -> float | None:
    """Returns how long a quick check takes; None before the first step of the run.

    The steps are trained twice. The restore counts as long as the last save. Neither counts before
    the first save.

    Args:
        workers: The newest heartbeats.
        checkpoints: All checkpoints of the run.
        steps: Steps that are repeated.
    """
    seconds = [worker.step_seconds for worker in workers if worker.step_seconds is not None]
    if not seconds:
        return None
    records = (checkpoint.packed for checkpoint in checkpoints)
    timed = [
        record for record in records if record is not None and record.duration_seconds is not None
    ]
    newest = max(timed, key=lambda record: record.saved_at, default=None)
    save = newest.duration_seconds or 0.0 if newest is not None else 0.0
    return 2 * steps * max(seconds) + 2 * save
