"""Paths in a run directory, and the names of checkpoints."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from tfckpt_trainer.errors import RefusedError, UsageError, describe_error
from tfckpt_trainer.machine.permissions import CONTROL, is_closed, may_replace
from tfckpt_trainer.machine.user_directories import cache_key
from tfckpt_trainer.rundir.storage.documents import copy_of, find_newer
from tfckpt_trainer.rundir.storage.files import facts_of, list_directory, make_directory, move_aside
from tfckpt_trainer.rundir.storage.owners import is_own_there, user_name
from tfckpt_trainer.rundir.storage.parent_directory import link_words
from tfckpt_trainer.words.advice import Advice

EXPORTS = "exports"
"""The directory of model files, within the run directory."""

WRITER = ".writer-"
"""What the name of the file begins with that marks the process that writes in its directory."""

_NAME = re.compile(r"[^/\x00]+")
_LONGEST_FILE_NAME = 255
"""Bytes of a file name, on all common file systems."""

_LONGEST_CHECKPOINT_NAME = _LONGEST_FILE_NAME - len(".data-00000-of-00001")
_STEP_NAME = re.compile(r"(?P<prefix>.+?)(?:-b(?P<branch>[1-9]\d{0,8}))?-(?P<step>\d{1,18})")

# Not compiled here: few names need them, and each takes as long as a small module.
_WORD = (
    r"(?<![a-z0-9])(?P<word>e|ep|epochs?|steps?|iter|iterations?|cp|ckpt|checkpoint)"
    r"[-_=.]?(?P<number>\d{1,18})(?![a-z]|\.?\d)"
)
_NUMBER = r"(?<![a-z0-9])(?<!\d\.)(?<!\de-)\d{1,18}(?![a-z]|\.?\d)"
"""An integer that stands alone: not the `2` of `v2`, and no part of the loss `0.23`."""

_VALUE = r"[-+]?(?:\d+(?:\.\d+)?|(?<![a-z])(?:nan|inf)(?![a-z]))"
"""What differs between the names of one callback: numbers and metrics."""


class StepName(msgspec.Struct, frozen=True):
    """A parsed checkpoint name: `ckpt-b2-500` is step 500 of branch 2."""

    prefix: str
    branch: int
    step: int


def checkpoint_name(step: int, branch: int) -> str:
    """Returns the name of a new checkpoint of `step` on `branch`.

    Branch 0 uses the names that TensorFlow gives (`ckpt-500`). Names of later branches include
    the branch, so that a step that is reached again does not overwrite a checkpoint.
    """
    return f"ckpt-{step}" if branch == 0 else f"ckpt-b{branch}-{step}"


def parse_checkpoint_name(name: str) -> StepName | None:
    """Parses step and branch from a checkpoint name; returns None if it has none."""
    match = _STEP_NAME.fullmatch(name)
    if match is None:
        return None
    prefix, branch, step = match.groups()
    return StepName(prefix, int(branch or 0), int(step))


def parse_numbered_name(name: str) -> StepName | None:
    """Parses a checkpoint name for its place among others; returns None if it has no number.

    Beside the names that `parse_checkpoint_name` knows, those that callbacks give: `cp-0012.ckpt`,
    `epoch_12`, `ckpt12`, `weights.12-0.51`. Their number may be an epoch, so nothing continues
    from it as a step. Their prefix is the name without numbers.
    """
    said = parse_checkpoint_name(name)
    if said is not None:
        return said
    epoch, step = position_in_name(name)
    number = epoch if step is None else step
    if number is None:
        return None
    return StepName(re.sub(_VALUE, "", name, flags=re.IGNORECASE).rstrip("-_."), 0, number)


def position_in_name(name: str) -> tuple[int | None, int | None]:
    """Returns the epoch and the step that a name tells, None for what it does not.

    A number without a word is an epoch, as in the names of `ModelCheckpoint`. Of several such
    numbers, none is known to be it.
    """
    found = re.finditer(_WORD, name, re.IGNORECASE)
    words = {match["word"][0].lower(): int(match["number"]) for match in found}
    if words:
        return words.get("e", words.get("c")), words.get("s", words.get("i"))
    numbers = re.findall(_NUMBER, name, re.IGNORECASE)
    return (int(numbers[0]) if len(numbers) == 1 else None), None


def is_plain_name(name: str) -> bool:
    """Whether `name` is a valid file name: not a path, not `..`, at most 255 bytes."""
    return (
        name not in {".", ".."}
        and _NAME.fullmatch(name) is not None
        and _size(name) <= _LONGEST_FILE_NAME
    )


def _size(name: str) -> int:
    """Returns how many bytes a file name takes; a byte that is not UTF-8 is one character."""
    return len(name.encode("utf-8", "replace"))


class RunDirectory(msgspec.Struct, frozen=True, dict=True):
    """The paths of one run. Each is made once: it takes longer than to ask for a file.

    Attributes:
        root: The checkpoint directory, as TensorFlow knows it.
        logdir: Where the event files of a trainer without this library are; None for `root`.
        process: The ID of the process of such a trainer, if the user named it.
    """

    root: Path
    logdir: Path | None = None
    process: int | None = None

    @property
    def shell_word(self) -> str:
        """The checkpoint directory as one word of a command that is to be pasted."""
        return shlex.quote(str(self.root))

    def identity(self) -> tuple[int, int]:
        """Returns device and inode of the directory, which no copy of it has.

        Raises:
            OSError: It is gone, or the disk refuses.
        """
        facts = os.stat(self.root)
        return facts.st_dev, facts.st_ino

    @cached_property
    def control(self) -> Path:
        """The subdirectory with all files of this library."""
        return self.root / CONTROL

    @cached_property
    def cache_key(self) -> str:
        """The name of this run in the user's cache."""
        return cache_key(self.root)

    @cached_property
    def state_file(self) -> Path:
        """TensorFlow's state file, which names the newest checkpoint."""
        return self.root / "checkpoint"

    @cached_property
    def run_file(self) -> Path:
        """Description of the run: ID, strategy, cluster, command."""
        return self.control / "run.json"

    @cached_property
    def config_file(self) -> Path:
        """Settings of this run that its user writes: guards and alerts."""
        return self.control / "config.toml"

    @cached_property
    def launch_file(self) -> Path:
        """Options of the supervisor: command, workers, restarts."""
        return self.control / "launch.json"

    @cached_property
    def command_file(self) -> Path:
        """The command of a script that no launcher started."""
        return self.control / "command.json"

    @cached_property
    def job_file(self) -> Path:
        """The batch job in which a scheduler runs the supervisor."""
        return self.control / "job.json"

    @cached_property
    def job_script(self) -> Path:
        """The batch script of that job."""
        return self.control / "job.sbatch"

    @cached_property
    def head_file(self) -> Path:
        """The last restore: its checkpoint, and the branch that follows."""
        return self.control / "head.json"

    @cached_property
    def status_directory(self) -> Path:
        """Heartbeats, one file per process."""
        return self.control / "status"

    def worker_status(self, index: int) -> Path:
        """The heartbeat of worker `index`."""
        return self.status_directory / f"worker-{index}.json"

    @cached_property
    def gathered_heartbeats(self) -> Path:
        """The heartbeats of all workers as the chief last read them."""
        return self.status_directory / "workers.json"

    @cached_property
    def stacks_directory(self) -> Path:
        """What the threads of the workers do, on request."""
        return self.control / "stacks"

    @cached_property
    def stacks_request(self) -> Path:
        """The newest request for that."""
        return self.stacks_directory / "request.json"

    def worker_stacks(self, index: int) -> Path:
        """The answer of worker `index`."""
        return self.stacks_directory / f"worker-{index}.json"

    @cached_property
    def supervisor_status(self) -> Path:
        """The heartbeat of the process that starts and restarts the workers."""
        return self.status_directory / "supervisor.json"

    @cached_property
    def job_answer(self) -> Path:
        """What the scheduler last said about the batch job."""
        return self.status_directory / "job.json"

    @cached_property
    def check_directory(self) -> Path:
        """The run directory of the checkpoint of a quick check, while that is in progress."""
        return self.control / "check"

    @cached_property
    def records_directory(self) -> Path:
        """Checkpoint records, one file per checkpoint."""
        return self.control / "records"

    def record(self, name: str) -> Path:
        """The record of checkpoint `name`."""
        return self.records_directory / f"{_checked(name)}.json"

    def record_copy(self, name: str) -> Path:
        """The copy of the record, read if the record is damaged."""
        return copy_of(self.record(name))

    def worker_state_directory(self, name: str) -> Path:
        """Per-worker state of checkpoint `name`: iterator state and random state."""
        return self.worker_states_directory / _checked(name)

    @cached_property
    def worker_states_directory(self) -> Path:
        """Per-worker state, a directory for each checkpoint."""
        return self.control / "workers"

    @cached_property
    def verifications_directory(self) -> Path:
        """Verification results, one file per checkpoint."""
        return self.control / "verifications"

    def verification(self, name: str) -> Path:
        """The verification result of checkpoint `name`."""
        return self.verifications_directory / f"{_checked(name)}.json"

    @cached_property
    def results_directory(self) -> Path:
        """Values that users' own actions found, one file per checkpoint."""
        return self.control / "results"

    def results(self, name: str) -> Path:
        """The values that users' own actions found for checkpoint `name`."""
        return self.results_directory / f"{_checked(name)}.json"

    @cached_property
    def saving_directory(self) -> Path:
        """Checkpoints that are being written; they are moved to `root` once verified."""
        return self.control / "saving"

    def save_manifest(self, name: str) -> Path:
        """Progress of the save of checkpoint `name`."""
        return self.saving_directory / f"{_checked(name)}.json"

    @cached_property
    def copying_directory(self) -> Path:
        """Checkpoints that are being copied here; they are moved to `root` once verified."""
        return self.control / "copying"

    @cached_property
    def overheads(self) -> Path:
        """Append-only: the slowdown of the steps after each save."""
        return self.control / "overheads.jsonl"

    @cached_property
    def pins_directory(self) -> Path:
        """Pins: one empty file for each checkpoint that must not be pruned."""
        return self.control / "pins"

    def pin(self, name: str) -> Path:
        """The file that pins checkpoint `name`."""
        return self.pins_directory / _checked(name)

    @cached_property
    def inbox(self) -> Path:
        """Unclaimed commands."""
        return Path(self.control, "control", "inbox")

    @cached_property
    def active(self) -> Path:
        """Commands that the trainer claimed and has not finished."""
        return Path(self.control, "control", "active")

    @cached_property
    def done(self) -> Path:
        """Finished commands with their outcomes."""
        return Path(self.control, "control", "done")

    @cached_property
    def event_log(self) -> Path:
        """The event log: every save, restore, prune, restart and failure."""
        return self.control / "journal.jsonl"

    @cached_property
    def older_event_log(self) -> Path:
        """The event log before it was rotated; one is kept."""
        return self.control / "journal.jsonl.1"

    @cached_property
    def series(self) -> Path:
        """The metric series: about one line per second, of which the oldest may be thinned."""
        return self.control / "series.jsonl"

    @cached_property
    def logs_directory(self) -> Path:
        """Output of all processes."""
        return self.control / "logs"

    def worker_log(self, index: int) -> Path:
        """Output of worker `index`."""
        return self.logs_directory / f"worker-{index}.log"

    @cached_property
    def standby_log(self) -> Path:
        """Output of the standby process."""
        return self.logs_directory / "standby.log"

    @cached_property
    def supervisor_log(self) -> Path:
        """Log of the supervisor."""
        return self.logs_directory / "supervisor.log"

    @cached_property
    def job_log(self) -> Path:
        """Output of the batch script, written by the scheduler."""
        return self.logs_directory / "job.log"

    @cached_property
    def trash(self) -> Path:
        """The trash, one directory per prune."""
        return self.control / "trash"

    @cached_property
    def tensorboard(self) -> Path:
        """Default directory of TensorBoard event files."""
        return self.control / "tensorboard"

    @cached_property
    def trainer_lock(self) -> Path:
        """Lock held by the chief while it runs, and by a prune without a trainer."""
        return self.control / "trainer.lock"

    @cached_property
    def trash_order(self) -> Path:
        """Sequence counter of prunes, which orders them independently of clocks."""
        return self.control / "trash.json"

    @cached_property
    def reserve(self) -> Path:
        """Reserved disk space, released on a full disk so that a prune can run."""
        return self.control / "reserve"

    @cached_property
    def trash_lock(self) -> Path:
        """Lock held while the trash changes."""
        return self.control / "trash.lock"

    @cached_property
    def supervisor_lock(self) -> Path:
        """Lock held by the supervisor while it runs."""
        return self.control / "supervisor.lock"

    @property
    def is_ours(self) -> bool:
        """Whether the directory has files of this library; one behind a link does not count."""
        facts = facts_of(self.control)
        return facts is not None and stat.S_ISDIR(facts.st_mode)

    @property
    def was_trained_here(self) -> bool:
        """Whether a trainer that uses this library, or its launcher, ever ran here.

        A prune creates files of this library too, but the directory does not become a run.
        """
        return self.run_file.exists() or self.launch_file.exists()

    @property
    def directories(self) -> tuple[Path, ...]:
        """All directories below `control`, parents before children."""
        return (
            self.status_directory,
            self.stacks_directory,
            self.records_directory,
            self.verifications_directory,
            self.results_directory,
            self.worker_states_directory,
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
        """Raises an error if `control` or a directory below it is a symbolic link.

        Call this before writing below `control`: a link could lead out of the run directory.

        Raises:
            RefusedError: A directory is a symbolic link.
        """
        if self.control.is_symlink():
            raise RefusedError(link_words(self.control))
        # The entries tell it without a look at each.
        for place in (self.control, self.inbox.parent):
            for entry in list_directory(place):
                directory = Path(entry.path)
                if entry.is_symlink() and directory in self.directories:
                    raise RefusedError(link_words(directory))

    @property
    def _documents(self) -> Iterator[Path]:
        """The documents that say how the run is to be read, without those of its checkpoints."""
        yield from sorted(self.control.glob("*.json"))
        yield from (self.supervisor_status, self.worker_status(0))
        yield from sorted(self.saving_directory.glob("*.json"))
        yield from sorted(self.trash.glob("*/*.json"))

    def newer_documents(self) -> list[str]:
        """Returns for each document of a newer release which release is needed.

        Raises:
            OSError: A document cannot be read.
        """
        return [newer for path in self._documents if (newer := find_newer(path))]

    def owners(self) -> frozenset[int] | None:
        """Returns the users whose files count here; None if those of all do.

        The sticky bit of a directory keeps files to their owners. There, anybody can add files, and
        replace none of this user, root and the owner of the directory.
        """
        try:
            facts = self.root.stat()
        except OSError:
            return None
        if not facts.st_mode & stat.S_ISVTX:
            return None
        return frozenset({0, os.geteuid(), facts.st_uid})

    def stranger_of(self, path: Path) -> str:
        """Returns the user who owns a file and is none of `owners`; empty if there is none."""
        owners = self.owners()
        facts = facts_of(path) if owners is not None else None
        if owners is None or facts is None or facts.st_uid in owners:
            return ""
        return user_name(facts.st_uid)

    def refuse_strangers(self) -> None:
        """Raises an error if a stranger made the directory of the library, and so owns all of it.

        Raises:
            RefusedError: Somebody did.
        """
        stranger = self.stranger_of(self.control)
        if stranger:
            raise RefusedError(
                f"{self.control} belongs to {stranger}, who can put anything there, and the "
                "directory of the run has the sticky bit. Nothing was changed.",
                Advice.of(
                    "If it is their run, have them do this. If it is not, {who} it away: "
                    "`mv {control} {aside}`.",
                    who=self._who_moves(),
                    control=shlex.quote(str(self.control)),
                    aside=shlex.quote(f"{self.control}.of-others"),
                ),
            )

    def _who_moves(self) -> str:
        """Says who may move the directory of the library away, up to the word "move"."""
        if may_replace(self.control):
            return "move"
        holders = dict.fromkeys([user_name(self.root.stat().st_uid), user_name(0)])
        return f"use another directory, or have {' or '.join(holders)} move"

    def require_changeable(self) -> None:
        """Raises an error if nothing may be changed here.

        Raises:
            RefusedError: A directory is a symbolic link, a newer release wrote a document, or a
                stranger made the directory of the library.
            OSError: A document cannot be read.
        """
        self.refuse_strangers()
        self.refuse_links()
        newer = self.newer_documents()
        if newer:
            raise RefusedError(f"{newer[0]} Nothing was changed.")

    @property
    def files_changed_in_place(self) -> tuple[Path, ...]:
        """The files that a start opens by name. All others are replaced by a rename, or read."""
        return (
            self.event_log,
            self.series,
            self.overheads,
            self.trainer_lock,
            self.trash_lock,
        )

    @property
    def _read_by_all(self) -> tuple[Path, ...]:
        return self.run_file, self.state_file, self.head_file, self.trash_order, self.job_file

    def move_others_aside(self, *, closed: bool = False) -> list[str]:
        """Renames what lies where directories and files of the run belong; returns what it did.

        For a run that has to go on. Only one process may call it: a supervisor while no trainer
        runs, or the trainer. What cannot be renamed stays, and is named too.

        Args:
            closed: Whether to rename also what another user closed to this one: in a run that
                worked before, it came since.
        """
        directories = (self.control, *self.directories)
        files = (*self.files_changed_in_place, *self._read_by_all)
        told = [
            *(_move_if_wrong(path, stat.S_ISDIR, closed=closed) for path in directories),
            *(_move_if_wrong(path, stat.S_ISREG, closed=closed) for path in files),
            # Only the user who started the run can read it.
            _move_if_wrong(self.command_file, stat.S_ISREG, closed=False),
        ]
        return list(filter(None, told))

    def create(self) -> None:
        """Creates missing directories and flushes them to disk.

        Raises:
            RefusedError: A directory is a symbolic link.
            OSError: A directory cannot be created.
        """
        self.refuse_links()
        for directory in (self.control, *self.directories):
            # Files in a directory are lost if the directory itself was not flushed.
            make_directory(directory, durable=True)


def _move_if_wrong(path: Path, is_right: Callable[[int], bool], *, closed: bool) -> str:
    """Renames what is not the right kind of file; with `closed`, also what others closed.

    Returns:
        What it did; empty if it did nothing.
    """
    try:
        facts = facts_of(path)
        if facts is None:
            return ""
        if not is_right(facts.st_mode):
            what = "a directory" if is_right is stat.S_ISDIR else "a regular file"
            return f"{path} is not {what}. It is {move_aside(path)} now."
        if not (closed and is_closed(path)):
            return ""
        # A network disk may refuse for a moment what is this user's own.
        if is_own_there(path.parent, facts.st_uid, os.geteuid()):
            return ""
        owner = user_name(facts.st_uid)
        return f"{path} of {owner} is closed to this user. It is {move_aside(path)} now."
    except OSError as error:
        return f"{path} is in the way: it cannot be moved. {describe_error(error)}."


def is_checkpoint_name(name: str) -> bool:
    """Whether `name` can be that of a checkpoint: its files have longer names."""
    return is_plain_name(name) and _size(name) <= _LONGEST_CHECKPOINT_NAME


def _checked(name: str) -> str:
    if not is_checkpoint_name(name):
        raise UsageError(
            f"{name!r} is not a valid checkpoint name: expected a file name without a directory, "
            f"of at most {_LONGEST_CHECKPOINT_NAME} bytes."
        )
    return name
