"""Saves a checkpoint on all workers: written to a separate directory, verified, then committed."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import index_path, read_index
from tfckpt_trainer.bundle.structure import graph_findings, structure_findings
from tfckpt_trainer.bundle.verify import Verification, verify
from tfckpt_trainer.catalog.commit.saves import (
    begin_save,
    commit_save,
    discard_save,
    finish_interrupted_saves,
)
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.errors import DamagedFileError, RefusedError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory, checkpoint_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts, WorkerFacts
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.exactness import merge_exactness
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load, store, try_read
from tfckpt_trainer.rundir.storage.files import list_directory, open_plain
from tfckpt_trainer.training.checkpoint.saves.background_save import BackgroundSave
from tfckpt_trainer.training.checkpoint.saves.disk_space import DiskSpace
from tfckpt_trainer.training.checkpoint.saves.save_options import SaveOptions
from tfckpt_trainer.training.checkpoint.saves.save_protocol import (
    SaveOutcome,
    SaveVote,
    cost_of,
    outcome_without,
)
from tfckpt_trainer.training.checkpoint.saves.sharded_writer import CheckpointLayout, ShardedWriter
from tfckpt_trainer.training.checkpoint.saves.worker_part import (
    WorkerPart,
    files_of,
    require_sound,
    sync_all,
)
from tfckpt_trainer.training.checkpoint.state import TrainingState
from tfckpt_trainer.training.state.walk import FoundState
from tfckpt_trainer.training.telemetry.event_log_writer import EventLogWriter
from tfckpt_trainer.training.workers.worker_group import WorkerGroup


class Saver:
    """Writes checkpoints of one run. All workers call `save` and `start` together."""

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        state: TrainingState,
        options: SaveOptions,
        disk: DiskSpace,
        event_log: EventLogWriter,
    ) -> None:
        """Prepares the writing of checkpoints.

        Raises:
            UsageError: The options do not work with this state.
        """
        self._run = run
        self._group = group
        self._state = state
        self._disk = disk
        self._event_log = event_log
        self._sharded = (
            ShardedWriter(
                CheckpointLayout.of(state.shared.checkpoint),
                writers=group.size if options.spread else 1,
                writer=group.index,
                largest=options.largest_shard,
            )
            if options.needs_sharded_writer
            else None
        )
        self._options = options
        self._part = WorkerPart(run, group, state, self._sharded)
        self._noted_problems: set[str] = set()
        self._info: RunInfo | None = None

    @property
    def has_disk_space(self) -> bool:
        """Whether one more save fits on the disk."""
        return self._disk.missing_bytes() <= 0

    def has_restored(self, record: CheckpointRecord) -> None:
        """Takes the size of the workers' own state from a checkpoint: the next one has it too."""
        self._disk.worker_bytes = record.worker_bytes

    def in_directory(self, run: RunDirectory) -> Saver:
        """Returns a saver of the same state into another run directory, created if missing."""
        disk = DiskSpace(run, self._state.shared, self._options, make_room=lambda _: 0)
        return Saver(run, self._group, self._state, self._options, disk, self._event_log)

    def save(self, record: CheckpointRecord, facts: WorkerFacts) -> SaveOutcome:
        """Saves the state of `record.step` in the foreground.

        Args:
            record: What is known of the checkpoint at its step.
            facts: What the record of the checkpoint says about this worker.

        Raises:
            tf.errors.OpError: Another worker is gone.
        """
        began = time.monotonic()
        found = self._state.shared.find()
        ended = self._begin(record, found)
        if ended is not None:
            return ended
        vote = self._part.copy(record, found).finish(facts)
        if vote.facts is not None:
            vote = msgspec.structs.replace(vote, facts=_with_stall(facts, began))
        votes = self._group.all_gather(vote)
        decision = (
            self._decide(record, votes, began, background=False) if self._group.is_chief else None
        )
        return self._outcome_of_chief(decision)

    def start(self, record: CheckpointRecord, facts: WorkerFacts) -> BackgroundSave | SaveOutcome:
        """Copies the values of `record.step`, and writes them while training goes on.

        Returns:
            The save in progress, or its outcome if it was refused.

        Raises:
            tf.errors.OpError: Another worker is gone.
        """
        began = time.monotonic()
        found = self._state.shared.find()
        ended = self._begin(record, found)
        if ended is not None:
            return ended
        copied = self._part.copy(record, found)
        facts = _with_stall(facts, began)

        def decide(votes: list[SaveVote]) -> SaveOutcome:
            return self._decide(record, votes, began, background=True)

        save = BackgroundSave(self._run, self._group, record, lambda: copied.finish(facts), decide)
        save.start()
        return save

    def finish_interrupted(self) -> None:
        """Completes or removes interrupted saves and notes it in the event log; chief only.

        Raises:
            RefusedError: Another run is in the directory now.
            OSError: The directory of unfinished saves cannot be read.
        """
        self._keep_directory()
        recovered = finish_interrupted_saves(self._run)
        for problem in recovered.problems:
            self._note_once(problem)
        for name in recovered.completed:
            self._event_log.note(
                EventKind.SAVE, f"Completed the interrupted save of {name}.", checkpoint=name
            )

    def _begin(self, record: CheckpointRecord, found: FoundState) -> SaveOutcome | None:
        """Begins a save on all workers, or returns why there is nothing to do."""
        ended = self._begin_on_chief(record, found) if self._group.is_chief else None
        return self._group.broadcast(ended, SaveOutcome)

    def _begin_on_chief(self, record: CheckpointRecord, found: FoundState) -> SaveOutcome | None:
        try:
            self._make_way()
            # A save that failed on a full disk may have left files that block this one.
            self.finish_interrupted()
            ended = self._check(record, found)
            if ended is None:
                begin_save(self._run, record.name)
        except Exception as error:
            return outcome_without([SaveVote.against(0, error)])
        return ended

    def _note_once(self, problem: str) -> None:
        if problem not in self._noted_problems:
            self._noted_problems.add(problem)
            self._event_log.note(EventKind.NOTE, problem)

    def _make_way(self) -> None:
        """Renames what others put in place of the directories of the run while it trained."""
        told = self._run.move_others_aside(closed=True)
        for words in told:
            self._note_once(words)
        # What cannot be renamed may not be in the way of this save.
        with suppress(OSError):
            if told:
                self._run.create()
            if told and self._info is not None and not self._run.run_file.exists():
                store(self._run.run_file, self._info)

    def _keep_directory(self) -> None:
        """Creates the run directory anew, with its description, if it was moved or deleted."""
        if self._run.run_file.exists():
            self._require_same_run()
            return
        has_checkpoints = any(self._run.root.glob("*.index"))
        self._run.create()
        if self._info is not None:
            store(self._run.run_file, self._info)
            gone = self._run.control if has_checkpoints else self._run.root
            lost = "records of checkpoints" if has_checkpoints else "checkpoints"
            self._event_log.note(
                EventKind.NOTE,
                f"{gone} was moved or deleted while the run trained. Training goes on in a new "
                f"one: {lost} saved before are not in it, nor are the configuration and its "
                "guards, which the next start will not have.",
            )

    def _require_same_run(self) -> None:
        """Refuses to save if the directory of another run took the place of this one."""
        try:
            info = load(self._run.run_file, RunInfo)
        except DamagedFileError:
            return
        if self._event_log.is_of_other_run(self._run, info):
            root = self._run.root
            raise RefusedError(
                f"{root} is the directory of another run now: this one was moved while it trained. "
                f"Nothing was saved. Move {root} away, and the directory of this run back."
            )
        self._info = info

    def _check(self, record: CheckpointRecord, found: FoundState) -> SaveOutcome | None:
        """Returns the outcome if the checkpoint exists or cannot be saved."""
        run, name = self._run, record.name
        if index_path(run.root / name).exists() and run.record(name).exists():
            # A record that cannot be read tells of no other values.
            saved = try_read(partial(load, run.record(name), CheckpointRecord)) or record
            if saved.asked != record.asked:
                problem = f"{name} exists with other hyperparameters or skipped input"
                return self._taken(problem, record.step)
            if verify(run.root / name).ok:
                return SaveOutcome(name, record.step, record.branch, already_saved=True)
            return self._taken(f"{name} exists and is damaged", record.step)
        existing = sorted(path.name for path in run.root.glob(f"{name}.*"))
        if existing:
            return self._taken(f"{existing[0]} exists and is not of this run", record.step)
        problem = self._disk.reserve(record, found)
        return _refusal(problem, disk_full=True) if problem else None

    def _taken(self, problem: str, step: int) -> SaveOutcome:
        catalog = Catalog(self._run)
        catalog.scan(time.time(), quick=True)
        free = catalog.branch_tips(list_trash(self._run)).next
        # What is no checkpoint, such as a directory, can have the name of one all the same.
        taken = {entry.name.partition(".")[0] for entry in list_directory(self._run.root)}
        while checkpoint_name(step, free) in taken:
            free += 1
        return replace(_refusal(problem), free_branch=free)

    def _outcome_of_chief(self, decision: SaveOutcome | None) -> SaveOutcome:
        outcome = self._group.broadcast(decision, SaveOutcome)
        assert outcome is not None
        return outcome

    def _decide(
        self, record: CheckpointRecord, votes: list[SaveVote], began: float, *, background: bool
    ) -> SaveOutcome:
        """Commits the save if all workers succeeded, or removes it; on the chief only."""
        against = [vote for vote in votes if vote.problem]
        taken = ""
        if not against:
            try:
                return self._commit(record, votes, began, background=background)
            except Exception as error:
                if isinstance(error, FileExistsError):
                    taken = describe_error(error)
                # Whatever it is: the other workers wait for the decision.
                against = [SaveVote.against(0, error)]
        try:
            discard_save(self._run, record.name)
        except OSError as error:
            against.append(SaveVote.against(0, error, "its files could not be removed"))
        return self._taken(taken, record.step) if taken else outcome_without(against)

    def _commit(
        self, record: CheckpointRecord, votes: list[SaveVote], began: float, *, background: bool
    ) -> SaveOutcome:
        files = [facts for vote in votes for facts in vote.files]
        if self._sharded is not None and self._sharded.shard_count > 1:
            files = self._merge(self._sharded, record.name, files)
        cost = cost_of(votes, background=background)
        record = msgspec.structs.replace(
            record,
            saved_at=time.time(),
            workers=[vote.facts for vote in votes if vote.facts is not None],
            duration_seconds=time.monotonic() - began,
            cost=cost,
            files=files,
            world=self._group.topology,
            exactness=merge_exactness([vote.exactness for vote in votes if vote.exactness]),
            contents=votes[0].contents,
            per_worker=votes[0].per_worker,
        )
        warning = commit_save(self._run, record)
        self._disk.worker_bytes = record.worker_bytes
        return SaveOutcome(
            name=record.name,
            warning=warning,
            step=record.step,
            branch=record.branch,
            size=record.size,
            seconds=record.duration_seconds or 0.0,
            stall_seconds=cost.stall_seconds,
            exactness=record.exactness,
        )

    def _merge(self, sharded: ShardedWriter, name: str, files: list[FileFacts]) -> list[FileFacts]:
        """Merges the shards to one checkpoint; returns the facts of its files."""
        prefix = self._run.saving_directory / name
        names = sharded.merge(prefix)
        index = index_path(prefix)
        sync_all(files_of(prefix), [prefix.parent])
        merged = read_index(prefix)
        findings = [*structure_findings(prefix, merged), *graph_findings(prefix, merged)]
        require_sound(prefix, Verification(tuple(findings)))
        with open_plain(index) as file:
            content = file.read()
        return [
            *(
                msgspec.structs.replace(facts, name=names.get(facts.name, facts.name))
                for facts in files
                if facts.name in names or "/" in facts.name
            ),
            FileFacts(name=index.name, size=len(content), crc32c=crc32c(content)),
        ]


def _with_stall(facts: WorkerFacts, began: float) -> WorkerFacts:
    return msgspec.structs.replace(facts, stall_seconds=time.monotonic() - began)


def _refusal(problem: str, *, disk_full: bool = False) -> SaveOutcome:
    return SaveOutcome(name=None, refused=True, disk_full=disk_full, problem=problem)
