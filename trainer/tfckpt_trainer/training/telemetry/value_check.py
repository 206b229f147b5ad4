"""Looks for NaN in the values of the newest checkpoints after a metric became NaN."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from tfckpt_trainer.catalog.directory.checkpoints import newest_finite
from tfckpt_trainer.catalog.directory.stored_results import store_result
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.verification.verify_checkpoint import verify_checkpoint
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.training.process.priority import lower_priority

MOST_CHECKED = 3
"""Checkpoints that are read at most. Only the step before the first NaN can spoil one."""


def check_values(run: RunDirectory, on_not_finite: Callable[[str, int], None]) -> None:
    """Reads the newest checkpoints with finite metrics, until one has finite values.

    The results are stored. Alerts and retention use them. Runs in a thread of its own.

    Args:
        run: The run directory.
        on_not_finite: Called with a checkpoint and the number of its tensors that are not finite.
    """
    lower_priority()
    # A checkpoint may be pruned or saved again meanwhile: then it stays unchecked.
    with suppress(TfckptError, OSError):
        for _ in range(MOST_CHECKED):
            checkpoint = newest_finite(Catalog(run).scan(time.time(), quick=True))
            if checkpoint is None or checkpoint.not_finite_tensors is not None:
                return
            found = verify_checkpoint(run, checkpoint.name, finite=True)
            if found is None or found.unread is not None:
                return
            store_result(run, found.record)
            if found.not_finite:
                on_not_finite(checkpoint.name, len(found.not_finite))
