"""Ends a run: on time, after an error, or because another worker is gone."""

from __future__ import annotations

from tfckpt_trainer.rundir.liveness import find_other_trainer
from tfckpt_trainer.rundir.lost_workers import explain_lost_worker
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.training.loop.command_poller import CommandPoller
from tfckpt_trainer.training.loop.inputs import Inputs
from tfckpt_trainer.training.loop.run_ownership import RunOwnership
from tfckpt_trainer.training.process import PeerWatch, on_uncaught_error
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.worker_group import WorkerGroup


class Shutdown:
    """Says how a run ended, and releases what it holds.

    Attributes:
        peers_watched: A context that ends the run, and this process, if another worker is lost.
    """

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        telemetry: Telemetry,
        poller: CommandPoller,
        ownership: RunOwnership,
        inputs: Inputs | None,
    ) -> None:
        self._run = run
        self._group = group
        self._telemetry = telemetry
        self._poller = poller
        self._ownership = ownership
        self._inputs = inputs
        self.peers_watched = PeerWatch(self._is_alone, self._explain_loss, self._lost_peer)

    def handle_uncaught_errors(self) -> None:
        """Ends the run if an error leaves the script."""
        on_uncaught_error(self._failed, self._explain_loss, self._lost_peer, alone=self._is_alone)

    def left_loop(self) -> None:
        """Ends a run whose loop the script left without a reason."""
        detail = "The script left the loop; its last steps were not saved."
        self.release(Ending.STOPPED, detail, beside_another=self._is_beside_another())

    def release(self, ending: Ending, detail: str = "", *, beside_another: bool = False) -> None:
        """Writes the last heartbeat, and releases the run directory and the iterators.

        Args:
            ending: Why the run is over.
            detail: The same as a sentence; empty if there is nothing to add.
            beside_another: Whether another trainer uses this directory. Then its heartbeat is not
                replaced.
        """
        metrics = self._telemetry.metrics
        metrics.activity = Activity.EXITED
        metrics.ending = ending
        metrics.detail = detail
        self._poller.stop()
        if not beside_another:
            self._telemetry.heartbeat.stop()
        self._telemetry.summaries.close()
        self._ownership.release()
        if self._inputs is not None:
            self._inputs.close()

    def _failed(self, why: str) -> None:
        beside_another = self._is_beside_another()
        if not beside_another:
            self._telemetry.note(JournalKind.FAILED, why)
        self.release(Ending.FAILED, why, beside_another=beside_another)

    def _lost_peer(self, why: str) -> None:
        self._telemetry.note(JournalKind.WORKER_LOST, why)
        self.release(Ending.PEER_LOST, why, beside_another=self._is_beside_another())

    def _explain_loss(self) -> str:
        since = self._telemetry.heartbeat.process_started_at
        return explain_lost_worker(self._run, self._group.index, since)

    def _is_beside_another(self) -> bool:
        """Whether another trainer uses this directory: its status file must not be replaced."""
        if self._telemetry.heartbeat.has_started:
            return False
        return find_other_trainer(self._run, self._group.index) is not None

    @property
    def _is_alone(self) -> bool:
        return self._group.processes == 1
