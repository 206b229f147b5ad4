"""The readers of bytes that others may have written, each with an input that it accepts."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import bundle_writing
import event_files
import recorded_slurm
from array_files import keras_file, npz_file, safetensors_file
from bundle_writing import index_with
from tfckpt_trainer.bundle.exchange.verify_file import verify_array_file
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.object_graph import read_object_graph
from tfckpt_trainer.bundle.state_file import StateFile, encode_state_file, parse_state_file
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.guards.guard import Guard
from tfckpt_trainer.launch.slurm.job_queries import parse_jobs
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.records.command import Command, CommandKind, parse_arguments
from tfckpt_trainer.rundir.records.event import EventEntry, SeriesPoint
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import decode, encode, parse_lines
from tfckpt_tui.services.metrics.csv_files import CsvLogTail
from tfckpt_tui.services.metrics.event_files import EventFileTail
from tfckpt_tui.settings.config import read_config

_FLOATS = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
_LINE = b'{"at": 1.0, "kind": "save", "message": "Saved.", "step": 5, "details": {"a": [1, 2]}}\n'


class Reader(NamedTuple):
    """Something that reads bytes which others may have written.

    Attributes:
        healthy: An input that it accepts.
        read: Reads a file.
        file: The name of the file.
        wrap: Puts damaged bytes into what surrounds them, such as a checksum.
    """

    healthy: bytes
    read: Callable[[Path], object]
    file: str = "input"
    wrap: Callable[[bytes], bytes] = bytes


def read_graph_of(path: Path) -> object:
    """Reads a graph as the object graph of a checkpoint."""
    tensors = {
        "_CHECKPOINTABLE_OBJECT_GRAPH": bundle_writing.strings([path.read_bytes()], shape=())
    }
    bundle_writing.write(path.with_name("g"), tensors)
    return read_object_graph(path.with_name("g"))


_ENTRY = bundle_writing.entry_of(bundle_writing.array(np.zeros(2, np.float32)))
_GRAPH = bundle_writing.graph_message(
    [
        bundle_writing.Object({"model": 1, "optimizer": 2}),
        bundle_writing.Object({}, [bundle_writing.variable("v")]),
        bundle_writing.Object({}, [], [(1, "m", 1)]),
    ]
)
_RECORD = CheckpointRecord(
    name="ckpt-5", step=5, branch=0, sequence=1, saved_at=1.0, trigger="t", parent=None,
    metrics={"loss": 1.0}, duration_seconds=0.1,
    files=[FileFacts(name="ckpt-5.index", size=10, crc32c=3)],
)  # fmt: skip
_WORKER = WorkerStatus(
    index=0, host="a", pid=3, process_started_at=1.0, updated_at=1.0, interval_seconds=1.0,
    activity=Activity.TRAINING, step=5, branch=0, metrics={"loss": 1.5},
)  # fmt: skip
_COMMAND = Command(
    id="a", kind=CommandKind.RESTORE, requested_at=1.0, expires_at=2.0, requested_by="ada",
    arguments={"name": "ckpt-5"},
)  # fmt: skip


def read_command(path: Path) -> object:
    """Reads a command, and its arguments."""
    command = decode(path.read_bytes(), Command, "input")
    return parse_arguments(command.kind, command.arguments)


READERS: dict[str, Reader] = {
    "index": Reader(index_with(_ENTRY), lambda p: read_index(p.with_name("c")), "c.index"),
    "entry": Reader(_ENTRY, lambda p: read_index(p.with_name("c")), "c.index", index_with),
    "verify": Reader(_ENTRY, lambda p: verify(p.with_name("c")), "c.index", index_with),
    "graph": Reader(_GRAPH, read_graph_of),
    "state-file": Reader(
        encode_state_file(StateFile("ckpt-5", ("ckpt-4", "ckpt-5"), (1.0, 2.0), 3.0)),
        lambda p: parse_state_file(p.read_bytes(), p),
    ),
    "npz": Reader(npz_file(w=np.ones((2, 3), np.float32)), verify_array_file, "w.npz"),
    "safetensors": Reader(safetensors_file({"w": _FLOATS}, bytes(8)), verify_array_file),
    "keras": Reader(keras_file(b"\x89HDF\r\n\x1a\n" + bytes(200)), verify_array_file, "w.keras"),
    "record": Reader(encode(_RECORD), lambda p: decode(p.read_bytes(), CheckpointRecord, "input")),
    "heartbeat": Reader(encode(_WORKER), lambda p: decode(p.read_bytes(), WorkerStatus, "input")),
    "command": Reader(encode(_COMMAND), read_command),
    "event-log": Reader(_LINE * 3, lambda p: parse_lines(p.read_bytes(), EventEntry, "input")),
    "series": Reader(
        b'{"at": 1.0, "step": 5, "branch": 0, "metrics": {"loss": 1.5}}\n' * 3,
        lambda p: parse_lines(p.read_bytes(), SeriesPoint, "input"),
    ),
    "config": Reader(
        b'[app]\ntheme = "nord"\ncharts = ["loss"]\n[keys]\nsave = "s"\n',
        lambda p: read_config({"save": "s"}, p),
    ),
    "guard": Reader(
        b"spike loss deviations=8: go_back, skip_batches 10; at most 3",
        lambda p: Guard.parse(p.read_text("utf-8", "replace")),
    ),
    "event-file": Reader(
        event_files.event(5, event_files.float_value("loss", 0.5)) * 3,
        lambda p: EventFileTail(p, "", 1 << 20).read_new(),
    ),
    "event": Reader(
        event_files.event(5, event_files.float_value("loss", 0.5))[12:-4],
        lambda p: EventFileTail(p, "", 1 << 20).read_new(),
        wrap=event_files.record,
    ),
    "csv-log": Reader(b"epoch,loss\n0,1.5\n1,1.25\n", lambda p: CsvLogTail(p, "").read_new()),
    "squeue": Reader(
        (recorded_slurm.job_line(id=1) + recorded_slurm.job_line(id=2)).encode(),
        lambda p: parse_jobs(p.read_text("utf-8", "replace"), "<S>"),
    ),
}


def problem_of(reader: Reader, damaged: bytes, place: Path) -> str:
    """Reads an input; returns what came of it that must not, or nothing."""
    path = place / reader.file
    path.write_bytes(reader.wrap(damaged))
    try:
        reader.read(path)
    except (TfckptError, OSError):
        return ""
    except BaseException as error:
        return "".join(traceback.format_exception(error)[-2:])
    return ""
