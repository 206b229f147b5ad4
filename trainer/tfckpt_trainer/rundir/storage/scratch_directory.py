"""Temporary directories that are removed, whatever interrupts this process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
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


@contextmanager
def scratch_links(prefix: str, targets: Mapping[str, Path]) -> Iterator[Path | None]:
    """Makes symbolic links in a directory of their own, which goes at the end.

    Args:
        prefix: How the name of the directory begins.
        targets: Where each leads to, by its name.

    Yields:
        The directory; None if temporary files have no room.
    """
    with ExitStack() as stack:
        place: Path | None = None
        with suppress(OSError):
            made = stack.enter_context(scratch_directory(prefix))
            for name, target in targets.items():
                os.symlink(target, made / name)
            place = made
        yield place


def _remove(place: Path) -> None:
    # Imported here: with it come modules for compression.
    import shutil

    shutil.rmtree(place, ignore_errors=True)
