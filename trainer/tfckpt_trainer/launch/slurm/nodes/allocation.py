"""The nodes of a job: which of them work, and whether Slurm ends the job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.launch.processes.workers import POLL_SECONDS
from tfckpt_trainer.launch.slurm.controller import SlurmJob, read_job
from tfckpt_trainer.launch.slurm.nodes.node_survey import NodeSurvey, survey_nodes
from tfckpt_trainer.launch.slurm.step_starter import ChosenNodes
from tfckpt_trainer.launch.supervision.restart_policy import Next
from tfckpt_trainer.launch.supervision.starters import CannotStartError
from tfckpt_trainer.launch.supervision.supervisor import Supervisor
from tfckpt_trainer.rundir.full_disk import is_full
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind

SECOND_SURVEY_SECONDS = 5.0
"""Pause before the nodes are checked again if none answered: Slurm may just remove one."""


class Allocation:
    """Chooses nodes that work; a `NodeChooser`.

    Attributes:
        supervisor: The supervisor that starts workers here; set once there is one.
        obstacle: What prevented the last start, and may not prevent another; empty if nothing did.
        on_nodes: Called with the nodes of each start.
    """

    def __init__(self, run: RunDirectory, job: str, nodes: Sequence[str], least_nodes: int) -> None:
        self._run = run
        self._job = job
        self._nodes = tuple(nodes)
        self._least_nodes = least_nodes
        self._checked = False
        self.supervisor: Supervisor | None = None
        self.obstacle = ""
        self.on_nodes: Callable[[Sequence[str]], None] = lambda _: None

    def choose(
        self, ports: Callable[[Sequence[str]], Mapping[str, Sequence[int]]], lost: bool
    ) -> ChosenNodes:
        """Returns the nodes that work. They are checked first, and after one was lost.

        Raises:
            CannotStartError: Slurm ends the job, too few nodes are left, or a node cannot be used.
        """
        facts = read_job(self._job, self._beat)
        if facts.is_ending:
            raise CannotStartError(_why_ending(facts), Next.STOP)
        if self._checked and not lost:
            return ChosenNodes(self._nodes)
        try:
            survey = self._survey(facts, ports)
        except OSError as error:
            if not is_full(error):
                raise
            raise self._cannot_go_on(f"{describe_error(error)}.") from error
        self._tell(survey)
        if survey.disk_full:
            raise self._cannot_go_on(" ".join(survey.refusals))
        if survey.refusals:
            raise CannotStartError(" ".join(survey.refusals), Next.FAIL)
        if not survey.nodes:
            raise self._cannot_go_on(f"No node answered the check; read {self._run.job_log}.")
        self._check_count(survey.nodes)
        self._checked = True
        self._nodes = survey.nodes
        self.on_nodes(survey.nodes)
        return ChosenNodes(survey.nodes, survey.ports_taken)

    def _survey(
        self,
        facts: SlurmJob,
        ports: Callable[[Sequence[str]], Mapping[str, Sequence[int]]],
    ) -> NodeSurvey:
        # Slurm refuses a step with a node that it has taken out of the job.
        nodes = [node for node in self._nodes if node in facts.nodes] or list(self._nodes)
        survey = survey_nodes(self._run, nodes, ports(nodes), self._beat)
        if survey.nodes:
            return survey
        deadline = time.monotonic() + SECOND_SURVEY_SECONDS
        while time.monotonic() < deadline:
            self._beat()
            time.sleep(POLL_SECONDS)
        job_nodes = read_job(self._job, self._beat).nodes
        nodes = [node for node in self._nodes if node in job_nodes] or nodes
        return survey_nodes(self._run, nodes, ports(nodes), self._beat)

    def _check_count(self, nodes: Sequence[str]) -> None:
        silent = [node for node in self._nodes if node not in nodes]
        if len(nodes) >= self._least_nodes:
            if silent:
                self._note(f"{', '.join(silent)} is gone; training goes on without it.")
            return
        raise self._cannot_go_on(
            f"{', '.join(silent)} is gone: {len(nodes)} of {len(self._nodes)} nodes are left, and "
            f"the run needs {self._least_nodes}."
        )

    def _cannot_go_on(self, reason: str) -> CannotStartError:
        """Returns the error for what another start of the job may not meet."""
        self.obstacle = reason
        return CannotStartError(reason, Next.STOP)

    def _tell(self, survey: NodeSurvey) -> None:
        for line in (survey.summary, *survey.warnings):
            if line:
                self._note(line)

    def _note(self, line: str) -> None:
        if self.supervisor is not None:
            self.supervisor.report.note(EventKind.NOTE, line)

    def _beat(self) -> None:
        """Writes a heartbeat if it is due; ends the check if the run is to stop."""
        if self.supervisor is None:
            return
        self.supervisor.report.beat_if_due()
        reason = self.supervisor.asked_to_stop
        if reason:
            raise CannotStartError(reason, Next.STOP)


def _why_ending(facts: SlurmJob) -> str:
    if facts.preempted:
        return "The job is preempted."
    return f"Slurm ends the job ({facts.state})."
