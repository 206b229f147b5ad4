"""Opening the index of a checkpoint, against `tf.train.load_checkpoint` and its list of shapes.

    python tests/benchmarks/open_index.py [--rounds N]

Each opening is measured in a process of its own, with the time of its imports and without; both
sides take turns. TensorFlow writes the checkpoints, of 33, 2,000 and 10,000 variables. Garbage is
not collected while one is opened: a collection goes over all that was imported, which takes
TensorFlow ten times as long as opening an index, and whether one falls due is chance.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine

VARIABLES = (33, 2_000, 10_000)

WRITING = """
import sys
import tensorflow as tf
for number in map(int, sys.argv[2:]):
    layers = [tf.Variable(tf.zeros([25])) for _ in range(number)]
    tf.train.Checkpoint(layers=layers).write(f"{sys.argv[1]}-{number}")
"""
OURS = """
import gc, sys, time
from pathlib import Path
began = time.perf_counter()
from tfckpt_trainer.bundle.index import read_index
imported = time.perf_counter()
gc.disable()
opening = time.perf_counter()
shapes = {name: entry.shape for name, entry in read_index(Path(sys.argv[1])).entries.items()}
"""
THEIRS = """
import gc, sys, time
began = time.perf_counter()
import tensorflow as tf
imported = time.perf_counter()
gc.disable()
opening = time.perf_counter()
shapes = tf.train.load_checkpoint(sys.argv[1]).get_variable_to_shape_map()
"""
# Not `getrusage`, whose peak begins with that of the process which started this one.
END = """
done = time.perf_counter()
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
print(len(shapes), imported - began, done - opening, peak)
"""


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        prefix = Path(directory) / "ckpt"
        python(WRITING, prefix, *VARIABLES)
        for variables in VARIABLES:
            compare(Path(f"{prefix}-{variables}"), variables, options.rounds)


def compare(prefix: Path, variables: int, rounds: int) -> None:
    """Opens a checkpoint in turns and prints medians and ratios."""
    taken: dict[str, list[tuple[float, float, float]]] = {OURS: [], THEIRS: []}
    for _ in range(rounds):
        for script, results in taken.items():
            results.append(run(script, prefix, variables))
    size = {"along": "variables", "at": variables}
    whole, opened, memory = (
        [[one(result) for result in taken[script]] for script in (OURS, THEIRS)]
        for one in (lambda r: r[0] + r[1], lambda r: r[1], lambda r: r[2] / 1e3)
    )
    against = "load_checkpoint and its list of shapes"
    report_ratio("opening an index, with imports", *whole, against, **size)
    report_ratio("opening an index", *opened, against, **size)
    report("opening an index", [1e3 * seconds for seconds in opened[0]], "ms", **size)
    report("memory of a process that opens an index", memory[0], "MB", **size)
    report("memory of one with TensorFlow", memory[1], "MB", **size)


def run(script: str, prefix: Path, variables: int) -> tuple[float, float, float]:
    count, imported, opened, memory = python(script + END, prefix).split()
    # The object graph is a tensor too.
    assert int(count) == variables + 1, "not every tensor was listed"
    return float(imported), float(opened), float(memory)


def python(script: str, *arguments: object) -> str:
    """Runs a script in a process of its own; returns what it printed."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout


if __name__ == "__main__":
    main()
