"""Status files and answers to commands: written anew again and again, also on a full disk."""

from __future__ import annotations

from pathlib import Path

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.documents import Document, DocumentT, encode, load_if_there, store
from tfckpt_trainer.rundir.files import overwrite
from tfckpt_trainer.rundir.reserve import is_full


def store_status(
    path: Path, status: Document, *, if_full: Document | None = None, durable: bool = False
) -> None:
    """Replaces a status file; on a full disk, writes over the old one in place.

    Args:
        path: The status file.
        status: Its new content.
        if_full: The content to write if the disk is full; `status` if None.
        durable: Whether to flush a file that was replaced to disk.

    Raises:
        OSError: The disk refused; or it is full, and there is no plain file to write over.
    """
    try:
        store(path, status, durable=durable)
    except OSError as error:
        if not is_full(error):
            raise
        try:
            overwrite(path, encode(status if if_full is None else if_full))
        except (FileNotFoundError, DamagedFileError):
            raise error from None


def load_status(path: Path, kind: type[DocumentT]) -> DocumentT | None:
    """Reads a status file, or returns None where there is none.

    A file that is written in place may be met half written, so a damaged one is read twice.

    Raises:
        DamagedFileError: It is damaged at the second look too.
        OSError: It cannot be read.
    """
    try:
        return load_if_there(path, kind)
    except DamagedFileError:
        return load_if_there(path, kind)
