"""The terminal of the app: never waits for it forever, and notices when it is closed."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rich.console import RenderableType
from textual._compositor import CompositorUpdate
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize

from tfckpt_tui.app.terminal.cells import ChangedCells, TerminalCells

_MOST_QUEUED = 30
_SLICE_BYTES = 4096
_STALLED_SECONDS = 2.0
"""A terminal that accepts nothing for this long is stopped, not slow."""

_LEAVE_SECONDS = 2.0
_WATCH_SECONDS = 0.5

LONGEST_LEAVE_SECONDS = 15.0
"""An app whose terminal is closed ends within this time, whatever it waits for."""


class TerminalWriter(threading.Thread):
    """Writes to a terminal in a thread.

    A slow terminal delays whoever writes, so that frames do not pile up. A stopped terminal does
    not: what does not fit is dropped, and `on_resumed` asks for a whole frame later. A closed
    terminal takes everything.

    Attributes:
        is_closed: Whether the terminal was closed.
    """

    def __init__(self, fileno: int, on_resumed: Callable[[], None]) -> None:
        """Makes the thread.

        Args:
            fileno: The file descriptor of the terminal.
            on_resumed: Called in this thread once a stopped terminal has accepted everything.
        """
        super().__init__(daemon=True, name="terminal-output")
        self.is_closed = False
        self._fileno = fileno
        self._on_resumed = on_resumed
        self._changed = threading.Condition()
        self._queue: deque[str] = deque()
        self._is_stalled = False
        self._is_stopping = False
        self._takes_all = False
        self._progress_at = time.monotonic()

    def write(self, text: str) -> None:
        """Queues a text; waits for room while the terminal accepts any bytes at all."""
        with self._changed:
            if not self._has_room():
                self._is_stalled = True
            elif not self.is_closed:
                self._queue.append(text)
                self._changed.notify_all()

    def stop(self) -> None:
        """Ends the thread once everything is written, or after a limit if that takes too long."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self.join(_LEAVE_SECONDS)

    def leave(self) -> None:
        """Accepts the last texts, which restore the terminal, even if it is stopped."""
        with self._changed:
            self._takes_all = True

    def run(self) -> None:
        """Writes what is queued."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_stopping)
                if not self._queue:
                    return
                text = self._queue.popleft()
                self._progress_at = time.monotonic()
            self._write(text.encode("utf-8", "backslashreplace"))
            with self._changed:
                resumed = self._is_stalled and not self._queue and not self._takes_all
                self._is_stalled = self._is_stalled and not resumed
                self._changed.notify_all()
            if resumed:
                self._on_resumed()

    def _write(self, data: bytes) -> None:
        while data and not self.is_closed:
            try:
                data = data[os.write(self._fileno, data[:_SLICE_BYTES]) :]
            except BlockingIOError:
                select.select([], [self._fileno], [], _WATCH_SECONDS)
                continue
            except OSError:
                self.is_closed = True
            self._progress_at = time.monotonic()

    def _has_room(self) -> bool:
        while len(self._queue) >= _MOST_QUEUED and not self.is_closed and not self._takes_all:
            idle = time.monotonic() - self._progress_at
            if self._is_stalled or idle > _STALLED_SECONDS:
                return False
            self._changed.wait(_STALLED_SECONDS - idle)
        return self._takes_all or not self._is_stalled


def _is_closed(fileno: int, wait_seconds: float = 0.0) -> bool:
    """Whether a terminal is closed, or becomes so within some seconds."""
    # Not kept: Python allows one thread at a time to ask it.
    terminal = select.poll()
    terminal.register(fileno, 0)
    return any(event & select.POLLHUP for _, event in terminal.poll(wait_seconds * 1000))


class _EndOfInput(threading.Event):
    """Ends the thread that reads keys: set by the driver, or by a closed terminal.

    Textual's thread takes the end of file for a pause, and would read it forever.
    """

    def __init__(self, fileno: int) -> None:
        super().__init__()
        self._fileno = fileno

    def is_set(self) -> bool:
        """Whether no more keys are read."""
        return super().is_set() or _is_closed(self._fileno)


class TerminalDriver(LinuxDriver):
    """Textual's driver, with a writer that cannot block the app forever.

    The app ends when its terminal is closed, and draws everything again when it is continued.
    """

    _writer: TerminalWriter | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.exit_event = _EndOfInput(self.fileno)
        self._cells = TerminalCells()
        self._is_resuming = False
        self._must_resume = False

    def start_application_mode(self) -> None:
        """Starts to write, and to watch the terminal."""
        assert self._file is not None
        self._cells.forget()
        self._writer = TerminalWriter(self._file.fileno(), self._redraw_soon)
        self._writer.start()
        self._is_watching = threading.Event()
        watch = threading.Thread(
            target=self._watch, args=(self._is_watching,), name="terminal-watch", daemon=True
        )
        watch.start()
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def changed_cells(self, frame: RenderableType | None) -> RenderableType | None:
        """Returns a frame that writes only the cells that it changes."""
        return ChangedCells(self._cells, frame) if isinstance(frame, CompositorUpdate) else frame

    def redraw(self) -> None:
        """Draws every cell anew, whatever the terminal shows."""
        self._cells.forget()
        self._app.refresh(layout=True)

    def redraw_after(self, event: Resize) -> None:
        """Draws everything anew if the terminal has its size again, which Textual takes for none.

        It may have been smaller meanwhile.
        """
        if self._cells.size == event.size:
            self.redraw()

    def write(self, data: str) -> None:
        """Writes to the terminal."""
        if self._writer is not None:
            self._writer.write(data)

    def stop_application_mode(self) -> None:
        """Restores the terminal."""
        if self._writer is not None:
            self._writer.leave()
        super().stop_application_mode()

    def close(self) -> None:
        """Ends the threads."""
        self._is_watching.set()
        super().close()
        if self._writer is not None:
            self._writer.stop()

    def _sigcont_application(self, *arguments: Any) -> None:
        self._must_resume = True
        # Python may call the handler of a signal within the handler of an earlier one.
        if self._is_resuming:
            return
        self._is_resuming = True
        try:
            # The kernel also sends this signal when it closes a terminal, and anybody may send it.
            while self._must_resume and self._app.is_running:
                self._must_resume = False
                self._resume(*arguments)
        finally:
            self._is_resuming = False

    def _resume(self, *arguments: Any) -> None:
        if self._key_thread is not None and self._key_thread.is_alive():
            # Textual would start a second thread, which takes some of the keys.
            self.suspend_application_mode()
        super()._sigcont_application(*arguments)
        self._redraw_soon()

    def _redraw_soon(self) -> None:
        self._app.call_later(self.redraw)

    def _watch(self, ended: threading.Event) -> None:
        """Ends the app when the terminal is closed, also where no signal tells it.

        Args:
            ended: Set when the terminal is given back; then another thread watches the next one.
        """
        while not ended.is_set():
            if _is_closed(self.fileno, _WATCH_SECONDS):
                self._app.call_later(self._app.exit, return_code=128 + signal.SIGHUP)
                if not ended.wait(LONGEST_LEAVE_SECONDS):
                    # Nobody can see the app, or end it: it must not wait for anything.
                    os._exit(128 + signal.SIGHUP)
