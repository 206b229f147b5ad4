"""Where everything is in a run directory, and which names may stand there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.rundir.documents import copy_of
from tfckpt_trainer.rundir.files import make_directory

_NAME = re.compile(r"[^/\x00]{1,200}")
_STEP_NAME = re.compile(r"(?P<prefix>.+?)(?:-b(?P<branch>[1-9]\d{0,8}))?-(?P<step>\d{1,18})")


@dataclass(frozen=True)
class StepName:
    """What the name of a checkpoint says: `ckpt-b2-500` is step 500 of branch 2."""

    prefix: str
    branch: int
    step: int


def checkpoint_name(step: int, branch: int) -> str:
    """Returns the name under which our library saves `step` of `branch`.

    Branch 0 has the names that TensorFlow gives (`ckpt-500`); later branches carry their
    number, so that a step reached twice never overwrites what was saved the first time.
    """
    return f"ckpt-{step}" if branch == 0 else f"ckpt-b{branch}-{step}"


def parse_checkpoint_name(name: str) -> StepName | None:
    """Returns what `name` says about step and branch, or None where it says nothing."""
    match = _STEP_NAME.fullmatch(name)
    if match is None:
        return None
    return StepName(match["prefix"], int(match["branch"] or 0), int(match["step"]))


def is_plain_name(name: str) -> bool:
    """Whether `name` is one entry of a directory: no path, no `..`, not overlong."""
    return name not in {".", ".."} and _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class RunDirectory:
    """The paths of one run; it reads and writes nothing but directories on `create`.

    Attributes:
        root: The checkpoint directory as TensorFlow sees it.
    """

    root: Path

    @property
    def control(self) -> Path:
        """The one sub-directory that is ours."""
        return self.root / ".tfckpt"

    @property
    def state_file(self) -> Path:
        """TensorFlow's own file that names the newest checkpoint."""
        return self.root / "checkpoint"

    @property
    def run_file(self) -> Path:
        """Who runs here: id, strategy, cluster, command."""
        return self.control / "run.json"

    @property
    def launch_file(self) -> Path:
        """What the supervisor was told: command, workers, restarts."""
        return self.control / "launch.json"

    @property
    def head_file(self) -> Path:
        """From which checkpoint, on which branch, training last went on after a restore."""
        return self.control / "head.json"

    @property
    def status_directory(self) -> Path:
        """Heartbeats, one file a process."""
        return self.control / "status"

    def worker_status(self, index: int) -> Path:
        """The heartbeat of worker `index`."""
        return self.status_directory / f"worker-{index}.json"

    @property
    def supervisor_status(self) -> Path:
        """The heartbeat of the process that starts and restarts the workers."""
        return self.status_directory / "supervisor.json"

    @property
    def records_directory(self) -> Path:
        """What TensorFlow does not record, one file a checkpoint."""
        return self.control / "records"

    def record(self, name: str) -> Path:
        """The record of checkpoint `name`."""
        return self.records_directory / f"{_checked(name)}.json"

    def record_copy(self, name: str) -> Path:
        """A second copy of the record, read where the first one is damaged."""
        return copy_of(self.record(name))

    def worker_state_directory(self, name: str) -> Path:
        """What only single workers have of checkpoint `name`: input position, random state."""
        return self.control / "workers" / _checked(name)

    @property
    def verifications_directory(self) -> Path:
        """What verifying found, one file a checkpoint; in a run that is ours."""
        return self.control / "verifications"

    def verification(self, name: str) -> Path:
        """What verifying checkpoint `name` found."""
        return self.verifications_directory / f"{_checked(name)}.json"

    @property
    def saving_directory(self) -> Path:
        """Where a checkpoint is written before it is verified and moved into view."""
        return self.control / "saving"

    def save_manifest(self, name: str) -> Path:
        """How far the save of checkpoint `name` is."""
        return self.saving_directory / f"{_checked(name)}.json"

    @property
    def overheads(self) -> Path:
        """Append-only: by how much steps were slower after each save."""
        return self.control / "overheads.jsonl"

    @property
    def pins_directory(self) -> Path:
        """One empty file for each checkpoint that is never to be pruned."""
        return self.control / "pins"

    def pin(self, name: str) -> Path:
        """The file that pins checkpoint `name`."""
        return self.pins_directory / _checked(name)

    @property
    def inbox(self) -> Path:
        """Commands nobody took yet."""
        return self.control / "control" / "inbox"

    @property
    def active(self) -> Path:
        """Commands the trainer took and works on."""
        return self.control / "control" / "active"

    @property
    def done(self) -> Path:
        """Commands with their outcome."""
        return self.control / "control" / "done"

    @property
    def journal(self) -> Path:
        """Append-only: every save, restore, prune, restart and failure."""
        return self.control / "journal.jsonl"

    @property
    def series(self) -> Path:
        """Append-only: the metrics of training, about one line a second."""
        return self.control / "series.jsonl"

    @property
    def logs_directory(self) -> Path:
        """What the processes printed."""
        return self.control / "logs"

    def worker_log(self, index: int) -> Path:
        """What worker `index` printed."""
        return self.logs_directory / f"worker-{index}.log"

    @property
    def standby_log(self) -> Path:
        """What the process prints that stands by to become workers."""
        return self.logs_directory / "standby.log"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor did, in words."""
        return self.logs_directory / "supervisor.log"

    @property
    def trash(self) -> Path:
        """What a prune moved away, one directory a prune."""
        return self.control / "trash"

    @property
    def tensorboard(self) -> Path:
        """Event files, unless the person named another directory."""
        return self.control / "tensorboard"

    @property
    def trainer_lock(self) -> Path:
        """Held by the chief while it lives, and by whoever prunes without one."""
        return self.control / "trainer.lock"

    @property
    def trash_order(self) -> Path:
        """Counts the prunes, so that none comes before an earlier one."""
        return self.control / "trash.json"

    @property
    def reserve(self) -> Path:
        """Room that is given up on a full disk, so that disk space can be freed there."""
        return self.control / "reserve"

    @property
    def trash_lock(self) -> Path:
        """Held while something moves to the trash, out of it, or is emptied."""
        return self.control / "trash.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the supervisor while it lives."""
        return self.control / "supervisor.lock"

    @property
    def is_ours(self) -> bool:
        """Whether our library or launcher has been here."""
        return self.control.is_dir()

    @property
    def was_trained_here(self) -> bool:
        """Whether a trainer that uses our library, or a launch of ours, was ever here.

        What a prune keeps in a directory of somebody else makes it ours, and no run.
        """
        return self.run_file.exists() or self.launch_file.exists()

    @property
    def directories(self) -> tuple[Path, ...]:
        """The directories of the contract below `control`, and those they lie in first."""
        return (
            self.status_directory,
            self.records_directory,
            self.verifications_directory,
            self.control / "workers",
            self.saving_directory,
            self.pins_directory,
            self.inbox.parent,
            self.inbox,
            self.active,
            self.done,
            self.logs_directory,
            self.trash,
            self.tensorboard,
        )

    def refuse_links(self) -> None:
        """Checks that no directory of ours is a symbolic link, which would lead out of the run.

        Whoever writes below `control` calls this first.

        Raises:
            RefusedError: One is.
        """
        for directory in (self.control, *self.directories):
            if directory.is_symlink():
                raise RefusedError(
                    f"{directory} is a symbolic link, and nothing is written through it. Remove "
                    "the link, and move the directory it leads to here."
                )

    def create(self) -> None:
        """Creates the directories of the contract where they are missing, and flushes that.

        Raises:
            RefusedError: One of them is a symbolic link.
            OSError: The disk refuses.
        """
        self.refuse_links()
        for directory in (self.control, *self.directories):
            # What is flushed in a directory is lost with a directory that is not.
            make_directory(directory, durable=True)


def _checked(name: str) -> str:
    if not is_plain_name(name):
        raise UsageError(
            f"{name!r} is no name of a checkpoint: it must be one file name without a path."
        )
    return name
