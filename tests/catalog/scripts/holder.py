"""Opens files as told, `MODE:PATH` each (`d` opens a directory), says so and waits to be killed."""

from __future__ import annotations

import os
import sys
import time

FLAGS = {
    "d": os.O_RDONLY | os.O_DIRECTORY,
    "rb": os.O_RDONLY,
    "wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "r+b": os.O_RDWR,
}

for argument in sys.argv[1:]:
    mode, _, path = argument.partition(":")
    os.open(path, FLAGS[mode])
print("held", flush=True)
time.sleep(600)
