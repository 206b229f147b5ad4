"""The directories of a checkpoint `NAME`: those with the state of its workers, and `NAME_temp`.

In that one TensorFlow writes the checkpoint in parts. Commands of this library write in one too,
and put a mark into it. Directories of others may have such a name, so only the content tells.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tfckpt_trainer.machine.permissions import CONTROL
from tfckpt_trainer.rundir.paths import WRITER
from tfckpt_trainer.rundir.storage.files import (
    create_directory,
    delete_file,
    delete_if_empty,
    delete_tree,
    list_directory,
    rename,
)

TEMPORARY = "_temp"
"""What the name of the directory of parts ends with."""

_WORKERS = ".tfckpt/workers/"

# Patterns are compiled when they are used: most scans find nothing of a save.
_FILE = r"\.(index|data-\d{5}-of-\d{5})(\.tempstate\d+)?"

_PART = rf"part-\d{{5}}-of-\d{{5}}{_FILE}"
"""What TensorFlow writes: parts of a checkpoint, one for each device."""

_UNCOMMITTED = r"index|data-\d{5}"
"""What this library writes before the checkpoint is whole."""

_WORKER_NAME = r"(worker-\d+|untracked)"
_OF_WORKER = rf"{_WORKER_NAME}({_FILE}|\.json)"
_PARTS_OF_WORKER = rf"{_WORKER_NAME}{TEMPORARY}"
"""What workers write of their own state: files, and meanwhile directories of parts."""

_PRIVATE = "writing-"
_PRIVATE_DIRECTORY = rf"{_PRIVATE}[0-9a-f]{{16}}"
_UNFINISHED = (
    rf"(?s){_PRIVATE_DIRECTORY}|.+{TEMPORARY}|\..+\.[0-9a-f]+\.tmp|.+(\.json(\.copy)?|{_FILE})"
)
"""What saves write in `saving/`, before it is in view."""

_OF_CHECK = rf"(?s)checkpoint|ckpt-.+{_FILE}|\..+\.[0-9a-f]+\.tmp"
"""Files that a save makes in a run directory, and what it writes first."""


def parts_directory(root: Path, name: str) -> Path:
    """Returns where TensorFlow writes a checkpoint in parts."""
    return root / f"{name}{TEMPORARY}"


def look_into_temporary(directory: str | Path) -> tuple[float | None, float | None, str]:
    """Returns the newest time of a directory with its content, that of the content, and its mark.

    The mark is that of the command of this library that writes there; empty if none does. The
    directory is that of a save if it holds what saves write, and nothing else.

    Returns:
        The times in seconds since the epoch; None, None and an empty mark if no save made it.
    """
    newest: float | None = None
    try:
        own = os.lstat(directory).st_mtime
        with os.scandir(directory) as entries:
            content = {entry.name: entry for entry in entries}
        mark = _mark_among(content)
        if not content or not all(map(_written_in(directory, mark), content.values())):
            return None, None, ""
        content.pop(mark, None)
        for entry in content.values():
            with suppress(FileNotFoundError):
                newest = max(newest or 0.0, entry.stat(follow_symlinks=False).st_mtime)
    except OSError:
        # Its save has just ended, or nobody here may know what it holds.
        return None, None, ""
    return max(own, newest or 0.0), newest, mark.removeprefix(WRITER)


def is_of_save(directory: Path, name: str) -> bool:
    """Whether a directory is one that a save makes.

    Args:
        directory: The directory.
        name: Its path in the run directory.
    """
    if name.startswith(_WORKERS):
        return True
    return name.endswith(TEMPORARY) and look_into_temporary(directory)[0] is not None


def delete_what_is_of_save(directory: Path, name: str) -> None:
    """Deletes what saves wrote in a directory, and the directory if it is empty then.

    Args:
        directory: The directory.
        name: Its path in the run directory.

    Raises:
        OSError: It cannot be read, or a part of it cannot be deleted.
    """
    if name.startswith(_WORKERS):
        delete_worker_state(directory)
        return
    content = list_directory(directory)
    mark = _mark_among(entry.name for entry in content)
    is_written = _written_in(name, mark)
    # The mark last: who is killed in between leaves a directory that is known.
    for entry in sorted(content, key=lambda entry: entry.name == mark):
        if is_written(entry) and entry.is_dir(follow_symlinks=False):
            delete_tree(Path(entry.path))
        elif is_written(entry):
            delete_file(Path(entry.path))
    delete_if_empty(directory)


def is_of_worker(entry: os.DirEntry[str]) -> bool:
    """Whether an entry of a directory of workers' own state is a file that they write there."""
    return _is_file(entry, _OF_WORKER)


def delete_worker_state(directory: Path) -> None:
    """Deletes what workers wrote in the directory of their own state, and it if it is empty then.

    Raises:
        OSError: It cannot be read, or a part of it cannot be deleted.
    """
    for entry in list_directory(directory):
        if is_of_worker(entry):
            delete_file(Path(entry.path))
        elif entry.is_dir(follow_symlinks=False) and re.fullmatch(_PARTS_OF_WORKER, entry.name):
            _delete_parts(Path(entry.path))
    delete_if_empty(directory)


def is_of_unfinished_save(name: str) -> bool:
    """Whether something in `saving/` has a name that saves give there."""
    return re.fullmatch(_UNFINISHED, name) is not None


def delete_unfinished(entry: os.DirEntry[str]) -> None:
    """Deletes something in `saving/`; of a directory, what saves write there.

    Raises:
        OSError: It cannot be deleted.
    """
    path = Path(entry.path)
    if not entry.is_dir(follow_symlinks=False):
        delete_file(path)
    elif entry.name.endswith(TEMPORARY):
        _delete_parts(path)
    elif re.fullmatch(_PRIVATE_DIRECTORY, entry.name):
        delete_tree(path)


@contextmanager
def private_directory(saving: Path) -> Iterator[Path]:
    """Makes a directory in `saving/` in which nobody else can put anything, and removes it again.

    TensorFlow opens what it writes by name: where others may write, that can be a link or a pipe.

    Raises:
        OSError: It cannot be made.
    """
    directory = saving / f"{_PRIVATE}{os.urandom(8).hex()}"
    create_directory(directory, is_private=True)
    try:
        yield directory
    finally:
        with suppress(OSError):
            delete_tree(directory)


def move_files(source: Path, target: Path) -> None:
    """Moves all that a directory has to another one, in place of what is there.

    Raises:
        OSError: Something cannot be moved.
    """
    for entry in list_directory(source):
        rename(Path(entry.path), target / entry.name)


def delete_checkpoint_of_check(directory: Path) -> None:
    """Deletes the run directory of a check, if it exists; what no save writes there stays.

    Raises:
        OSError: It cannot be read, or a part of it cannot be deleted.
    """
    for entry in list_directory(directory):
        if _is_file(entry, _OF_CHECK):
            delete_file(Path(entry.path))
        elif entry.name == CONTROL and entry.is_dir(follow_symlinks=False):
            delete_tree(Path(entry.path))
    delete_if_empty(directory)


def _delete_parts(directory: Path) -> None:
    """Deletes what saves write in a directory below `.tfckpt`, and it if it is empty then."""
    for entry in list_directory(directory):
        if _is_file(entry, _PART) or _is_file(entry, _UNCOMMITTED):
            delete_file(Path(entry.path))
    delete_if_empty(directory)


def _mark_among(names: Iterable[str]) -> str:
    return next((name for name in names if name.startswith(WRITER)), "")


def _written_in(directory: str | Path, mark: str) -> Callable[[os.DirEntry[str]], bool]:
    """Returns what tells whether a save wrote an entry of its directory.

    Args:
        directory: The directory, or its path elsewhere.
        mark: The mark of the command that writes there; empty for TensorFlow.
    """
    if not mark:
        return lambda entry: _is_file(entry, _PART)
    name = re.escape(os.path.basename(directory).removesuffix(TEMPORARY))
    own = rf"(?s){re.escape(mark)}|{name}{_FILE}"
    below = {os.path.basename(directory): _UNCOMMITTED, "workers": _OF_WORKER}

    def is_written(entry: os.DirEntry[str]) -> bool:
        if _is_file(entry, own):
            return True
        files = below.get(entry.name)
        if files is None or not entry.is_dir(follow_symlinks=False):
            return False
        with os.scandir(entry.path) as inside:
            return all(_is_file(one, files) for one in inside)

    return is_written


def _is_file(entry: os.DirEntry[str], names: str) -> bool:
    is_named = re.fullmatch(names, entry.name) is not None
    return is_named and entry.is_file(follow_symlinks=False)
