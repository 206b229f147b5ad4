"""The directories of a checkpoint `NAME`: those with the state of its workers, and `NAME_temp`.

In that one TensorFlow writes the checkpoint in parts. Commands of this library write in one too,
and put a mark into it. Directories of others may have such a name, so only the content tells.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.rundir.storage.files import delete_file, delete_tree, list_directory

TEMPORARY = "_temp"
"""What the name of the directory ends with."""

_WORKERS = ".tfckpt/workers/"

WRITER = ".writer-"
"""What the name of the file begins with that marks the command that writes there."""

_PART = re.compile(r"part-\d{5}-of-\d{5}\.(index|data-\d{5}-of-\d{5})(\.tempstate\d+)?")
"""What TensorFlow writes: parts of a checkpoint, one for each device."""


def look_into_temporary(directory: str | Path) -> tuple[float | None, float | None, str]:
    """Returns the newest time of a directory with its content, that of the content, and its mark.

    The mark is that of the command of this library that writes there; empty if none does. Without
    it, the directory is that of a save if it holds parts of a checkpoint, and nothing else.

    Returns:
        The times in seconds since the epoch; None, None and an empty mark if no save made it.
    """
    newest: float | None = None
    try:
        own = os.lstat(directory).st_mtime
        with os.scandir(directory) as entries:
            content = {entry.name: entry for entry in entries}
        mark = next((name for name in content if name.startswith(WRITER)), "")
        content.pop(mark, None)
        if not mark and not (content and all(map(_is_part, content.values()))):
            return None, None, ""
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

    All that is in a marked directory is of the command that made it.

    Args:
        directory: The directory.
        name: Its path in the run directory.

    Raises:
        OSError: It cannot be read, or a part of it cannot be deleted.
    """
    if name.startswith(_WORKERS) or look_into_temporary(directory)[2]:
        delete_tree(directory)
        return
    for entry in list_directory(directory):
        if _is_part(entry):
            delete_file(directory / entry.name)
    with suppress(OSError):
        os.rmdir(directory)


def _is_part(entry: os.DirEntry[str]) -> bool:
    """Whether TensorFlow wrote a file."""
    return _PART.fullmatch(entry.name) is not None and entry.is_file(follow_symlinks=False)
