"""Says what a full disk lacks, when a new file does not fit."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfckpt_trainer.errors import TfckptError
from tfckpt_tui.formats import units

_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def explain_full_disk(directory: Path, needed: int, advice: str) -> Iterator[None]:
    """Replaces the error of a full disk by one that says how much is needed and free.

    Args:
        directory: Where the file is written.
        needed: About how many bytes it takes.
        advice: What to do, as a sentence.

    Raises:
        TfckptError: The disk or the quota is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        free = units.size(shutil.disk_usage(directory).free)
        raise TfckptError(
            f"{directory}: {os.strerror(error.errno)}. Needed: about {units.size(needed)}; free: "
            f"{free}. Nothing was written. {advice}"
        ) from error
