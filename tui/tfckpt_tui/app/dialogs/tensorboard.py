"""The dialog that starts and stops TensorBoard and shows its address."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterable
from functools import partial

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.protocols import StartJob
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.processes import tensorboard
from tfckpt_tui.services.processes.tensorboard import TensorBoard

_CLOSE, _START, _START_WITH_RUN, _OPEN, _STOP = range(5)


class TensorBoardDialog(Dialog[None]):
    """Starts and stops TensorBoard; stays open until the user closes it."""

    caption = " TensorBoard "

    def __init__(
        self,
        run: RunDirectory,
        snapshot: RunSnapshot,
        selected: Checkpoint | None,
        start_job: StartJob,
        *,
        read_only: bool,
    ) -> None:
        """Makes the dialog.

        Args:
            run: The run directory.
            snapshot: The run.
            selected: The checkpoint whose branch is opened; by default the current branch.
            start_job: Runs work in a thread.
            read_only: Whether starting and stopping is disabled.
        """
        super().__init__(snapshot)
        self._branch = selected.branch if selected is not None else snapshot.branch
        self._step = selected.step if selected is not None else None
        self._run = run
        self._start_job = start_job
        self._read_only = read_only
        self._board: TensorBoard | None = None
        self._busy = "Checking whether TensorBoard runs …"
        self._problem = ""

    def on_mount(self) -> None:
        """Checks whether TensorBoard runs."""
        self._start_job("TensorBoard", lambda: tensorboard.running(self._run), self._show_board)

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns the state and the addresses."""
        if self._busy:
            yield (("◌ ", "busy"), (self._busy, "busy"))
            return
        board = self._board
        if board is None:
            yield (("○ ", "muted"), ("not running", "muted"))
            yield (("It listens only on the loopback address of this machine.", "muted"),)
            if self.snapshot.state not in HAS_ENDED:
                yield (("w", "key"), (" starts it until the run ends.", "muted"))
            return
        until = ", until the run ends" if board.with_run else ""
        yield (("● ", "good"), ("running", "good"), (f"  process {board.pid}{until}", "muted"))
        yield ()
        yield (("address      ", "label"), (board.url, "strong"))
        if board.user:
            yield (("started by   ", "label"), (clean(board.user), "warn"))
        if self._step is not None:
            where = f"the curves of branch {self._branch}; see step {self._step:,}"
            yield (("opens        ", "label"), (where, "value"))
        yield (("over SSH     ", "label"), (clean(board.forward_line), "value"))
        yield (("event files  ", "label"), (clean(board.directory), "muted"))
        if tensorboard.is_remote():
            yield ()
            yield (("Run the SSH command on your own machine, then open the address there.", ""),)

    def choices(self) -> list[Choice[None]]:
        """Returns close, start, open and stop."""
        return [
            Choice("c", "close", None),
            Choice("s", "start", None, "primary"),
            Choice("w", "with run", None),
            Choice("o", "open", None),
            Choice("x", "stop", None),
        ]

    def can_choose(self, place: int) -> bool:
        """Returns whether a button is enabled."""
        idle = not self._busy
        can_start = idle and self._board is None and not self._read_only
        return {
            _CLOSE: True,
            _START: can_start,
            _START_WITH_RUN: can_start and self.snapshot.state not in HAS_ENDED,
            _OPEN: idle and self._board is not None and has_browser(),
            _STOP: idle and self._board is not None and not self._read_only,
        }[place]

    def take(self, choice: Choice[None]) -> None:
        """Performs a choice; only `close` closes the dialog."""
        board = self._board
        if choice.key in {"s", "w"}:
            self._wait("Starting TensorBoard; this takes a few seconds …")
            start = partial(tensorboard.start, self._run, with_run=choice.key == "w")
            self._start_job("TensorBoard", start, self._show_board)
        elif choice.key == "x":
            self._wait("Stopping …")
            self._start_job("TensorBoard", self._stop, self._show_board)
        elif choice.key == "o" and board is not None:
            self._start_job("browser", lambda: webbrowser.open(board.url_of(self._branch)))
        else:
            self.dismiss(None)

    def _stop(self) -> None:
        tensorboard.stop(self._run)

    def report_failure(self, what: str, problem: str) -> None:
        """Shows a failure; the dashboard shows it too."""
        if what == "TensorBoard":
            self._problem = problem
            self._show_board(self._board)

    def refusal(self) -> str:
        """Returns the message of the last failure."""
        return self._problem

    def _wait(self, words: str) -> None:
        self._busy, self._problem = words, ""
        self.update_text()

    def _show_board(self, board: TensorBoard | None) -> None:
        self._board, self._busy = board, ""
        self.update_text()


def has_browser() -> bool:
    """Returns whether a graphical browser can open; one in the terminal would replace the app."""
    if tensorboard.is_remote():
        return False
    if sys.platform == "darwin":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
