"""What is copied of a checkpoint: its path as a shell takes it, its row as a table takes it."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_tui.formats.text import clean


def path_of(root: Path, checkpoint: Checkpoint) -> str:
    """Returns the path of a checkpoint, in quotes where a shell would take it apart."""
    return shlex.quote(str(root / checkpoint.name))


def row_of(root: Path, checkpoint: Checkpoint) -> str:
    """Returns name, step, branch, state, time (UTC), bytes, reason, metrics and path, with tabs."""
    try:
        saved_at = datetime.fromtimestamp(checkpoint.saved_at, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        saved_at = ""
    metrics = (f"{name}={value}" for name, value in sorted(checkpoint.metrics.items()))
    fields = (
        checkpoint.name,
        "" if checkpoint.step is None else str(checkpoint.step),
        str(checkpoint.branch),
        checkpoint.state.value,
        saved_at,
        str(checkpoint.size),
        checkpoint.trigger,
        " ".join(metrics),
        path_of(root, checkpoint),
    )
    return "\t".join(clean(field) for field in fields)
