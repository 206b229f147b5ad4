"""What the threads of a process without this library do, by py-spy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_tui.formats.process_columns import HostProcess
from tfckpt_tui.formats.text import clean, clean_message
from tfckpt_tui.reports.stacks import ThreadFacts, WorkerStacksFacts

_MOST_THREADS = 1000
_MAIN = "MainThread"


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0

    def __str__(self) -> str:
        return clean(f"{self.filename}:{self.line} in {self.name}")


class _Thread(msgspec.Struct):
    """A thread as py-spy prints it, its innermost frame first."""

    frames: list[_Frame]
    thread_name: str | None = None


def dump_stacks(process: HostProcess, timeout: float) -> WorkerStacksFacts:
    """Returns what the threads of a process do; py-spy halts it for a moment.

    Args:
        process: The process.
        timeout: Seconds to wait for py-spy.

    Raises:
        TfckptError: py-spy is not installed.
    """
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))
    if spy is None:
        raise TfckptError(
            f"{process.title} does not use tfckpt_trainer. Its stacks need py-spy: "
            "`pip install py-spy`."
        )
    command = [spy, "dump", "--json", "--pid", str(process.pid)]
    problem, threads = "", []
    try:
        ended = subprocess.run(command, capture_output=True, timeout=timeout, check=True)
        threads = msgspec.json.decode(ended.stdout, type=list[_Thread])[:_MOST_THREADS]
    except subprocess.CalledProcessError as error:
        problem = clean_message(error.stderr.decode("utf-8", "replace")) or "py-spy failed."
    except subprocess.TimeoutExpired:
        problem = f"py-spy did not answer within {timeout:g} s."
    except (OSError, msgspec.MsgspecError) as error:
        problem = clean_message(f"The answer of py-spy cannot be read: {error}.")
    return WorkerStacksFacts(
        worker=None,
        pid=process.pid,
        host=clean(host_name()),
        problem=problem,
        threads=tuple(_facts(thread, process) for thread in sorted(threads, key=_is_other)),
    )


def _is_other(thread: _Thread) -> bool:
    return thread.thread_name != _MAIN


def _facts(thread: _Thread, process: HostProcess) -> ThreadFacts:
    return ThreadFacts(
        name=clean(thread.thread_name or "thread"),
        is_main=thread.thread_name == _MAIN,
        script_line=_script_line(thread.frames, process),
        frames=tuple(map(str, reversed(thread.frames))),
    )


def _script_line(frames: Sequence[_Frame], process: HostProcess) -> str:
    """Returns the innermost line of the script; empty if it is in no frame."""
    script = os.path.basename(process.script)
    found = (one for one in frames if os.path.basename(one.filename) == script)
    return next((clean(f"{one.filename}:{one.line}") for one in found), "")
