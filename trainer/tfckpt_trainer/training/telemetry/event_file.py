"""Writes one event file of TensorBoard."""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from pathlib import Path
from threading import Lock

from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_trainer.rundir.storage.files import create_file, make_directory

_numbers = itertools.count()


class EventFile:
    """An event file that a disk which does not answer cannot stop training with.

    TensorFlow's own files hold Python's global lock while they write. This one is Python's, and
    only `flush` and `close` write.
    """

    def __init__(self, directory: Path) -> None:
        """Creates the file.

        Raises:
            DamagedFileError: The directory is a symbolic link.
            OSError: The disk refuses, or a directory above it, below `.tfckpt`, is a link.
        """
        make_directory(directory)
        now = time.time()
        # TensorBoard reads the files of a directory in the order of their names.
        words = (f"{int(now):010d}", host_name(), os.getpid(), next(_numbers))
        name = ".".join(["events.out.tfevents", *map(str, words)])
        self._file = create_file(directory / name)
        self._records = RecordWriter(self._file)
        self._waiting: deque[bytes] = deque()
        self._writing = Lock()
        self.add_event(event_pb2.Event(wall_time=now, file_version="brain.Event:2"))
        self.flush()

    def add_event(self, event: event_pb2.Event) -> None:
        """Adds an event, which the next flush writes."""
        self._waiting.append(event.SerializeToString())

    def flush(self) -> None:
        """Writes what was added.

        Raises:
            OSError: The disk refuses.
        """
        with self._writing:
            while self._waiting:
                self._records.write(self._waiting.popleft())
            self._file.flush()

    def close(self) -> None:
        """Writes what was added, and closes the file.

        Raises:
            OSError: The disk refuses.
        """
        try:
            self.flush()
        finally:
            self._file.close()
