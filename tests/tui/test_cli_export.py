"""`export`: a model file of any checkpoint, loaded again elsewhere before it is there."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from json_reference import check

from bundle_writing import array, write
from command_running import BINARY, run_binary
from real_file_systems import FILLER, fill, make_read_only, small_tmpfs
from tensorflow_processes import python_with_tensorflow
from tfckpt_trainer.launch.processes.orphans import living_supervisor
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.reports.new_files import ExportReport
from waiting import MOST_SECONDS, wait_until

SCRIPT = Path(__file__).parents[1] / "training" / "scripts" / "steered.py"
FORMATS = {"keras": ".keras", "saved-model": "", "weights": ".weights.h5"}


def script(*arguments):
    return ["--", *python_with_tensorflow(), SCRIPT, "--strategy", "mirrored", *arguments]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of 20 steps on two replicas, launched as a person launches it."""
    run = RunDirectory(tmp_path_factory.mktemp("exported") / "run")
    command = script("--steps", "20", "--save-every", "10", "--custom-layer")
    launched = run_binary("launch", run.root, "--detach", "--no-standby", *command)
    assert launched.code == 0, launched
    wait_until(lambda: living_supervisor(run, time.time()) is None, 90, "the end of training")
    assert read_entries(run)[-1].kind is EventKind.FINISH
    return run


@pytest.mark.tensorflow
@pytest.mark.parametrize("form", FORMATS)
def test_an_export_answers_in_another_process_as_the_model_does(tool, trained, tmp_path, form):
    target = tmp_path / f"model{FORMATS[form]}"
    words = ("export", trained.root, "10", "--format", form, "--to", target, "--yes")
    done = tool(*words, "--json")
    assert done.code == 0, done
    check(ExportReport, done.json)
    assert done.json["checkpoint"] == "ckpt-10"
    assert done.json["step"] == 10
    assert done.json["difference"] == 0
    assert done.json["compared_on"] == "the first batch of the dataset"
    assert done.json["bytes"] > 0
    assert target.exists()
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    before = (trained.root / "checkpoint").read_bytes()
    again = tool(*words)
    assert again.code == 4
    assert "exists already" in again.words
    assert (trained.root / "checkpoint").read_bytes() == before


@pytest.mark.tensorflow
def test_a_script_that_does_not_fit_the_checkpoint_is_told_of_and_leaves_nothing(
    tool, trained, tmp_path
):
    target = tmp_path / "model.keras"
    done = tool("export", trained.root, "ckpt-20", "--to", target, *script("--outputs", "3"))
    assert done.code == 1
    assert "ckpt-20 cannot be restored" in done.words
    assert not list(tmp_path.iterdir())


@pytest.mark.tensorflow
def test_a_script_that_does_not_come_to_its_loop_is_told_of(tool, trained, tmp_path):
    target = tmp_path / "model.keras"
    command = ["--", sys.executable, "-c", "print('no model here'); raise SystemExit(3)"]
    done = tool("export", trained.root, "ckpt-20", "--to", target, *command)
    assert done.code == 1
    assert "ended with status 3 before its training loop" in done.words
    assert "'no model here'" in done.words
    assert not list(tmp_path.iterdir())


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ckpt-9"], "There is no checkpoint ckpt-9"),
        (["ckpt-20", "--to", "model.h5"], "must end in .keras"),
        (["ckpt-20", "--live"], "either a checkpoint or --live"),
        (["ckpt-20", "--", "no-such-program"], "is not a program that can be found"),
    ],
)
def test_what_makes_no_sense_is_refused(tool, trained, arguments, words):
    done = tool("export", trained.root, *arguments)
    assert done.code == 2
    assert words in done.words


@pytest.mark.e2e
def test_a_directory_of_others_needs_the_name_of_the_script(tool, tmp_path):
    write(tmp_path / "ckpt-1", {"a": array([1.0, 2.0])})
    done = tool("export", tmp_path, "ckpt-1")
    assert done.code == 2
    assert "its training command is unknown" in done.words


@pytest.mark.e2e
def test_a_target_that_cannot_be_written_is_said_before_the_script_is_started(tool, tmp_path):
    write(tmp_path / "ckpt-1", {"a": array([1.0, 2.0])})
    with small_tmpfs(tmp_path / "disk") as disk:
        make_read_only(disk)
        done = tool("export", tmp_path, "1", "--to", disk / "m.keras", "--", sys.executable)
    words = f"{disk} cannot be written. Choose another path with --to."
    assert (done.code, done.words) == (2, f"tfckpt-tui: {words}\n")


@pytest.mark.e2e
def test_a_full_disk_is_named_with_what_to_do(tool, tmp_path):
    write(tmp_path / "ckpt-1", {"a": array([1.0, 2.0])})
    with small_tmpfs(tmp_path / "disk") as disk:
        fill(disk)
        done = tool("export", tmp_path, "1", "--to", disk / "m.keras", "--", sys.executable)
        assert [path.name for path in disk.iterdir()] == [FILLER]
    words = f"{disk}: No space left on device. Nothing was exported. Free disk space there, or"
    assert done.code == 1
    last = done.words.splitlines()[-1]
    assert last == f"tfckpt-tui: {words} choose another path with --to."


@pytest.mark.tensorflow
@pytest.mark.parametrize("form", ["weights", "saved-model"])
def test_a_disk_that_is_full_before_the_model_is_written(tool, trained, tmp_path, form):
    with small_tmpfs(tmp_path / "disk") as disk:
        fill(disk, leave=24 << 10)
        target = disk / f"m{FORMATS[form]}"
        done = tool("export", trained.root, "10", "--format", form, "--to", target, "--yes")
        assert [path.name for path in disk.iterdir()] == [FILLER]
    assert done.code == 1
    assert f"{disk}: No space left on device. Nothing was exported. Free disk" in done.words


@pytest.mark.e2e
@pytest.mark.parametrize("checkpoint", [[], ["ckpt-1"]])
def test_a_script_of_a_directory_of_others_is_started(tool, tmp_path, checkpoint):
    root = tmp_path / "others"
    root.mkdir()
    write(root / "ckpt-1", {"a": array([1.0, 2.0])})
    command = [sys.executable, "-c", "print('started'); raise SystemExit(3)"]
    done = tool("export", root, *checkpoint, "--to", tmp_path / "m.keras", "--", *command)
    assert "ended with status 3 before its training loop" in done.words
    assert "'started'" in done.words


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGINT, "tfckpt-tui: Interrupted; nothing was written.\n"),
        (signal.SIGTERM, ""),
        (signal.SIGHUP, ""),
    ],
)
def test_an_export_that_is_ended_ends_its_script_and_leaves_nothing(tmp_path, number, words):
    root, here = tmp_path / "others", tmp_path / "here"
    root.mkdir()
    here.mkdir()
    write(root / "ckpt-1", {"a": array([1.0, 2.0])})
    seen = tmp_path / "seen"
    code = f"import os, time; open({str(seen)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    command = [BINARY, "export", root, "1", "--to", here / "m.keras", "--", sys.executable]
    with subprocess.Popen([*command, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: seen.exists() and seen.read_text(), 60, "the start of the script")
        process.send_signal(number)
        _, said = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 128 + number
    assert said.partition("\n")[2] == words
    assert list(here.iterdir()) == []
    wait_until(lambda: not psutil.pid_exists(int(seen.read_text())), 60, "the end of the script")
