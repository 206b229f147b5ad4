"""The base of apps with actions: their keys, jobs in threads, and failures that stay until read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from textual import on
from textual.keys import format_key
from textual.message import Message

from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_tui.app.actions.action import AppAction
from tfckpt_tui.app.actions.table import ACTIONS, DEFAULT_KEYS
from tfckpt_tui.app.base_app import BaseApp, ResultT
from tfckpt_tui.app.run_progress import RunProgress
from tfckpt_tui.app.widgets.run.progress import ProgressBar
from tfckpt_tui.formats.text import clean_message
from tfckpt_tui.settings.config import Config


class JobDone(Message):
    """A job ended.

    Attributes:
        result: What it returned.
        then: Receives the result, in the thread of the app.
    """

    def __init__(self, result: Any, then: Callable[[Any], None]) -> None:
        super().__init__()
        self.result = result
        self.then = then


class JobFailed(Message):
    """A job failed.

    Attributes:
        what: The name of the action.
        problem: The message of the error, safe to show.
        otherwise: Receives the message; None shows it until the user dismisses it.
    """

    def __init__(
        self, what: str, problem: str, otherwise: Callable[[str], None] | None = None
    ) -> None:
        super().__init__()
        self.what = what
        self.problem = problem
        self.otherwise = otherwise


class JobApp(BaseApp[ResultT]):
    """Runs jobs in threads, and shows what they failed with.

    Attributes:
        progress: Commands of the run, and failures that the user has not dismissed.
        ended: Is set when the app has ended; no job waits for an answer any longer.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.progress = RunProgress()
        self.ended = threading.Event()

    def on_unmount(self) -> None:
        """Ends the jobs that wait for an answer."""
        self.ended.set()

    # -- for subclasses ------------------------------------------------------------------------

    @property
    def actions(self) -> Sequence[AppAction]:
        """All actions of the dashboard."""
        return ACTIONS

    def job_ended(self) -> None:
        """Takes note that a job may have changed something."""

    def job_failed(self, what: str, problem: str) -> None:
        """Shows a failure until the user dismisses it; both texts are safe to show."""
        self.progress.report_failure(what, problem)
        self.update_progress()

    def update_progress(self) -> None:
        """Shows changed commands and failures on all screens."""
        for screen in self.screen_stack:
            for bar in screen.query(ProgressBar):
                bar.update()

    # -- keys ----------------------------------------------------------------------------------

    @property
    def default_keys(self) -> dict[str, str]:
        """The key of each action that the configuration file cannot define, unless it says so."""
        return DEFAULT_KEYS

    def key_of(self, action: str) -> str:
        """Returns the key of an action of the dashboard, as users see it.

        For an action without a key, it is that of the palette, which has all actions.
        """
        key = next(entry.key_in(self.config) for entry in self.actions if entry.name == action)
        return format_key(key or self.COMMAND_PALETTE_BINDING)

    # -- jobs in threads -----------------------------------------------------------------------

    def start_job(
        self,
        what: str,
        work: Callable[[], Any],
        then: Callable[[Any], None] = lambda result: None,
        otherwise: Callable[[str], None] | None = None,
        *,
        progress: str = "",
    ) -> None:
        """Runs `work` in a daemon thread, which does not delay quitting.

        Args:
            what: The name of the action, for the message if it fails.
            work: Runs in the thread; may raise `TfckptError` and `OSError`.
            then: Receives the result, in the thread of the app.
            otherwise: Receives the message of a failure, safe to show, in the thread of the app;
                by default the failure is shown until the user dismisses it.
            progress: Says what is in progress, for a toast that goes when the job ends.
        """
        shown = clean_message(progress)
        if shown:
            self.notify(shown, markup=False)

        def run() -> None:
            try:
                result = work()
            except (TfckptError, OSError) as error:
                self._post_failure(what, error, otherwise)
            else:
                self.post_message(JobDone(result, then))
            finally:
                if shown:
                    self.call_later(self.remove_toast, shown)

        threading.Thread(target=run, name=f"job: {what}", daemon=True).start()

    def _post_failure(
        self, what: str, error: Exception, otherwise: Callable[[str], None] | None
    ) -> None:
        problem = clean_message(describe_error(error, self.key_of))
        self.post_message(JobFailed(what, problem, otherwise))

    @on(JobDone)
    def _end_job(self, message: JobDone) -> None:
        message.then(message.result)
        self.job_ended()

    @on(JobFailed)
    def _fail_job(self, message: JobFailed) -> None:
        if message.otherwise is not None:
            message.otherwise(message.problem)
        else:
            self.job_failed(message.what, message.problem)
