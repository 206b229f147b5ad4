"""The dialogs that add a guard, after a replay over the recorded history, and remove one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import ClassVar

from textual import on
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.guards.actions import ACTIONS
from tfckpt_trainer.guards.conditions import CONDITIONS
from tfckpt_trainer.guards.guard import Guard
from tfckpt_trainer.guards.replay import Replay
from tfckpt_trainer.guards.trial import why_useless
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.runs.guards import STEPS_ARE_SKIPPED, firing_words, summary
from tfckpt_tui.services.runs.hyperparameters import hyperparameters_of

ReplayRule = Callable[[str, Callable[[Replay], None], Callable[[str], None]], None]
"""Replays a guard in a thread; answers with the result, or why there is none."""

_PAUSE_SECONDS = 0.3
"""How long the user does not type before a guard is replayed: a long history takes seconds."""

_SHOWN_FIRINGS = 4


class AddGuardDialog(Dialog[str]):
    """Asks for a guard, and says what it would have done so far."""

    caption = " add a guard "
    AUTO_FOCUS = "#rule"
    typed_outside: ClassVar[str] = ""

    def __init__(
        self,
        snapshot: RunSnapshot,
        present: Callable[[], Collection[str]],
        replay: ReplayRule,
        suggested: str = "",
    ) -> None:
        """Makes the dialog.

        Args:
            snapshot: The run.
            present: Returns the texts of the guards of the run, as far as they were read.
            replay: Replays a guard.
            suggested: The guard that the field begins with.
        """
        super().__init__(snapshot)
        self.add_class("-wide")
        self._present = present
        self._replay = replay
        self._suggested = suggested
        self._rule = self._problem = ""
        self._has_begun = False
        self._replayed: Replay | None = None
        self._replaying = ""
        self._timer: Timer | None = None

    def fields(self) -> Iterable[Widget]:
        """Returns the field for the text of the guard."""
        field = Input(
            self._suggested, placeholder="spike loss: go_back, skip_batches 10", id="rule"
        )
        field.border_title = "CONDITION: ACTION, ACTION; at most N"
        return (field,)

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what the guard would have done, or else what can be written."""
        if not self._rule:
            for title, terms in (("conditions", CONDITIONS), ("actions", ACTIONS)):
                forms = ", ".join(term.usage() for term in terms)
                yield ((f"{title}  ", "label"), (forms, "muted"))
            return
        yield ((self._rule, "strong"),)
        replayed = self._replayed
        if replayed is None or replayed.rule != self._rule:
            yield (("◌ ", "busy"), ("Replaying it over the recorded history …", "busy"))
        else:
            yield from replay_lines(replayed, _SHOWN_FIRINGS)
        when = "now" if self.snapshot.trainer_answers else "at the next start"
        yield ((f"Training takes it {when}. The file .tfckpt/config.toml keeps it.", "muted"),)

    def refusal(self) -> str:
        """Returns why this is no guard that can be added."""
        return self._problem

    def shown_refusal(self) -> str:
        """Returns the refusal, unless nothing was typed yet."""
        return self._problem if self._has_begun else ""

    def choices(self) -> list[Choice[str]]:
        """Returns cancel and add."""
        return [Choice("n", "cancel", None), Choice("y", "add", self._rule, "warning")]

    def on_mount(self) -> None:
        """Disables the button that adds, until there is a guard."""
        # Not before Textual considers the screen mounted.
        self.call_later(self.read_fields)

    def action_submit(self) -> None:
        """Adds the guard, or says what is wrong with it."""
        self._has_begun = True
        super().action_submit()

    @on(Input.Changed)
    def read_fields(self) -> None:
        """Reads the guard, and replays it when the user stops typing."""
        typed = self.query_one("#rule", Input).value
        self._has_begun = self._has_begun or bool(typed)
        try:
            guard = Guard.parse(typed)
            self._rule, self._problem = str(guard), ""
            known = hyperparameters_of(self.snapshot, None, None)
            if self._rule in self._present():
                self._problem = "The run has this guard."
            elif known.is_live:
                self._problem = clean(why_useless(guard, known.values))
        except UsageError as error:
            self._rule, self._problem = "", clean(str(error))
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(_PAUSE_SECONDS, self._begin_replay)
        self.update_text()

    def _begin_replay(self) -> None:
        """Replays the guard, unless another replay goes on: that begins the next one."""
        if self._rule and not self._replaying:
            self._replaying = self._rule
            self._replay(self._rule, self._show_replay, self._show_problem)

    def _show_replay(self, replayed: Replay) -> None:
        self._replayed, self._replaying = replayed, ""
        self.update_text()
        if replayed.rule != self._rule:
            self._begin_replay()

    def _show_problem(self, problem: str) -> None:
        self._show_replay(Replay(self._replaying, why_not=problem))


class RemoveGuardDialog(Dialog[bool]):
    """Asks whether to remove a guard."""

    caption = " remove a guard "

    def __init__(self, snapshot: RunSnapshot, rule: str) -> None:
        """Makes the dialog.

        Args:
            snapshot: The run.
            rule: The text of the guard.
        """
        super().__init__(snapshot)
        self._rule = rule

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what is removed, and from when on."""
        when = "now" if self.snapshot.trainer_answers else "at the next start"
        yield ((clean(self._rule), "strong"),)
        yield ((f"Training drops it {when}. The event log keeps its firings.", ""),)

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel and remove."""
        return [Choice("n", "cancel", None), Choice("y", "remove", True, "warning")]


def replay_words(replay: Replay) -> str:
    """Returns how often a guard would have fired, as a sentence."""
    words = summary(replay)
    return f"{words[:1].upper()}{words[1:]}"


def replay_lines(replay: Replay, most: int) -> Iterable[tuple[Span, ...]]:
    """Returns what a guard would have done, the last firings first.

    Args:
        replay: The replay.
        most: How many firings to list.
    """
    yield ((replay_words(replay), "warn" if replay.why_not else ""),)
    newest = replay.firings[-most:] if most else ()
    for fired in reversed(newest):
        yield ((firing_words(fired), "value"),)
    left_out = len(replay.firings) - len(newest)
    if left_out:
        yield ((f"and {units.count(left_out, 'time')} before", "muted"),)
    if replay.skips_steps and not replay.why_not:
        yield ((STEPS_ARE_SKIPPED, "muted"),)
