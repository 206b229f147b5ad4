"""The options of a launch that only Slurm needs."""

from __future__ import annotations

import re

import msgspec

from tfckpt_trainer.errors import UsageError

MAX_REQUEUES = 100

_NODES = re.compile(r"([1-9]\d{0,5})(?:-([1-9]\d{0,5}))?")

_TIME_OPTION = re.compile(r"(?:--time=|-t=?)(.+)")
_DAYS_TIME = re.compile(r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?")
_TIME = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+)")

_OURS = {
    "--array": "launch each run in a directory of its own",
    "--ntasks": "give --nodes and --tasks-per-node",
    "--output": "the log of the job is in the run directory",
    "--no-requeue": "give --max-requeues 0",
}
"""Arguments of sbatch that a launch cannot take, and what to do instead."""


class SlurmOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a launch asks of Slurm.

    Attributes:
        nodes: Number of nodes, or a range such as `1-4`. A run goes on with the nodes that are
            left as long as they are in the range.
        tasks_per_node: Worker processes on each node.
        gpus_per_node: GPUs on each node; 0 asks for none.
        time: Time limit, as sbatch takes it; empty for that of the partition.
        partition: Partition; empty for the default.
        account: Account; empty for the default.
        arguments: Further arguments of sbatch.
        max_requeues: How often the job is started again.
    """

    nodes: str = "1"
    tasks_per_node: int = 1
    gpus_per_node: int = 0
    time: str = ""
    partition: str = ""
    account: str = ""
    arguments: tuple[str, ...] = ()
    max_requeues: int = MAX_REQUEUES

    @property
    def least_nodes(self) -> int:
        """The smallest number of nodes that the run may go on with."""
        match = _NODES.fullmatch(self.nodes)
        return int(match[1]) if match else 1

    @property
    def is_range(self) -> bool:
        """Whether Slurm may choose the number of nodes."""
        match = _NODES.fullmatch(self.nodes)
        return match is not None and match[2] not in {None, match[1]}

    @property
    def limit_seconds(self) -> float | None:
        """The time limit of the job, if it is given and not unlimited."""
        matches = (_TIME_OPTION.fullmatch(argument) for argument in self.arguments)
        given = [self.time, *(match[1] for match in matches if match is not None)]
        return time_limit(given[-1])

    def check(self) -> None:
        """Checks the options.

        Raises:
            UsageError: One is invalid.
        """
        match = _NODES.fullmatch(self.nodes)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f"--nodes is {self.nodes!r}; expected a number or a range, as in 1-4.")
        if self.tasks_per_node < 1 or self.gpus_per_node < 0 or self.max_requeues < 0:
            raise UsageError(
                "--tasks-per-node must be at least 1; --gpus-per-node and --max-requeues cannot "
                "be negative."
            )
        for text in (self.time, self.partition, self.account, *self.arguments):
            if any(not letter.isprintable() for letter in text):
                raise UsageError(f"{text!r} contains a control character; remove it.")
        for argument in self.arguments:
            name = argument.partition("=")[0]
            if not argument.startswith("-"):
                raise UsageError(
                    f"--sbatch-arg is {argument!r}; expected an option with its value, as in "
                    "--sbatch-arg=--mem=16G."
                )
            if name in _OURS:
                raise UsageError(f"--sbatch-arg {name} cannot be used; {_OURS[name]}.")


def time_limit(text: str) -> float | None:
    """Returns a time limit of sbatch, such as `30`, `8:00:00` or `1-12`, in seconds.

    Returns None for an empty or unknown text, and for one that means no limit.
    """
    with_days = _DAYS_TIME.fullmatch(text)
    if with_days is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in with_days.groups())
        return float(days * 86_400 + hours * 3600 + minutes * 60 + seconds) or None
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    first, second, last = (int(part) if part else None for part in match.groups())
    if second is None:
        # A number alone is minutes.
        return float((last or 0) * 60) or None
    return float((first or 0) * 3600 + second * 60 + (last or 0)) or None
