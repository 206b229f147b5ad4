"""Says why a new file cannot be written, without the names of temporary files."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.full_disk import is_full
from tfckpt_tui.formats import units

_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def explain_write_errors(
    directory: Path, needed: int, *, if_full: str, if_read_only: str
) -> Iterator[None]:
    """Replaces the errors of a full disk and of a directory that cannot be written.

    Args:
        directory: Where the file is written.
        needed: About how many bytes it takes.
        if_full: What to do if the disk or the quota is full, as a sentence.
        if_read_only: What to do if nothing can be written there, as a sentence.

    Raises:
        TfckptError: The disk or the quota is full, or the directory cannot be written.
    """
    try:
        yield
    except OSError as error:
        if is_full(error):
            free = units.size(shutil.disk_usage(directory).free)
            raise TfckptError(
                f"{directory}: {error.strerror}. Needed: about {units.size(needed)}; "
                f"free: {free}. Nothing was written. {if_full}"
            ) from error
        # It may also be a source that cannot be read.
        if error.errno in _REFUSED and not os.access(directory, os.W_OK | os.X_OK):
            raise TfckptError(
                f"{directory}: {os.strerror(error.errno)}. Nothing was written. {if_read_only}"
            ) from error
        raise
