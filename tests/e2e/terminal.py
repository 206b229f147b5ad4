"""A real terminal program in a pseudo-terminal, with a screen that a test can read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Sequence

import pyte

from waiting import wait_until

PIECE_BYTES = 4096
"""How much is put on the screen at once; more may hold a message and its end."""

SIZE_VARIABLES = {"COLUMNS", "LINES"}
"""They say the size of the terminal in which the tests run."""

KEYS = {"enter": "\r", "escape": "\x1b", "down": "\x1b[B", "up": "\x1b[A", "tab": "\t"}


class Terminal:
    """Runs a command as a person would; a context manager that leaves no process behind.

    Attributes:
        raw: Everything that the program wrote to the terminal.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 120,
        rows: int = 40,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.raw = bytearray()
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._awaited: re.Pattern[str] | None = None
        self._found: re.Match[str] | None = None
        inherited = {key: value for key, value in os.environ.items() if key not in SIZE_VARIABLES}
        self._master, slave = pty.openpty()
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**inherited, "TERM": "xterm-256color", **(environment or {})},
        )
        self._reading = True
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self._reading:
            self.close()

    def close(self) -> None:
        """Closes the terminal, as a window or an SSH connection closes."""
        self._reading = False
        self._thread.join(timeout=5)
        os.close(self._slave)
        os.close(self._master)

    def press(self, *keys: str) -> None:
        """Types keys: single characters, or names such as `enter`."""
        for key in keys:
            os.write(self._master, KEYS.get(key, key).encode())

    def text(self) -> str:
        """What is on the screen now."""
        with self._lock:
            return "\n".join(self._screen.display)

    def wait_for(self, pattern: str, timeout: float = 30) -> re.Match[str]:
        """Waits until the screen shows `pattern`, a regular expression, if only for a moment."""
        with self._lock:
            self._awaited, self._found = re.compile(pattern), None
            self._look()
        try:
            return wait_until(lambda: self._found, timeout, pattern)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None

    def wait_until_gone(self, pattern: str, timeout: float = 30) -> None:
        """Waits until the screen no longer shows `pattern`."""
        wait_until(lambda: not re.search(pattern, self.text()), timeout, f"no {pattern}")

    def settings(self) -> list[object]:
        """The settings of the terminal line: echo, raw mode."""
        return termios.tcgetattr(self._slave)

    def _read(self) -> None:
        while self._reading:
            ready, _, _ = select.select([self._master], [], [], 0.1)
            if not ready:
                continue
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            for start in range(0, len(data), PIECE_BYTES):
                with self._lock:
                    piece = data[start : start + PIECE_BYTES]
                    self.raw += piece
                    self._stream.feed(piece)
                    self._look()

    def _look(self) -> None:
        """Looks for what is awaited; a loaded machine may be too slow to do so afterwards."""
        if self._awaited is not None and self._found is None:
            self._found = self._awaited.search("\n".join(self._screen.display))
