"""TensorBoard beside the run: whether it runs, where it is found, from here and over SSH."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterable
from functools import partial

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.rundir.health import HAS_ENDED
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.protocols import StartJob
from tfckpt_tui.app.widgets.base.painting import Span
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services import tensorboard
from tfckpt_tui.services.tensorboard import TensorBoard

_CLOSE, _START, _START_WITH_RUN, _OPEN, _STOP = range(5)


class TensorBoardDialog(Dialog[None]):
    """Starts and stops it; stays open until it is closed."""

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
            snapshot: Of the run.
            selected: The checkpoint whose branch is opened; by default the one in training.
            start_job: Starts work in a thread.
            read_only: Whether it may be neither started nor stopped.
        """
        super().__init__(snapshot)
        self._branch = selected.branch if selected is not None else snapshot.branch
        self._step = selected.step if selected is not None else None
        self._run = run
        self._start_job = start_job
        self._read_only = read_only
        self._board: TensorBoard | None = None
        self._busy = "Looking whether it runs …"
        self._problem = ""

    def on_mount(self) -> None:
        """Looks whether it runs already."""
        self._start_job("TensorBoard", lambda: tensorboard.running(self._run), self._take_board)

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns its state and its addresses."""
        if self._busy:
            yield (("◌ ", "busy"), (self._busy, "busy"))
            return
        board = self._board
        if board is None:
            yield (("○ ", "muted"), ("not running", "muted"))
            yield (("It would listen on this machine's loopback address only.", "muted"),)
            if self.snapshot.state not in HAS_ENDED:
                yield (("w", "key"), (" starts it for as long as the run goes on.", "muted"))
            return
        until = ", until the run ends" if board.with_run else ""
        yield (("● ", "good"), ("running", "good"), (f"  process {board.pid}{until}", "muted"))
        yield ()
        yield (("address      ", "label"), (board.url, "strong"))
        if self._step is not None:
            where = f"the curves of branch {self._branch}; look at step {self._step:,}"
            yield (("opens        ", "label"), (where, "value"))
        yield (("over SSH     ", "label"), (clean(board.forward_line), "value"))
        yield (("event files  ", "label"), (clean(board.directory), "muted"))
        if tensorboard.is_remote():
            yield ()
            yield (("Type the SSH line on your own machine, then open the address there.", ""),)

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
        """Whether a choice makes sense in the present state."""
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
        """Does what was chosen; only close closes the dialog."""
        board = self._board
        if choice.key in {"s", "w"}:
            self._wait("Starting; this takes a few seconds …")
            start = partial(tensorboard.start, self._run, with_run=choice.key == "w")
            self._start_job("TensorBoard", start, self._take_board)
        elif choice.key == "x":
            self._wait("Stopping …")
            self._start_job("TensorBoard", self._stop, self._take_board)
        elif choice.key == "o" and board is not None:
            self._start_job("browser", lambda: webbrowser.open(board.url_of(self._branch)))
        else:
            self.dismiss(None)

    def _stop(self) -> None:
        tensorboard.stop(self._run)

    def report_failure(self, what: str, problem: str) -> None:
        """Says what did not work; the dashboard keeps it in sight as well."""
        if what == "TensorBoard":
            self._problem = problem
            self._take_board(self._board)

    def refusal(self) -> str:
        """Returns what did not work."""
        return self._problem

    def _wait(self, words: str) -> None:
        self._busy, self._problem = words, ""
        self.update_text()

    def _take_board(self, board: TensorBoard | None) -> None:
        self._board, self._busy = board, ""
        self.update_text()


def has_browser() -> bool:
    """Whether there is a screen for a browser; one in the terminal would take ours away."""
    if tensorboard.is_remote():
        return False
    if sys.platform == "darwin":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
