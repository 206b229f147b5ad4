"""Passes the output of a child process on.

A child process that cannot be killed would keep a pipe open, and its reader would wait for it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

_LARGEST_READ = 1 << 16


class RelayedOutput:
    """The standard output and error of a child process, unless they are a terminal.

    Create it before the fork. Then call `redirect` in the child process, and `opened` in this one.

    Attributes:
        sources: What to read in this process, and where to write it.
    """

    def __init__(self) -> None:
        self.sources: dict[int, int] = {}
        self._redirected: list[tuple[int, int]] = []
        targets = [one for one in (sys.stdout, sys.stderr) if one is not None]
        for number in (stream.fileno() for stream in targets if not stream.isatty()):
            same = next((n for _, n in self._redirected if _is_same(n, number)), None)
            if same is not None:
                line = next(line for line, n in self._redirected if n == same)
            else:
                source, line = os.pipe()
                self.sources[source] = number
            self._redirected.append((line, number))

    def redirect(self) -> None:
        """Has this process, the child, write to the other one."""
        for source in self.sources:
            os.close(source)
        for line, number in self._redirected:
            os.dup2(line, number)
        self._close_lines()

    def opened(self) -> None:
        """Prepares this process for reading."""
        self._close_lines()

    def pass_on(self, source: int) -> bool:
        """Writes what is there to read; returns False at the end of the output."""
        data = os.read(source, _LARGEST_READ)
        try:
            while data:
                data = data[os.write(self.sources[source], data) :]
                if not data:
                    return True
        except BrokenPipeError:
            pass
        # The child process learns from it that nobody reads.
        os.close(source)
        del self.sources[source]
        return False

    def finish(self) -> None:
        """Passes on what was written so far, without waiting for more."""
        for source in list(self.sources):
            os.set_blocking(source, False)
            with suppress(BlockingIOError):
                while self.pass_on(source):
                    pass

    def close(self) -> None:
        """Stops reading."""
        for source in self.sources:
            os.close(source)
        self.sources.clear()

    def _close_lines(self) -> None:
        for line in {line for line, _ in self._redirected}:
            os.close(line)


def _is_same(one: int, other: int) -> bool:
    return os.path.samestat(os.fstat(one), os.fstat(other))
