"""What the chief does with old checkpoints between two steps, beside others in the directory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from subprocess import PIPE
from typing import Any

import pytest
from msgspec.structs import replace

from bundle_writing import array, write
from tfckpt_trainer.catalog.directory.pins import pin
from tfckpt_trainer.catalog.directory.trash import RETENTION, list_trash, locked_trash
from tfckpt_trainer.catalog.retention.policy import Policy, RetentionSettings
from tfckpt_trainer.catalog.retention.prune import move_to_trash, undo
from tfckpt_trainer.catalog.retention.rules import BestBy
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import (
    CheckpointRecord,
    Derivation,
    FileFacts,
    SourceFacts,
)
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load, store

pytestmark = pytest.mark.tensorflow


class Trained:
    """A run directory as a trainer fills it."""

    def __init__(self, run: RunDirectory) -> None:
        run.create()
        self.run = run
        self.sequence = 0

    def save(self, step: int, *, recorded: bool = True, **metrics: float) -> str:
        name = f"ckpt-{step}"
        paths = write(self.run.root / name, {"step": array([step])})
        self.sequence += 1
        record = CheckpointRecord(
            name=name,
            step=step,
            branch=0,
            sequence=self.sequence,
            saved_at=time.time(),
            trigger="every 1 step",
            metrics=dict(metrics),
            files=[FileFacts(name=p.name, size=p.stat().st_size, crc32c=0) for p in paths],
        )
        if recorded:
            store(self.run.record(name), record)
        return name

    @property
    def names(self) -> set[str]:
        return {path.stem for path in self.run.root.glob("*.index")}

    def told(self) -> list[tuple[str, str]]:
        return [(entry.kind.value, entry.message) for entry in read_entries(self.run)]


@pytest.fixture
def trained(tmp_path) -> Trained:
    made = Trained(RunDirectory(tmp_path / "run"))
    for step in (1, 2, 3):
        made.save(step)
    return made


@pytest.fixture
def janitor(trained) -> Iterator[Callable[..., Any]]:
    """Makes one for a policy; waits for what it does aside."""
    from tfckpt_trainer.training.checkpoint.saves.automatic_prune import AutomaticPruner
    from tfckpt_trainer.training.telemetry.event_log_writer import EventLogWriter

    event_log = EventLogWriter(trained.run, CommandQueue(trained.run), is_chief=True)
    yield lambda *args, **more: AutomaticPruner(
        trained.run, RetentionSettings(*args, **more), event_log
    )
    wait_for_deleting()
    event_log.close(10)


def wait_for_deleting() -> None:
    for thread in threading.enumerate():
        if thread.name == "tfckpt-janitor":
            thread.join()


LAST = Policy(keep_last=1)


def test_the_other_workers_leave_it_to_the_chief(trained):
    from tfckpt_trainer.training.checkpoint.saves.automatic_prune import AutomaticPruner
    from tfckpt_trainer.training.telemetry.event_log_writer import EventLogWriter

    event_log = EventLogWriter(trained.run, CommandQueue(trained.run), is_chief=False)
    AutomaticPruner(trained.run, RetentionSettings(LAST, 1.0), event_log).after_save("ckpt-3")
    assert trained.names == {"ckpt-1", "ckpt-2", "ckpt-3"}


def test_checkpoints_made_from_others_are_neither_counted_nor_moved(trained, janitor):
    for step in (1, 3):
        name = f"average-{step}"
        write(trained.run.root / name, {"step": array([step])})
        own = load(trained.run.record(f"ckpt-{step}"), CheckpointRecord)
        made = Derivation(operation="average", sources=[SourceFacts(name=own.name)])
        store(trained.run.record(name), replace(own, name=name, files=[], derived=made))
    janitor(Policy(keep_last=2), None).after_save("ckpt-3")
    assert trained.names == {"ckpt-3", "ckpt-2", "average-3", "average-1"}


def test_what_no_rule_keeps_is_moved_by_the_retention(trained, janitor):
    janitor(LAST, None).after_save("ckpt-3")
    assert trained.names == {"ckpt-3"}
    assert trained.told() == [("prune", "Moved to the trash: ckpt-2, ckpt-1.")]
    (manifest,) = list_trash(trained.run)
    assert manifest.by == "retention"


def test_what_the_library_did_not_save_and_what_is_pinned_stays(trained, janitor):
    trained.save(0, recorded=False)
    for path in trained.run.root.glob("ckpt-0.*"):
        os.utime(path, (1e9, 1e9))
    pin(trained.run, "ckpt-2")
    janitor(LAST, None).after_save("ckpt-3")
    assert trained.names == {"ckpt-0", "ckpt-2", "ckpt-3"}


def test_what_a_symbolic_link_leads_to_stays(trained, janitor):
    for path in trained.run.root.glob("ckpt-1.*"):
        path.with_name(path.name.replace("ckpt-1", "best")).symlink_to(path.name)
    janitor(LAST, None).after_save("ckpt-3")
    assert trained.names == {"best", "ckpt-1", "ckpt-3"}
    assert (trained.run.root / "best.index").is_file()


@pytest.mark.parametrize("taken", [False, True])
def test_what_somebody_asked_to_go_back_to_stays_until_that_is_done(trained, janitor, taken):
    box = CommandQueue(trained.run)
    box.submit(CommandKind.RESTORE, {"name": "ckpt-1"}, requested_by="test")
    claimed = box.claim(time.time()) if taken else None
    keeper = janitor(LAST, None)
    keeper.after_save("ckpt-3")
    assert trained.names == {"ckpt-1", "ckpt-3"}
    if claimed is not None:
        box.finish(claimed)
        keeper.after_save("ckpt-3")
        assert trained.names == {"ckpt-3"}


def test_what_another_process_reads_stays(trained, janitor):
    code = f"file = open({str(trained.run.root / 'ckpt-2.index')!r}); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        keeper = janitor(LAST, None)
        keeper.after_save("ckpt-3")
        assert trained.names == {"ckpt-2", "ckpt-3"}
        reader.communicate(b"\n")
    keeper.after_save("ckpt-3")
    assert trained.names == {"ckpt-3"}


def test_somebody_at_the_trash_delays_it_to_the_next_save(trained, janitor, monkeypatch):
    from tfckpt_trainer.training.checkpoint.saves import automatic_prune

    monkeypatch.setattr(automatic_prune, "LOCK_TIMEOUT_SECONDS", 0.05)
    keeper = janitor(LAST, None)
    with locked_trash(trained.run):
        keeper.after_save("ckpt-3")
    assert trained.names == {"ckpt-1", "ckpt-2", "ckpt-3"}
    ((kind, message),) = trained.told()
    assert kind == "refused"
    assert "0.05 s" in message
    keeper.after_save("ckpt-3")
    assert trained.names == {"ckpt-3"}


def test_a_disk_that_refuses_is_written_down(trained, janitor, monkeypatch):
    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    from tfckpt_trainer.training.checkpoint.saves import automatic_prune

    monkeypatch.setattr(automatic_prune, "move_to_trash", full)
    janitor(LAST, None).after_save("ckpt-3")
    assert trained.told() == [("failed", "Retention: No space left on device")]


def test_all_are_kept_until_one_has_the_metric(trained, janitor):
    keeper = janitor(Policy(keep_last=1, keep_best=(BestBy("accuracy", "max", 1),)), None)
    keeper.after_save("ckpt-3")
    keeper.after_save("ckpt-3")
    assert len(trained.names) == 3
    assert [kind for kind, _ in trained.told()] == ["refused"]
    trained.save(4, accuracy=float("nan"))
    keeper.after_save("ckpt-4")
    assert len(trained.names) == 4
    trained.save(5, accuracy=0.9)
    trained.save(6, accuracy=0.8)
    keeper.after_save("ckpt-6")
    assert trained.names == {"ckpt-5", "ckpt-6"}


class KeepOdd:
    """A rule of a script; it counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.fails = False

    def kept(self, checkpoints):
        self.asked.append([one.name for one in checkpoints])
        if self.fails:
            raise KeyError("accuracy")
        return [(one, f"step {one.step} is odd") for one in checkpoints if one.step % 2]


def test_a_rule_of_the_script_is_asked_once_for_each_save_and_recorded(trained, janitor):
    rule = KeepOdd()
    keeper = janitor(Policy(keep_last=1, rules=[rule]), 2.0)
    trained.save(4)
    keeper.after_save("ckpt-4")
    assert trained.names == {"ckpt-4", "ckpt-3", "ckpt-1"}
    assert rule.asked == [["ckpt-4", "ckpt-3", "ckpt-2", "ckpt-1"]]
    section = load(trained.run.run_file, RunInfo).retention
    assert section["keep_by_own_rules"] == {
        "rules": ["KeepOdd"],
        "reasons": {
            "ckpt-4": "",
            "ckpt-3": "step 3 is odd",
            "ckpt-2": "",
            "ckpt-1": "step 1 is odd",
        },
    }
    assert (section["keep_last"], section["trash_hours"]) == (1, 2.0)


def test_a_rule_of_the_script_that_fails_keeps_everything(trained, janitor):
    rule = KeepOdd()
    rule.fails = True
    keeper = janitor(Policy(keep_last=1, rules=[rule]), None)
    keeper.after_save("ckpt-3")
    assert trained.names == {"ckpt-1", "ckpt-2", "ckpt-3"}
    ((kind, message),) = trained.told()
    assert kind == "failed"
    assert message.startswith("Retention: The retention rule KeepOdd failed: KeyError('accuracy').")
    rule.fails = False
    keeper.after_save("ckpt-3")
    assert trained.names == {"ckpt-1", "ckpt-3"}


def test_only_what_retention_pruned_is_deleted_by_the_clock(trained, janitor):
    move_to_trash(trained.run, ["ckpt-1"], by="ada", now=time.time() - 7200, update_state_file=True)
    for name, hours in (("ckpt-2", 1.1), ("ckpt-3", 0.9)):
        now = time.time() - hours * 3600
        trained.save(4)
        move_to_trash(trained.run, [name], by=RETENTION, now=now, update_state_file=True)
    janitor(LAST, 1.0).after_save("ckpt-4")
    wait_for_deleting()
    assert [manifest.by for manifest in list_trash(trained.run)] == [RETENTION, "ada"]
    assert trained.told() == [("empty trash", "Deleted for good ckpt-2.")]
    undo(trained.run, None, update_state_file=True)
    assert trained.names == {"ckpt-1", "ckpt-4"}


def test_room_is_made_of_the_oldest_and_only_as_much_as_is_needed(trained, janitor):
    for place, name in enumerate(("ckpt-1", "ckpt-2")):
        move_to_trash(
            trained.run, [name], by="ada", now=time.time() + place, update_state_file=True
        )
    assert janitor(LAST, 1.0).make_room(1) == 0
    assert janitor(Policy(), 1.0, make_room=True).make_room(1) > 0
    assert [m.checkpoints[0].name for m in list_trash(trained.run)] == ["ckpt-2"]
    assert trained.told() == [("empty trash", "Deleted for good to make room for a save: ckpt-1.")]


@pytest.mark.parametrize(
    ("rules", "more", "message"),
    [
        ({"keep_last": 0}, (), "keep_last is 0"),
        ({"keep_last": 2.5}, (), "keep_last is 2.5; it must be a whole number"),
        ({"keep_best": (BestBy("loss", "least", 1),)}, (), "METRIC:min|max:N"),
        ({"keep_last": 1}, (-1.0,), "trash_hours is -1"),
        ({"keep_last": 1}, (float("nan"),), "trash_hours is nan"),
        ({"keep_last": 1}, ("1",), "trash_hours"),
    ],
)
def test_invalid_settings_are_refused_at_the_start(rules, more, message):
    with pytest.raises(UsageError) as refused:
        RetentionSettings(Policy(**rules), *more).check()
    assert message in str(refused.value)
