"""Documents are decoded in several threads at once, also the first of their type."""

from __future__ import annotations

import subprocess
import sys

from waiting import MOST_SECONDS

SCRIPT = """
import sys, threading
from tfckpt_trainer.rundir.storage.documents import Document, decode

sys.setswitchinterval(1e-6)
DATA = b'{"schema": 1, "numbers": [1], "first": {"a": 1}, "more": [{"b": [2]}]}'

def new_type():
    class Part(Document, frozen=True, kw_only=True):
        a: int = 0
        b: list[int] = []

    class Whole(Document, frozen=True, kw_only=True):
        numbers: list[int] = []
        first: Part = Part()
        more: list[Part] = []

    return Whole

def decode_when_all_are_ready(kind, ready):
    ready.wait()
    decode(DATA, kind, "a file")

for _ in range(200):
    arguments = new_type(), threading.Barrier(6)
    threads = [
        threading.Thread(target=decode_when_all_are_ready, args=arguments) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_the_process_does_not_crash() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, timeout=MOST_SECONDS
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
