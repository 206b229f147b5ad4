"""Writes small traces as TensorFlow's profiler does."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tfckpt_trainer.rundir.command_queue import advance, new_command
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.trace import Profile, TraceOfWorker
from tfckpt_trainer.rundir.storage.documents import store


def varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def part(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def plane(name: str, *lines: list[tuple[str, int, int]]) -> bytes:
    """Returns a plane of events: name, start and duration, in picoseconds."""
    names = sorted({event[0] for line in lines for event in line})
    data = part(2, name.encode())
    for line in lines:
        events = [
            part(4, number(1, names.index(event)) + number(2, start) + number(3, duration))
            for event, start, duration in line
        ]
        data += part(3, part(2, b"thread") + b"".join(events))
    for index, event in enumerate(names):
        metadata = number(1, index) + part(2, event.encode(errors="surrogateescape"))
        data += part(4, number(1, index) + part(2, metadata))
    return part(1, data)


SECOND = 10**12

HOST = plane(
    "/host:CPU",
    [
        ("ExecutorState::Process", 0, 9 * SECOND),
        ("while:While", 0, 8 * SECOND),
        ("model/MatMul:MatMul", SECOND, 2 * SECOND),
        ("model/MatMul:MatMul", 4 * SECOND, SECOND),
    ],
    [("model/\x1b[31mMean:Mean", 0, SECOND)],
)
DEVICE = plane("/device:GPU:0", [("ampere_sgemm", 0, 4 * SECOND)])


def write_traces(run: RunDirectory, at: float, *, is_recorded: bool = True) -> list[Path]:
    """Writes a trace of each of two workers, and the answer of the trainer."""
    written = []
    for below, data in (("branch-0", HOST), ("branch-0/worker-1", HOST + DEVICE)):
        path = run.tensorboard / below / "plugins/profile/2026_11_24_00_18_23/vm.xplane.pb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (at, at))
        written.append(path)
    if is_recorded:
        traces = [
            TraceOfWorker(
                worker=index,
                file=f"/elsewhere/{path.relative_to(run.root)}",
                before_seconds=0.25 + index,
                step_seconds=0.5,
                write_seconds=0.125,
            )
            for index, path in enumerate(written)
        ]
        command = new_command(CommandKind.PROFILE, {"steps": 10}, requested_by="ada@desk", at=at)
        result = msgspec.to_builtins(Profile(steps=10, workers=traces))
        done = advance(command, CommandState.DONE, "Traced 10 steps.", result=result)
        store(run.done / f"{done.id}.json", done)
    return written
