"""What the supervisor asks of Slurm's controller about its own job."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfckpt_trainer.cluster.host_list import expand_hosts
from tfckpt_trainer.errors import LaunchError, UsageError
from tfckpt_trainer.launch.slurm.commands import ask_slurm
from tfckpt_trainer.words.times import local_time

_FIELD = re.compile(r"(?:^|\s)([A-Za-z/:]+)=(\S*)")
_STEP = re.compile(r"\d+\.\d+", re.ASCII)
_NO_REASON = {"", "None"}
_POLL_SECONDS = 0.2
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"


_ENDED = {
    "", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
}  # fmt: skip
"""States of jobs that do not start again; the first is that of a job that Slurm has forgotten."""


_DEAD_STATES = ("down", "fail", "power")


@dataclass(frozen=True)
class SlurmJob:
    """What Slurm says about a job.

    Attributes:
        state: Slurm's word, such as `RUNNING`; empty if it does not answer.
        restarts: How often the job was started again.
        preempted: Whether Slurm ends it for a job of higher priority.
        timed_out: Whether Slurm ends it at its time limit.
        killed: Whether the process that Slurm started was killed, and nobody cancelled the job.
        ends_at: Time of the time limit; None without one.
        nodes: Its nodes, in Slurm's order; without those that died.
    """

    state: str = ""
    restarts: int = 0
    preempted: bool = False
    timed_out: bool = False
    killed: bool = False
    ends_at: float | None = None
    nodes: tuple[str, ...] = ()

    @property
    def has_ended(self) -> bool:
        """Whether the job neither runs nor waits."""
        return self.state in _ENDED

    @property
    def is_ending(self) -> bool:
        """Whether Slurm ends the job, for whatever reason."""
        return self.preempted or self.state not in {"", "RUNNING"}


def read_job(job: str, while_waiting: Callable[[], None] | None = None) -> SlurmJob:
    """Asks Slurm about a job; the facts are empty if it does not answer.

    Args:
        job: The job ID.
        while_waiting: Called repeatedly: a busy controller takes seconds. What it raises ends the
            wait.
    """
    if while_waiting is not None:
        return _read_in_thread(job, while_waiting)
    try:
        shown = ask_slurm(["scontrol", "--oneliner", "show", "job", job])
    except LaunchError:
        return SlurmJob()
    return parse_job(shown)


def _read_in_thread(job: str, while_waiting: Callable[[], None]) -> SlurmJob:
    facts: list[SlurmJob] = []
    thread = threading.Thread(target=lambda: facts.append(read_job(job)), daemon=True)
    thread.start()
    while thread.is_alive():
        while_waiting()
        thread.join(_POLL_SECONDS)
    return facts[0] if facts else SlurmJob()


def parse_job(text: str) -> SlurmJob:
    """Reads the facts from one line of `scontrol show job`."""
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(text):
        fields.setdefault(name, value)
    reason = fields.get("Reason", "")
    # A job that is cancelled has no reason.
    signal = fields.get("ExitCode", "").rpartition(":")[2] if reason not in _NO_REASON else ""
    return SlurmJob(
        state=fields.get("JobState", ""),
        restarts=int(fields["Restarts"]) if fields.get("Restarts", "").isdigit() else 0,
        preempted=fields.get("PreemptTime", "None") not in {"None", "Unknown", ""},
        timed_out=reason == "TimeLimit",
        killed=signal not in {"", "0"},
        ends_at=_time(fields.get("EndTime", "")),
        nodes=_hosts(fields.get("NodeList", "")),
    )


def running_steps(job: str) -> list[str]:
    """Returns the IDs of the job steps that run, without the batch step: `14.2`.

    Raises:
        LaunchError: Slurm does not answer.
    """
    shown = ask_slurm(["squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i"])
    return [step for step in shown.split() if _STEP.fullmatch(step)]


def cancel_steps(steps: Sequence[str]) -> None:
    """Kills the processes of job steps.

    Raises:
        LaunchError: Slurm refuses, or it does not answer.
    """
    ask_slurm(["scancel", *steps])


def requeue_job(job: str) -> None:
    """Makes Slurm end a job and start it again.

    Raises:
        LaunchError: Slurm refuses, or it does not answer.
    """
    ask_slurm(["scontrol", "requeue", job])


def delay_job(job: str, seconds: float, tell: Callable[[str], None]) -> None:
    """Makes a requeued job wait before it starts, or tells why it does not wait.

    Slurm would start it at once if a node of it is down already. In the second of the requeue,
    other nodes take the new start for the old one, and the job fails.
    """
    start = local_time(time.time() + seconds, _TIME_FORMAT)
    try:
        ask_slurm(["scontrol", "update", f"JobId={job}", f"StartTime={start}"])
    except LaunchError as error:
        tell(f"The job starts again without a pause. {error}")


def waits_again(job: str, seconds: float) -> str:
    """Says that a job was requeued, and for how many seconds it waits."""
    return f"Job {job} waits in the queue again, for {seconds / 60:.0f} minutes or more."


def describe_dead_nodes(nodes: Sequence[str]) -> str:
    """Asks Slurm which of some nodes are down; returns that as a sentence.

    The sentence is empty if none is, or if Slurm does not answer.
    """
    if not nodes:
        return ""
    try:
        shown = ask_slurm(
            ["sinfo", "--noheader", "--Node", f"--nodes={','.join(nodes)}", "--format=%N|%T|%E"]
        )
    except LaunchError:
        return ""
    return dead_nodes_in_words(shown)


def dead_nodes_in_words(shown: str) -> str:
    """Returns which nodes are down, from lines `node|state|reason` of `sinfo`."""
    sentences: dict[str, str] = {}
    for line in shown.splitlines():
        node, state, reason = (part.strip() for part in (*line.split("|", 2), "", "")[:3])
        # A star marks a node that does not respond.
        if state.startswith(_DEAD_STATES):
            cause = f": {reason}" if reason not in {"", "none"} else ""
            sentences[node] = f"Node {node} is {state.rstrip('*')}{cause}."
        elif state.endswith("*"):
            sentences[node] = f"Node {node} does not respond."
    return " ".join(sentences.values())


def _hosts(text: str) -> tuple[str, ...]:
    try:
        return expand_hosts(text) if text != "(null)" else ()
    except UsageError:
        return ()


def _time(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, _TIME_FORMAT))
    except ValueError:
        return None
