"""Exit statuses: in words, and those that make a launcher or a scheduler start a script again."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import NamedTuple

from tfckpt_trainer.errors import ExitCode, UsageError

PREEMPTED_VARIABLE = "TFCKPT_PREEMPTED_STATUS"
RESTART_VARIABLE = "TFCKPT_RESTART_STATUS"

_HIGHEST = 255

_SHELL = 128
"""A shell ends with so much more than the signal that killed what it ran."""


def exit_words(status: int) -> str:
    """Returns how a process ended: `ended with status 1`, `was killed by SIGKILL`.

    Args:
        status: Its exit status, negative for a signal.
    """
    if status < 0:
        return f"was killed by {signal_name(-status)}"
    words = f"ended with status {status}"
    name = _signal_in(status)
    if not name:
        return words
    memory = ", often because memory ran out" if name == signal.SIGKILL.name else ""
    return f"{words} (usually killed by {name}{memory})"


def is_of_signal(status: int) -> bool:
    """Whether a process was killed by a signal, or says that a process that it started was."""
    return status < 0 or bool(_signal_in(status))


def signal_name(number: int) -> str:
    """Returns `SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _signal_in(status: int) -> str:
    """Returns the name of the signal that a status tells as a shell does; empty if it does not."""
    number = status - _SHELL
    return signal.Signals(number).name if number in set(signal.Signals) else ""


class ExitStatuses(NamedTuple):
    """The statuses of a script that is to be started again.

    Attributes:
        preempted: After a preemption, once everything is saved.
        restart: After another worker was lost, so that all workers must be restarted.
    """

    preempted: int = ExitCode.PREEMPTED
    restart: int = ExitCode.RESTART_WORKERS


def choose_statuses(
    preempted: int | None = None,
    restart: int | None = None,
    environment: Mapping[str, str] = os.environ,
) -> ExitStatuses:
    """Returns the given statuses; those that are None come from the environment, if it has them.

    Raises:
        UsageError: A status is not one that a process can exit with.
    """
    default = ExitStatuses()
    return ExitStatuses(
        preempted=_check("preempted_status", preempted, 0)
        if preempted is not None
        else _read(environment, PREEMPTED_VARIABLE, default.preempted, 0),
        # A lost worker is never the end of training.
        restart=_check("restart_status", restart, 1)
        if restart is not None
        else _read(environment, RESTART_VARIABLE, default.restart, 1),
    )


def _read(environment: Mapping[str, str], name: str, default: int, lowest: int) -> int:
    text = environment.get(name)
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        raise _refused(name, repr(text), lowest) from None
    return _check(name, value, lowest)


def _check(name: str, value: int, lowest: int) -> int:
    if not lowest <= value <= _HIGHEST:
        raise _refused(name, str(value), lowest)
    return value


def _refused(name: str, value: str, lowest: int) -> UsageError:
    return UsageError(f"{name} is {value}; it must be a number from {lowest} to {_HIGHEST}.")
