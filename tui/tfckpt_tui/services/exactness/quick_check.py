"""How long a quick check of a run takes, before anyone asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.rundir.records.worker import WorkerStatus

QUICK_STEPS = 3
"""Steps that a quick check repeats by default."""

LONG_SECONDS = 15.0
"""A check of which the steps take longer is not quick: it begins only if the user agrees."""


def estimated_seconds(workers: Sequence[WorkerStatus], steps: int) -> float | None:
    """Returns how long all steps of a quick check take; None before the first step of the run.

    Args:
        workers: The newest heartbeats.
        steps: Steps that are repeated.
    """
    seconds = [one.step_seconds for one in workers if one.step_seconds is not None]
    return 2 * steps * max(seconds) if seconds else None
