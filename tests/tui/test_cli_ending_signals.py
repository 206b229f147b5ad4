"""Signals end a command wherever they arrive, also where Python loses the exception."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from waiting import MOST_SECONDS

SCRIPT = """
import os, signal, sys, time, weakref
from tfckpt_tui.cli.ending_signals import EndingSignals

NUMBER = signal.{number}

class Thing:
    pass

def lose(during):
    thing = Thing()
    kept = weakref.ref(thing, during)
    del thing

def drop(during):
    try:
        during(None)
    except BaseException:
        pass

def replace_error(during):
    try:
        during(None)
    except BaseException:
        raise ImportError("read this for advice")

def end(_):
    os.kill(os.getpid(), NUMBER)

def fail(_):
    raise ValueError("not a signal")

def act():
    try:
        {act}
        for _ in range(3000):
            time.sleep(0.01)
    finally:
        print("tidied up")

signals = EndingSignals()
signals.raise_on([NUMBER])
try:
    sys.exit(signals.status_of(act))
except KeyboardInterrupt:
    sys.exit("interrupted")
"""


def run_script(act: str, number: str) -> subprocess.CompletedProcess[str]:
    script = SCRIPT.format(act=act, number=number)
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS)


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [("SIGTERM", 143, ""), ("SIGHUP", 129, ""), ("SIGINT", 1, "interrupted\n")],
)
@pytest.mark.parametrize("act", ["end(None)", "lose(end)", "drop(end)"])
def test_a_command_ends_and_tidies_up(act: str, number: str, status: int, said: str) -> None:
    ended = run_script(act, number)
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "tidied up\n", said)


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_an_error_in_place_of_a_signal_is_not_shown(number: str) -> None:
    ended = run_script("replace_error(end)", number)
    status = 128 + signal.Signals[number]
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "tidied up\n", "")


def test_other_errors_are_shown() -> None:
    assert "not a signal" in run_script("lose(fail); return 0", "SIGTERM").stderr
    ended = run_script("replace_error(fail)", "SIGTERM")
    assert "read this for advice" in ended.stderr
    assert ended.returncode == 1


def test_an_ignored_signal_stays_ignored() -> None:
    act = "signal.signal(NUMBER, signal.SIG_IGN); signals.raise_on([NUMBER]); end(None); return 0"
    assert run_script(act, "SIGHUP").returncode == 0
