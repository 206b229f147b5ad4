"""Runs the commands of Slurm, and says what went wrong."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch.slurm.variables import command_environment
from tfckpt_trainer.scripts.exit_statuses import exit_words

COMMAND_SECONDS = 20.0
"""Time limit for a command of Slurm; a busy controller takes seconds."""


_NO_ANSWER = re.compile(
    r"timed out on send/recv|zero bytes were transmitted|(send|receive|shutdown) failure"
    # What `scontrol requeue` says of all of them.
    r"|unexpected message received",
    re.I,
)
"""Errors of a request that the controller may have carried out."""

_HINT = re.compile(r"Try .*--help")


class UnansweredError(LaunchError):
    """Slurm did not answer a command. It may have carried it out."""


class CommandOutput(msgspec.Struct, frozen=True):
    """The exit status of a command and what it printed."""

    status: int
    output: str
    errors: str = ""

    @property
    def last_line(self) -> str:
        """The last line that it printed, preferably an error."""
        line = _last_line(self.errors or self.output)
        return line or f"It {exit_words(self.status)}."


Runner = Callable[[Sequence[str], float], CommandOutput]
"""Runs a command with a time limit in seconds. Raises `OSError` or `subprocess.TimeoutExpired`."""


def run_command(command: Sequence[str], seconds: float) -> CommandOutput:
    """Runs a command of Slurm in the environment of `command_environment`.

    Raises:
        OSError: The command cannot be started.
        subprocess.TimeoutExpired: It did not end in time, and was killed.
    """
    # Imported here, as in what asks Slurm: most runs have no batch job.
    import subprocess

    environment = command_environment(os.environ)
    if command[0] == "squeue":
        # Not for sbatch, which hands its environment to the job.
        environment["SLURM_TIME_FORMAT"] = "%s"
    # Slurm tells all processes of a job to end when it requeues the job. The new process inherits
    # that it does not listen: what a requeue asks for after it is asked for in that second.
    listening = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, listening)
    with started as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except BaseException:
            # It may be a script of the site around Slurm's own.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return CommandOutput(process.returncode, output, errors)


def _last_line(text: str | bytes | None) -> str:
    """Returns the last line that says something; of a killed command, the text is not decoded.

    Errors in options are followed by a line that only names `--help`.
    """
    decoded = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
    lines = [line.strip() for line in decoded.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if not _HINT.match(line)), "")


def ask_slurm(
    command: Sequence[str], *, runner: Runner = run_command, seconds: float = COMMAND_SECONDS
) -> str:
    """Runs a command of Slurm that has to succeed, and returns its output.

    Raises:
        UnansweredError: It took too long, or was killed, or Slurm's controller did not answer.
        LaunchError: It is missing, or it failed.
    """
    import subprocess

    name = command[0]
    try:
        done = runner(command, seconds)
    except FileNotFoundError:
        raise LaunchError(
            f"This machine has no `{name}`. Use a login node of the cluster."
        ) from None
    except subprocess.TimeoutExpired as error:
        said = _last_line(error.stderr).rstrip(".")
        advice = f"It said: {said}." if said else "Check with `sinfo` whether Slurm works."
        raise UnansweredError(f"`{name}` did not end within {seconds:g} s. {advice}") from None
    except OSError as error:
        raise LaunchError(f"`{name}` cannot be started: {error.strerror or error}.") from None
    if done.status < 0 or (done.status and _NO_ANSWER.search(done.errors)):
        raise UnansweredError(f"`{name}` failed: {done.last_line}")
    if done.status != 0:
        raise LaunchError(f"`{name}` failed: {done.last_line}")
    return done.output
