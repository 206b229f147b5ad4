"""Curves of TensorBoard event files: how soon the app draws them, and what reading them takes.

    python tests/benchmarks/event_curves.py [--megabytes N ...] [--rounds N]

Four writers have a directory each: two write as `tf.summary.scalar` of TensorFlow 2, an event for
each value, and two as an Estimator, ten values in an event. The app is started in a
pseudo-terminal, in turns with a bare Textual app. Everything is read once in the app, by its
reader in a process of its own, and by TensorBoard's `EventAccumulator` in another. That imports
TensorFlow at its first use, which is done before: it is in its memory, and not in its time.
"""

from __future__ import annotations

import argparse
import math
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

for part in ("", "e2e"):
    sys.path.insert(0, str(Path(__file__).parents[1] / part))
from first_frame import BARE, first_frame
from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
from terminal import Terminal

from event_files import record, simple_value, tensor_value

MEGABYTES = (3, 30, 300)
LIMIT_SECONDS = 1800.0
VALUES = 256
"""Different values of a metric, which come again and again."""

OURS = """
import gc, sys, time
import tfckpt_tui.cli
from pathlib import Path
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.monitor.snapshot_reader import SeriesReader
gc.freeze()
reader, began = SeriesReader(RunDirectory(Path(sys.argv[1]))), time.process_time()
reader.read()
first = time.process_time() - began
while not reader.has_read_all:
    reader.read()
"""
THEIRS = """
import gc, sys, time
from pathlib import Path
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat import tf
tf.io.gfile
gc.freeze()
began, first = time.process_time(), 0.0
read = [EventAccumulator(str(place)).Reload() for place in Path(sys.argv[1]).iterdir()]
"""
# Not `getrusage`, whose peak begins with that of the process which started this one.
END = """
taken = time.process_time() - began
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
print(taken, first, peak)
"""


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=MEGABYTES)
    parser.add_argument("--rounds", type=int, default=5, help="of the first curves")
    options = parser.parse_args()
    for megabytes in options.megabytes:
        with tempfile.TemporaryDirectory() as directory:
            run, cache = Path(directory) / "run", Path(directory) / "cache"
            fill(run, megabytes * 1_000_000)
            measure(run, cache, options.rounds, megabytes)


def fill(run: Path, size: int) -> None:
    """Writes event files of so many bytes in all."""
    names = ("epoch_loss", "epoch_accuracy", "learning_rate", "grad_norm", "batch_time")
    scalars = [[_summary(_scalar(name, number)) for name in names] for number in range(VALUES)]
    layers = [f"layer_{number}/norm" for number in range(10)]
    simple = [
        [_summary(*(simple_value(name, _value(number)) for name in layers))]
        for number in range(VALUES)
    ]
    version = event_pb2.Event(wall_time=1.0, file_version="brain.Event:2")
    for place, kinds in {
        "train": scalars,
        "validation": scalars,
        "estimator": simple,
        "estimator/eval": simple,
    }.items():
        path = run / place / "events.out.tfevents.1.host"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(record(version.SerializeToString()))
            step = 0
            while file.tell() < size / 4:
                step += 1
                begin = event_pb2.Event(wall_time=1e9 + step, step=step).SerializeToString()
                for summary in kinds[step % VALUES]:
                    file.write(record(begin + summary))


def _summary(*values: summary_pb2.Summary.Value) -> bytes:
    """Returns the end of an event."""
    return event_pb2.Event(summary=summary_pb2.Summary(value=values)).SerializeToString()


def _scalar(name: str, number: int) -> summary_pb2.Summary.Value:
    content = struct.pack("<f", _value(number))
    shape: dict[str, object] = {}
    tensor = tensor_pb2.TensorProto(dtype=1, tensor_shape=shape, tensor_content=content)
    return tensor_value(name, tensor)


def _value(number: int) -> float:
    return 2 + math.sin(number)


def measure(run: Path, cache: Path, rounds: int, megabytes: int) -> None:
    """Reports what the app and both readers take on one directory."""
    ours = [sys.executable, "-m", "tfckpt_tui.cli.main", "attach", str(run)]
    size = {"along": "MB", "at": megabytes}
    # The files of the programs are in the page cache from now on.
    first_frame(ours, "epoch_loss", cache=cache)
    bare_times, curve_times = [], []
    for _ in range(rounds):
        bare_times.append(first_frame(BARE, "bare app ready", cache=cache)[0])
        curve_times.append(first_frame(ours, "epoch_loss", cache=cache)[0])
    report("first curves, clock", [1e3 * seconds for seconds in curve_times], "ms", **size)
    report_ratio("first curves", curve_times, bare_times, "a bare Textual app", **size)
    seconds, resident = until_all_read(ours)
    report("all curves in the app", [seconds], "s", **size)
    report("resident memory of the app with all curves", [resident / 1e6], "MB", **size)
    taken, first, peak = python(OURS, run)
    their_taken, _, their_peak = python(THEIRS, run)
    against = "EventAccumulator"
    report("first read: processor time", [1e3 * first], "ms", **size)
    report("all read: seconds of processor time", [taken], "s", **size)
    report_ratio("all read: processor time", [taken], [their_taken], against, **size)
    report_ratio(
        "all read: peak memory", [peak], [their_peak], f"{against} with TensorFlow", **size
    )


def until_all_read(ours: Sequence[str]) -> tuple[float, int]:
    """Returns the seconds until the app has read everything, and its resident memory then."""
    began = time.perf_counter()
    with Terminal(ours, columns=140, rows=40) as terminal:
        terminal.wait_for("epoch_loss", 60)
        terminal.press("c")
        terminal.wait_for("lowest", 60)
        terminal.wait_until_gone("older values are still being read", LIMIT_SECONDS)
        taken = time.perf_counter() - began
        resident: int = psutil.Process(terminal.process.pid).memory_info().rss
    return taken, resident


def python(script: str, run: Path) -> tuple[float, float, float]:
    """Runs a script in a process of its own; returns what it printed."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", script + END, str(run)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    taken, first, peak = map(float, ended.stdout.split())
    return taken, first, peak


if __name__ == "__main__":
    main()
