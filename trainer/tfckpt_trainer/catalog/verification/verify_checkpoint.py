"""Verifies one checkpoint of a run: TensorFlow's checksums and the digests in its record."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import msgspec

from tfckpt_trainer.bundle.analysis.finite import NonFiniteValues
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.recognition import IndexKind, recognize_index
from tfckpt_trainer.bundle.shard import Shard
from tfckpt_trainer.bundle.structure import UNREADABLE, UNSUPPORTED, Finding
from tfckpt_trainer.bundle.verify import Progress, verify
from tfckpt_trainer.catalog.directory.checkpoint_files import FileScanner
from tfckpt_trainer.catalog.directory.stored_results import store_result
from tfckpt_trainer.catalog.scan.states import RECORD_UNUSABLE, WITHOUT_RECORD
from tfckpt_trainer.catalog.verification.damaged_documents import mend_by_copy
from tfckpt_trainer.errors import (
    BundleError,
    DamagedFileError,
    RefusedError,
    TfckptError,
    UsageError,
    reason_of,
)
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import (
    CheckpointRecord,
    FileFacts,
    FoundFault,
    VerificationRecord,
)
from tfckpt_trainer.rundir.storage.documents import (
    copy_of,
    decode,
    describe_copy_damage,
    load_if_exists,
)
from tfckpt_trainer.rundir.storage.files import list_directory, read_bounded
from tfckpt_trainer.rundir.storage.identity import Identity, identity_of
from tfckpt_trainer.words.advice import only_command

_ATTEMPTS = 3


class Verified(msgspec.Struct, frozen=True):
    """The result of verifying one checkpoint.

    Attributes:
        record: The result in the form in which it is stored.
        not_finite: Tensors with values that are not finite, if that was checked.
        remembered: Whether it is a stored result of an earlier verification.
    """

    record: VerificationRecord
    not_finite: tuple[NonFiniteValues, ...] = ()
    remembered: bool = False

    @property
    def findings(self) -> Sequence[FoundFault]:
        """The problems found. An error among them prevents a restore."""
        return self.record.findings

    @property
    def unread(self) -> FoundFault | None:
        """The first file that could not be read, or whose form is not read here.

        Such a result is not stored.
        """
        unread = {UNREADABLE, UNSUPPORTED}
        return next((finding for finding in self.record.findings if finding.kind in unread), None)

    @property
    def is_exact(self) -> bool:
        """Whether what the record holds can be restored too, or there never was a record."""
        return all(finding.kind != RECORD_UNUSABLE for finding in self.record.findings)

    @property
    def ok(self) -> bool:
        """Whether the checkpoint is sound, and finite if that was checked."""
        return self.record.fault is None and not self.not_finite


def verify_checkpoint(
    run: RunDirectory,
    name: str,
    *,
    on_progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    finite: bool = False,
    threads: int = 1,
    files: FileScanner | None = None,
    clock: Callable[[], float] = time.time,
) -> Verified | None:
    """Reads every byte of checkpoint `name`; writes nothing.

    Args:
        run: The run directory.
        name: The checkpoint.
        on_progress: Called with bytes done and bytes in total, every few megabytes.
        cancelled: Called as often; True ends the verification.
        finite: Whether to look for NaN and infinite values.
        threads: How many threads check tensors, unless it looks for such values.
        files: A scanner of the run directory. Pass the same one for several checkpoints, because
            the first scan of a large directory takes long.
        clock: Returns seconds since the epoch.

    Returns:
        The result; None if it was cancelled.

    Raises:
        UsageError: There is no such checkpoint, or its files are those of another program.
        RefusedError: It changed each time it was read: it is being written.
    """
    files = files if files is not None else FileScanner(run.root, frozenset({name}))
    own = _OwnFiles(run, name)
    for _ in range(_ATTEMPTS):
        before = _identities(own, files)
        _refuse_others(own, before)
        began, ticked = clock(), time.perf_counter()
        result = verify(
            run.root / name,
            on_progress=on_progress,
            cancelled=cancelled,
            finite=finite,
            threads=threads,
            beside=files.beside(name),
        )
        if not result.complete:
            return None
        # A file that cannot be read cannot be compared with its record either: that is one finding.
        checksums = result.file_checksums
        read = {file: (size, checksums.get(file)) for file, (size, *_) in before.items()}
        findings = dict.fromkeys([*result.findings, *_record_findings(own, read)])
        if _identities(own, files) != before:
            # It was saved again or deleted meanwhile: the findings mix two states.
            continue
        record = VerificationRecord(
            name=name,
            verified_at=began,
            seconds=time.perf_counter() - ticked,
            bytes=result.bytes,
            tensors=result.tensors,
            files=before,
            findings=[fault_of(finding) for finding in findings],
            not_finite=len(result.not_finite) if finite else None,
        )
        return Verified(record, result.not_finite)
    raise RefusedError(f"{name} changed while it was read: it is being written. Try again later.")


def verify_values(run: RunDirectory, name: str) -> Verified | None:
    """Verifies a checkpoint, looks for NaN and infinite values, and stores the result.

    Args:
        run: The run directory.
        name: The checkpoint.

    Returns:
        The result; None if the checkpoint could not be read, such as after a prune, or if the
        result could not be stored.
    """
    with suppress(TfckptError, OSError):
        result = verify_checkpoint(run, name, finite=True)
        if result is not None and result.unread is None:
            store_result(run, result.record)
            return result
    return None


def record_damage(run: RunDirectory, name: str) -> None:
    """Verifies a checkpoint that a restore refused, and stores the result if it is damaged.

    The state of the checkpoint follows from that result. A result that cannot be stored changes
    nothing: the event log has the refusal.

    Args:
        run: The run directory.
        name: The checkpoint.
    """
    with suppress(TfckptError, OSError):
        result = verify_checkpoint(run, name)
        if result is not None and result.unread is None and result.record.fault is not None:
            store_result(run, result.record)


class _OwnFiles:
    """The files of this library for one checkpoint: its record, and the workers' own state.

    Attributes:
        copy: The name of the copy of its record, relative to the run directory.
        start: What the names of the workers' own files begin with, relative to the run directory.
    """

    def __init__(self, run: RunDirectory, name: str) -> None:
        self.run, self.name = run, name
        self.copy = f".tfckpt/records/{name}.json.copy"
        self.start = f".tfckpt/workers/{name}/"

    @cached_property
    def record(self) -> Path:
        """The record."""
        return self.run.record(self.name)

    def identities(self) -> Iterator[tuple[str, Identity]]:
        """Yields size, time and inode of each file, by its path relative to the run directory.

        Leaves out what cannot be looked at: if the record names it, its reading tells why. The
        directory of the workers' state tells that a file that is missing has come back.
        """
        directory, record = self.start.rstrip("/"), self.copy.removesuffix(".copy")
        for path in (directory, *self._states(), record, self.copy):
            with suppress(OSError):
                identity = identity_of(f"{self.run.root}/{path}")
                if identity is not None:
                    yield path, identity

    def _states(self) -> list[str]:
        with suppress(OSError):
            return [
                f"{self.start}{entry.name}"
                for entry in list_directory(self.run.worker_state_directory(self.name))
                if entry.is_file(follow_symlinks=False)
            ]
        return []


def _identities(own: _OwnFiles, files: FileScanner) -> dict[str, Identity]:
    """Returns size, time and inode of every file of a checkpoint."""
    name = own.name
    if not files.is_current(name):
        files.refresh([name])
    checkpoint = files.files.get(name)
    if checkpoint is None:
        raise UsageError(
            f"There is no checkpoint {name}.",
            only_command("List the checkpoints with ", "ls", own.run.root),
        )
    return {fact.name: fact.identity for fact in checkpoint.facts} | dict(own.identities())


def _refuse_others(own: _OwnFiles, names: Collection[str]) -> None:
    """Refuses what only has the names of a checkpoint: a list of many opens no index.

    Args:
        own: The files of this library for it.
        names: All its files, relative to the run directory.

    Raises:
        UsageError: No file is of this library, and its index is of another program.
    """
    index = index_path(own.run.root / own.name)
    if index.name not in names or any("/" in name for name in names):
        return
    with suppress(OSError, DamagedFileError):
        if recognize_index(index) is IndexKind.OTHER:
            raise UsageError(
                f"{own.name} is not a checkpoint: {index.name} is of another program, or of a "
                "cache of tf.data."
            )


def fault_of(finding: Finding) -> FoundFault:
    """Returns a finding in the form in which it is stored."""
    return FoundFault(
        severity=finding.severity,
        kind=finding.kind,
        file=finding.file,
        message=finding.message,
        tensor=finding.tensor or "",
    )


def _record_findings(
    own: _OwnFiles, read: Mapping[str, tuple[int, int | None]]
) -> Iterator[Finding]:
    """Compares the files with the digests in the record.

    The digest of the index covers the data files, because the index has the checksums of all
    tensors. So only sizes of data files are compared, and nothing large is read twice.

    Args:
        own: The files of this library.
        read: The sizes of all files, and the checksums that are known.
    """
    try:
        record, damage = _read_record(own.record)
    except OSError as error:
        problem = f"{own.record.name} cannot be read: {reason_of(error)}"
        yield Finding("error", UNREADABLE, own.record.name, None, problem)
        return
    # Only a save with a record writes the state of workers.
    if record is None and not damage and any(name.startswith(own.start) for name in read):
        mend = mend_by_copy(own.run, own.name)
        damage = " ".join(filter(None, (f"{own.record.name} is missing.", WITHOUT_RECORD, mend)))
    if damage:
        kind = RECORD_UNUSABLE if record is None else "record"
        yield Finding("warning", kind, own.record.name, None, damage)
    of_copy = describe_copy_damage(own.record, CheckpointRecord) if own.copy in read else ""
    if of_copy:
        yield Finding("warning", "record", copy_of(own.record).name, None, of_copy)
    if record is None:
        return
    index_name = f"{own.name}.index"
    for facts in record.files:
        is_own = facts.name.startswith(own.start)
        whole = is_own or facts.name == index_name
        size, checksum = read.get(facts.name, (None, None))
        if size == facts.size and (not whole or checksum == facts.crc32c):
            continue
        if not all(is_plain_name(part) for part in facts.name.split("/")):
            continue
        path = own.run.root / facts.name
        kind, problem = _difference(path, facts, whole=whole, is_own=is_own)
        if problem:
            yield Finding("error", kind, path.name, None, f"{facts.name} {problem}")


def _read_record(path: Path) -> tuple[CheckpointRecord | None, str]:
    """Returns the record of a checkpoint if it can be used, and its damage if it has any."""
    try:
        return decode(read_bounded(path), CheckpointRecord, path.name), ""
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    except DamagedFileError as error:
        damage = str(error)
    try:
        record = load_if_exists(path, CheckpointRecord)
    except DamagedFileError:
        return None, f"{damage} {WITHOUT_RECORD}"
    return record, f"{damage} Its copy {copy_of(path).name} is used."


def _difference(path: Path, facts: FileFacts, *, whole: bool, is_own: bool) -> tuple[str, str]:
    """Returns the kind and the description of a difference from the record; empty if none.

    Args:
        path: The file.
        facts: Its size and digest in the record.
        whole: Whether to read all of it.
        is_own: Whether it is a worker's own state, which is never a link.
    """
    try:
        if is_own and path.is_symlink():
            return "record", "is a symbolic link; a regular file was recorded"
        with Shard(path) as file:
            if file.size != facts.size:
                kind = "record-short" if file.size < facts.size else "record"
                return kind, f"has {file.size} bytes; {facts.size} were recorded"
            if not whole:
                return "", ""
            value = 0
            for chunk in file.chunks(0, file.size):
                value = crc32c(chunk, value)
    except FileNotFoundError:
        return "record-missing", "is missing; it is in the record"
    except OSError as error:
        return UNREADABLE, f"cannot be read: {reason_of(error)}"
    except BundleError as error:
        return "record", f"is not what was recorded: {error}"
    return ("", "") if value == facts.crc32c else ("record", "has another checksum than recorded")
