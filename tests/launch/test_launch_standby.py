"""Processes that stand by: which commands they can become, and that workers come of them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from supervised import WORKER

from requirements import needs
from standby_processes import standby_process
from tfckpt_trainer.cluster.gpu_shares import open_accelerators
from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.local.standby import Program, Standby, as_program
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import Activity
from waiting import wait_until


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ([sys.executable, "train.py", "--steps", "5"], Program("", ("train.py", "--steps", "5"))),
        ([sys.executable, "-u", "train.py"], Program("", ("train.py",))),
        ([sys.executable, "-u", "-P", "train.py"], Program("", ("train.py",), is_safe=True)),
        (
            [sys.executable, "-P", "-m", "train", "-u"],
            Program("train", ("train", "-u"), is_safe=True),
        ),
        (
            [sys.executable, "-m", "package.train", "-x"],
            Program("package.train", ("package.train", "-x")),
        ),
        ([sys.executable, "-c", "print()"], None),
        ([sys.executable, "-X", "dev", "train.py"], None),
        ([sys.executable], None),
        (["bash", "train.sh"], None),
        (["/no/such/python", "train.py"], None),
    ],
)
def test_only_a_script_of_this_python_can_be_become(command, program):
    assert as_program(command) == program


def alive(run, *before):
    """The heartbeats of both workers, once none is of a process in `before`."""

    def beat():
        workers = read_workers(run)
        pids = {worker.pid for worker in workers}
        trains = all(worker.activity is Activity.TRAINING for worker in workers)
        return workers if len(pids - set(before)) == 2 and trains else None

    return wait_until(beat, 90, "workers that train")


def test_a_process_with_an_open_gpu_is_known_by_its_descriptors(tmp_path):
    gpus = ["/dev/accel0", "/dev/dri/renderD128", "/dev/dxg", "/dev/kfd", "/dev/nvidia0"]
    for number, name in enumerate(("/dev/null", *gpus, "/home/dev/nvidia0")):
        (tmp_path / str(number)).symlink_to(name)
    assert open_accelerators(tmp_path) == gpus


CHOOSES_KERAS_2 = """
import os, sys
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
print(tf.keras.Model.__module__.partition(".")[0], os.getpid(), sys.argv[1:], flush=True)
"""


@pytest.mark.tensorflow
@needs("Linux", "tf_keras")
@pytest.mark.parametrize("is_module", [False, True])
def test_a_script_that_chooses_its_keras_gets_it(tmp_path, is_module):
    (tmp_path / "train.py").write_text(CHOOSES_KERAS_2)
    words = ("train",) if is_module else ("train.py",)
    program = Program("train" if is_module else "", (*words, "--steps", "5"))
    log = tmp_path / "log"
    with log.open("wb") as output:
        standby = Standby(program, {}, output)
        try:
            wait_until(lambda: standby.is_ready, 90, "it has imported TensorFlow")
            worker = standby.start_worker(0, {}, tmp_path, output)
            wait_until(lambda: worker.exit_code is not None, 90, "the script ends")
        finally:
            standby.end()
    assert worker.exit_code == 0
    said = log.read_text().splitlines()[-1]
    assert said == f"tf_keras {worker.pid} ['--steps', '5']"


@pytest.mark.tensorflow
def test_once_a_script_uses_tensorflow_it_changes_its_environment_for_others(monkeypatch):
    from tfckpt_trainer.training.process.import_environment import end_watch, watch_changes

    # They are put back after the test.
    for name in ("putenv", "unsetenv"):
        monkeypatch.setattr(os, name, getattr(os, name))
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    changes = []
    watch_changes(lambda: changes.append(os.environ["KERAS_BACKEND"]))
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    monkeypatch.setenv("OTHER", "jax")
    assert changes == []
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.delenv("KERAS_BACKEND")
    assert changes == ["tensorflow", "jax"]
    end_watch()
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert changes == ["tensorflow", "jax"]


@pytest.mark.tensorflow
@needs("Linux")
def test_after_a_death_workers_come_of_the_process_that_stands_by(tmp_path, monkeypatch):
    # Workers without TensorFlow; those that train in a fork are in the test of parameter servers.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run = RunDirectory(tmp_path / "run")
    launch(
        LaunchOptions(
            run_directory=str(run.root),
            command=(sys.executable, str(WORKER), "note-devices", "note-draw", "serve-a-stop"),
            working_directory=str(tmp_path),
            workers=2,
            environment=(("CUDA_VISIBLE_DEVICES", "3,1"),),
        )
    )
    try:
        first = alive(run)
        waiting = standby_process(run)
        log = run.worker_log(0)
        log.rename(log.with_name("moved"))
        os.mkfifo(log)
        os.kill(first[1].pid, signal.SIGKILL)
        second = alive(run, *(worker.pid for worker in first))
        assert {psutil.Process(w.pid).ppid() for w in second} == {waiting.pid}
        assert len({os.getsid(w.pid) for w in second}) == 2
        assert all(Path(f"/proc/{w.pid}/cwd").resolve() == tmp_path.resolve() for w in second)

        assert " start 1: " in log.read_text()
        assert len(list(log.parent.glob("worker-0.log.damaged-*"))) == 1

        # Each sees its own GPU only, and nothing of TensorFlow looked for devices before.
        noted = [(run.root / f"devices-1-{index}").read_text() for index in range(2)]
        assert noted == ["('3', [None, None])", "('1', [None, None])"]
        assert open_accelerators(Path(f"/proc/{waiting.pid}/fd")) == []
        draws = {(run.root / f"draw-1-{index}").read_text() for index in range(2)}
        assert len(draws) == 2, "both forks draw the same random numbers"

        # Without it the workers are started from nothing, as the first time.
        waiting.kill()
        wait_until(lambda: not _words(waiting), 60, "the end of the process that stands by")
        os.kill(second[0].pid, signal.SIGKILL)
        third = alive(run, *(worker.pid for worker in second))
        parents = {psutil.Process(w.pid).ppid() for w in third}
        assert parents == {read_supervisor(run).pid}
    finally:
        stop_supervisor(run, 20, by="test")
    entries = read_entries(run)
    assert len([entry for entry in entries if entry.kind is EventKind.RESTART]) == 2
    lost = [entry.message for entry in entries if entry.kind is EventKind.WORKER_LOST]
    assert lost == [f"Worker {index} was killed by SIGKILL." for index in (1, 0)]
    assert not [p for p in psutil.process_iter() if str(tmp_path) in " ".join(_words(p))]


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []
