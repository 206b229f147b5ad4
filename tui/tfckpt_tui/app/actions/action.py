"""An action of the dashboard, and the requirements for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, RunState
from tfckpt_trainer.words.advice import Advice, CommandOrKey

if TYPE_CHECKING:
    # Types only: `tfckpt-tui config` reads the keys, and starts quickly without Textual and NumPy.
    from tfckpt_tui.app.protocols import Dashboard, Selection
    from tfckpt_tui.monitor.snapshot import RunSnapshot
    from tfckpt_tui.settings.config import Config


READ_ONLY = "The app was opened to read only. Open it without that option to change the run."
"""Why actions that change the run are unavailable."""

Predicate = Callable[["RunSnapshot", "Selection"], bool]
Reason = str | Advice
"""Why an action is unavailable, as sentences; empty if it is available."""

Requirement = Callable[["RunSnapshot", "Selection"], Reason]


def press(action: str) -> CommandOrKey:
    """Returns the key of another action, as a part of a reason."""
    return CommandOrKey(action)


def require(is_met: Predicate, reason: Reason) -> Requirement:
    """Returns a requirement with a fixed reason."""
    return lambda run, selection: "" if is_met(run, selection) else reason


def needs_trainer(run: RunSnapshot, selection: Selection) -> Reason:
    """Requires that a trainer answers."""
    if run.trainer_answers:
        return ""
    if run.has_other_trainer:
        # `tfckpt-tui config` reads the keys, and starts quickly without this.
        from tfckpt_tui.services.runs.steering_lines import why_not_steered

        found, advice = why_not_steered(run.root, run.processes)
        return advice.after(found)
    if can_launch_again(run, selection):
        return Advice.of(
            "No trainer answers. Press {launch} to launch training.", launch=press("launch")
        )
    return "No trainer answers. This action needs a running trainer."


def has_ended(run: RunSnapshot, selection: Selection) -> bool:
    """Whether nothing of the run goes on."""
    del selection
    return run.state in HAS_ENDED and not (run.trainer_answers or run.has_other_trainer)


def can_launch_again(run: RunSnapshot, selection: Selection) -> bool:
    """Whether the run has ended, and no batch job of it waits."""
    return has_ended(run, selection) and run.state is not RunState.QUEUED


class AppAction(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a user can do on the dashboard.

    Attributes:
        name: Its name in `[keys]` of the configuration.
        key: Its key, as Textual names keys; several separated by commas. Empty: palette only.
        label: One or two words for the footer.
        title: A short imperative sentence for the palette, the help and the documentation.
        help: Details for the palette, the help and the documentation.
        perform: Carries it out.
        command: The command that does the same on the command line; empty if there is none.
        requires: Checked in this order before `perform`.
        changes_run: Whether `--read-only` disables it.
        applies_to_marked: Whether it applies to the marked checkpoints, if there are any.
        before_first_snapshot: Whether it works while the run directory is still being read.
        in_footer: Whether the footer shows it when it is available. The footer has little room.
        footer_when: When the footer shows it, if not whenever it is available.
        at_footer_end: Whether it stands at the right end of the footer, which is never left out.
        precedes_panes: Whether its key is taken before the pane with the focus gets it: the key is
            one of lists too, or the characters typed right after it are for an input line.
        needed_when: When the footer shows it first, whether or not it shows it otherwise.
        other_label: A label for the opposite, and when that is what the action does.
    """

    name: str
    key: str
    label: str
    title: str
    help: str
    perform: Callable[[Dashboard], None]
    command: str = ""
    requires: tuple[Requirement, ...] = ()
    changes_run: bool = False
    applies_to_marked: bool = False
    before_first_snapshot: bool = False
    in_footer: bool = False
    footer_when: Predicate | None = None
    at_footer_end: bool = False
    precedes_panes: bool = False
    needed_when: Predicate | None = None
    other_label: tuple[str, Predicate] | None = None

    def why_unavailable(
        self, run: RunSnapshot | None, selection: Selection, *, read_only: bool
    ) -> Reason:
        """Returns why the action is unavailable now; empty if it is available."""
        if read_only and self.changes_run:
            return READ_ONLY
        if run is None:
            return "" if self.before_first_snapshot else "The run directory is still being read."
        if not run.present and self.requires:
            return "The run directory is gone, or cannot be read. Move it back."
        reasons = (requirement(run, selection) for requirement in self.requires)
        return next((reason for reason in reasons if reason), "")

    def label_for(self, run: RunSnapshot | None, selection: Selection) -> str:
        """Returns what the key does now, in one or two words."""
        word = self.label
        if self.other_label is not None and run is not None:
            other, applies = self.other_label
            word = other if applies(run, selection) else word
        return f"{word} marked" if self.applies_to_marked and selection.marked else word

    def is_in_footer(self, run: RunSnapshot | None, selection: Selection) -> bool:
        """Whether the footer shows it while it is available, as far as there is room."""
        if self.footer_when is None or run is None:
            return self.in_footer
        return self.in_footer and self.footer_when(run, selection)

    def is_needed(self, run: RunSnapshot | None, selection: Selection) -> bool:
        """Whether it is what a user most likely wants to do in this state of the run."""
        return run is not None and self.needed_when is not None and self.needed_when(run, selection)

    def key_in(self, config: Config) -> str:
        """Returns the key that a configuration gives it; the first of several."""
        return config.keys.get(self.name, self.key).split(",")[0].strip()
