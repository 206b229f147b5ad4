"""The commands status, ls, journal and logs, and directories that are not runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from rundir_factory import RunFactory, two_branches

from bundle_writing import write_floats
from command_running import Tool, run_binary
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.heartbeats.process_ids import process_namespace
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import (
    Activity,
    Ending,
    GpuStatus,
    NotFiniteMetric,
    Phase,
    SaveStatus,
    WorkerStatus,
)
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.runs.failure import find_failure

HOSTILE = "esc-\x1b]52;c;QUFB\x07\u202e\x9b2J-6"


def write_log(run: RunDirectory, index: int, text: str) -> Path:
    path = run.worker_log(index)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_copy_of_a_run_that_trains_does_not_train_and_can_be_pruned(
    tool: Tool, tmp_path: Path
) -> None:
    made = two_branches(tmp_path / "run")
    made.live_worker(0, directory=made.run.identity())
    copy = shutil.copytree(made.run.root, tmp_path / "copy")
    assert tool("status", made.run.root).data.split("state")[1].split()[0] == "training"
    of_copy = tool("status", copy).data
    assert "training" not in of_copy.split("state")[1].split()[0]
    assert "Worker 0 trained in the directory of which this one is a copy." in of_copy
    assert tool("prune", copy, "--keep-last", "1", "--yes").code == 0


def test_no_last_step_is_told_of_a_run_that_has_done_more(tool: Tool, tmp_path: Path) -> None:
    """A start with fewer epochs than were trained before."""
    made = two_branches(tmp_path)
    assert "step      438 of 5,000 on branch" in tool("status", tmp_path).data
    made.live_worker(0, step=438, branch=1, total_steps=192)
    made.create(total_steps=192)
    said = tool("status", tmp_path).data
    assert "step      438 on branch 1" in said


def test_ls_json_is_newest_first_with_all_documented_fields(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    said = tool("ls", tmp_path, "--json")
    assert said.code == 0
    assert said.json["schema"] == 1
    assert said.json["run"] == {"id": "language-model", "directory": str(tmp_path)}
    newest = said.json["checkpoints"][0]
    assert newest.pop("verified_at") is not None
    assert newest == {
        "name": "ckpt-b1-400",
        "step": 400,
        "branch": 1,
        "parent": "ckpt-300",
        "state": "verified",
        "bytes": 129,
        "shards": 1,
        "saved_at": made.now - 300,
        "trigger": "command",
        "metrics": {"loss": newest["metrics"]["loss"]},
        "not_finite": {},
        "not_finite_tensors": None,
        "pinned": False,
        "current": True,
        "links": [],
        "hyperparameters": {},
        "problem": "",
    }
    assert [c["step"] for c in said.json["checkpoints"]] == [400, 500, 400, 300, 200, 100]


def test_ls_prints_one_checkpoint_per_line(tool: Tool, tmp_path: Path) -> None:
    two_branches(tmp_path)
    lines = tool("ls", tmp_path).data.splitlines()
    assert lines[0].split()[:4] == ["NAME", "STEP", "BRANCH", "STATE"]
    assert lines[1].split()[:6] == ["ckpt-b1-400", "400", "1", "verified", "←", "5m"]
    assert len(lines) == 7
    assert len({line.index("verified") for line in lines[1:]}) == 1


def test_a_plain_tensorflow_directory_can_be_listed(tool: Tool, tmp_path: Path) -> None:
    made = RunFactory(tmp_path)
    for step in (1, 2):
        made.checkpoint(step, name=f"model.ckpt-{step}", recorded=False)
    said = tool("ls", tmp_path, "--json")
    assert [c["name"] for c in said.json["checkpoints"]] == ["model.ckpt-2", "model.ckpt-1"]
    assert said.json["run"]["id"] is None
    assert [c["state"] for c in said.json["checkpoints"]] == ["complete", "complete"]
    assert not made.run.is_ours


def test_ls_lists_only_matching_checkpoints(tool: Tool, tmp_path: Path) -> None:
    two_branches(tmp_path)
    said = tool("ls", tmp_path, "--json", "--filter", "branch:1 step>300")
    names = [one["name"] for one in said.json["checkpoints"]]
    assert names == ["ckpt-b1-400"]
    said = tool("ls", tmp_path, "--filter", "size>big")
    assert said.code == 2
    assert "'size>big' is not a valid comparison" in said.words


@pytest.mark.parametrize(
    ("word", "example"),
    [("step>", "step>1000"), ("-size<=", "size>1GB"), ("state:", "state:"), ("foo>", "foo>0.5")],
)
def test_ls_refuses_a_word_without_its_value(
    tool: Tool, tmp_path: Path, word: str, example: str
) -> None:
    two_branches(tmp_path)
    said = tool("ls", tmp_path, "--filter", word)
    assert (said.code, said.data) == (2, "")
    assert f"{word!r} has no value. Write it like this: {example}" in said.words


def test_ls_says_that_no_checkpoint_has_a_metric(tool: Tool, tmp_path: Path) -> None:
    two_branches(tmp_path)
    said = tool("ls", tmp_path, "--filter", "foo>3 step>1 -loss<9", "--json")
    assert (said.code, said.json["checkpoints"]) == (0, [])
    assert said.words.startswith("No checkpoint has the metric 'foo'. A filter can compare: step, ")
    assert " loss" in said.words
    assert "metric" not in tool("ls", tmp_path, "--filter", "loss>3 step>1").words


@pytest.mark.e2e
def test_file_names_are_printed_without_control_characters(tmp_path: Path) -> None:
    two_branches(tmp_path)
    for name in (HOSTILE, os.fsdecode(b"bad-\xff-5")):
        write_floats(tmp_path / name, (1.0,))
    for words in (["ls"], ["ls", "--json"], ["prune", "--keep-last", "1", "--dry-run"]):
        said = run_binary(words[0], tmp_path, *words[1:])
        assert said.code == 0
        controls = [c for c in said.data if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160]
        assert controls == []
        assert "\u202e" not in said.data
    names = [c["name"] for c in run_binary("ls", tmp_path, "--json").json["checkpoints"]]
    assert HOSTILE in names
    assert os.fsdecode(b"bad-\xff-5") in names


@pytest.mark.e2e
def test_characters_missing_in_the_locale_are_replaced(tmp_path: Path) -> None:
    two_branches(tmp_path)
    said = run_binary("ls", tmp_path, PYTHONIOENCODING="ascii")
    assert said.code == 0
    assert said.data.splitlines()[1].split()[4] == "?"


def test_status_of_a_healthy_run(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path, live=True)
    said = tool("status", tmp_path, "--json")
    assert said.code == 0
    run, workers = said.json["run"], said.json["workers"]
    assert (run["id"], run["state"], run["step"], run["branch"]) == (
        "language-model",
        "training",
        438,
        1,
    )
    assert run["checkpoint"] == "ckpt-b1-400"
    assert [w["index"] for w in workers] == [0, 1]
    assert workers[0]["pid"] == os.getpid()
    assert (workers[0]["step_seconds"], workers[0]["loss"]) == (0.118, 2.144)
    assert 0 <= workers[0]["heartbeat_age_seconds"] < 60
    words = tool("status", made.run.root).data
    assert "training" in words
    assert "438 of 5,000 on branch 1" in words
    assert "118 ms" in words


def test_status_of_a_run_whose_saves_fail_is_a_problem(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path, live=True)
    problem = "worker 0: [Errno 30] Read-only file system\x1b[2J"
    made.live_worker(0, saves=SaveStatus(failed=7, problem=problem, saved_step=400))
    said = tool("status", tmp_path, "--json")
    assert said.code == 1
    assert said.json["run"]["state"] == "training"
    (alert,) = said.json["alerts"]
    assert alert["kind"] == "save-failed"
    assert alert["message"].startswith("The last 7 saves failed: worker 0: [Errno 30]")
    said = tool("status", tmp_path)
    assert said.code == 1
    (line,) = [line for line in said.data.splitlines() if line.startswith("alert ")]
    assert "\x1b" not in line
    assert "The last 7 saves failed: worker 0: [Errno 30] Read-only file system" in line
    assert f"save with `tfckpt-tui save {tmp_path}`." in line


def test_status_of_a_run_without_a_checkpoint_for_three_intervals_is_a_problem(
    tool: Tool, tmp_path: Path
) -> None:
    made = two_branches(tmp_path, live=True)
    late = SaveStatus(saved_step=400, unsaved_steps=38, unsaved_seconds=60.0, every_steps=10)
    made.live_worker(0, saves=late)
    said = tool("status", tmp_path, "--json")
    assert (said.code, [alert["kind"] for alert in said.json["alerts"]]) == (1, ["save-overdue"])
    made.live_worker(0, saves=late, activity=Activity.PAUSED)
    made.live_worker(1, activity=Activity.PAUSED)
    said = tool("status", tmp_path, "--json")
    assert (said.code, said.json["alerts"]) == (0, [])


def test_status_of_a_run_with_a_metric_that_is_not_finite_is_a_problem(
    tool: Tool, tmp_path: Path
) -> None:
    made = two_branches(tmp_path, live=True)
    made.checkpoint(450, 1, metrics={"loss": None})
    lost = [NotFiniteMetric(name="loss", value="nan", step=431)]
    made.live_worker(0, loss=None, metrics={"loss": None}, not_finite=lost)
    said = tool("status", tmp_path, "--json")
    assert said.code == 1
    assert said.json["workers"][0]["not_finite"] == {"loss": "nan"}
    (alert,) = said.json["alerts"]
    assert alert["kind"] == "not-finite"
    said = tool("status", tmp_path)
    assert (
        "alert     loss is NaN since step 431. The newest checkpoint with no known NaN" in said.data
    )
    assert f"`tfckpt-tui restore {tmp_path} --name ckpt-b1-400`" in said.data
    assert "  NaN  " in said.data


def test_checkpoints_with_metrics_that_are_not_finite_are_marked(
    tool: Tool, tmp_path: Path
) -> None:
    made = RunFactory(tmp_path).create()
    made.checkpoint(1)
    made.checkpoint(2, metrics={"loss": None, "score": 0.5}, not_finite={"loss": "-inf"})
    made.checkpoint(3, metrics={"loss": 0.5, "score": None})
    rows = tool("ls", tmp_path, "--json").json["checkpoints"]
    assert [row["not_finite"] for row in rows] == [{"score": "nan"}, {"loss": "-inf"}, {}]
    lines = tool("ls", tmp_path).data.splitlines()
    assert "loss=0.5000 score=✗ NaN" in lines[1]
    assert "loss=✗ -inf score=0.5000" in lines[2]
    assert "✗" not in lines[3]
    names = [
        row["name"]
        for row in tool("ls", tmp_path, "--json", "--filter", "not-finite").json["checkpoints"]
    ]
    assert names == ["ckpt-3", "ckpt-2"]
    assert "loss        ✗ -inf" in tool("inspect", tmp_path, "ckpt-2").data
    record = tool("inspect", tmp_path, "ckpt-2", "--json").json["record"]
    assert record["not_finite"] == {"loss": "-inf"}
    planned = tool("prune", tmp_path, "--keep-last", "1", "--dry-run").data
    assert re.search(r"keep +ckpt-1 .*the newest with finite metrics", planned)
    refused = tool("prune", tmp_path, "ckpt-1", "--yes")
    assert refused.code == 4
    assert "the newest with finite metrics" in refused.words


def test_status_as_json_has_the_gpus_of_a_worker(tool: Tool, tmp_path: Path) -> None:
    gpu = GpuStatus(name="A100", memory_used=2_000, memory_total=8_000, use_percent=93.0)
    made = two_branches(tmp_path, live=True)
    made.live_worker(0, gpus=[gpu])
    first, second = tool("status", tmp_path, "--json").json["workers"]
    assert first["gpus"] == [msgspec.to_builtins(gpu)]
    assert second["gpus"] == []


def test_status_of_a_run_with_a_lost_worker_is_a_problem(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path, live=True)
    made.worker(1, updated_at=made.now - 60)
    said = tool("status", tmp_path, "--json")
    assert said.code == 1
    assert said.json["run"]["state"] == "degraded"
    assert [w["state"] for w in said.json["workers"]] == ["training", "lost"]


@pytest.mark.parametrize("said", [{"cpu_stall_ratio": 0.5}, {"activity": Activity.SAVING}])
def test_status_of_a_killed_trainer_says_that_its_process_ended(
    tool: Tool, tmp_path: Path, said: dict[str, Any]
) -> None:
    made = two_branches(tmp_path)
    trainer = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    began = psutil.Process(trainer.pid).create_time()
    trainer.kill()
    trainer.wait()
    made.run.worker_status(1).unlink(missing_ok=True)
    killed = {"pid": trainer.pid, "process_started_at": began, "step_seconds": 0.1, **said}
    now = time.time()
    made.worker(0, host=socket.gethostname(), namespace=process_namespace(), **killed)
    status = load(made.run.worker_status(0), WorkerStatus)
    store(
        made.run.worker_status(0),
        msgspec.structs.replace(status, updated_at=now, last_step_at=now),
    )
    run = tool("status", tmp_path, "--json").json["run"]
    assert run["state"] == "failed"
    assert run["reason"] == f"Worker 0 is gone (process {trainer.pid})."
    assert "CPU stall" not in tool("status", tmp_path).data
    [view] = SnapshotReader(made.run).read(now).workers
    assert "CPU stall" not in view.straggling
    assert not view.straggling or view.straggling == f"is gone (process {trainer.pid})"


def test_status_of_a_silent_trainer_on_another_machine_says_since_when(
    tool: Tool, tmp_path: Path
) -> None:
    made = two_branches(tmp_path)
    made.run.worker_status(1).unlink(missing_ok=True)
    now = time.time()
    made.worker(0, updated_at=now - 600, last_step_at=now - 600, cpu_stall_ratio=0.5)
    reason = tool("status", tmp_path, "--json").json["run"]["reason"]
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now - 600))
    assert reason == f"Worker 0 has sent no heartbeat since {since}."


def test_status_without_a_trainer_shows_the_checkpoint_to_resume_from(
    tool: Tool, tmp_path: Path
) -> None:
    RunFactory(tmp_path).checkpoint(7, recorded=False)
    said = tool("status", tmp_path, "--json")
    assert said.code == 0
    assert said.json["run"]["state"] == "unattended"
    assert (said.json["run"]["checkpoint"], said.json["run"]["step"]) == ("ckpt-7", 7)
    assert said.json["workers"] == []


def test_status_handles_invalid_process_ids_in_heartbeats(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    made.live_worker(0)
    status = made.run.worker_status(0)
    for lie in (-5, 0, 99_999_999_999_999):
        status.write_text(json.dumps({**json.loads(status.read_bytes()), "pid": lie}))
        assert tool("status", tmp_path, "--json").json["workers"][0]["state"] == "lost"


def test_a_file_of_a_newer_version_is_refused(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    made.run.run_file.write_bytes(b'{"schema":99,"id":"x","created_at":0}')
    said = tool("status", tmp_path)
    assert said.code == 1
    assert "run.json was written by a newer tfckpt-tui" in said.words


def test_the_journal_prints_the_newest_entry_last(tool: Tool, tmp_path: Path) -> None:
    two_branches(tmp_path)
    entries = tool("journal", tmp_path, "--lines", "2", "--json").json["entries"]
    assert [e["kind"] for e in entries] == ["save", "restore"]
    assert entries[1]["by"] == "ada@trainhost"
    line = tool("journal", tmp_path).data.splitlines()[-1]
    assert line.endswith("restore      Back to ckpt-300; branch 1 begins. (ada@trainhost)")


def test_logs_print_the_last_lines_of_one_worker(tool: Tool, tmp_path: Path) -> None:
    run = two_branches(tmp_path).run
    write_log(run, 0, "".join(f"step {n}\n" for n in range(30)) + "no end")
    said = tool("logs", tmp_path, "--worker", "0", "--lines", "3")
    assert said.data.splitlines() == ["step 28", "step 29", "no end"]
    assert tool("logs", tmp_path, "--lines", "0").data == ""


def test_logs_of_all_workers_are_sorted_by_worker(tool: Tool, tmp_path: Path) -> None:
    run = two_branches(tmp_path).run
    for index in (0, 2, 10):
        write_log(run, index, f"\x1b[31mhello {index}\n")
    lines = tool("logs", tmp_path, "--json").json["lines"]
    assert [line["log"] for line in lines] == ["worker-0", "worker-2", "worker-10"]
    assert all("\x1b" not in line["line"] for line in lines)
    assert tool("logs", tmp_path).data.splitlines()[2].startswith("worker-10: ")


def test_a_missing_log_error_lists_the_existing_logs(tool: Tool, tmp_path: Path) -> None:
    run = two_branches(tmp_path).run
    said = tool("logs", tmp_path)
    assert (said.code, "only `tfckpt-tui launch` keeps logs" in said.words) == (2, True)
    (run.control / "logs.damaged-1").mkdir()
    assert f"{run.control}/logs.damaged-1 now" in tool("logs", tmp_path).words
    write_log(run, 0, "hello\n")
    said = tool("logs", tmp_path, "--worker", "7")
    assert (said.code, "there are: worker-0" in said.words) == (2, True)
    assert tool("logs", tmp_path, "--supervisor").code == 2


@pytest.mark.parametrize("command", ["ls", "status", "save", "undo", "journal", "logs", "attach"])
def test_a_bad_directory_is_one_message_and_exit_2(
    tool: Tool, tmp_path: Path, command: str
) -> None:
    said = tool(command, tmp_path)
    assert said.code == 2
    assert said.data == ""
    assert said.words.startswith(f"tfckpt-tui: {tmp_path} is empty; start a run there")
    assert len(said.words.splitlines()) == 1


def test_errors_are_printed_as_json(tool: Tool, tmp_path: Path) -> None:
    said = tool("ls", tmp_path / "missing", "--json")
    assert said.code == 2
    assert said.json["schema"] == 1
    error = said.json["error"]
    assert (error["code"], error["name"]) == (2, "usage")
    assert "does not exist" in error["message"]
    assert error["message"] in said.words


def test_ls_prints_diagnostics(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    for path in made.run.root.glob("ckpt-b1-400.*"):
        path.unlink()
    said = tool("ls", tmp_path)
    assert said.code == 0
    assert "warning: The state file names ckpt-b1-400 as the newest" in said.words
    (diagnostic, *_) = tool("ls", tmp_path, "--json").json["diagnostics"]
    assert diagnostic["name"] == "ckpt-b1-400"
    assert diagnostic["severity"] == "warning"


def test_a_damaged_newest_checkpoint_is_not_the_current_one(tool: Tool, tmp_path: Path) -> None:
    made = RunFactory(tmp_path)
    for step in (1, 2):
        made.checkpoint(step, recorded=False, seconds_ago=900 - step)
    index = tmp_path / "ckpt-2.index"
    index.write_bytes(b"x" + index.read_bytes()[1:])
    found = tool("status", tmp_path, "--json").json["run"]
    assert (found["checkpoint"], found["step"]) == ("ckpt-1", 1)


def test_a_prune_does_not_make_a_plain_directory_tracked(tool: Tool, tmp_path: Path) -> None:
    made = RunFactory(tmp_path)
    for step in (1, 2, 3):
        made.checkpoint(step, recorded=False, seconds_ago=900 - step)
    assert tool("prune", tmp_path, "--keep-last", "2", "--yes").code == 0
    assert tool("undo", tmp_path).code == 0
    assert made.run.is_ours
    assert not SnapshotReader(made.run).read(made.now).tracked


@pytest.mark.parametrize("activity", [Activity.STARTING, Activity.RESTORING])
def test_status_of_a_run_that_starts_again_shows_the_checkpoint_to_resume_from(
    tool: Tool, tmp_path: Path, activity: Activity
) -> None:
    made = two_branches(tmp_path / "run", time.time())
    for index in range(2):
        made.worker(index, activity=activity, step=0, branch=0)
    run = tool("status", made.run.root, "--json").json["run"]
    assert (run["step"], run["branch"], run["checkpoint"]) == (400, 1, "ckpt-b1-400")


def test_a_failed_run_has_an_alert_with_its_reason_and_what_to_do(
    tool: Tool, tmp_path: Path
) -> None:
    made = two_branches(tmp_path, now=time.time() - 3600)
    lost = made.worker(0, namespace=process_namespace(), pid=2**22 + 1)
    said = tool("status", tmp_path, "--json")
    [alert] = said.json["alerts"]
    reason = f"Worker 0 is gone (process {lost.pid})."
    assert (said.json["run"]["state"], said.json["run"]["reason"]) == ("failed", reason)
    assert (alert["kind"], alert["message"]) == ("run-failed", reason)
    assert alert["advice"] == (
        "tfckpt-tui did not launch this run and has no logs of it. Read what the script printed, "
        "remove the cause, and start the script again as before."
    )
    made.run.launch_file.write_bytes(b"of a colleague")
    [alert] = tool("status", tmp_path, "--json").json["alerts"]
    assert alert["advice"] == (
        f"Read the logs with `tfckpt-tui logs {tmp_path}` and remove the cause. "
        f"Then launch the run again with `tfckpt-tui launch {tmp_path} -- COMMAND`."
    )
    made.run.launch_file.unlink()
    [same] = SnapshotReader(made.run).read(time.time()).alerts
    assert same.message == reason
    # It does not change while nothing happens, or the app would draw everything again.
    assert SnapshotReader(made.run).read(time.time() + 60).alerts == (same,)


def test_the_logs_and_the_launch_are_advised_where_there_was_one(
    tool: Tool, tmp_path: Path
) -> None:
    made = two_branches(tmp_path)
    failed = {"activity": Activity.EXITED, "ending": Ending.FAILED, "detail": "train.py:1: no data"}
    for index in range(2):
        made.worker(index, **failed)
    options = LaunchOptions(
        run_directory=str(tmp_path), command=("train.sh",), working_directory=os.getcwd()
    )
    store(made.run.launch_file, options)
    [alert] = tool("status", tmp_path, "--json").json["alerts"]
    assert alert["message"] == "Worker 0 failed: train.py:1: no data."
    assert alert["advice"].startswith(f"Read the logs with `tfckpt-tui logs {tmp_path}`")
    assert f"launch {tmp_path} " in alert["advice"]


def test_another_user_sees_a_run_but_not_its_command(
    tool: Tool, open_place: Path, become_nobody: Callable[[], None]
) -> None:
    made = two_branches(open_place)
    options = LaunchOptions(
        run_directory=str(open_place),
        command=("python", "train.py", "--token", "5ecret"),
        working_directory=str(open_place),
    )
    store(made.run.launch_file, options)
    mine = tool("status", open_place)
    assert "command   python train.py --token 5ecret" in mine.data
    assert tool("status", open_place, "--json").json["run"]["command"] == list(options.command)
    assert "python train.py --token 5ecret" in tool("report", open_place).data
    become_nobody()
    theirs = tool("status", open_place)
    assert "permission" not in (theirs.data + theirs.words).lower()
    assert theirs.code == mine.code
    assert len(theirs.data.splitlines()) == len(mine.data.splitlines()) - 1
    assert tool("status", open_place, "--json").json["run"]["command"] is None
    for command in ("status", "report", "journal"):
        assert "5ecret" not in tool(command, open_place).data


def test_status_names_files_of_the_run_that_cannot_be_read(tool: Tool, tmp_path: Path) -> None:
    run = two_branches(tmp_path, live=True).run
    for place in (run.inbox, run.active, run.done):
        place.mkdir(parents=True, exist_ok=True)
        (place / f"of-{place.name}\x1b.json").write_bytes(b'{"schema": 1')
    run.worker_status(1).write_bytes(b"{")
    run.supervisor_status.write_bytes(b"{")
    said = tool("status", tmp_path)
    assert said.code == 0, "training goes on"
    lines = [line for line in said.data.splitlines() if line.startswith("problem ")]
    names = ("worker-1", "supervisor", "of-inbox", "of-active", "of-done")
    assert [next(name for name in names if name in line) for line in lines] == list(names)
    assert "\x1b" not in said.data
    found = tool("status", tmp_path, "--json").json["problems"]
    assert [f"problem   {one}" for one in found] == lines
    app = SnapshotReader(run)
    for _ in range(2):
        assert list(app.read(time.time()).problems) == found, "the app names the same"


def test_a_worker_whose_process_is_gone_waits_for_nothing(tool: Tool, ended: RunFactory) -> None:
    # Its process ended before the run began.
    since = ended.now - 30
    ended.worker(0, activity=Activity.STARTING, phase=Phase.JOIN, phase_since=since)
    report = tool("status", ended.run.root, "--json").json
    assert report["workers"][0]["state"] == "lost"
    assert report["workers"][0]["doing"] == ""
    assert "waiting for all workers" not in tool("status", ended.run.root).data


def test_a_strategy_that_came_too_late_is_named_as_the_cause(ended: RunFactory) -> None:
    root, command = str(ended.run.root), ("python", "train.py")
    options = LaunchOptions(run_directory=root, command=command, working_directory=root)
    store(ended.run.launch_file, options)
    late = "RuntimeError: Collective ops must be configured at program startup"
    (alert,) = find_failure(ended.run, RunState.FAILED, late)
    assert "create the strategy before any TensorFlow operation" in str(alert.advice)
    (alert,) = find_failure(ended.run, RunState.FAILED, "ValueError: 1")
    assert "and remove the cause" in str(alert.advice)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda log: log.symlink_to("/etc/hosts"), "is a symbolic link"),
        (os.mkfifo, "is not a regular file"),
        (lambda log: log.write_bytes(bytes(4096)), "has no entries that can be read"),
    ],
    ids=["link", "pipe", "sparse"],
)
def test_the_event_log_says_why_it_cannot_be_read(
    ended: RunFactory, tool: Tool, make: Callable[[Path], object], told: str
) -> None:
    log = ended.run.event_log
    log.unlink(missing_ok=True)
    assert tool("journal", ended.run.root).code == 0
    make(log)
    done = tool("journal", ended.run.root)
    assert done.code == 1
    assert f"{log} {told}" in done.words


def test_of_many_files_that_cannot_be_read_the_first_are_named(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path, now=time.time() - 3600)
    made.run.inbox.mkdir(parents=True, exist_ok=True)
    for number in range(30):
        (made.run.inbox / f"{number:02}.json").write_bytes(b"{}")
    problems = tool("status", tmp_path, "--json").json["problems"]
    assert len(problems) == 11
    assert problems[-1] == "20 more files cannot be read."
