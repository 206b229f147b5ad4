"""Verifies a checkpoint of a run: TensorFlow's checksums, and the digests in its record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.bundle.analysis.finite import NotFinite
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.shard import Shard
from tfckpt_trainer.bundle.structure import UNREADABLE, Finding
from tfckpt_trainer.bundle.verify import Progress, verify
from tfckpt_trainer.catalog.scan.checkpoint_files import FileScanner, Identity, identity_of
from tfckpt_trainer.catalog.scan.history import entries_of
from tfckpt_trainer.catalog.verification.remembered import remember
from tfckpt_trainer.errors import (
    BundleError,
    DamagedFileError,
    RefusedError,
    TfckptError,
    UsageError,
)
from tfckpt_trainer.rundir.documents import copy_of, damage_of, damage_of_copy, load_if_there
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import (
    CheckpointRecord,
    FileFacts,
    FoundFault,
    VerificationRecord,
)

_ATTEMPTS = 3


@dataclass(frozen=True)
class Verified:
    """What verifying one checkpoint found.

    Attributes:
        record: To be remembered.
        not_finite: Tensors with values that are not finite, where that was asked for.
        remembered: Whether it was found before, and no file changed since.
    """

    record: VerificationRecord
    not_finite: tuple[NotFinite, ...] = ()
    remembered: bool = False

    @property
    def unread(self) -> FoundFault | None:
        """The first file that could not be read; what was found holds for nothing then."""
        return next((found for found in self.record.findings if found.kind == UNREADABLE), None)

    @property
    def ok(self) -> bool:
        """Whether nothing was found that a restore would suffer from, or that was looked for."""
        return self.record.fault is None and not self.not_finite


def verify_checkpoint(
    run: RunDirectory,
    name: str,
    *,
    on_progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    finite: bool = False,
    files: FileScanner | None = None,
    clock: Callable[[], float] = time.time,
) -> Verified | None:
    """Reads every byte of checkpoint `name`; writes nothing.

    Args:
        run: The run directory.
        name: The checkpoint.
        on_progress: Told bytes done and bytes in all, every few megabytes.
        cancelled: Asked as often.
        finite: Whether to look for elements that are not a number or infinite.
        files: Looks at the run directory; kept by whoever verifies many, because a first look
            at many files takes long.
        clock: Seconds since the epoch.

    Returns:
        What was found; None if it was cancelled.

    Raises:
        UsageError: There is no such checkpoint.
        RefusedError: It is being written: it changed again and again while it was read.
    """
    files = files if files is not None else FileScanner(run.root)
    for _ in range(_ATTEMPTS):
        before = _identities(run, files, name)
        began, ticked = clock(), time.perf_counter()
        found = verify(run.root / name, on_progress=on_progress, cancelled=cancelled, finite=finite)
        if not found.complete:
            return None
        findings = [*found.findings, *_record_findings(run, name)]
        if _identities(run, files, name) != before:
            # A save or a rotation came between: what was found is of no checkpoint at all.
            continue
        record = VerificationRecord(
            name=name,
            verified_at=began,
            seconds=time.perf_counter() - ticked,
            bytes=found.bytes,
            tensors=found.tensors,
            files=before,
            findings=[fault_of(finding) for finding in findings],
        )
        return Verified(record, found.not_finite)
    raise RefusedError(f"{name} changes while it is read: it is being written. Try again later.")


def record_damage(run: RunDirectory, name: str) -> None:
    """Verifies a checkpoint that a restore refused, and stores the result if it is damaged.

    The state of the checkpoint follows from that result. A result that cannot be stored changes
    nothing: the journal has the refusal.

    Args:
        run: The run directory.
        name: The checkpoint.
    """
    with suppress(TfckptError, OSError):
        found = verify_checkpoint(run, name)
        if found is not None and found.unread is None and found.record.fault is not None:
            remember(run, found.record)


def _identities(run: RunDirectory, files: FileScanner, name: str) -> dict[str, Identity]:
    """Returns size, time and inode of every file of a checkpoint.

    The workers' own files, the record and its copy are among them.
    """
    files.refresh([name])
    found = files.files.get(name)
    if found is None:
        raise UsageError(f"There is no checkpoint {name}; list them with `tfckpt-tui ls`.")
    identities = {fact.name: fact.identity for fact in found.facts}
    own = run.worker_state_directory(name)
    for entry in entries_of(own):
        path = own / entry.name
        identity = identity_of(path)
        if identity is not None and entry.is_file(follow_symlinks=False):
            identities[path.relative_to(run.root).as_posix()] = identity
    for path in (run.record(name), run.record_copy(name)):
        identity = identity_of(path)
        if identity is not None:
            identities[path.relative_to(run.root).as_posix()] = identity
    return identities


def fault_of(finding: Finding) -> FoundFault:
    """Returns a finding as it is written down."""
    return FoundFault(
        severity=finding.severity,
        kind=finding.kind,
        file=finding.file,
        message=finding.message,
        tensor=finding.tensor or "",
    )


def _record_findings(run: RunDirectory, name: str) -> Iterator[Finding]:
    """Holds the files against the digests that were recorded when they were saved.

    Every data file is covered by the digest of the index, which has the checksums of all
    tensors; so only sizes are compared of them, and nothing large is read twice.
    """
    record, damage = _read_record(run, name)
    if damage:
        yield Finding("warning", "record", f"{name}.json", None, damage)
    of_copy = damage_of_copy(run.record(name), CheckpointRecord)
    if of_copy:
        yield Finding("warning", "record", run.record_copy(name).name, None, of_copy)
    if record is None:
        return
    own = f"{run.worker_state_directory(name).relative_to(run.root).as_posix()}/"
    index_name = index_path(run.root / name).name
    for facts in record.files:
        if not all(is_plain_name(part) for part in facts.name.split("/")):
            continue
        is_own = facts.name.startswith(own)
        whole = is_own or facts.name == index_name
        kind, problem = _difference(run.root / facts.name, facts, whole=whole, is_own=is_own)
        if problem:
            yield Finding("error", kind, Path(facts.name).name, None, f"{facts.name} {problem}")


def _read_record(run: RunDirectory, name: str) -> tuple[CheckpointRecord | None, str]:
    """Returns the record of a checkpoint, if there is one to use, and what is wrong with it."""
    path = run.record(name)
    try:
        record = load_if_there(path, CheckpointRecord)
    except DamagedFileError as error:
        return None, (
            f"{error} Without it a restore brings back the model and the optimizer, and neither "
            "the input position nor random states."
        )
    damage = damage_of(path, CheckpointRecord) if record is not None else ""
    return record, f"{damage} Its copy {copy_of(path).name} is used." if damage else ""


def _difference(path: Path, facts: FileFacts, *, whole: bool, is_own: bool) -> tuple[str, str]:
    """Returns how a file differs from what was recorded when it was saved, if it does.

    Args:
        path: The file.
        facts: What was recorded.
        whole: Whether to read all of it.
        is_own: Whether it is a worker's own state, which is never a link.
    """
    if is_own and path.is_symlink():
        return "record", "is a symbolic link, and a plain file was recorded"
    try:
        with Shard(path) as file:
            if file.size != facts.size:
                kind = "record-short" if file.size < facts.size else "record"
                return kind, f"has {file.size} bytes, and {facts.size} were recorded"
            if not whole:
                return "", ""
            value = 0
            for chunk in file.chunks(0, file.size):
                value = crc32c(chunk, value)
    except FileNotFoundError:
        return "record-missing", "is missing, and was recorded when it was saved"
    except OSError as error:
        return UNREADABLE, f"cannot be read: {error.strerror}"
    except BundleError as error:
        return "record", f"is not what was recorded: {error}"
    return ("", "") if value == facts.crc32c else ("record", "has another checksum than recorded")
