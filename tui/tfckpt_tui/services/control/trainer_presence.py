"""Whether a trainer uses a run directory, which decides who changes its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfckpt_trainer.catalog.directory.saved_model import NEEDED, VARIABLES, is_in_saved_model
from tfckpt_trainer.catalog.directory.symbolic_links import linked_from_below
from tfckpt_trainer.catalog.scan.foreign_writers import ForeignWriters, foreign_writers
from tfckpt_trainer.rundir.disk_reserve import is_space_low, release_reserve
from tfckpt_trainer.rundir.heartbeats.reading import trainer_answers
from tfckpt_trainer.rundir.paths import RunDirectory

HEARTBEAT_SECONDS = 3.0
"""How long to wait for the heartbeat of a trainer whose disk was full."""


@dataclass(frozen=True)
class TrainerPresence:
    """Whether a trainer uses a run directory, which decides who changes its checkpoints.

    Attributes:
        answers: A trainer of this library takes commands, and carries out the change itself.
        foreign: Evidence of a trainer that does not use this library; None if there is none.
        may_update_state_file: Whether this process may rewrite TensorFlow's state file. A trainer
            that does not use this library would overwrite it with its own list.
        needed: Names of checkpoints that something else needs, each with the reason: a link in a
            subdirectory, or a SavedModel.
    """

    answers: bool
    foreign: ForeignWriters | None
    may_update_state_file: bool
    needed: Mapping[str, str] = field(default_factory=dict)

    @property
    def in_use(self) -> dict[str, str]:
        """Names of checkpoints that other programs may use, each with the reason."""
        needed = dict(self.needed)
        if self.foreign is None:
            return needed
        changed = dict.fromkeys(self.foreign.fresh_checkpoints, "its files changed a moment ago")
        opened = dict.fromkeys(self.foreign.open_checkpoints, "open in another process")
        return changed | opened | needed


def detect_trainer(run: RunDirectory, *, on_full_disk: bool = False) -> TrainerPresence:
    """Returns whether a trainer uses `run`; every command that changes checkpoints asks here.

    Args:
        run: The run directory.
        on_full_disk: Whether to release the disk reserve, so that a trainer on a full disk can
            write its heartbeat, and to wait for that.

    Raises:
        OSError: The directory cannot be read.
    """
    needed = linked_from_below(run)
    if is_in_saved_model(run.root):
        needed[VARIABLES] = NEEDED
    if trainer_answers(run, time.time()) or (on_full_disk and _answers_with_room(run)):
        return TrainerPresence(
            answers=True, foreign=None, may_update_state_file=False, needed=needed
        )
    writers = foreign_writers(run, time.time())
    is_our_run = run.run_file.exists()
    # In a run of this library, a recent file is its own last save.
    is_evidence = bool(writers.processes) if is_our_run else writers.is_likely
    return TrainerPresence(
        answers=False,
        foreign=writers if is_evidence else None,
        may_update_state_file=is_our_run and not is_evidence,
        needed=needed,
    )


def _answers_with_room(run: RunDirectory) -> bool:
    if not (is_space_low(run) and release_reserve(run)):
        return False
    deadline = time.monotonic() + HEARTBEAT_SECONDS
    while time.monotonic() < deadline:
        if trainer_answers(run, time.time()):
            return True
        time.sleep(0.1)
    return False
