"""A run that goes wrong while all of its processes are well: `status` says so, and what to do."""

from __future__ import annotations

import resource

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.records.event import EventKind
from waiting import wait_until

pytestmark = pytest.mark.tensorflow


def test_failing_saves_are_told_by_status_and_stop_until_one_succeeds(tool, tmp_path):
    arguments = ["--width", "3000", "--save-every", "2", "--largest-file", "200000"]
    with Cluster(tmp_path / "run", "steered.py", arguments, 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        root, process = run.run.root, cluster.processes[0]
        wait_until(lambda: len(run.names()) >= 2 or None, 90, "two checkpoints")
        wait_until(lambda: run.workers()[0].saves.failed >= 3 or None, 60, "three failed saves")
        told = tool("status", root, "--json")
        assert (told.code, told.json["run"]["state"]) == (1, "training"), told
        (alert,) = told.json["alerts"]
        assert alert["kind"] == "save-failed"
        assert "saves failed: worker 0: " in alert["message"]
        assert "File too large" in alert["message"]
        assert "The newest checkpoint is of step 4: " in alert["message"]
        assert f"`tfckpt-tui save {root}`" in alert["advice"]

        refused = tool("stop", root)
        assert refused.code == 1, refused
        assert "The run was not stopped, because its last steps could not be saved" in refused.words
        assert "File too large" in refused.words
        assert f"`tfckpt-tui stop {root} --no-save`" in refused.words
        assert process.poll() is None

        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (-1, -1))
        assert tool("save", root).code == 0
        wait_until(lambda: run.workers()[0].saves.failed == 0 or None, 20, "a heartbeat")
        told = tool("status", root, "--json")
        assert (told.code, told.json["alerts"]) == (0, []), told

        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (200_000, -1))
        process.terminate()
        cluster.wait()
    told = tool("status", root, "--json")
    assert (told.code, told.json["run"]["state"]) == (1, "stopped"), told
    assert "start the run again" in told.json["alerts"][0]["advice"]
    last = read_entries(run.run)[-1].message
    assert last.endswith("(told to save and exit) without a save of its last steps.")


def test_a_loss_of_nan_is_told_and_the_last_finite_checkpoint_stays_and_brings_it_back(
    tool, tmp_path
):
    arguments = ["--save-every", "5", "--keep-last", "2", "--poison", "12"]
    with Cluster(tmp_path / "run", "steered.py", arguments, 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        root = run.run.root
        wait_until(lambda: has_pruned(run, 15), 90, "a prune of the first checkpoint of NaN")
        # A heartbeat comes once a second, in which many steps may pass.
        wait_until(lambda: run.workers()[0].not_finite, 20, "the heartbeat after the NaN")
        told = tool("status", root, "--json")
        assert (told.code, told.json["run"]["state"]) == (1, "training"), told
        assert told.json["workers"][0]["not_finite"] == {"loss": "nan", "twice": "nan"}
        (alert,) = told.json["alerts"]
        assert alert["message"] == (
            "loss and twice are NaN since step 12. "
            "The newest checkpoint with no known NaN or infinite value is ckpt-10."
        )
        command = f"tfckpt-tui restore {root} --name ckpt-10"
        assert f"Go back to it with `{command}`." in alert["advice"]
        (event,) = [e for e in read_entries(run.run) if e.kind is EventKind.NOT_FINITE]
        assert (event.step, event.message) == (12, f"{alert['message']} {alert['advice']}")
        assert event.details["finite_checkpoint"] == "ckpt-10"
        rows = tool("ls", root, "--json").json["checkpoints"]
        listed = [row for row in rows if row["state"] != "writing"]
        lost = {
            row["name"] for row in listed if row["not_finite"] == {"loss": "nan", "twice": "nan"}
        }
        assert lost == {row["name"] for row in listed} - {"ckpt-10"}

        assert tool(*command.split()[1:]).code == 0
        wait_until(lambda: not run.workers()[0].not_finite or None, 20, "finite metrics")
        told = tool("status", root, "--json")
        assert (told.code, told.json["alerts"]) == (0, []), told
        wait_until(lambda: any("-b1-" in name for name in run.names()) or None, 60, "a checkpoint")
        newest = tool("ls", root, "--json").json["checkpoints"][0]
        assert (newest["branch"], newest["not_finite"]) == (1, {})
    assert run.event_log().count("not finite") == 1


def has_pruned(run: SteeredRun, step: int) -> bool:
    names = run.names()
    return f"ckpt-{step}" not in names and any(int(name.split("-")[1]) > step for name in names)


def listed(tool, root):
    return {row["name"]: row for row in tool("ls", root, "--json").json["checkpoints"]}


def has_known_values(tool, root, name):
    return listed(tool, root)[name]["not_finite_tensors"] is not None


def test_a_checkpoint_of_nan_saved_with_a_finite_loss_is_not_the_one_to_go_back_to(tool, tmp_path):
    # The loss of step 22 is computed before the weights become NaN, and the save comes after.
    arguments = ["--save-every", "11", "--poison", "23"]
    with Cluster(tmp_path / "run", "steered.py", arguments, 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        root = run.run.root
        wait_until(lambda: "note" in run.event_log() or None, 90, "what the values are")
        (alert,) = tool("status", root, "--json").json["alerts"]
        assert (
            "The newest checkpoint with no known NaN or infinite value is ckpt-11."
            in alert["message"]
        )
        # The values of the checkpoint before are read next.
        wait_until(lambda: has_known_values(tool, root, "ckpt-11"), 90, "its values")
    (note,) = [entry for entry in read_entries(run.run) if entry.kind is EventKind.NOTE]
    assert note.checkpoint == "ckpt-22"
    assert "ckpt-22 was saved with finite metrics, but 1 of its tensors has NaN" in note.message
    row = listed(tool, root)["ckpt-22"]
    assert (row["not_finite"], row["not_finite_tensors"]) == ({}, 1)
    planned = tool("prune", root, "--keep-last", "1", "--dry-run", "--json")
    reasons = {one["name"]: one["reason"] for one in planned.json["plan"]["decisions"]}
    assert reasons["ckpt-11"] == "the newest whose values are known to be finite"
