"""`export`: a model file of any checkpoint, loaded again elsewhere before it is there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from json_reference import check

from bundle_writing import array, write
from command_running import BINARY
from real_file_systems import FILLER, fill, make_read_only, small_tmpfs
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.reports.new_files import ExportReport
from waiting import wait_until

SCRIPT = Path(__file__).parents[1] / "training" / "scripts" / "steered.py"
FORMATS = {"keras": ".keras", "saved-model": "", "weights": ".weights.h5"}


def tfckpt(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tfckpt_tui.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def script(*arguments):
    return ["--", sys.executable, SCRIPT, "--strategy", "mirrored", *arguments]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of 20 steps on two replicas, launched as a person launches it."""
    root = tmp_path_factory.mktemp("exported") / "run"
    command = script("--steps", "20", "--save-every", "10", "--custom-layer")
    launched = tfckpt("launch", root, "--detach", "--no-standby", *command)
    assert launched.returncode == 0, launched.stderr

    def finished():
        return json.loads(tfckpt("status", root, "--json").stdout)["run"]["state"] == "finished"

    wait_until(finished, 90, "the end of training")
    return RunDirectory(root)


@pytest.mark.tensorflow
@pytest.mark.parametrize("form", FORMATS)
def test_an_export_answers_in_another_process_as_the_model_does(trained, tmp_path, form):
    target = tmp_path / f"model{FORMATS[form]}"
    done = tfckpt("export", trained.root, "10", "--format", form, "--to", target, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    check(ExportReport, answer)
    assert answer["checkpoint"] == "ckpt-10"
    assert answer["step"] == 10
    assert answer["difference"] == 0
    assert answer["compared_on"] == "the first batch of the dataset"
    assert answer["bytes"] > 0
    assert target.exists()
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    before = (trained.root / "checkpoint").read_bytes()
    again = tfckpt("export", trained.root, "10", "--format", form, "--to", target)
    assert again.returncode == 4
    assert "exists already" in again.stderr
    assert (trained.root / "checkpoint").read_bytes() == before


@pytest.mark.tensorflow
def test_a_script_that_does_not_fit_the_checkpoint_is_told_of_and_leaves_nothing(trained, tmp_path):
    target = tmp_path / "model.keras"
    done = tfckpt("export", trained.root, "ckpt-20", "--to", target, *script("--outputs", "3"))
    assert done.returncode == 1
    assert "ckpt-20 cannot be restored" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.tensorflow
def test_a_script_that_does_not_come_to_its_loop_is_told_of(trained, tmp_path):
    target = tmp_path / "model.keras"
    command = ["--", sys.executable, "-c", "print('no model here'); raise SystemExit(3)"]
    done = tfckpt("export", trained.root, "ckpt-20", "--to", target, *command)
    assert done.returncode == 1
    assert "ended with status 3 before its training loop" in done.stderr
    assert "'no model here'" in done.stderr
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
def test_what_makes_no_sense_is_refused(trained, arguments, words):
    done = tfckpt("export", trained.root, *arguments)
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.e2e
def test_a_directory_of_others_needs_the_name_of_the_script(tmp_path):
    write(tmp_path / "ckpt-1", {"a": array([1.0, 2.0])})
    done = tfckpt("export", tmp_path, "ckpt-1")
    assert done.returncode == 2
    assert "its training command is unknown" in done.stderr


@pytest.mark.e2e
def test_a_target_that_cannot_be_written_is_said_before_the_script_is_started(tmp_path):
    write(tmp_path / "ckpt-1", {"a": array([1.0, 2.0])})
    with small_tmpfs(tmp_path / "disk") as disk:
        make_read_only(disk)
        done = tfckpt("export", tmp_path, "1", "--to", disk / "m.keras", "--", sys.executable)
    words = f"{disk} cannot be written. Choose another path with --to."
    assert (done.returncode, done.stderr) == (2, f"tfckpt-tui: {words}\n")


@pytest.mark.e2e
def test_a_full_disk_is_named_with_what_to_do(tmp_path):
    write(tmp_path / "ckpt-1", {"a": array([1.0, 2.0])})
    with small_tmpfs(tmp_path / "disk") as disk:
        fill(disk)
        done = tfckpt("export", tmp_path, "1", "--to", disk / "m.keras", "--", sys.executable)
        assert [path.name for path in disk.iterdir()] == [FILLER]
    words = f"{disk}: No space left on device. Nothing was exported. Free disk space there, or"
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == f"tfckpt-tui: {words} choose another path with --to."


@pytest.mark.e2e
@pytest.mark.parametrize("checkpoint", [[], ["ckpt-1"]])
def test_a_script_of_a_directory_of_others_is_started(tmp_path, checkpoint):
    root = tmp_path / "others"
    root.mkdir()
    write(root / "ckpt-1", {"a": array([1.0, 2.0])})
    command = [sys.executable, "-c", "print('started'); raise SystemExit(3)"]
    done = tfckpt("export", root, *checkpoint, "--to", tmp_path / "m.keras", "--", *command)
    assert "ended with status 3 before its training loop" in done.stderr
    assert "'started'" in done.stderr


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
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert said.partition("\n")[2] == words
    assert list(here.iterdir()) == []
    wait_until(lambda: not psutil.pid_exists(int(seen.read_text())), 60, "the end of the script")
