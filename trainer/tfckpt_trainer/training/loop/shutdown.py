"""Ends a run: finished, after an error, or because another worker is gone."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack

from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.rundir.heartbeats.liveness import find_other_trainer
from tfckpt_trainer.rundir.heartbeats.lost_workers import (
    describe_lost_connection,
    explain_lost_worker,
)
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.failure import ScriptFault
from tfckpt_trainer.rundir.records.run import Finish
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.scripts.script_errors import ScriptError
from tfckpt_trainer.training.checkpoint.restores.restore_manager import RestoreManager
from tfckpt_trainer.training.loop.command_poller import CommandPoller
from tfckpt_trainer.training.process.signals_and_exit import (
    PeerWatch,
    on_uncaught_error,
)
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import WorkerGroup, find_lost_peer

DATASET_ENDED = "the dataset ended"
"""Why a run is finished whose dataset ended."""


class FinishedRun:
    """Knows whether training had finished when the run was opened. All workers call it together."""

    def __init__(self, run: RunDirectory, telemetry: Telemetry, restores: RestoreManager) -> None:
        self._run = run
        self._position = restores.position
        self._telemetry = telemetry
        self._restores = restores
        self._holds = False

    def opened(self, finish: Finish | None, total_steps: int | None) -> str:
        """Takes where the run starts; returns why it is finished there, or nothing.

        Args:
            finish: Why training ended at the restored checkpoint, if it did.
            total_steps: Steps of the whole training now; None without an end.
        """
        self._holds = finish is not None and finish.holds_for(total_steps)
        return finish.reason if finish is not None and self._holds else ""

    def closed(self, reason: str, total_steps: int | None, *, has_trained: bool) -> str:
        """Records the end of a finished run.

        Args:
            reason: Why it ended, as a clause; empty if all its steps are done.
            total_steps: Steps of the whole training; None without an end.
            has_trained: Whether this process has done a step.

        Returns:
            Why nothing was trained, as sentences; empty if something was.
        """
        step = self._position.step
        if not self._holds and reason:
            self._restores.record_finish(
                Finish(
                    reason=reason,
                    total_steps=total_steps,
                    by_dataset=reason == DATASET_ENDED,
                )
            )
        if step and not has_trained:
            message = f"Nothing to train: {self._why(reason, total_steps)}"
            if self._telemetry.event_log.is_chief:
                sys.stderr.write(f"{message}\n")
            self._telemetry.note(EventKind.FINISH, message, step=step)
            return message
        said = f": {reason}" if reason else ""
        self._telemetry.note(EventKind.FINISH, f"Finished after step {step:,}{said}.", step=step)
        return ""

    def _why(self, reason: str, total_steps: int | None) -> str:
        if not reason:
            steps = f"all {total_steps} steps are done" if total_steps else "all steps are done"
            return f"{steps}. To train on, raise total_steps (epochs in fit)."
        ended = f"{reason}, after step {self._position.step:,}"
        if not self._holds:
            return f"{ended}. To train on, use dataset.repeat() with total_steps."
        place, name = self._run.shell_word, shlex.quote(self._position.parent or "")
        return (
            f"{ended}. To train on, raise total_steps (epochs in fit), or use "
            f"`tfckpt-tui restore {place} --name {name} --next-start` and start again."
        )


LAST_WRITES_SECONDS = 5.0
"""How long the end of a run waits for the event log on a disk that does not answer."""


class Shutdown:
    """Says how a run ended, and releases what it holds.

    Attributes:
        peers_watched: A context that ends the run, and this process, if another worker is lost.
        save_after_error: Called with an error that ends the script, before the run ends.
    """

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        telemetry: Telemetry,
        poller: CommandPoller,
        resources: ExitStack,
        restart_status: int,
    ) -> None:
        """Prepares it.

        Args:
            run: The run directory.
            group: The workers.
            telemetry: Writes heartbeats, the event log and summaries.
            poller: What looks for commands.
            resources: What to release after the last heartbeat.
            restart_status: Exit status after another worker was lost.
        """
        self._run = run
        self._group = group
        self._telemetry = telemetry
        self._poller = poller
        self._resources = resources
        self._restart_status = restart_status
        self._is_done = False
        self.save_after_error: Callable[[BaseException], None] | None = None
        self.peers_watched = PeerWatch(
            self._is_alone, self._explain_loss, self._lost_peer, restart_status
        )

    @property
    def is_done(self) -> bool:
        """Whether the run is closed."""
        return self._is_done

    def handle_uncaught_errors(self) -> None:
        """Ends the run if an error leaves the script."""
        on_uncaught_error(
            self._failed,
            self._interrupted,
            self._explain_loss,
            self._lost_peer,
            alone=self._is_alone,
            restart_status=self._restart_status,
        )

    def start_failed(self, error: BaseException) -> None:
        """Ends a run that was refused or interrupted before its first step.

        The process may live on, as that of a notebook does, and start another.
        """
        has_started = self._telemetry.heartbeat.has_started
        if has_started and isinstance(error, KeyboardInterrupt):
            self._interrupted()
            return
        ending, detail = Ending.STOPPED, ""
        if isinstance(error, Exception):
            ending, detail = Ending.FAILED, describe_error(error)
        # Without a heartbeat, the status file may be that of another trainer, also of this process.
        self.release(ending, detail, beside_another=not has_started)

    def left_loop(self, *, may_save: bool) -> None:
        """Ends a run whose loop the script left without a reason.

        Args:
            may_save: Whether `save_after_error` remains, for the end of the script.
        """
        save = self.save_after_error if may_save else None
        detail = "The script left the loop; its last steps were not saved."
        self.release(Ending.STOPPED, detail, beside_another=self._is_beside_another())
        self.save_after_error = save

    def release(self, ending: Ending, detail: str = "", *, beside_another: bool = False) -> None:
        """Writes the last heartbeat, and releases what the run holds.

        Args:
            ending: Why the run is over.
            detail: The same as a sentence; empty if there is nothing to add.
            beside_another: Whether another trainer uses this directory. Then its heartbeat is not
                replaced.
        """
        self._is_done = True
        self.save_after_error = None
        metrics = self._telemetry.metrics
        metrics.activity = Activity.EXITED
        metrics.ending = ending
        metrics.detail = detail
        self._poller.stop()
        self._telemetry.event_log.close(LAST_WRITES_SECONDS)
        if not beside_another:
            self._telemetry.heartbeat.stop()
        self._resources.close()
        self._telemetry.close_alerts()

    def _failed(self, error: BaseException, described: ScriptError) -> None:
        self._telemetry.metrics.fault = ScriptFault.of(described)
        self._end_early(EventKind.FAILED, Ending.FAILED, str(described), error)

    def _interrupted(self) -> None:
        if not self._is_done:
            why = "Interrupted at once. The last steps were not saved."
            self._end_early(EventKind.STOP, Ending.STOPPED, why)

    def _end_early(
        self, kind: EventKind, ending: Ending, why: str, error: BaseException | None = None
    ) -> None:
        beside_another = self._is_beside_another()
        if not beside_another:
            self._telemetry.note(kind, why)
        if error is not None and self.save_after_error is not None:
            self.save_after_error(error)
        self.release(ending, why, beside_another=beside_another)

    def _lost_peer(self, why: str) -> None:
        self._telemetry.note(EventKind.WORKER_LOST, why)
        self.release(Ending.PEER_LOST, why, beside_another=self._is_beside_another())

    def _explain_loss(self, message: str) -> str:
        index, since = self._group.index, self._telemetry.heartbeat.process_started_at
        found = explain_lost_worker(self._run, index, since)
        peer = find_lost_peer(self._group, message) if message and not found else None
        return found if peer is None else describe_lost_connection(self._run, index, peer)

    def _is_beside_another(self) -> bool:
        """Whether another trainer uses this directory: its status file must not be replaced."""
        if self._telemetry.heartbeat.has_started and not self._is_done:
            return False
        return find_other_trainer(self._run, self._group.index) is not None

    @property
    def _is_alone(self) -> bool:
        return self._group.processes == 1
