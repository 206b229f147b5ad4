"""A disk that refuses some of the calls by which the product changes it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any

from tfckpt_trainer.rundir.storage.disk import LocalDisk

CHANGES = (
    "open", "write", "flush", "rename", "remove", "make_directory", "remove_directory",
    "remove_tree", "remove_directories", "set_mode", "set_time",
)  # fmt: skip
_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class RefusingDisk(LocalDisk):
    """Refuses a call if a rule says so of its number, counted from 1.

    Attributes:
        count: How many calls were counted so far.
    """

    def __init__(self, is_refused: Callable[[int], bool], calls: Sequence[str] = CHANGES) -> None:
        self.count = 0
        self._is_refused = is_refused
        for name in calls:
            setattr(self, name, self._counted(getattr(self, name), is_open=name == "open"))

    def _counted(self, call: Callable[..., Any], *, is_open: bool) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            if not is_open or arguments[1] & _TO_WRITE:
                self.count += 1
                if self._is_refused(self.count):
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(*arguments)

        return counted
