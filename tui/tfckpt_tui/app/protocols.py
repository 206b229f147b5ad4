"""What the app, its screens and the actions of the dashboard expect of each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import msgspec
from textual.app import App
from textual.message_pump import MessagePump

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.other_formats import OtherFile
from tfckpt_trainer.catalog.directory.version_one import VersionOne
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.words.advice import Advice
from tfckpt_tui.app.run_progress import RunProgress
from tfckpt_tui.charting.choices import ChartChoices
from tfckpt_tui.formats.sort_order import ListOrder
from tfckpt_tui.monitor.background_verifier import BackgroundVerifier, VerificationOutcome
from tfckpt_tui.monitor.own_actions import ActionQueue
from tfckpt_tui.monitor.snapshot import NewestRows, RunSnapshot
from tfckpt_tui.monitor.worker_history import WorkerHistory
from tfckpt_tui.settings.config import Config


class Selection(msgspec.Struct, frozen=True):
    """The checkpoints that an action applies to.

    Attributes:
        selected: The checkpoint under the cursor.
        marked: The marked checkpoints, in the order in which they were marked.
        unsupported: The checkpoint in TensorFlow's V1 format, or the file of another format, under
            the cursor.
        marks_are_gone: Whether checkpoints were marked, and all of these are gone.
    """

    selected: Checkpoint | None = None
    marked: tuple[Checkpoint, ...] = ()
    unsupported: VersionOne | OtherFile | None = None
    marks_are_gone: bool = False

    @property
    def all(self) -> tuple[Checkpoint, ...]:
        """The marked checkpoints, or the selected one if none is marked."""
        if self.marked or self.marks_are_gone or self.selected is None:
            return self.marked
        return (self.selected,)


class ActionInfo(Protocol):
    """An action of the dashboard, as screens show it."""

    @property
    def name(self) -> str:
        """Its name in `[keys]` of the configuration."""

    @property
    def key(self) -> str:
        """Its key by default, as Textual names keys; several separated by commas."""

    @property
    def label(self) -> str:
        """One or two words for the footer."""

    @property
    def title(self) -> str:
        """A short imperative sentence."""

    @property
    def help(self) -> str:
        """Details."""

    def key_in(self, config: Config) -> str:
        """Returns the key that a configuration gives it; the first of several."""


@runtime_checkable
class ShowsSnapshots(Protocol):
    """A screen that shows the newest snapshot while it is open."""

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot."""


@runtime_checkable
class ShowsVerifications(Protocol):
    """A screen that shows the outcome of verifications."""

    def show_verification(self, outcome: VerificationOutcome) -> None:
        """Shows the outcome of a verification."""


@runtime_checkable
class ShowsFailures(Protocol):
    """A screen that shows failed actions."""

    def report_failure(self, what: str, problem: str) -> None:
        """Shows that the action `what` failed; both texts are safe to show."""


@runtime_checkable
class PerformsActions(Protocol):
    """A screen whose actions and checkpoints the palette offers."""

    @property
    def snapshot(self) -> RunSnapshot | None:
        """The newest snapshot; None before the first one."""

    def action_perform(self, name: str) -> None:
        """Performs the action called `name`, or shows why it is unavailable."""

    def why_unavailable(self, name: str) -> str:
        """Returns why the action called `name` is unavailable now; empty if it is available."""

    def go_to(self, place: str | int) -> None:
        """Selects the checkpoint with this name, or the one nearest to this step."""


class ActsOnCheckpoints(Protocol):
    """Performs the actions of the dashboard on a checkpoint that another screen shows."""

    def perform_on(self, name: str, checkpoint: Checkpoint) -> None:
        """Performs an action, or shows why it is unavailable."""

    def can_perform_on(self, name: str, checkpoint: Checkpoint) -> bool:
        """Whether an action is available for this checkpoint."""


class StartJob(Protocol):
    """Runs work in a thread, and passes the result back to the thread of the app."""

    def __call__(
        self,
        what: str,
        work: Callable[[], Any],
        then: Callable[[Any], None] = ...,
        otherwise: Callable[[str], None] | None = ...,
        *,
        progress: str = ...,
    ) -> None:
        """Starts a job.

        Args:
            what: The name of the action, for the message if it fails.
            work: Runs in a thread.
            then: Receives the result, in the thread of the app.
            otherwise: Receives the message of a failure, safe to show, in the thread of the app;
                by default the failure is shown until the user dismisses it.
            progress: Says what is in progress, for a toast that goes when the job ends.
        """


@runtime_checkable
class ActionApp(Protocol):
    """An app with actions, as its screens use it."""

    config: Config

    @property
    def progress(self) -> RunProgress:
        """Commands of the run, and failures."""

    def update_progress(self) -> None:
        """Shows changed commands and failures on all screens."""

    @property
    def ended(self) -> threading.Event:
        """Is set when the app has ended; no job waits for an answer any longer."""

    @property
    def start_job(self) -> StartJob:
        """Runs work in a thread."""

    @property
    def actions(self) -> Sequence[ActionInfo]:
        """All actions of the dashboard."""

    @property
    def default_keys(self) -> dict[str, str]:
        """The key of each action, whatever the user configured."""

    def key_of(self, action: str) -> str:
        """Returns the key of an action of the dashboard, as users see it."""

    def copy(self, text: str, what: str) -> None:
        """Copies a text, and says so; `what` names it, such as `3 lines`."""


class RunApp(ActionApp, Protocol):
    """The app of one run, as its screens use it."""

    listing: ListOrder
    runs_each_new: bool
    chart_choices: ChartChoices
    from_list: bool
    newest: NewestRows | None
    snapshot: RunSnapshot | None

    @property
    def verifier(self) -> BackgroundVerifier:
        """Verifies checkpoints in the background."""

    @property
    def own_actions(self) -> ActionQueue:
        """Runs the user's own actions in the background."""

    @property
    def worker_history(self) -> WorkerHistory:
        """Measurements of all workers since the app was opened."""

    def change_setting(self, name: str, value: Any) -> None:
        """Applies a setting of `[app]`."""


class Dashboard(PerformsActions, ActsOnCheckpoints, Protocol):
    """The main screen, as its actions use it."""

    run_directory: RunDirectory
    read_only: bool

    @property
    def app(self) -> App[Any]:
        """Opens screens, and shows messages."""

    @property
    def run_app(self) -> RunApp:
        """The app, with what screens use of it."""

    @property
    def loaded_snapshot(self) -> RunSnapshot:
        """The newest snapshot; only after the first one."""

    @property
    def selection(self) -> Selection:
        """The checkpoints that the next action applies to."""

    def available_actions(self) -> Sequence[ActionInfo]:
        """Returns the actions that can be performed now, in the order of the help."""

    def tell(self, message: str) -> None:
        """Shows a message for a few seconds."""

    def verify(self) -> None:
        """Verifies the selected or marked checkpoints, or cancels their verification."""

    def mark(self) -> None:
        """Marks or unmarks the selected checkpoint."""

    def mark_all(self) -> None:
        """Marks or unmarks all checkpoints that are shown."""

    def unmark_all(self) -> None:
        """Unmarks all checkpoints."""

    def open_filter(self) -> None:
        """Opens the filter line."""

    def sort_by_column(self, places: int) -> None:
        """Sorts by the column that is `places` further to the right."""

    def reverse_sort_order(self) -> None:
        """Reverses the sort order, or says that there is none."""

    def open_failure(self) -> None:
        """Opens the log of the worker that the failure card names."""

    def copy_paths(self) -> None:
        """Copies the paths of the selected or marked checkpoints."""

    def copy_rows(self) -> None:
        """Copies the rows of the selected or marked checkpoints."""


def run_app_of(node: MessagePump) -> RunApp:
    """Returns the app of a screen or a widget, with the type that these use."""
    # `isinstance` would look up each member of the protocol, and widgets ask for each row.
    return cast(RunApp, node.app)


def key_of(node: MessagePump, action: str) -> str:
    """Returns the key of an action of the dashboard, for a screen or a widget of its app."""
    return run_app_of(node).key_of(action)


def words_of(node: MessagePump, reason: str | Advice) -> str:
    """Returns a reason or an advice for a screen or a widget; keys are as users see them."""
    return reason.in_app(run_app_of(node).key_of) if isinstance(reason, Advice) else reason


def copy_text(node: MessagePump, text: str, what: str) -> None:
    """Copies a text for a screen or a widget; `what` names it, such as `3 lines`."""
    run_app_of(node).copy(text, what)
