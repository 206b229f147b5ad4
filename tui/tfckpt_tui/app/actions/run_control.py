"""The actions that change the run: asks for confirmation, then calls a service."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.other_formats import OtherFile
from tfckpt_trainer.catalog.retention.emptying import Emptied
from tfckpt_trainer.catalog.scan.foreign_writers import ForeignWriters
from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.guards.replay import Replay
from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.processes.cluster import processes_in_words
from tfckpt_trainer.rundir.full_disk import DiskFullError
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.records.command import (
    CheckArguments,
    Command,
    CommandArguments,
    GuardsArguments,
    PauseArguments,
    ProfileArguments,
    RestoreArguments,
    ResumeArguments,
    SaveArguments,
    SetArguments,
    StopArguments,
)
from tfckpt_trainer.rundir.records.export import ExportFormat
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter
from tfckpt_trainer.words.advice import KeyOf
from tfckpt_tui.app import dialogs
from tfckpt_tui.formats import units
from tfckpt_tui.formats.process_columns import HostProcess
from tfckpt_tui.formats.text import clean_message
from tfckpt_tui.services.checkpoints.compatibility import (
    Compatibility,
    check_compatibility,
    find_reference,
)
from tfckpt_tui.services.control import prune
from tfckpt_tui.services.control.guard_settings import change_guards
from tfckpt_tui.services.control.prune import ForeignTrainerError, PruneOutcome
from tfckpt_tui.services.control.request import FrontEnd, ask, follow
from tfckpt_tui.services.control.restore import choose_start
from tfckpt_tui.services.processes import export
from tfckpt_tui.services.runs.guards import replay_guards
from tfckpt_tui.services.runs.launch_form import form_of
from tfckpt_tui.settings.config import default_policy

if TYPE_CHECKING:
    from tfckpt_tui.app.protocols import Dashboard
    from tfckpt_tui.services.batch.job_view import JobView

_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True)
class _Result:
    """A message on what was done, and warnings on what was not."""

    message: str
    warnings: tuple[str, ...] = ()


def _deletion_result(emptied: Emptied, key_of: KeyOf) -> _Result:
    if emptied.problems and not emptied.names:
        raise TfckptError(" ".join(emptied.problems))
    what = units.count(len(emptied.names), "checkpoint")
    kept = (advice.in_app(key_of) for advice in emptied.kept)
    warnings = (*emptied.problems, *kept, *emptied.warnings)
    return _Result(f"{what} deleted for good.", warnings)


class RunControl:
    """Changes the run for the dashboard.

    A running trainer receives a command, and the snapshots show its progress. Without a trainer
    the app does the work itself, under the trainer's lock.
    """

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._run = dashboard.run_directory

    def save(self) -> None:
        """Saves a checkpoint."""
        self._submit(SaveArguments())

    def restore(self) -> None:
        """Restores a checkpoint, or launches a run that has ended from it, after confirmation."""

        def answered(wanted: dialogs.restore.Restore | None) -> None:
            if wanted is not None and wanted.starts:
                self.launch(start=wanted.name)
            elif wanted is not None:
                self._submit(RestoreArguments(name=wanted.name, partial=wanted.partial))

        dashboard = self._dashboard
        dialog = dialogs.restore.RestoreDialog(
            dashboard.loaded_snapshot,
            dashboard.selection.selected,
            self._check_compatibility,
            dashboard.run_app.key_of,
        )
        dashboard.app.push_screen(dialog, answered)

    def _check_compatibility(
        self, target: Checkpoint, answer: Callable[[Compatibility | str], None]
    ) -> None:
        reference = find_reference(self._dashboard.loaded_snapshot.checkpoints)
        if reference is None:
            answer("the run has no checkpoint to compare it with.")
            return
        work = partial(check_compatibility, self._run, reference, target)
        self._dashboard.run_app.start_job("restore", work, answer, answer)

    def prune(self) -> None:
        """Prunes the marked checkpoints, or by the retention rules of a dialog."""

        def answered(names: tuple[str, ...] | None) -> None:
            if names:
                self._move_to_trash(names)

        dashboard = self._dashboard
        marked = dashboard.selection.marked
        if marked:
            names = frozenset(checkpoint.name for checkpoint in marked)
            dashboard.app.push_screen(
                dialogs.prune.PruneMarkedDialog(dashboard.loaded_snapshot, names), answered
            )
        else:
            rules = default_policy(dashboard.loaded_snapshot.info, dashboard.run_app.config)
            dashboard.app.push_screen(
                dialogs.prune.PruneDialog(dashboard.loaded_snapshot, rules), answered
            )

    def prune_file(self, file: OtherFile) -> None:
        """Moves a file of another format to the trash, after confirmation."""
        dashboard = self._dashboard

        def work() -> _Result:
            done = prune.prune_files(self._run, [file.name], through=FrontEnd.APP)
            return _Result(f"{file.name} moved to the trash.", done.warnings)

        def answered(agreed: bool | None) -> None:
            if agreed:
                dashboard.run_app.start_job("prune", work, self._report)

        def ask_first(protected: dict[str, str]) -> None:
            reason = protected.get(file.name, "")
            dialog = dialogs.prune_questions.PruneFileDialog(
                dashboard.loaded_snapshot, file, reason
            )
            dashboard.app.push_screen(dialog, answered)

        look = partial(prune.protected_files, self._run)
        dashboard.run_app.start_job("prune", look, ask_first)

    def undo(self) -> None:
        """Undoes the last prune, after confirmation."""

        def answered(trash: str | None) -> None:
            if trash is not None:
                self.undo_prune(trash)

        self._dashboard.app.push_screen(
            dialogs.undo.UndoDialog(self._dashboard.loaded_snapshot), answered
        )

    def pin(self) -> None:
        """Pins the selected or marked checkpoints; unpins them if all are pinned."""
        checkpoints = self._dashboard.selection.all
        pinned = not all(checkpoint.pinned for checkpoint in checkpoints)
        names = [c.name for c in checkpoints if c.pinned is not pinned]

        def work() -> _Result:
            warnings = prune.set_pins(self._run, names, pinned=pinned, through=FrontEnd.APP)
            what = names[0] if len(names) == 1 else units.count(len(names), "checkpoint")
            word = "is" if len(names) == 1 else "are"
            return _Result(f"{what} {word} {'pinned' if pinned else 'no longer pinned'}.", warnings)

        self._dashboard.run_app.start_job("pin", work, self._report)

    def export(self) -> None:
        """Exports the selected checkpoint in the format that a dialog asks for."""
        dashboard = self._dashboard
        name = self._selected.name
        script, problem = None, ""
        try:
            script = export.script_of(self._run)
        except (TfckptError, OSError) as error:
            problem = describe_error(error)

        def answered(form: ExportFormat | None) -> None:
            if form is not None and script is not None:
                work = partial(
                    export.export_checkpoint, self._run, name, form, script, through=FrontEnd.APP
                )
                dashboard.run_app.start_job(
                    "export",
                    work,
                    lambda done: dashboard.tell(export.describe(done)),
                    progress=f"Exporting {name} …",
                )

        dialog = dialogs.export.ExportDialog(dashboard.loaded_snapshot, name, script, problem)
        dashboard.app.push_screen(dialog, answered)

    def pause(self) -> None:
        """Pauses training, or resumes it."""
        paused = self._dashboard.loaded_snapshot.state is RunState.PAUSED
        self._submit(ResumeArguments() if paused else PauseArguments())

    def check(self) -> None:
        """Checks that the next steps repeat exactly, after confirmation."""

        def answered(agreed: bool | None) -> None:
            if agreed:
                self._submit(CheckArguments())

        self._dashboard.app.push_screen(
            dialogs.check_run.QuickCheckDialog(self._dashboard.loaded_snapshot), answered
        )

    def profile(self) -> None:
        """Traces the next steps, after asking how many."""

        def answered(arguments: ProfileArguments | None) -> None:
            if arguments is not None:
                self._submit(arguments)

        self._dashboard.app.push_screen(
            dialogs.trace.TraceDialog(self._dashboard.loaded_snapshot), answered
        )

    def set_hyperparameter(self, hyperparameter: Hyperparameter) -> None:
        """Changes a hyperparameter, after confirmation."""

        def answered(change: SetArguments | None) -> None:
            if change is not None:
                self._submit(change)

        dialog = dialogs.set.SetDialog(self._dashboard.loaded_snapshot, hyperparameter)
        self._dashboard.app.push_screen(dialog, answered)

    def add_guard(
        self, present: Callable[[], Collection[str]], then: Callable[[], None], rule: str = ""
    ) -> None:
        """Adds a guard that a dialog asks for.

        Args:
            present: Returns the texts of the guards of the run, as far as they were read.
            then: Called when it was added.
            rule: What the dialog begins with.
        """
        start_job = self._dashboard.run_app.start_job

        def replay(
            rule: str, answer: Callable[[Replay], None], otherwise: Callable[[str], None]
        ) -> None:
            start_job("replay", lambda: replay_guards(self._run, [rule])[0], answer, otherwise)

        def answered(rule: str | None) -> None:
            if rule is not None:
                self._change_guards(then, add=[rule])

        dialog = dialogs.guard_rule.AddGuardDialog(
            self._dashboard.loaded_snapshot, present, replay, rule
        )
        self._dashboard.app.push_screen(dialog, answered)

    def remove_guard(self, rule: str, then: Callable[[], None]) -> None:
        """Removes a guard, after confirmation.

        Args:
            rule: Its text.
            then: Called when it was removed.
        """

        def answered(agreed: bool | None) -> None:
            if agreed:
                self._change_guards(then, remove=[rule])

        dialog = dialogs.guard_rule.RemoveGuardDialog(self._dashboard.loaded_snapshot, rule)
        self._dashboard.app.push_screen(dialog, answered)

    def _change_guards(
        self, then: Callable[[], None], add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> None:
        """Changes `config.toml`, and has a live trainer take its guards."""

        def report(nothing: None) -> None:
            del nothing
            done = "Added the guard." if add else "Removed the guard."
            if self._dashboard.loaded_snapshot.trainer_answers:
                self._submit(GuardsArguments())
            else:
                done += " The next start takes the change."
            self._dashboard.tell(done)
            then()

        work = partial(change_guards, self._run, add=add, remove=remove)
        self._dashboard.run_app.start_job("guards", work, report)

    def stop(self) -> None:
        """Stops the run, or cancels its batch job if that waits, after confirmation."""
        snapshot = self._dashboard.loaded_snapshot
        if snapshot.job is not None and snapshot.job.is_waiting and not snapshot.trainer_answers:
            self._cancel_job(snapshot.job)
            return
        if snapshot.has_other_trainer:
            self.stop_process(snapshot.processes[0])
            return

        def answered(save: bool | None) -> None:
            if save is not None:
                self._submit(StopArguments(save=save))

        self._dashboard.app.push_screen(
            dialogs.stop.StopDialog(self._dashboard.loaded_snapshot), answered
        )

    def stop_process(self, process: HostProcess) -> None:
        """Ends a process that does not use this library, after confirmation."""
        from tfckpt_tui.services.control.stop_process import stop_process

        dashboard = self._dashboard

        def answered(agreed: bool | None) -> None:
            if agreed:
                dashboard.run_app.start_job(
                    "stop",
                    partial(stop_process, process),
                    dashboard.tell,
                    progress=f"Sent SIGTERM to {process.name} …",
                )

        dashboard.app.push_screen(
            dialogs.stop.StopProcessDialog(dashboard.loaded_snapshot, process), answered
        )

    def _cancel_job(self, job: JobView) -> None:
        """Cancels the batch job of the run, after confirmation."""
        from tfckpt_tui.services.control.job_control import cancel_waiting_job

        dashboard = self._dashboard

        def answered(agreed: bool | None) -> None:
            if agreed:
                dashboard.run_app.start_job(
                    "cancel",
                    partial(cancel_waiting_job, self._run, through=FrontEnd.APP),
                    dashboard.tell,
                )

        dashboard.app.push_screen(
            dialogs.batch_job.CancelJobDialog(dashboard.loaded_snapshot, job), answered
        )

    def _submit_job(self, start: str | None) -> None:
        """Submits the batch job of the run again, after confirmation."""
        from tfckpt_tui.services.control.job_control import script_of, submit_again

        dashboard = self._dashboard
        job = dashboard.loaded_snapshot.job

        def answered(agreed: bool | None) -> None:
            if agreed:
                dashboard.run_app.start_job(
                    "submit",
                    partial(
                        self._start_from,
                        start,
                        partial(submit_again, self._run, through=FrontEnd.APP),
                    ),
                    lambda done: dashboard.tell(done[1]),
                )

        script = script_of(self._run, job.record if job is not None else None)
        dialog = dialogs.batch_job.SubmitJobDialog(dashboard.loaded_snapshot, job, script, start)
        dashboard.app.push_screen(dialog, answered)

    def force_stop(self) -> None:
        """Cancels the batch job of the run, or ends its processes, after a confirmation."""
        from tfckpt_tui.services.control.force_stop import (
            ForceStopPlan,
            force_stop,
            plan_force_stop,
        )

        dashboard = self._dashboard

        def ask(plan: ForceStopPlan) -> None:
            def answered(agreed: bool | None) -> None:
                if agreed:
                    what = "Ending the processes of the run" if plan.job is None else "Cancelling"
                    work = partial(force_stop, self._run, plan, through=FrontEnd.APP)
                    dashboard.run_app.start_job(
                        "force stop",
                        lambda: _Result(*work()),
                        self._report,
                        progress=f"{what} …",
                    )

            dialog = dialogs.stop.ForceStopDialog(dashboard.loaded_snapshot, plan)
            dashboard.app.push_screen(dialog, answered)

        dashboard.run_app.start_job("force stop", partial(plan_force_stop, self._run), ask)

    def launch(self, start: str | None = None) -> None:
        """Launches training again: by the batch job of the run, or by the options of a form.

        Args:
            start: The checkpoint to start from; by default the one that a start continues from.
        """
        dashboard = self._dashboard
        form = form_of(self._run)
        if dashboard.loaded_snapshot.job is not None or form.asks_slurm:
            self._submit_job(start)
            return

        def answered(options: LaunchOptions | None) -> None:
            if options is not None:
                starting = f"Starting {processes_in_words(options.tasks)} …"
                work = partial(self._start_from, start, partial(launch, options))
                dashboard.run_app.start_job("launch", work, progress=starting)

        dialog = dialogs.launch.LaunchDialog(form, fixed_directory=True, start=start)
        dashboard.app.push_screen(dialog, answered)

    def _start_from(self, start: str | None, launch_it: Callable[[], _ResultT]) -> _ResultT:
        """Chooses the checkpoint that the next start continues from, and launches the run."""
        if start is not None:
            choose_start(self._run, start, through=FrontEnd.APP)
        return launch_it()

    def undo_prune(self, trash: str) -> None:
        """Undoes the prune with the id `trash`."""
        work = partial(prune.undo, self._run, trash, through=FrontEnd.APP, wait=False)
        then = partial(self._report_moved, "came back from the trash")
        self._dashboard.run_app.start_job("undo", work, then)

    def empty_trash(self, prunes: Sequence[str]) -> None:
        """Deletes for good what is in the trash of the prunes with these ids."""
        # In a thread, a dashboard that was closed has no app.
        key_of = self._dashboard.run_app.key_of
        self._dashboard.run_app.start_job(
            "empty trash",
            lambda: _deletion_result(prune.empty(self._run, prunes, through=FrontEnd.APP), key_of),
            self._report,
        )

    def _move_to_trash(self, names: tuple[str, ...], *, beside_trainer: bool = False) -> None:
        """Prunes; asks a second time if another program may write, or if the disk is full."""

        def work() -> PruneOutcome | ForeignTrainerError | DiskFullError:
            try:
                return prune.prune(
                    self._run,
                    names,
                    through=FrontEnd.APP,
                    beside_trainer=beside_trainer,
                    wait=False,
                )
            except (ForeignTrainerError, DiskFullError) as error:
                return error

        def then(done: PruneOutcome | ForeignTrainerError | DiskFullError) -> None:
            if isinstance(done, ForeignTrainerError):
                self._confirm_foreign_trainer(names, done.foreign)
            elif isinstance(done, DiskFullError):
                self._offer_deletion(names, beside_trainer=beside_trainer)
            else:
                self._report_moved("moved to the trash", done)

        self._dashboard.run_app.start_job("prune", work, then)

    def _confirm_foreign_trainer(self, names: tuple[str, ...], foreign: ForeignWriters) -> None:
        """Prunes beside a program that does not use this library, after a second confirmation."""
        free = tuple(name for name in names if name not in foreign.in_use)

        def answered(agreed: bool | None) -> None:
            if agreed:
                self._move_to_trash(free, beside_trainer=True)

        dashboard = self._dashboard
        dashboard.app.push_screen(
            dialogs.prune_questions.BesideTrainerDialog(
                dashboard.loaded_snapshot, foreign, len(free)
            ),
            answered,
        )

    def _report_moved(self, what_happened: str, done: PruneOutcome) -> None:
        """Shows the outcome of a prune or an undo, or follows the command to the trainer."""
        if done.command is not None:
            self._follow(done.command)
            return
        what = prune.pruned_words(done.names)
        self._report(_Result(f"{what} {what_happened}.", done.warnings))

    def _offer_deletion(self, names: tuple[str, ...], *, beside_trainer: bool) -> None:
        """Permanently deletes checkpoints that did not fit into the trash, after confirmation."""
        dashboard = self._dashboard
        key_of = dashboard.run_app.key_of

        def work() -> _Result:
            done = prune.delete(
                self._run, names, through=FrontEnd.APP, beside_trainer=beside_trainer
            )
            return _deletion_result(done, key_of)

        def answered(agreed: bool | None) -> None:
            if agreed:
                dashboard.run_app.start_job("delete", work, self._report)

        dashboard.app.push_screen(
            dialogs.prune_questions.DeleteForGoodDialog(dashboard.loaded_snapshot, names), answered
        )

    def _report(self, result: _Result) -> None:
        """Shows a result and its warnings."""
        self._dashboard.tell(result.message)
        for warning in result.warnings:
            warned = clean_message(f"Done, but: {warning}")
            self._dashboard.app.notify(warned, severity="warning", markup=False)

    def _submit(self, arguments: CommandArguments) -> None:
        """Sends a command to the trainer; snapshots show its progress."""

        def submit() -> Command:
            return ask(self._run, arguments, through=FrontEnd.APP, wait=False)

        self._dashboard.run_app.start_job(arguments.kind.value, submit, self._follow)

    def _follow(self, command: Command) -> None:
        """Withdraws a command that no trainer takes in time."""
        app = self._dashboard.run_app
        app.start_job(command.kind.value, partial(follow, self._run, command, app.ended))

    @property
    def _selected(self) -> Checkpoint:
        selected = self._dashboard.selection.selected
        assert selected is not None
        return selected
