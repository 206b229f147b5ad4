"""Deletes checkpoints for good without the trash, which works on a full disk.

The index files go first, so that at every moment a checkpoint is complete or gone. What is left if
that is interrupted is still known to be a checkpoint, by its record. Without one, its index waits
in `NAME_temp` until the data is deleted. A disk without room for that directory has none for the
first checkpoint alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.catalog.directory.pins import is_pinned
from tfckpt_trainer.catalog.directory.save_directories import (
    delete_what_is_of_save,
    parts_directory,
)
from tfckpt_trainer.catalog.directory.trash import locked_trash
from tfckpt_trainer.catalog.retention.emptying import Emptied, delete_part, require_permission
from tfckpt_trainer.catalog.retention.prune import files_of, require_prunable
from tfckpt_trainer.catalog.retention.state_list import remove_from_state_file
from tfckpt_trainer.catalog.scan.named_checkpoints import scan_for_prune
from tfckpt_trainer.catalog.scan.protection import NOT_IN_USE, require_proven
from tfckpt_trainer.errors import RefusedError, describe_error
from tfckpt_trainer.rundir.disk_reserve import keep_reserve, release_reserve
from tfckpt_trainer.rundir.full_disk import DiskFullError
from tfckpt_trainer.rundir.heartbeats.writer_marks import make_marked, remove_leftovers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import move, sync_directory


def delete_for_good(
    run: RunDirectory,
    names: Sequence[str],
    *,
    now: float,
    update_state_file: bool,
    in_use: Mapping[str, str] = NOT_IN_USE,
    on_progress: Callable[[int], None] | None = None,
    on_interrupt: Callable[[Emptied], object] = lambda emptied: None,
) -> Emptied:
    """Deletes checkpoints for good; needs no free disk space.

    Args:
        run: The run directory; the caller holds its lock or is its trainer.
        names: The checkpoints.
        now: Seconds since the epoch.
        update_state_file: Whether to remove them from TensorFlow's state file.
        in_use: Names of checkpoints that another process may read or write, each with the reason.
        on_progress: Called after each file with the bytes freed so far.
        on_interrupt: Called with what is gone, if a signal ends it before all is deleted.

    Raises:
        UsageError: A checkpoint does not exist, or no name was given.
        RefusedError: A checkpoint is protected, or not known to be one; nothing was deleted.
        OSError: The directory cannot be read, or a deletion was not flushed.
    """
    run.require_changeable()
    release_reserve(run)
    with _locked_if_possible(run):
        catalog, checkpoints = scan_for_prune(run, names, in_use, now)
        catalog.refuse_newer()
        chosen = require_prunable(checkpoints, names, in_use, "deleted")
        require_proven(run.root, chosen)
        files = {
            checkpoint.name: [path for path, _ in files_of(run, catalog.evidence(checkpoint.name))]
            for checkpoint in chosen
        }
        deletion = _Deletion(run, on_progress)
        try:
            deletion.delete_indexes(files)
            gone = frozenset(deletion.gone)
            remaining = [checkpoint for checkpoint in checkpoints if checkpoint.name not in gone]
            listed = not update_state_file
            with suppress(OSError):
                if not listed:
                    remove_from_state_file(run, gone, remaining)
                    listed = True
            for name in deletion.gone:
                deletion.delete_data(name, files[name])
            if not listed:
                # There may be room for the state file now.
                deletion.attempt(lambda: remove_from_state_file(run, gone, remaining))
        except (KeyboardInterrupt, SystemExit):
            if deletion.gone:
                on_interrupt(deletion.done())
            raise
    keep_reserve(run)
    return deletion.done()


class _Deletion:
    """Deletes files; a failure does not stop the others.

    Attributes:
        gone: The checkpoints whose indexes are gone, in their order; the others stay whole.
    """

    def __init__(self, run: RunDirectory, on_progress: Callable[[int], None] | None) -> None:
        self._run = run
        self._on_progress = on_progress
        self._freed = 0
        self._problems: list[str] = []
        self.gone: list[str] = []
        self._kept: set[Path] = set()

    def delete_indexes(self, files: Mapping[str, Sequence[Path]]) -> None:
        """Deletes the index files, by which checkpoints exist.

        Args:
            files: All files of each checkpoint.
        """
        for name in files:
            if is_pinned(self._run, name):
                raise RefusedError(
                    f"{name} cannot be deleted: it was just pinned. Nothing was changed."
                )
        with suppress(OSError):
            remove_leftovers(self._run.root)
        changed: set[Path] = set()
        for name, paths in files.items():
            if not self.attempt(partial(require_permission, paths)):
                continue
            indexes = [path for path in paths if path.suffix == ".index"]
            if not self._run.record(name).exists():
                self._keep_index(name)
            # That of a save that is not committed comes before that of the checkpoint.
            if all(self.delete(path) for path in reversed(indexes)):
                self.gone.append(name)
            changed |= {path.parent for path in indexes}
        for directory in changed:
            # Flushed before the data: a power loss must not restore an index without data.
            sync_directory(directory)

    def _keep_index(self, name: str) -> None:
        """Moves an index to where it shows what the data is, and TensorFlow does not find it."""
        index, kept = index_path(self._run.root / name), self._aside(name)
        with suppress(OSError):
            make_marked(kept)
            try:
                move(index, kept / index.name)
                self._kept.add(kept)
            except OSError:
                delete_what_is_of_save(kept, kept.name)
                raise

    def delete_data(self, name: str, paths: Sequence[Path]) -> None:
        """Deletes the other files of a checkpoint, then its index if that waits for them."""
        are_gone = [self.delete(path) for path in paths]
        if all(are_gone) and self._aside(name) in self._kept:
            self.delete(self._aside(name))

    def _aside(self, name: str) -> Path:
        return parts_directory(self._run.root, name)

    def delete(self, path: Path) -> bool:
        """Deletes a file of a checkpoint; returns whether it is gone."""
        return self.attempt(lambda: self._delete(path))

    def attempt(self, act: Callable[[], object]) -> bool:
        """Runs a step whose failure does not stop the others; returns whether it was done."""
        try:
            act()
        except OSError as error:
            self._problems.append(f"{describe_error(error)}.")
            return False
        return True

    def done(self) -> Emptied:
        """Returns the result."""
        return Emptied(self._freed, tuple(self.gone), problems=tuple(self._problems))

    def _delete(self, path: Path) -> None:
        freed = delete_part(path, str(path.relative_to(self._run.root)))
        if freed is None:
            return
        self._freed += freed
        if self._on_progress is not None:
            self._on_progress(self._freed)


@contextmanager
def _locked_if_possible(run: RunDirectory) -> Iterator[None]:
    """Locks the trash, unless the disk has no room for the directory of the lock.

    Without that directory no trainer of this library has run there, and no one else can lock.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked_trash(run))
        except DiskFullError:
            if run.control.exists():
                raise
        yield
