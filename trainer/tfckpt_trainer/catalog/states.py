"""The rules that decide the state of a checkpoint from what lies in the directory.

Let I be an index file of which every block matches its checksum.

1. *writing*: files of it were changed in the last `QUIET_SECONDS`, and either its temporary
   directory exists (TensorFlow writes in place) or it lies in our `saving/` directory.
2. *complete*: I, and every data file that I counts is there with at least the size I needs.
3. *verified*: complete, and our record of it, which is written only after every byte was read
   back and matched, has the sizes that the files have now, none of which is newer than it.
4. *orphaned*: no I, and it is a save that was killed: its temporary directory is old, or our
   record or `saving/` directory has it and no commit followed.
5. *corrupt*: an index is there and is not I, or its content makes no sense.
6. *incomplete*: anything else: the index or a data file is missing or too short.

Only complete and verified can be restored. The content of data files is not read here; that is
what verifying is for. Sources: the write order of TensorFlow, observed system call by system
call, and that of `tfckpt_trainer.training.saving`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.catalog.checkpoints import CheckpointState
from tfckpt_trainer.catalog.files import Files
from tfckpt_trainer.errors import BundleError, TfckptError
from tfckpt_trainer.rundir.records import CheckpointRecord

QUIET_SECONDS = 60.0
"""After this long without a change nobody writes any more."""

CLOCK_SLACK_SECONDS = 2.0
"""File systems stamp times coarsely, and not from the clock that stamped the record."""


@dataclass(frozen=True)
class Verdict:
    """The state of a checkpoint, how many data files it has, and what is wrong with it."""

    state: CheckpointState
    shards: int
    problem: str = ""


def judge(files: Files, record: CheckpointRecord | None, *, now: float, in_saving: bool) -> Verdict:
    """Applies the rules to the files of one checkpoint.

    Args:
        files: What lies in the directory.
        record: Ours, where there is one.
        now: Seconds since the epoch.
        in_saving: Whether a save of our library has files of it aside.
    """
    shards = len(files.shards)
    changes = [fact.modified_at for fact in files.all]
    if files.temporary_at is not None:
        changes.append(files.temporary_at)
    quiet = not changes or now - max(changes) > QUIET_SECONDS
    if files.index is None:
        if (in_saving or files.temporary_at is not None) and not quiet:
            return Verdict(CheckpointState.WRITING, shards, "It is being written.")
        if in_saving or files.temporary_at is not None or record is not None:
            return Verdict(CheckpointState.ORPHANED, shards, "Its save was cut off.")
        problem = f"{files.name}.index is missing."
        return Verdict(CheckpointState.INCOMPLETE, shards, problem)
    try:
        sizes = read_index(files.index.path.with_name(files.name)).shard_sizes()
    except (TfckptError, FileNotFoundError) as error:
        if files.temporary_at is not None and not quiet:
            return Verdict(CheckpointState.WRITING, shards, "It is being written.")
        state = CheckpointState.CORRUPT
        if isinstance(error, BundleError) and files.index.size == 0:
            state = CheckpointState.INCOMPLETE
        return Verdict(state, shards, str(error))
    return _complete_or_not(files, sizes, record)


def _complete_or_not(files: Files, sizes: list[int], record: CheckpointRecord | None) -> Verdict:
    count = len(sizes)
    for shard, size in enumerate(sizes):
        fact = files.shards.get((shard, count))
        name = f"{files.name}.data-{shard:05d}-of-{count:05d}"
        if fact is None:
            return Verdict(CheckpointState.INCOMPLETE, count, f"{name} is missing.")
        if fact.size < size:
            problem = f"{name} has {fact.size} bytes of {size}."
            return Verdict(CheckpointState.INCOMPLETE, count, problem)
    if record is not None and _as_recorded(files, record):
        return Verdict(CheckpointState.VERIFIED, count)
    return Verdict(CheckpointState.COMPLETE, count)


def _as_recorded(files: Files, record: CheckpointRecord) -> bool:
    recorded = {facts.name: facts.size for facts in record.files}
    return all(
        recorded.get(fact.path.name) == fact.size
        and fact.modified_at <= record.saved_at + CLOCK_SLACK_SECONDS
        for fact in files.all
    )
