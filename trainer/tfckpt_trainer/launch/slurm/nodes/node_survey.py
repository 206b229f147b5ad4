"""Checks all nodes of a job with one job step, and judges their reports."""

from __future__ import annotations

import fcntl
import os
import sys
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from tfckpt_trainer.launch.slurm.job_step import JobStep
from tfckpt_trainer.launch.slurm.nodes.node_check import (
    PORTS_VARIABLE,
    TOKEN_VARIABLE,
    NodeReport,
    answer_file,
    token_file,
)
from tfckpt_trainer.launch.slurm.variables import step_environment
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import delete_file, open_shared, rename

CHECK_MODULE = "tfckpt_trainer.launch.slurm.nodes.node_check"

FIRST_ANSWER_SECONDS = 120.0
"""Time limit for the first report; a node with a cold file system takes long to start Python."""

OTHER_ANSWERS_SECONDS = 20.0
"""Time limit for the others after the first."""

RENAME_SECONDS = 5.0
"""How long the supervisor waits to see the files that nodes renamed."""

CLOCK_SECONDS = 5.0
"""Difference of clocks from which on it is reported."""


@dataclass(frozen=True)
class NodeAnswer:
    """The report of a node, and when it came by the supervisor's clock."""

    report: NodeReport
    received_at: float


@dataclass(frozen=True)
class NodeSurvey:
    """What the checks of all nodes found.

    Attributes:
        nodes: Nodes that answered, in Slurm's order.
        silent: Nodes that did not.
        refusals: Why no worker may start.
        disk_full: Whether one of the reasons is a full disk.
        warnings: What the user should know.
        versions: Versions on the first node.
        ports_taken: Whether another program uses a port.
    """

    nodes: tuple[str, ...]
    silent: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    ports_taken: bool = False
    disk_full: bool = False

    @property
    def summary(self) -> str:
        """One line for the event log; empty if no node answered."""
        if not self.nodes or self.refusals:
            return ""
        versions = "".join(f", {name} {number}" for name, number in self.versions)
        return f"Checked {', '.join(self.nodes)}: same run directory{versions}."


def survey_nodes(
    run: RunDirectory,
    nodes: Sequence[str],
    ports: Mapping[str, Sequence[int]],
    while_waiting: Callable[[], None],
) -> NodeSurvey:
    """Checks all nodes.

    Args:
        run: The run directory.
        nodes: The nodes, in Slurm's order.
        ports: The ports that TensorFlow will use, by node.
        while_waiting: Called repeatedly. What it raises ends the check.

    Raises:
        OSError: The run directory cannot be written, or `srun` cannot be run.
    """
    token = uuid.uuid4().hex
    own = token_file(run, token)
    temporary = own.with_name(f".{own.name}.tmp")
    with os.fdopen(open_shared(temporary, os.O_WRONLY), "w", encoding="ascii") as file:
        file.write(token)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        rename(temporary, own)
        try:
            answers = _ask(run, nodes, token, ports, while_waiting)
            answered = [node for node in nodes if node in answers]
            unseen = _unseen(run, token, answered, while_waiting)
        finally:
            for path in (own, *(answer_file(run, token, node) for node in nodes)):
                with suppress(OSError):
                    delete_file(path)
    return judge(nodes, answers, unseen)


def judge(
    nodes: Sequence[str], answers: Mapping[str, NodeAnswer], unseen: Collection[str] = ()
) -> NodeSurvey:
    """Judges the reports of the nodes.

    Args:
        nodes: The nodes, in Slurm's order.
        answers: The reports, by node.
        unseen: Nodes whose renamed files the first node does not see.
    """
    answered = [node for node in nodes if node in answers]
    reports = {node: answers[node].report for node in answered}
    refusals = [f"{node}: {report.problem}." for node, report in reports.items() if report.problem]
    refusals += _version_differences(reports)
    warnings = []
    for node, report in reports.items():
        difference = report.at - answers[node].received_at
        if abs(difference) > CLOCK_SECONDS:
            warnings.append(
                f"The clock of {node} differs by {difference:+.0f} s. Times in the event log "
                "differ too; synchronize the clocks."
            )
        if report.taken_ports:
            taken = ", ".join(map(str, report.taken_ports))
            warnings.append(f"Another program uses port {taken} on {node}; others are used.")
    unlocked = [
        node for node, report in reports.items() if not report.locked and not report.problem
    ]
    if unlocked:
        warnings.append(
            f"Locks (flock) are not shared with {', '.join(unlocked)}. Heartbeats alone keep a "
            "second trainer out; never start two at once."
        )
    late = [node for node in answered if node in unseen and not reports[node].problem]
    if late:
        warnings.append(
            f"Files that {', '.join(late)} renamed were not seen in {RENAME_SECONDS:g} s: the file "
            "system caches directories. Restarts and commands take longer; mount it with a "
            "shorter cache, such as `actimeo=3` for NFS."
        )
    first = reports[answered[0]].versions if answered else {}
    return NodeSurvey(
        nodes=tuple(answered),
        silent=tuple(node for node in nodes if node not in answers),
        refusals=tuple(refusals),
        warnings=tuple(warnings),
        versions=tuple(first.items()),
        ports_taken=any(report.taken_ports for report in reports.values()),
        disk_full=any(report.disk_full for report in reports.values()),
    )


def _version_differences(reports: Mapping[str, NodeReport]) -> list[str]:
    differences = []
    first = next(iter(reports), "")
    for node, report in reports.items():
        for name, number in reports[first].versions.items():
            other = report.versions.get(name, "none")
            if other != number:
                differences.append(
                    f"{node} has {name} {other}, {first} has {number}. Use the same environment "
                    "on all nodes."
                )
    return differences


def _ask(
    run: RunDirectory,
    nodes: Sequence[str],
    token: str,
    ports: Mapping[str, Sequence[int]],
    while_waiting: Callable[[], None],
) -> dict[str, NodeAnswer]:
    environment = {
        **step_environment(os.environ),
        TOKEN_VARIABLE: token,
        PORTS_VARIABLE: msgspec.json.encode(ports).decode(),
    }
    command = [sys.executable, "-P", "-m", CHECK_MODULE, str(run.root)]
    step = JobStep(nodes, len(nodes), command, environment)
    answers: dict[str, NodeAnswer] = {}
    deadline = time.monotonic() + FIRST_ANSWER_SECONDS
    try:
        while len(answers) < len(nodes) and time.monotonic() < deadline:
            ended = step.has_ended
            for message in step.messages(0.1):
                if not answers:
                    deadline = time.monotonic() + OTHER_ANSWERS_SECONDS
                with suppress(msgspec.ValidationError):
                    report = msgspec.convert(message, NodeReport)
                    answers[report.node] = NodeAnswer(report, time.time())
            if ended:
                break
            while_waiting()
    finally:
        if len(answers) < len(nodes):
            step.cancel()
        else:
            step.wait(1.0)
    return answers


def _unseen(
    run: RunDirectory, token: str, nodes: Sequence[str], while_waiting: Callable[[], None]
) -> list[str]:
    deadline = time.monotonic() + RENAME_SECONDS
    while True:
        names = set(os.listdir(run.status_directory))
        missing = [node for node in nodes if answer_file(run, token, node).name not in names]
        if not missing or time.monotonic() > deadline:
            return missing
        while_waiting()
        time.sleep(0.1)
