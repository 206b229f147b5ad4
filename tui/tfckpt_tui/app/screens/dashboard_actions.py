"""What the keys of the dashboard change: asked where it needs a question, done or dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tfckpt_trainer.catalog.retention.emptying import Emptied
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.launch.cluster import processes_in_words
from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.command_queue import CommandBox
from tfckpt_trainer.rundir.health import RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind
from tfckpt_trainer.rundir.records.export import ExportFormat
from tfckpt_trainer.rundir.reserve import DiskFullError
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services import export, prune
from tfckpt_tui.services.compatibility import Fit, fit_of
from tfckpt_tui.services.launch import form_of
from tfckpt_tui.services.request import TrainerPresence, ask, detect_trainer
from tfckpt_tui.settings.config import default_rules

if TYPE_CHECKING:
    from tfckpt_tui.app.screens.dashboard import DashboardScreen

THROUGH = "terminal app"
"""How the journal names the way by which something was asked for."""

_FOLLOWED_SECONDS = 3600.0
_FOLLOWING_SECONDS = 1.0


@dataclass(frozen=True)
class _Done:
    """What was done, in words, and what the disk refused of it."""

    words: str
    warnings: tuple[str, ...] = ()


def _deleted(emptied: Emptied) -> _Done:
    if emptied.problems and not emptied.names:
        raise TfckptError(" ".join(emptied.problems))
    what = units.count(len(emptied.names), "checkpoint")
    warnings = (*emptied.problems, *emptied.kept, *emptied.warnings)
    return _Done(f"{what} deleted for good.", warnings)


class Steering:
    """Does to the run what a person asks for from the dashboard.

    Where a trainer lives it is asked, and the snapshots show what becomes of it; where none does,
    the app does it itself, under the trainer's lock.

    Attributes:
        actions: What it does, by the names of the actions.
    """

    def __init__(self, screen: DashboardScreen, run: RunDirectory) -> None:
        self._screen = screen
        self._run = run
        self.actions: dict[str, Callable[[], None]] = {
            "save": self.save,
            "restore": self.restore,
            "prune": self.prune,
            "undo": self.undo,
            "pin": self.pin,
            "export": self.export,
            "pause": self.pause,
            "stop": self.stop,
            "launch": self.launch,
        }

    def save(self) -> None:
        """Asks for a checkpoint now."""
        self._ask(CommandKind.SAVE, {})

    def restore(self) -> None:
        """Goes back to a checkpoint, after asking."""
        from tfckpt_tui.app.dialogs.restore import Restore, RestoreDialog

        def answered(wanted: Restore | None) -> None:
            if wanted is not None:
                part = {"partial": True} if wanted.partial else {}
                self._ask(CommandKind.RESTORE, {"name": wanted.name, **part})

        screen = self._screen
        dialog = RestoreDialog(screen.known, screen.chosen.selected, self._check_fit)
        screen.app.push_screen(dialog, answered)

    def _check_fit(self, target: Checkpoint, answer: Callable[[Fit | str], None]) -> None:
        like = self._screen.known.head
        if like is None:
            answer("the run has saved nothing that it could be held against.")
            return
        work = partial(fit_of, self._run, like, target)
        self._screen.tfckpt.start_job("restore", work, answer, answer)

    def prune(self) -> None:
        """Moves to the trash what is marked, or what the rules of a dialog do not keep."""
        from tfckpt_tui.app.dialogs.prune import PruneDialog, PruneMarkedDialog

        def answered(names: tuple[str, ...] | None) -> None:
            if names:
                look = partial(detect_trainer, self._run)
                screen.tfckpt.start_job("prune", look, partial(self._ask_twice, names))

        screen = self._screen
        marked = screen.chosen.marked
        if marked:
            names = frozenset(checkpoint.name for checkpoint in marked)
            screen.app.push_screen(PruneMarkedDialog(screen.known, names), answered)
        else:
            rules = default_rules(screen.known.info, screen.tfckpt.config)
            screen.app.push_screen(PruneDialog(screen.known, rules), answered)

    def undo(self) -> None:
        """Brings back what the last prune moved away, after asking."""
        from tfckpt_tui.app.dialogs.undo import UndoDialog

        def answered(trash: str | None) -> None:
            if trash is not None:
                self.bring_back(trash)

        self._screen.app.push_screen(UndoDialog(self._screen.known), answered)

    def pin(self) -> None:
        """Pins what is chosen; unpins it where all of it is pinned."""
        chosen = self._screen.chosen.all
        pinned = not all(checkpoint.pinned for checkpoint in chosen)
        names = [checkpoint.name for checkpoint in chosen if checkpoint.pinned is not pinned]

        def work() -> _Done:
            warnings = prune.set_pins(self._run, names, pinned=pinned, through=THROUGH)
            what = names[0] if len(names) == 1 else units.count(len(names), "checkpoint")
            word = "is" if len(names) == 1 else "are"
            return _Done(f"{what} {word} {'pinned' if pinned else 'no longer pinned'}.", warnings)

        self._screen.tfckpt.start_job("pin", work, self._tell)

    def export(self) -> None:
        """Makes a model file of the selected checkpoint, after asking for its format."""
        from tfckpt_tui.app.dialogs.export import ExportDialog

        screen = self._screen
        name = self._selected.name

        def answered(form: ExportFormat | None) -> None:
            if form is not None:
                screen.tell(f"{name} is being exported …")
                work = partial(export.export_checkpoint, self._run, name, form, through=THROUGH)
                screen.tfckpt.start_job(
                    "export", work, lambda done: screen.tell(export.describe(done))
                )

        screen.app.push_screen(ExportDialog(screen.known, name), answered)

    def pause(self) -> None:
        """Pauses training, or lets it go on."""
        paused = self._screen.known.state is RunState.PAUSED
        self._ask(CommandKind.RESUME if paused else CommandKind.PAUSE, {})

    def stop(self) -> None:
        """Ends the run, after asking."""
        from tfckpt_tui.app.dialogs.stop import StopDialog

        def answered(save: bool | None) -> None:
            if save is not None:
                self._ask(CommandKind.STOP, {"save": save})

        self._screen.app.push_screen(StopDialog(self._screen.known), answered)

    def launch(self) -> None:
        """Starts training in this directory, after a form."""
        from tfckpt_tui.app.screens.launch import LaunchDialog

        screen = self._screen

        def answered(options: LaunchOptions | None) -> None:
            if options is not None:
                screen.tell(f"Starting {processes_in_words(options.tasks)} …")
                screen.tfckpt.start_job("launch", partial(launch, options))

        screen.app.push_screen(LaunchDialog(form_of(self._run), fixed_directory=True), answered)

    def bring_back(self, trash: str) -> None:
        """Undoes the prune with this id."""
        if self._screen.known.trainer_answers:
            self._ask(CommandKind.UNDO, {"trash": trash})
            return

        def work() -> _Done:
            done = prune.undo(self._run, trash, through=THROUGH)
            what = units.count(len(done.names), "checkpoint")
            return _Done(f"{what} came back from the trash.", done.warnings)

        self._screen.tfckpt.start_job("undo", work, self._tell)

    def empty_trash(self) -> None:
        """Deletes for good all that is in the trash."""
        self._screen.tfckpt.start_job(
            "empty trash",
            lambda: _deleted(prune.empty(self._run, through=THROUGH)),
            self._tell,
        )

    def _ask_twice(self, names: tuple[str, ...], presence: TrainerPresence) -> None:
        """Prunes, after a second question where a trainer of somebody else's may live."""
        from tfckpt_tui.app.dialogs.foreign_trainer import BesideTrainerDialog

        foreign = presence.foreign
        if foreign is None:
            self._move_to_trash(names)
            return
        free = tuple(name for name in names if name not in foreign.in_use)

        def answered(agreed: bool | None) -> None:
            if agreed:
                self._move_to_trash(free, beside_trainer=True)

        screen = self._screen
        screen.app.push_screen(BesideTrainerDialog(screen.known, foreign, len(free)), answered)

    def _move_to_trash(self, names: tuple[str, ...], *, beside_trainer: bool = False) -> None:
        if self._screen.known.trainer_answers:
            self._ask(CommandKind.PRUNE, {"names": list(names)})
            return

        def work() -> _Done | None:
            try:
                done = prune.prune(self._run, names, through=THROUGH, beside_trainer=beside_trainer)
            except DiskFullError:
                return None
            what = units.count(len(done.names), "checkpoint")
            return _Done(f"{what} moved to the trash.", done.warnings)

        def then(done: _Done | None) -> None:
            if done is None:
                self._ask_to_delete(names, beside_trainer=beside_trainer)
            else:
                self._tell(done)

        self._screen.tfckpt.start_job("prune", work, then)

    def _ask_to_delete(self, names: tuple[str, ...], *, beside_trainer: bool) -> None:
        """Deletes for good what did not fit into the trash, after a second question."""
        from tfckpt_tui.app.dialogs.delete import DeleteForGoodDialog

        screen = self._screen

        def work() -> _Done:
            return _deleted(
                prune.delete(self._run, names, through=THROUGH, beside_trainer=beside_trainer)
            )

        def answered(agreed: bool | None) -> None:
            if agreed:
                screen.tfckpt.start_job("delete", work, self._tell)

        screen.app.push_screen(DeleteForGoodDialog(screen.known, names), answered)

    def _tell(self, done: _Done) -> None:
        """Says what was done, and beside it what else has to be known of it."""
        self._screen.tell(done.words)
        for warning in done.warnings:
            self._screen.notify(clean(f"Done, but: {warning}"), severity="warning", markup=False)

    def _ask(self, kind: CommandKind, arguments: dict[str, object]) -> None:
        """Asks the trainer; the snapshots show what becomes of it."""

        def submit() -> Command:
            return ask(self._run, kind, arguments, through=THROUGH, wait=False)

        self._screen.tfckpt.start_job(kind.value, submit, self._follow)

    def _follow(self, command: Command) -> None:
        """Makes sure that a command which nobody takes is withdrawn in its time."""
        box = CommandBox(self._run)
        self._screen.tfckpt.start_job(
            command.kind.value,
            lambda: box.wait(command, timeout=_FOLLOWED_SECONDS, poll=_FOLLOWING_SECONDS),
        )

    @property
    def _selected(self) -> Checkpoint:
        selected = self._screen.chosen.selected
        assert selected is not None
        return selected
