"""Disks that tell of each call by which the product changes them, or refuse some."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tfckpt_trainer.rundir.storage.disk import LocalDisk

CHANGES = (
    "open", "write", "flush", "rename", "remove", "make_directory", "remove_directory",
    "remove_tree", "remove_directories", "set_mode", "set_time",
)  # fmt: skip
_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Call(NamedTuple):
    """A call that changes a disk.

    Attributes:
        number: Its number, counted from 1.
        name: One of `CHANGES`.
        arguments: What it is called with.
    """

    number: int
    name: str
    arguments: tuple[Any, ...]


class WatchedDisk(LocalDisk):
    """Tells of each call before it is made. An error that this raises is that of the call.

    Attributes:
        count: How many calls there were so far.
    """

    def __init__(
        self, before: Callable[[Call], object] = bool, calls: Sequence[str] = CHANGES
    ) -> None:
        """Makes a disk.

        Args:
            before: Called with each call.
            calls: Which calls are told and counted.
        """
        self.count = 0
        self._before = before
        for name in calls:
            setattr(self, name, self._watched(name, getattr(self, name)))

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            if name != "open" or arguments[1] & _TO_WRITE:
                self.count += 1
                self._before(Call(self.count, name, arguments))
            return call(*arguments)

        return watched


class RefusingDisk(WatchedDisk):
    """Refuses a call if a rule says so of its number, counted from 1."""

    def __init__(self, is_refused: Callable[[int], bool], calls: Sequence[str] = CHANGES) -> None:
        def refuse(call: Call) -> None:
            if is_refused(call.number):
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        super().__init__(refuse, calls)
