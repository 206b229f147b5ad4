"""A job step: one `srun`, whose tasks report in lines of JSON and take words as orders."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from tfckpt_trainer.launch.options import LaunchRecord
from tfckpt_trainer.rundir.storage.json_text import JsonError, decode_json

ALIVE_SECONDS = 2.0
"""Interval of the signs of life between the supervisor and the tasks."""

CANCEL_SECONDS = 3.0
"""How long to wait for a cancelled step; one with a dead node takes longer."""


SILENT_INTERVALS = 3
SILENT_PEERS = 3
"""How many intervals, and how often the silence that other workers allow, a task may be silent."""


def silence_seconds(options: LaunchRecord) -> float:
    """Returns after which silence of a task or of the supervisor the other counts it as gone."""
    return max(SILENT_INTERVALS * ALIVE_SECONDS, SILENT_PEERS * options.peer_seconds)


class JobStep:
    """One `srun`.

    Its standard output and input are the channel to the tasks: it needs no file, which another
    node may see late. It gets its own session, because a signal makes `srun` kill its tasks at
    once, without time to save.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        tasks: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        alive_word: str = "",
    ) -> None:
        """Starts it.

        Args:
            nodes: The nodes, in Slurm's order.
            tasks: Number of tasks, the same on each node.
            command: The command of each task.
            environment: The environment of `srun` and of its tasks.
            alive_word: A word that is sent to the tasks every `ALIVE_SECONDS`, so that they learn
                of the death of this node; empty for none.

        Raises:
            OSError: `srun` cannot be run.
        """
        options = [
            f"--nodes={len(nodes)}",
            f"--nodelist={','.join(nodes)}",
            f"--ntasks={tasks}",
            f"--ntasks-per-node={tasks // len(nodes)}",
            "--distribution=block",
            # The others report the death of one, and must not be killed for it.
            "--kill-on-bad-exit=0",
            "--wait=0",
            "--no-kill",
            # A step with a dead node may hold its share of the job for minutes.
            "--overlap",
            "--mpi=none",
            "--export=ALL",
        ]
        self._process = subprocess.Popen(
            ["srun", *options, *command],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._messages: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._sending = threading.Lock()
        if alive_word:
            # A thread, because the supervisor may wait for a slow file system.
            threading.Thread(target=self._send_repeatedly, args=(alive_word,), daemon=True).start()

    @property
    def has_ended(self) -> bool:
        """Whether all tasks have ended and all of their messages were read."""
        return self._process.poll() is not None and not self._reader.is_alive()

    def messages(self, seconds: float = 0.0) -> list[dict[str, Any]]:
        """Returns the new messages; waits at most `seconds` for the first."""
        messages: list[dict[str, Any]] = []
        try:
            messages.append(self._messages.get(seconds > 0, seconds or None))
            while True:
                messages.append(self._messages.get_nowait())
        except Empty:
            return messages

    def send(self, word: str) -> None:
        """Sends a word to all tasks; does nothing if `srun` has ended."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            with self._sending:
                pipe.write(f"{word}\n".encode())
                pipe.flush()
        except (OSError, ValueError):
            return

    def cancel(self) -> None:
        """Kills all tasks, and waits for a moment."""
        if self._process.poll() is None:
            # `srun` takes it as a request to kill its tasks.
            self._process.terminate()
        self.wait(CANCEL_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def wait(self, seconds: float) -> bool:
        """Waits until all tasks have ended; returns whether they have."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._reader.join(seconds)
        return True

    def _send_repeatedly(self, word: str) -> None:
        while self._process.poll() is None:
            self.send(word)
            time.sleep(ALIVE_SECONDS)

    def _read(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        for line in pipe:
            try:
                self._messages.put(decode_json(line, dict[str, Any]))
            except JsonError:
                continue  # Not from our task: a prolog of the site may print too.
