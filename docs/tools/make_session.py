"""Runs the commands that a page shows on a checkpoint directory, and writes what they print.

    python docs/tools/make_session.py    # writes the outputs into docs/how-to/any-directory.md
    pytest tests/test_session.py         # holds them to what the commands print now

The directory is written by TensorFlow alone, as any training script would.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

PAGE = Path(__file__).parents[1] / "how-to" / "any-directory.md"
_BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL)
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")

_TRAINING = """
import sys

import keras
import tensorflow as tf

keras.utils.set_random_seed(7)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])
optimizer = keras.optimizers.Adam(1e-3)
optimizer.build(model.trainable_variables)
step = tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
manager = tf.train.CheckpointManager(checkpoint, sys.argv[1], max_to_keep=10)
kernel, bias = model.layers[0].kernel, model.layers[1].bias
kernel.assign(tf.ones([4, 8]))
for number in range(1, 7):
    step.assign(100 * number)
    kernel.assign(kernel * 1.25)
    if number == 5:
        bias.assign([float("nan"), 0.5])
    manager.save(checkpoint_number=100 * number)
"""


def run_script(script: Path, directory: Path) -> None:
    """Runs a training script that writes checkpoints to a directory."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, script, directory]
    subprocess.run(command, env=environment, check=True, stderr=subprocess.PIPE)


def prepare(directory: Path, run: Callable[[Path, Path], object] = run_script) -> None:
    """Writes `runs/digits`: six checkpoints, one of them damaged, not-a-number from 500 on."""
    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / "train.py"
        script.write_text(_TRAINING)
        run(script, directory / "runs/digits")
    data = directory / "runs/digits/ckpt-200.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[200] ^= 1
    # A fault of a disk does not change the time of the file.
    facts = data.stat()
    data.write_bytes(content)
    os.utime(data, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    _make_older(directory / "runs/digits")


def _make_older(directory: Path) -> None:
    """Lets the training have ended two hours ago: what is fresh may still be written."""
    shift = 2 * 3600 - 60
    for path in directory.iterdir():
        facts = path.stat()
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns - shift * 10**9))


def session(text: str, directory: Path) -> Iterator[tuple[str, str, str]]:
    """Yields each command, what `text` says that it prints, and what it prints in `directory`."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(directory / "cache"),
        "XDG_CONFIG_HOME": str(directory / "config"),
    }
    for match in _BLOCK.finditer(text):
        ended = subprocess.run(
            shlex.split(match["command"]),
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        yield match["command"], match["output"], ended.stdout


def with_times_of(before: str, now: str) -> str:
    """Returns what is printed now; lines that differ only in a time stay as they were before."""
    known = {_TIME.sub("", line): line for line in before.splitlines()}
    return "".join(f"{known.get(_TIME.sub('', line), line)}\n" for line in now.splitlines())


def main() -> None:
    """Writes the outputs into the page."""
    text = PAGE.read_text()
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place).resolve()
        prepare(directory)
        for command, before, now in session(text, directory):
            now = with_times_of(before, now.replace(f"{directory}/", ""))
            text = text.replace(
                f"```console\n$ {command}\n{before}```", f"```console\n$ {command}\n{now}```"
            )
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
