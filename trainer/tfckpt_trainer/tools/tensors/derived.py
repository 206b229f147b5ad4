"""Adds a checkpoint to a run that was made from others, also while training goes on.

Everything is written and verified in `NAME_temp`, as TensorFlow does. Then the workers' files and
the data files are moved into place, the record is written, and the index is moved last. Until
then there is no checkpoint. `NAME_temp` is marked with the process that writes: what a killed one
left does not take the name, and the next command removes it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec.structs import replace

from tfckpt_trainer.bundle.analysis.finite import NonFiniteValues
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import index_lies_at, index_path
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter
from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of
from tfckpt_trainer.catalog.directory.save_directories import (
    TEMPORARY,
    delete_what_is_of_save,
    delete_worker_state,
    look_into_temporary,
    parts_directory,
)
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.scan.states import quiet_seconds_of, worker_state_files
from tfckpt_trainer.errors import DamagedFileError, RefusedError, UsageError
from tfckpt_trainer.rundir.heartbeats.writer_marks import (
    is_writer_gone,
    make_marked,
    remove_leftovers,
)
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.storage.disk import disk
from tfckpt_trainer.rundir.storage.documents import remove, store
from tfckpt_trainer.rundir.storage.files import (
    create_directory,
    create_file,
    delete_file,
    move,
    open_plain,
    sync_directory,
    sync_file,
)
from tfckpt_trainer.words.clean_text import clean

_TOUCHED_SECONDS = 10.0
_PIECE = 4 << 20
_WORKERS = "workers"

Write = Callable[[BundleWriter, Callable[[], None]], None]
"""Writes the tensors; calls the second argument from time to time."""


def require_free_name(run: RunDirectory, name: str, *, own: Path | None = None) -> None:
    """Raises an error if a new checkpoint cannot have this name.

    Args:
        run: The run directory.
        name: The name.
        own: The directory in which the caller writes it.

    Raises:
        UsageError: It is not a valid file name.
        RefusedError: It is or was the name of a checkpoint.
    """
    # Others would be taken for an option, hidden, or shown as another name.
    if not is_plain_name(name) or name.startswith(("-", ".")) or clean(name) != name:
        raise UsageError(f"{name!r} is not a valid checkpoint name; use one such as ckpt-0.")
    taken = {name for manifest in list_trash(run) for name in manifest.names}
    is_left = own is None and _is_leftover(run, name)
    if name in taken or (run.record(name).exists() and not is_left):
        raise RefusedError(
            f"{name} is or was the name of a checkpoint of this run; choose another name."
        )
    if not run.root.is_dir() or is_left:
        return
    if os.path.lexists(run.worker_state_directory(name)):
        raise RefusedError(f"{run.worker_state_directory(name)} exists; choose another name.")
    starts = (f"{name}.index", f"{name}.data-", f"{name}.meta")
    for file in sorted(os.listdir(run.root)):
        is_temporary = file == f"{name}{TEMPORARY}" and own is None
        if is_temporary or file.startswith(starts):
            raise RefusedError(f"{run.root / file} exists; choose another name.")


def add_derived_checkpoint(
    run: RunDirectory,
    record: CheckpointRecord,
    write: Write,
    *,
    shard_size: int | None = None,
    workers_of: CheckpointRecord | None = None,
    on_verified: Callable[[int, int], None] = lambda done, total: None,
    on_not_finite: Callable[[Sequence[NonFiniteValues]], None] = lambda tensors: None,
) -> CheckpointRecord:
    """Writes a new checkpoint, verifies it, and adds it with its record.

    Args:
        run: The run directory.
        record: Its record, without files and time.
        write: Writes the tensors.
        shard_size: Bytes after which the next tensor begins a new data file.
        workers_of: The record of the checkpoint whose workers' own state is copied; None for none.
        on_verified: Called with bytes verified and in total.
        on_not_finite: Called with the tensors that have NaN or infinite values.

    Returns:
        The record as it was stored.

    Raises:
        UsageError: The name is not a valid file name.
        RefusedError: The name is taken.
        DamagedFileError: The written files are damaged; they were deleted.
        BundleError: A source is damaged; nothing is left.
        OSError: A file cannot be read or written; nothing is left.
    """
    name = record.name
    require_free_name(run, name)
    run.require_changeable()
    _remove_killed_commands(run)
    place = parts_directory(run.root, name)
    touch = _touching(place)
    with ExitStack() as clean:
        try:
            make_marked(place)
        except FileExistsError as error:
            raise RefusedError(f"{place} exists; choose another name.") from error
        clean.callback(_remove_marked, place)
        with BundleWriter(place / name, shard_size=shard_size) as writer:
            write(writer, touch)
            paths = writer.commit()

        def show(done: int, total: int) -> None:
            touch()
            on_verified(done, total)

        verification = verify(place / name, digests=True, finite=True, on_progress=show)
        if not verification.ok:
            raise DamagedFileError(f"{name} was not written: {verification.findings[0].message}.")
        on_not_finite(verification.not_finite)
        files = [_facts(path.name, path, verification.file_checksums[path.name]) for path in paths]
        own = _copy_worker_state(run, name, workers_of, place, touch)
        stored = replace(record, files=[*files, *own], saved_at=time.time())
        # Last, so that a directory of another program stays as it was if the disk is full.
        run.create()
        _move_into_place(run, stored, place, paths)
    return stored


def _is_leftover(run: RunDirectory, name: str) -> bool:
    """Whether a killed command left files of a checkpoint, which is not there."""
    if index_lies_at(run.root / name):
        return False
    return _is_writer_gone(run, parts_directory(run.root, name))


def _is_writer_gone(run: RunDirectory, place: Path) -> bool:
    """Whether the command that wrote in a directory has ended; false for other programs."""
    newest, _, writer = look_into_temporary(place)
    if newest is None or not writer:
        return False
    gone = is_writer_gone(writer)
    # A command on another machine changes the time of the directory while it writes.
    return time.time() - newest > quiet_seconds_of(run.root) if gone is None else gone


def _remove_killed_commands(run: RunDirectory) -> None:
    """Removes what killed commands left: of a checkpoint without an index, all."""
    remove_leftovers(run.root)
    for entry in os.listdir(run.root):
        name = entry.removesuffix(TEMPORARY)
        place = run.root / entry
        if name == entry or not place.is_dir() or not _is_writer_gone(run, place):
            continue
        if _is_leftover(run, name):
            for path in run.root.iterdir():
                if path.name.startswith(f"{name}.") and owner_of(path.name) == name:
                    delete_file(path)
            remove(run.record(name))
            _remove_worker_state(run, name)
        _remove_marked(place)


def _remove_worker_state(run: RunDirectory, name: str) -> None:
    with suppress(OSError):
        delete_worker_state(run.worker_state_directory(name))


def _remove_marked(place: Path) -> None:
    """Removes a directory, which is never seen without its mark."""
    with suppress(OSError):
        delete_what_is_of_save(place, place.name)


def _move_into_place(
    run: RunDirectory, record: CheckpointRecord, place: Path, paths: Iterable[Path]
) -> None:
    """Moves all files, the index last; takes everything back if that fails."""
    name = record.name
    # Others may have taken the name in the meantime, but for our own directory.
    require_free_name(run, name, own=place)
    *data, index = paths
    with ExitStack() as undo:
        own = place / _WORKERS
        if own.is_dir():
            move(own, run.worker_state_directory(name))
            undo.callback(_remove_worker_state, run, name)
            sync_directory(run.worker_state_directory(name).parent)
        for path in data:
            move(path, run.root / path.name)
            undo.callback(delete_file, run.root / path.name)
        sync_directory(run.root)
        undo.callback(remove, run.record(name))
        store(run.record(name), record)
        # From here on the checkpoint exists.
        move(index, index_path(run.root / name))
        undo.pop_all()
    sync_directory(run.root)


def _copy_worker_state(
    run: RunDirectory,
    name: str,
    source: CheckpointRecord | None,
    place: Path,
    touch: Callable[[], None],
) -> list[FileFacts]:
    """Copies the workers' own files of another checkpoint; returns their facts.

    What its record does not name is of another program.
    """
    if source is None:
        return []
    own = worker_state_files(source.name, source.files)
    if not own:
        return []
    target = place / _WORKERS
    create_directory(target)
    copied = []
    for facts in own:
        path = run.root / facts.name
        checksum = 0
        with open_plain(path) as old, create_file(target / path.name) as new:
            size = os.fstat(old.fileno()).st_size
            if size != facts.size:
                raise DamagedFileError(f"{path} has {size} bytes; expected {facts.size}.")
            while data := old.read(_PIECE):
                checksum = crc32c(data, checksum)
                new.write(data)
                touch()
        sync_file(target / path.name)
        stored = (run.worker_state_directory(name) / path.name).relative_to(run.root)
        copied.append(_facts(stored.as_posix(), target / path.name, checksum))
    sync_directory(target)
    return copied


def _facts(name: str, path: Path, checksum: int) -> FileFacts:
    return FileFacts(name=name, size=path.stat().st_size, crc32c=checksum)


def _touching(directory: Path) -> Callable[[], None]:
    """Returns a function that shows that a directory is written to, for `catalog.scan.states`."""
    touched_at = time.monotonic()

    def touch() -> None:
        nonlocal touched_at
        if time.monotonic() - touched_at > _TOUCHED_SECONDS:
            touched_at = time.monotonic()
            disk().set_time(directory)

    return touch
