"""Heartbeats on network disks are frequent only while somebody looks at the run."""

from __future__ import annotations

import time

import pytest

from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.heartbeats import attention
from tfckpt_trainer.rundir.heartbeats.attention import (
    FREQUENT,
    IDLE,
    Attention,
    look_at,
)
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.storage import directory_changes
from waiting import wait_until

# Each client is a process of its own.
pytestmark = pytest.mark.e2e


@pytest.fixture
def runs(mounts, request, monkeypatch):
    """A run as two machines see it."""
    monkeypatch.setattr(attention, "_looked", {})
    monkeypatch.setattr(attention, "LOOKED_AT_SECONDS", 0.5)
    monkeypatch.setattr(directory_changes, "RACY_SECONDS", 0.5)
    monkeypatch.setattr(directory_changes, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(directory_changes, "SETTLED_SECONDS", 0.0)
    here, there = (RunDirectory(mount.root / request.node.name) for mount in mounts)
    here.create()
    return here, there


def asked(writer: Attention) -> Attention:
    writer.ask()
    return writer


def is_left_alone(writer: Attention) -> bool:
    return not asked(writer).is_given


@pytest.mark.parametrize("looks", ["a look", "a command"])
def test_a_look_or_a_command_of_another_machine_is_noticed(runs, looks):
    here, there = runs
    writer = Attention(here, asks=True)
    assert writer.is_given, "who started it looks"
    assert writer.pace == FREQUENT
    wait_until(lambda: is_left_alone(writer), 10, "nobody looks")
    assert writer.pace == IDLE
    if looks == "a look":
        look_at(there)
    else:
        CommandQueue(there).submit(CommandKind.SAVE, requested_by="test")
    wait_until(lambda: asked(writer).is_given, 10, "it is noticed")


def test_one_of_many_workers_asks_once_in_its_pause(runs, mounts):
    here, _ = runs
    writer = Attention(here, asks=True)
    asked(writer)
    mounts[0].count_calls()
    for _ in range(20):
        writer.ask(3600.0)
    assert not mounts[0].count_calls()
    wait_until(lambda: asked(writer) and mounts[0].count_calls(), 10, "it asks otherwise")


def test_a_look_is_few_calls_and_is_repeated_rarely(runs, mounts):
    _, there = runs
    mounts[1].count_calls()
    for _ in range(20):
        look_at(there)
    calls = mounts[1].count_calls()
    assert calls["utimens"] == 1
    assert calls.total() <= 12, calls
    later = time.monotonic() + attention.AGAIN_SECONDS
    look_at(there, clock=lambda: later)
    assert mounts[1].count_calls()["utimens"] == 1


def test_who_may_not_write_looks_in_vain(runs, mounts):
    _, there = runs
    mounts[1].set_faults(errors={"utimens": "EACCES"})
    look_at(there)
    mounts[1].clear()


def test_a_local_disk_has_a_heartbeat_each_second(tmp_path, monkeypatch):
    monkeypatch.setattr(attention, "LOOKED_AT_SECONDS", 0.0)
    run = RunDirectory(tmp_path)
    run.create()
    before = run.inbox.stat().st_mtime_ns
    look_at(run)
    writer = asked(Attention(run, asks=True))
    assert writer.pace == FREQUENT
    assert run.inbox.stat().st_mtime_ns == before
