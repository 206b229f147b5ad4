"""Launching: what is refused and why, and that a launch outlives whoever made it."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import socket
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from supervised import Run

from bundle_writing import write_floats
from tfckpt_trainer.errors import LaunchError, TfckptError, UsageError
from tfckpt_trainer.launch import launcher
from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor, wait_for_end
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo, SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_trainer.rundir.storage.locks import is_locked
from waiting import LEAST_SECONDS, MOST_SECONDS, wait_until
from weekly import weekly

pytestmark = pytest.mark.e2e

LAUNCHER = """
import signal, sys, time
from pathlib import Path
from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.storage.documents import load
# As in a shell, whatever started the tests: under nohup they would inherit that it is ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
try:
    print(launch(load(Path(sys.argv[1]), LaunchOptions)).pid, flush=True)
    time.sleep(float(sys.argv[2]))
except LaunchError as error:
    sys.exit(f"refused: {error}")
"""


def launch_elsewhere(options: LaunchOptions, told: Path, stay: float) -> subprocess.Popen:
    """Launches from a process, and a session, of its own."""
    store(told, options)
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(told), str(stay)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def launch_to_the_end(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SupervisorStatus]:
    """Launches a script that ends at once, however long that takes on a loaded machine."""
    monkeypatch.setattr(launcher, "SETTLE_SECONDS", LEAST_SECONDS)
    monkeypatch.setattr(launcher, "SUPERVISOR_SECONDS", 2 * LEAST_SECONDS)
    return launcher.launch


def test_a_launch_returns_with_the_workers_started(run: Run) -> None:
    status = launch(run.options("sleep=60"))

    assert status.state is SupervisorState.RUNNING
    assert [worker.exit_code for worker in status.workers] == [None, None]
    assert all(psutil.pid_exists(worker.pid) for worker in status.workers)
    assert os.getsid(status.pid) != os.getsid(0)
    assert psutil.Process(status.pid).ppid() != os.getpid()


def test_a_run_keeps_its_name_over_launches(run: Run, launch_to_the_end) -> None:
    launch_to_the_end(run.options("exit=0"))
    first = load(run.directory.run_file, RunInfo)
    launch_to_the_end(run.options("exit=0", workers=1))
    second = load(run.directory.run_file, RunInfo)

    assert (second.id, second.created_at) == (first.id, first.created_at)
    assert (first.worker_count, second.worker_count) == (2, 1)
    assert second.launched


def test_arguments_are_for_the_owner_alone(run: Run) -> None:
    status = launch(run.options("sleep=60", "say=5ecret", workers=1))
    assert status.state is SupervisorState.RUNNING
    holders = [
        path for path in run.root.rglob("*") if path.is_file() and b"5ecret" in path.read_bytes()
    ]
    assert holders == [run.directory.launch_file]
    assert stat.S_IMODE(run.directory.launch_file.stat().st_mode) == 0o600


def test_a_launch_records_the_commit_of_the_script(run: Run) -> None:
    code = run.root.parent / "code"
    code.mkdir()
    git = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-C", str(code))
    subprocess.run([*git, "init", "-q", "-b", "trunk"], check=True)
    script = code / "train.py"
    script.write_text("pass\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    script.write_text("pass\npass\n")
    launch(run.options(command=(sys.executable, str(script)), workers=1))
    recorded = load(run.directory.run_file, RunInfo).code
    assert recorded is not None
    assert (recorded.branch, recorded.added) == ("trunk", 1)


def test_a_script_that_fails_at_once_is_told_with_its_last_lines(
    run: Run, launch_to_the_end
) -> None:
    with pytest.raises(LaunchError, match="ended with status 4") as raised:
        launch_to_the_end(
            run.options("w1:sleep=30", "say=first line", "say=\x1b[31mNameError: lr", "exit=4")
        )

    assert "  first line\n  NameError: lr" in str(raised.value)
    assert str(run.directory.worker_log(0)) in str(raised.value)


def test_of_several_that_failed_the_first_is_quoted(run: Run, launch_to_the_end) -> None:
    second = ("w0:fail-on-term=5", "w0:say=lost my peer", "w0:ready", "w0:sleep=30")
    with pytest.raises(LaunchError, match="Worker 1 ended with status 4") as raised:
        launch_to_the_end(run.options(*second, "wait-for=ready-0", "say=the cause", "exit=4"))

    assert run.status().workers[0].exit_code == 5
    assert str(raised.value).endswith("worker-1.log:\n  the cause")


def test_a_run_that_failed_can_be_launched_again_at_once(run: Run, launch_to_the_end) -> None:
    with pytest.raises(LaunchError):
        launch_to_the_end(run.options("exit=4", workers=1))

    assert launch_to_the_end(run.options("exit=0", workers=1)).state is SupervisorState.FINISHED


def test_a_run_is_not_called_failed_between_two_launches(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.directory.create()
    stopped = SupervisorStatus(
        pid=1,
        host="elsewhere",
        process_started_at=1.0,
        updated_at=2.0,
        interval_seconds=1.0,
        state=SupervisorState.STOPPED,
    )
    store(run.directory.supervisor_status, stopped)
    seen = []

    def start(directory: RunDirectory, options: LaunchOptions, lock: int) -> None:
        seen.append(read_supervisor(directory))

    monkeypatch.setattr(launcher, "_start_supervisor", start)
    with pytest.raises(LaunchError, match="The supervisor did not start"):
        launch(run.options("exit=0"))
    assert seen == [stopped]


def test_a_second_launch_names_the_first(run: Run) -> None:
    status = launch(run.options("sleep=60", workers=1))

    with pytest.raises(LaunchError, match=rf"process {status.pid}\).*attach.*stop"):
        launch(run.options("sleep=60", workers=1))
    assert is_locked(run.directory.supervisor_lock)


def test_of_two_launches_at_once_one_wins(run: Run, tmp_path: Path) -> None:
    run.root.mkdir()
    launches = [
        launch_elsewhere(run.options("sleep=60", workers=1), tmp_path / f"told-{n}", 0)
        for n in range(3)
    ]
    said = [process.communicate(timeout=MOST_SECONDS)[1] for process in launches]

    assert sorted(process.returncode for process in launches) == [0, 1, 1], said
    assert sum("A run is already running" in words for words in said) == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, *weekly(signal.SIGHUP, signal.SIGINT)])
def test_training_outlives_the_session_that_launched_it(
    run: Run, tmp_path: Path, number: signal.Signals
) -> None:
    launcher = launch_elsewhere(run.options("ready", "sleep=60", workers=1), tmp_path / "told", 60)
    supervisor = int(launcher.stdout.readline())
    os.killpg(launcher.pid, number)
    launcher.communicate(timeout=10)

    before = run.status().updated_at
    wait_until(lambda: run.status().updated_at > before, 5, "another heartbeat")
    assert run.status().pid == supervisor
    assert [worker.exit_code for worker in run.status().workers] == [None]


def test_training_outlives_the_terminal_it_was_launched_from(run: Run, tmp_path: Path) -> None:
    store(tmp_path / "told", run.options("ready", "sleep=60", workers=1))
    terminal, theirs = pty.openpty()
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(tmp_path / "told"), "60"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    supervisor = int(os.read(terminal, 100))
    os.close(terminal)

    assert launcher.wait(MOST_SECONDS) == -signal.SIGHUP
    before = run.status().updated_at
    wait_until(lambda: run.status().updated_at > before, 5, "another heartbeat")
    assert run.status().pid == supervisor
    assert [worker.exit_code for worker in run.status().workers] == [None]


def test_workers_that_outlived_their_supervisor_are_named_and_can_be_stopped(run: Run) -> None:
    status = launch(run.options("w0:step", "child", "sleep=60"))
    pids = [worker.pid for worker in status.workers]
    children = [int(run.wait_for_file(f"child-{index}")) for index in range(2)]
    os.kill(status.pid, signal.SIGKILL)
    wait_until(lambda: not is_locked(run.directory.supervisor_lock), 5, "the supervisor's end")

    with pytest.raises(LaunchError, match="without a supervisor") as raised:
        launch(run.options("sleep=60"))
    assert all(f"process {pid}" in str(raised.value) for pid in pids)
    assert "stop --force" in str(raised.value)
    assert all(psutil.pid_exists(pid) for pid in pids)

    assert stop_supervisor(run.directory, 5, by="me") is True
    for pid in pids + children:
        wait_until(lambda pid=pid: not _lives(pid), 3, f"end of process {pid}")
    assert run.status().state is SupervisorState.STOPPED
    stop = run.event_log(EventKind.STOP)[-1]
    assert stop.by == "me"
    assert stop.message.startswith("Stopped from outside, without their supervisor: worker 0")
    assert stop_supervisor(run.directory, 5) is False


def test_a_stop_from_outside_has_the_workers_save(run: Run) -> None:
    launch(run.options("save-on-term", "ready", "sleep=60"))
    run.wait_until_ready()

    assert stop_supervisor(run.directory, 10) is True
    assert run.status().state is SupervisorState.STOPPED
    assert (run.root / "saved-0").exists()


@pytest.mark.parametrize("off", [3600.0, -3600.0])
def test_a_stop_from_outside_finds_the_run_after_the_clock_was_set(
    run: Run, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    status = launch(run.options("save-on-term", "ready", "sleep=60"))
    run.wait_until_ready()
    # Their heartbeats tell times by the clock before.
    monkeypatch.setattr(time, "time", lambda time=time.time: time() + off)

    assert stop_supervisor(run.directory, 10) is True
    assert not any(_lives(pid) for pid in [status.pid, *(one.pid for one in status.workers)])
    assert (run.root / "saved-0").exists()


def test_a_supervisor_that_does_not_answer_is_killed_with_its_workers(run: Run) -> None:
    status = launch(run.options("sleep=60", workers=1))
    os.kill(status.pid, signal.SIGSTOP)

    assert stop_supervisor(run.directory, 0.5) is True
    for pid in [status.pid, *(worker.pid for worker in status.workers)]:
        wait_until(lambda pid=pid: not _lives(pid), 3, f"end of process {pid}")
    assert run.status().reason.startswith("Stopped from outside, by force: worker 0 (")


def test_a_supervisor_that_is_killed_without_a_worker_is_told(run: Run) -> None:
    status = launch(run.options("sleep=60", workers=1))
    os.kill(status.pid, signal.SIGSTOP)
    (worker,) = run.status().workers
    os.kill(worker.pid, signal.SIGKILL)
    assert stop_supervisor(run.directory, 0.5) is True
    assert run.status().reason.startswith("Stopped from outside, by force")


def test_a_number_that_was_given_to_another_process_is_left_alone(run: Run) -> None:
    launch(run.options("exit=0", workers=1))
    wait_for_end(run.directory, 20, lambda alive: None)
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        text = run.directory.supervisor_status.read_text()
        run.directory.supervisor_status.write_text(
            text.replace(f'"pid":{run.status().pid}', f'"pid":{bystander.pid}')
        )
        assert run.status().pid == bystander.pid
        assert stop_supervisor(run.directory, 1) is False
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_supervisor_of_another_machine_is_not_signalled(run: Run) -> None:
    launch(run.options("exit=0", workers=1))
    wait_for_end(run.directory, 20, lambda alive: None)
    text = run.directory.supervisor_status.read_text()
    text = text.replace(f'"host":"{socket.gethostname()}"', '"host":"elsewhere"')
    text = text.replace(run.status().namespace, "another boot:1")
    text = text.replace(f'"updated_at":{run.status().updated_at}', f'"updated_at":{time.time()}')
    text = text.replace(f'"pid":{run.status().pid}', f'"pid":{os.getpid()}')
    run.directory.supervisor_status.write_text(text)

    with pytest.raises(LaunchError, match="elsewhere"):
        stop_supervisor(run.directory, 1)
    run.directory.supervisor_status.unlink()


def test_a_port_in_use_is_named(run: Run) -> None:
    with socket.socket() as taken, socket.socket() as free:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        free.bind(("127.0.0.1", 0))
        ports = (free.getsockname()[1], taken.getsockname()[1])
        free.close()
        with pytest.raises(LaunchError, match=f"Port {ports[1]} cannot be used"):
            launch(run.options("exit=0", ports=ports))


def test_a_chosen_port_that_is_taken_in_between_fails_with_advice(
    run: Run, launch_to_the_end
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    actions = ("say=UnknownError: Could not start gRPC server", "exit=1")
    with pytest.raises(LaunchError, match="Launch again with other ports"):
        launch_to_the_end(run.options(*actions, workers=1, ports=(port,)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workers": 0}, "at least 1"),
        ({"command": ()}, "There is no command"),
        ({"command": ("no-such-program-at-all",)}, "no-such-program-at-all"),
        ({"command": ("./missing.py",)}, "missing.py"),
        ({"command": ("/",)}, "not a program"),
        ({"working_directory": "/no/such/place"}, "not a directory"),
        ({"ports": (4242,)}, "2 processes need 2 ports, not 1."),
        ({"parameter_servers": -1}, "cannot be negative"),
        (
            {"parameter_servers": 1, "ports": (4242, 4243)},
            "in this order: chief 0, worker 0, worker 1, ps 0",
        ),
        ({"ports": (4242, 4242)}, "twice"),
        ({"ports": (4242, 70000)}, "70000 is not a port"),
        ({"max_restarts": -1}, "negative"),
        ({"command": ("true", os.fsdecode(b"\xff"))}, "not valid UTF-8"),
    ],
)
def test_options_that_make_no_sense_are_refused(run: Run, changes: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        launch(run.options("exit=0", **changes))
    assert not run.root.exists()


def test_a_directory_that_holds_something_else_is_refused(run: Run) -> None:
    run.root.mkdir()
    (run.root / "thesis.tex").write_text("x")

    with pytest.raises(UsageError, match=r"it has thesis.tex"):
        launch(run.options("exit=0"))
    assert [path.name for path in run.root.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_directory_is_refused(run: Run) -> None:
    run.root.write_text("x")

    with pytest.raises(UsageError, match="is a file"):
        launch(run.options("exit=0"))
    run.root.unlink()


def test_a_file_in_the_place_of_our_directory_is_refused(run: Run) -> None:
    run.root.mkdir()
    (run.root / ".tfckpt").write_text("x")

    with pytest.raises(TfckptError, match="cannot be used"):
        launch(run.options("exit=0"))


@pytest.mark.parametrize("name", ["checkpoint", "ckpt-3.index", ".gitkeep"])
def test_a_directory_of_checkpoints_and_an_empty_one_are_taken(
    run: Run, launch_to_the_end, name: str
) -> None:
    run.root.mkdir()
    if name == "ckpt-3.index":
        write_floats(run.root / "ckpt-3", [1.0])
    else:
        (run.root / name).write_text("x")

    assert launch_to_the_end(run.options("exit=0", workers=1)).state is SupervisorState.FINISHED


def test_a_torn_heartbeat_of_the_past_is_no_hindrance(run: Run, launch_to_the_end) -> None:
    launch_to_the_end(run.options("exit=0", workers=1))
    run.directory.supervisor_status.write_text("")
    run.directory.worker_status(0).write_text('{"schema":1,')

    assert launch_to_the_end(run.options("exit=0", workers=1)).state is SupervisorState.FINISHED


def test_the_supervisor_needs_no_tensorflow() -> None:
    script = (
        "import sys, tfckpt_trainer.launch.local.local_supervisor, tfckpt_trainer.launch.launcher\n"
    )
    script += "sys.exit('tensorflow' in sys.modules or 'textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
