"""Answers of a real Slurm 22.05, in the place of its commands, and variables that its pages list.

They are recorded in tests/data/slurm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tfckpt_trainer.launch.slurm.commands import CommandOutput

RECORDS = Path(__file__).parent / "data" / "slurm"

LINE = "<S>{id}<S>{state}<S>{reason}<S>{start}<S>{end}<S>{limit}<S>{submitted}<S>{nodes}<S>{part}"
LINE += "<S>{user}<S>{directory}<S>{script}<S>{name}\n"


def job_line(**fields: object) -> str:
    """One line as `squeue` prints it; a job that waits for nodes, but for `fields`."""
    usual = {
        "id": "1234",
        "state": "PENDING",
        "reason": "Resources",
        "start": "N/A",
        "end": "N/A",
        "limit": "8:00:00",
        "submitted": "1795341252",
        "nodes": "",
        "part": "batch",
        "user": "ada",
        "directory": "/home/ada",
        "script": "/home/ada/run/.tfckpt/job.sbatch",
        "name": "language-model",
    }
    return LINE.format(**{**usual, **fields})


ASKED_BY_VARIABLES = {
    "SBATCH_ACCOUNT": "--account",
    "SBATCH_CONSTRAINT": "--constraint",
    "SBATCH_PARTITION": "--partition",
    "SBATCH_QOS": "--qos",
    "SBATCH_RESERVATION": "--reservation",
    "SBATCH_TIMELIMIT": "--time",
    "SBATCH_WCKEY": "--wckey",
}
"""What a user may ask of sbatch by variables, with its options."""


def listed_variables(*pages: str) -> set[str]:
    """The environment variables in the manual pages of some commands; `job`: those of a job."""
    lists = dict(line.split(": ") for line in (RECORDS / "variables.txt").read_text().splitlines())
    return {name for page in pages for name in lists[page].split()}


class RecordedSlurm:
    """Runs no command: hands over what was recorded or made, and keeps what it was asked."""

    def __init__(self, output: str = "", *, status: int = 0, errors: str = "") -> None:
        self.output, self.status, self.errors = output, status, errors
        self.commands: list[Sequence[str]] = []
        self.raises: Exception | None = None
        self.private = "none"

    @classmethod
    def forgetful(cls, *, private: str = "none") -> RecordedSlurm:
        """Slurm without a job that this user may see; `private` is what its `PrivateData` says."""
        made = cls(status=1, errors="slurm_load_jobs error: Invalid job id specified\n")
        made.private = private
        return made

    @classmethod
    def recorded(cls, name: str) -> RecordedSlurm:
        return cls((RECORDS / f"{name}.txt").read_text())

    def __call__(self, command: Sequence[str], seconds: float) -> CommandOutput:
        self.commands.append(command)
        if self.raises is not None:
            raise self.raises
        if command[:3] == ("scontrol", "show", "config"):
            return CommandOutput(0, f"PrivateData             = {self.private}\n", "")
        if command[0] != "squeue":
            return CommandOutput(self.status, "", self.errors)
        form = next(part for part in command if part.startswith("--format="))
        separator = re.match(r"--format=(<[0-9a-f]+>)", form)
        assert separator is not None
        output = self.output.replace("<S>", separator[1])
        return CommandOutput(self.status, output, self.errors)

    def asked(self, program: str) -> int:
        return sum(command[0] == program for command in self.commands)
