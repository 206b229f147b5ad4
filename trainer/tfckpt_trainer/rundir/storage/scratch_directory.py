"""Temporary directories that are removed, whatever interrupts this process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfckpt_trainer.machine.held_signals import hold_signals

_LONGEST_PARENT = 60
"""Bytes of the directory above one whose path has to be short, on every system."""


@contextmanager
def scratch_directory(prefix: str, *, is_short: bool = False) -> Iterator[Path]:
    """Makes a directory for temporary files, and removes it at the end with all that is in it.

    Signals that end a command arrive a moment later while it is made: an exception then would leave
    it, or the file by which `tempfile` tries where files can be.

    Args:
        prefix: How its name begins.
        is_short: Whether its path has to be short, as that of a socket does.
    """
    place: Path | None = None
    try:
        with hold_signals():
            parent = tempfile.gettempdir()
            if is_short and len(parent) >= _LONGEST_PARENT:
                parent = "/tmp"  # noqa: S108
            place = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        yield place
    finally:
        if place is not None:
            _remove(place)


def _remove(place: Path) -> None:
    # Imported here: with it come modules for compression.
    import shutil

    shutil.rmtree(place, ignore_errors=True)
