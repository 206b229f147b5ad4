"""Saves a checkpoint on all workers: written aside, flushed, verified, then moved into view."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import index_path, read_index
from tfckpt_trainer.bundle.structure import graph_findings, structure_findings
from tfckpt_trainer.bundle.verify import Verification, verify
from tfckpt_trainer.catalog.commit import (
    begin_save,
    commit_save,
    discard_save,
    finish_interrupted_saves,
)
from tfckpt_trainer.catalog.retention.emptying import trashed_bytes
from tfckpt_trainer.errors import TfckptError, in_words
from tfckpt_trainer.rundir.files import make_directory, sync_directory, sync_file
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts, WorkerFacts
from tfckpt_trainer.training.checkpoint.background_save import BackgroundSave
from tfckpt_trainer.training.checkpoint.parts import Parts
from tfckpt_trainer.training.checkpoint.save_options import SaveOptions
from tfckpt_trainer.training.checkpoint.save_protocol import (
    LOCAL_FAILURES,
    SaveOutcome,
    SaveRequest,
    Vote,
    cost_of,
    describe_failure,
)
from tfckpt_trainer.training.checkpoint.state import SharedState, WorkerState
from tfckpt_trainer.training.loop.worker_group import WorkerGroup

MARGIN_BYTES = 16 << 20
"""Disk space that a save leaves free, beside what it writes."""


@dataclass
class Timing:
    """Seconds of one worker's part of a save, by what they were spent on."""

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("write", "flush", "verify"), 0.0)
    )

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Adds the time of a block to what it was spent on."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] += time.monotonic() - began


Writing = Callable[[Timing], list[FileFacts]]
"""What is left of a worker's part once its values are taken."""


class Saver:
    """Writes checkpoints of one run; every method is called by all workers together."""

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        shared: SharedState,
        own: WorkerState,
        world: Mapping[str, Any],
        make_room: Callable[[int], int],
        options: SaveOptions,
    ) -> None:
        """Takes what is saved, and how.

        Raises:
            UsageError: The options cannot be had with this state.
        """
        self._run = run
        self._group = group
        self._shared = shared
        self._own = own
        self._world = dict(world)
        self._make_room = make_room
        self._when_full = options.when_full
        self._parts = (
            Parts(
                shared.checkpoint,
                writers=group.size if options.spread else 1,
                writer=group.index,
                largest=options.largest_shard,
            )
            if options.in_parts
            else None
        )

    def save(self, request: SaveRequest, facts: WorkerFacts) -> SaveOutcome:
        """Saves the state of `request.step`, and returns once that is done.

        Args:
            request: What to save.
            facts: What this worker says of itself, for the record.

        Raises:
            tf.errors.OpError: A peer is gone.
        """
        began = time.monotonic()
        answer = self._hindrance_for_all(request)
        if answer is not None:
            return answer
        timing = Timing()
        mine = self._vote(self._taken(request, timing), facts, timing)
        stalled = msgspec.structs.replace(facts, stall_seconds=time.monotonic() - began)
        mine = msgspec.structs.replace(mine, facts=stalled)
        votes = [
            msgspec.convert(said, Vote) for said in self._group.gather(msgspec.to_builtins(mine))
        ]
        decision = (
            self._decide(request, votes, began, background=False) if self._group.is_chief else None
        )
        return SaveOutcome(**self._group.gather(asdict(decision) if decision else {})[0])

    def start(self, request: SaveRequest, facts: WorkerFacts) -> BackgroundSave | SaveOutcome:
        """Takes the values of `request.step`, and writes them while training goes on.

        Returns:
            The save under way, or at once what became of it where it is not even begun.

        Raises:
            tf.errors.OpError: A peer is gone.
        """
        began = time.monotonic()
        answer = self._hindrance_for_all(request)
        if answer is not None:
            return answer
        timing = Timing()
        writings = self._taken(request, timing)
        facts = msgspec.structs.replace(facts, stall_seconds=time.monotonic() - began)

        def do_part() -> Vote:
            return self._vote(writings, facts, timing)

        def decide(votes: list[Vote]) -> SaveOutcome:
            return self._decide(request, votes, began, background=True)

        save = BackgroundSave(self._run, self._group, request, do_part, decide)
        save.begin()
        return save

    def _hindrance_for_all(self, request: SaveRequest) -> SaveOutcome | None:
        """Begins a save, or returns why it is not begun."""
        hindrance = self._begin(request) if self._group.is_chief else None
        answer = self._group.gather(asdict(hindrance) if hindrance else {})[0]
        return SaveOutcome(**answer) if answer else None

    def _begin(self, request: SaveRequest) -> SaveOutcome | None:
        try:
            # What a save left that failed on a full disk would be in the way of this one.
            finish_interrupted_saves(self._run)
            hindrance = self._hindrance(request)
            if hindrance is None:
                begin_save(self._run, request.name)
        except LOCAL_FAILURES as error:
            problem = f"worker 0: {describe_failure(error)}"
            return SaveOutcome(name=None, full=_is_full(problem), problem=problem)
        return hindrance

    def _hindrance(self, request: SaveRequest) -> SaveOutcome | None:
        run, name = self._run, request.name
        if index_path(run.root / name).exists() and run.record(name).exists():
            if verify(run.root / name).ok:
                return SaveOutcome(name, request.step, request.branch, already=True)
            return _refusal(f"{name} is there and damaged; prune it, then save again.")
        in_the_way = sorted(path.name for path in run.root.glob(f"{name}.*"))
        if in_the_way:
            return _refusal(
                f"{in_the_way[0]} is in the way of saving {name}, and nothing is ever "
                "overwritten; prune it or move it away."
            )
        lacking = self.lacking_bytes()
        if lacking > 0 and self._make_room(lacking):
            lacking = self.lacking_bytes()
        if lacking > 0:
            return replace(_refusal(self._about_full_disk(request, lacking)), full=True)
        return None

    def _about_full_disk(self, request: SaveRequest, lacking: int) -> str:
        """Returns what is lacking for a save, what to do, and what happens without it."""
        size, root = self._shared.size, shlex.quote(str(self._run.root))
        free = size + MARGIN_BYTES - lacking
        trashed = trashed_bytes(self._run)
        trash = (
            f"The trash holds {trashed:,} bytes: empty it with `tfckpt-tui trash {root} empty`. "
            if trashed
            else ""
        )
        return (
            f"{request.name} has about {size:,} bytes, and {MARGIN_BYTES >> 20} MiB are kept free "
            f"beside it; {free:,} bytes are free in {self._run.root}. {trash}Free disk space, or "
            f"delete checkpoints with `tfckpt-tui prune {root} CKPT --delete`. "
            f"{self._what_follows(request)}"
        )

    def _what_follows(self, request: SaveRequest) -> str:
        """Returns how training goes on after a save that was refused on a full disk."""
        root = shlex.quote(str(self._run.root))
        if request.trigger == "preemption" or (request.trigger == "stop" and not request.command):
            return "Training ends without a save of its last steps."
        if request.trigger == "stop":
            return (
                f"Training goes on. To stop without a save, use `tfckpt-tui stop {root} --no-save`."
            )
        if request.trigger == "end" and self._when_full == "go-on":
            return "Training ends without a save of its last steps."
        # A command asks for one save; only those of a schedule wait for room.
        waits = self._when_full != "go-on" and request.command is None
        return "Training waits." if waits else "Training goes on."

    def lacking_bytes(self) -> int:
        """Returns how many bytes the disk lacks for one more save; 0 or less if it would fit."""
        return self._shared.size + MARGIN_BYTES - shutil.disk_usage(self._run.root).free

    def _vote(self, writings: list[Writing], facts: WorkerFacts, timing: Timing) -> Vote:
        """Does what is left of this worker's part; says what came of it."""
        files: list[FileFacts] = []
        try:
            for write in writings:
                files += write(timing)
        except LOCAL_FAILURES as error:
            return Vote(problem=f"worker {self._group.index}: {describe_failure(error)}")
        return Vote(
            facts=facts,
            files=files,
            write_seconds=timing.seconds["write"],
            flush_seconds=timing.seconds["flush"],
            verify_seconds=timing.seconds["verify"],
        )

    def _taken(self, request: SaveRequest, timing: Timing) -> list[Writing]:
        """Takes all values of this step; what it returns may be done at any time."""
        try:
            return self._take(request, timing)
        except LOCAL_FAILURES as error:
            return [_failing(error)]

    def _take(self, request: SaveRequest, timing: Timing) -> list[Writing]:
        directory = self._run.worker_state_directory(request.name)
        make_directory(directory)
        own = directory / f"worker-{self._group.index}"
        with timing.of("write"):
            self._own.write(own)
        writings: list[Writing] = [lambda timing: self._check_in_own(own, timing)]
        self._shared.arrive(request.step)
        prefix = self._run.saving_directory / request.name
        if self._parts is not None:
            return writings + self._take_parts(self._parts, prefix)
        if self._group.is_chief:
            with timing.of("write"):
                self._shared.write(prefix)
            writings.append(lambda timing: _in_view(self._check_in(prefix, timing)))
        elif self._shared.needs_all_workers:
            self._write_away(prefix)
        return writings

    def _take_parts(self, parts: Parts, prefix: Path) -> list[Writing]:
        if not parts.has_any and not self._shared.needs_all_workers:
            return []
        snapshot = parts.take()

        def write(timing: Timing) -> list[FileFacts]:
            with timing.of("write"):
                written = parts.write(snapshot, prefix)
            return [
                facts
                for part in written
                for facts in _in_view(self._check_in(part, timing, part=parts.count > 1))
            ]

        return [write] if parts.has_any else []

    def _write_away(self, prefix: Path) -> None:
        """Takes part in the collectives of a chief that reads variables synchronised on read."""
        directory = prefix.with_name(f"worker-{self._group.index}")
        make_directory(directory)
        self._shared.write(directory / prefix.name)
        shutil.rmtree(directory)

    def _check_in_own(self, prefix: Path, timing: Timing) -> list[FileFacts]:
        """Checks in what only this worker has, with the directory in which all have theirs."""
        facts = self._check_in(prefix, timing)
        random_state = self._own.random_state_path(prefix)
        with timing.of("flush"):
            sync_directory(prefix.parent.parent)
        return [*facts, self._facts_of(random_state, crc32c(random_state.read_bytes()))]

    def _check_in(self, prefix: Path, timing: Timing, *, part: bool = False) -> list[FileFacts]:
        """Flushes the files of `prefix` and reads them back; returns their facts."""
        files = sorted(prefix.parent.glob(f"{prefix.name}.*"))
        with timing.of("flush"):
            for path in files:
                sync_file(path)
            sync_directory(prefix.parent)
        with timing.of("verify"):
            checksums = _sound(prefix, verify(prefix, digests=True, part=part)).file_checksums
        return [
            self._facts_of(path, checksums[path.name]) for path in files if path.name in checksums
        ]

    def _facts_of(self, path: Path, checksum: int) -> FileFacts:
        name = str(path.relative_to(self._run.root))
        return FileFacts(name=name, size=path.stat().st_size, crc32c=checksum)

    def _decide(
        self, request: SaveRequest, votes: list[Vote], began: float, *, background: bool
    ) -> SaveOutcome:
        """Makes a checkpoint of what all wrote, or nothing; on the chief only."""
        problems = [vote.problem for vote in votes if vote.problem]
        if not problems:
            try:
                return self._commit(request, votes, began, background=background)
            except LOCAL_FAILURES as error:
                problems = [f"worker 0: {describe_failure(error)}"]
        try:
            discard_save(self._run, request.name)
        except OSError as error:
            problems.append(f"worker 0: what it wrote could not be removed: {in_words(error)}")
        full = any(_is_full(problem) for problem in problems)
        return SaveOutcome(name=None, full=full, problem="; ".join(problems))

    def _commit(
        self, request: SaveRequest, votes: list[Vote], began: float, *, background: bool
    ) -> SaveOutcome:
        run, name = self._run, request.name
        files = [facts for vote in votes for facts in vote.files]
        if self._parts is not None and self._parts.count > 1:
            files = self._merge(self._parts, run.saving_directory / name, files)
        cost = cost_of(votes, background=background)
        record = CheckpointRecord(
            name=name,
            step=request.step,
            branch=request.branch,
            sequence=request.sequence,
            saved_at=time.time(),
            trigger=request.trigger,
            parent=request.parent,
            command=request.command,
            metrics=dict(request.metrics),
            best=dict(request.best),
            state=dict(request.state),
            workers=[vote.facts for vote in votes if vote.facts is not None],
            duration_seconds=time.monotonic() - began,
            cost=cost,
            files=files,
            world=self._world,
            contents=[*self._shared.contents, *self._own.contents],
        )
        warning = commit_save(run, record)
        return SaveOutcome(
            name=name,
            warning=warning,
            step=request.step,
            branch=request.branch,
            size=sum(facts.size for facts in files),
            seconds=time.monotonic() - began,
            stall_seconds=cost.stall_seconds,
        )

    def _merge(self, parts: Parts, prefix: Path, files: list[FileFacts]) -> list[FileFacts]:
        """Makes one checkpoint of the parts; returns the facts of its files."""
        names = parts.merge(prefix)
        index = index_path(prefix)
        for path in (index, *prefix.parent.glob(f"{prefix.name}.data-*")):
            sync_file(path)
        sync_directory(prefix.parent)
        merged = read_index(prefix)
        findings = [*structure_findings(prefix, merged), *graph_findings(prefix, merged)]
        _sound(prefix, Verification(tuple(findings)))
        content = index.read_bytes()
        return [
            *(
                msgspec.structs.replace(facts, name=names.get(facts.name, facts.name))
                for facts in files
                if facts.name in names or "/" in facts.name
            ),
            FileFacts(name=index.name, size=len(content), crc32c=crc32c(content)),
        ]


def _failing(error: Exception) -> Writing:
    """Returns a part that fails as `error` did, so that the vote tells of it."""

    def fail(_: Timing) -> list[FileFacts]:
        raise error

    return fail


def _is_full(problem: str) -> bool:
    return os.strerror(errno.ENOSPC) in problem


def _refusal(problem: str) -> SaveOutcome:
    return SaveOutcome(name=None, refused=True, problem=problem)


def _in_view(files: list[FileFacts]) -> list[FileFacts]:
    """Names the files as they will be called in the run directory."""
    return [msgspec.structs.replace(facts, name=Path(facts.name).name) for facts in files]


def _sound(prefix: Path, verification: Verification) -> Verification:
    """Returns a verification that found nothing wrong.

    Raises:
        TfckptError: What was read back is not what was written.
    """
    wrong = [finding for finding in verification.findings if finding.severity == "error"]
    if wrong or not verification.complete:
        message = wrong[0].message if wrong else "it could not be read through"
        raise TfckptError(f"what was written to {prefix.name} reads back wrong: {message}")
    return verification
