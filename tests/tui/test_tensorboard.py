"""TensorBoard beside a run: started once, adopted, stopped; and never another process."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from json_reference import check
from rundir_factory import RunFactory, two_branches, without_heartbeats

from accounts import ALICE, BOB, acting_as, share, sleeping
from command_running import Tool
from requirements import needs
from reserved_ports import reserved_ports
from tfckpt_trainer.errors import NotTrustedError, TfckptError
from tfckpt_trainer.rundir.heartbeats.process_table import seconds_after_boot
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import EVENTS, RunInfo
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.reports.control import TensorBoardReport
from tfckpt_tui.services.processes import tensorboard
from tfckpt_tui.services.processes.tensorboard import TensorBoard, TensorBoardProcess
from tfckpt_tui.services.runs.reading import event_directory
from waiting import PassingTime, wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    made = two_branches(tmp_path / "run").run
    yield made
    tensorboard.stop(made)


@pytest.fixture(autouse=True)
def usual_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Takes another port for the usual one, which any TensorBoard of this machine may have."""
    with reserved_ports(1) as (port,):
        monkeypatch.setattr(tensorboard, "USUAL_PORT", port)
        yield port


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same person that is no TensorBoard."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True
    )
    yield process
    process.kill()
    process.wait()


def listening() -> socket.socket:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    return taken


def test_one_that_cannot_be_recorded_is_ended(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(tensorboard, "store", refuse)
    with pytest.raises(PermissionError, match=r"tensorboard\.json"):
        tensorboard.start(run)
    assert not [p for p in psutil.Process().children() if "tensorboard" in " ".join(p.cmdline())]


def test_it_is_started_once_serves_this_run_and_is_gone_when_stopped(
    run: RunDirectory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    usual_port: int,
) -> None:
    # A module of the same name where the person stands must not be taken for the real one.
    (tmp_path / "tensorboard.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    # Two people at the same instant: the second one finds the first one's.
    with ThreadPoolExecutor(2) as people:
        both = [people.submit(tensorboard.start, run, host="127.0.0.2") for _ in range(2)]
    second, first = sorted((each.result() for each in both), key=lambda one: one.started)
    assert (second.started, first.started) == (False, True)
    assert second.pid == first.pid
    assert first.url == f"http://127.0.0.2:{first.port}/"
    assert first.port == usual_port
    assert first.directory == str(run.tensorboard)
    with urllib.request.urlopen(f"{first.url}data/environment", timeout=30) as answer:
        assert str(run.tensorboard) in answer.read().decode()
    connections = psutil.Process(first.pid).net_connections()
    listens = {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}
    assert {address.removeprefix("::ffff:") for address in listens} == {"127.0.0.2"}
    shutil.copytree(run.root, tmp_path / "copy")
    assert tensorboard.running(RunDirectory(tmp_path / "copy")) is None
    assert not tensorboard.stop(RunDirectory(tmp_path / "copy"))
    # Somebody sets the clock of the machine.
    monkeypatch.setattr(time, "time", lambda time=time.time: time() + 3600)
    again = tensorboard.start(run)
    assert (again.pid, again.port, again.started) == (first.pid, first.port, False)
    told = Tool(capsys)("tensorboard", run.root, "--json").json
    check(TensorBoardReport, told)
    assert (told["url"], told["pid"], told["started"]) == (first.url, first.pid, False)
    with pytest.raises(TfckptError, match="already runs on"):
        tensorboard.start(run, first.port + 1)
    with pytest.raises(TfckptError, match="already runs on"):
        tensorboard.start(run, host="127.0.0.3")
    assert tensorboard.stop(run)
    assert not psutil.pid_exists(first.pid) or (
        psutil.Process(first.pid).status() == psutil.STATUS_ZOMBIE
    )
    assert tensorboard.running(run) is None
    assert not tensorboard.stop(run)


def test_a_port_that_somebody_has_is_refused_at_once(run: RunDirectory) -> None:
    with listening() as taken, pytest.raises(TfckptError, match=r"Port \d+ is taken"):
        tensorboard.start(run, taken.getsockname()[1])
    assert tensorboard.running(run) is None


def test_one_that_does_not_come_up_shows_the_end_of_its_log(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "_MODULE", "tensorboard.no_such_module")
    with pytest.raises(TfckptError, match=r"did not start(.|\n)*No module named"):
        tensorboard.start(run)
    assert tensorboard.running(run) is None


def test_one_that_lacks_a_part_of_setuptools_says_what_to_install(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = "No module named 'pkg_resources'"
    (tmp_path / "tensorboard_2_20.py").write_text(f"raise ModuleNotFoundError({error!r})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(tensorboard, "_MODULE", "tensorboard_2_20")
    with pytest.raises(TfckptError, match=r"did not start: .* pip install 'setuptools<82'`"):
        tensorboard.start(run)
    assert tensorboard.running(run) is None


def test_one_that_is_slow_on_a_busy_machine_is_not_given_up(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, stand_in: str
) -> None:
    clock, late = PassingTime(), 20 * tensorboard.IDLE_SECONDS
    with monkeypatch.context() as busy:
        busy.setattr(tensorboard, "time", clock)
        busy.setattr(tensorboard, "_processor_seconds", lambda pid: clock.now // 50)
        busy.setattr(tensorboard, "_answers", lambda host, port: clock.now > late)
        assert tensorboard.start(run).started
    assert clock.now > late
    assert tensorboard.stop(run)


def test_one_that_hangs_is_ended_with_what_it_started(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, stand_in: str
) -> None:
    log, used = run.logs_directory / "tensorboard.log", tensorboard._processor_seconds

    def used_since_it_hangs(pid: int) -> float:
        # A busy machine may leave it no second of processor time before.
        return used(pid) if stand_in in log.read_text() else time.monotonic()

    monkeypatch.setattr(tensorboard, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(tensorboard, "_processor_seconds", used_since_it_hangs)
    with pytest.raises(TfckptError, match=f"did not start on port(.|\n)*{stand_in}"):
        tensorboard.start(run)
    assert tensorboard.running(run) is None


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A TensorBoard that never answers, and has a child."""
    said = "waits for a disk"
    body = f"import subprocess\nprint({said!r}, flush=True)\nsubprocess.run(['sleep', '600'])"
    (tmp_path / "hangs.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(tensorboard, "_MODULE", "hangs")
    return said


@pytest.mark.parametrize("pid", [-1, 0, 1, 2**40])
def test_a_record_of_an_impossible_process_is_none(run: RunDirectory, pid: int) -> None:
    record = TensorBoardProcess(
        pid=pid,
        port=6006,
        directory="x",
        run=run.identity(),
    )
    store(run.control / "tensorboard.json", record)
    assert tensorboard.running(run) is None
    assert not tensorboard.stop(run)


def test_a_record_that_names_another_process_does_it_no_harm(
    run: RunDirectory, bystander: subprocess.Popen[bytes]
) -> None:
    with listening() as taken:
        record = TensorBoardProcess(
            pid=bystander.pid,
            port=taken.getsockname()[1],
            directory="x",
            after_boot=seconds_after_boot(bystander.pid),
            run=run.identity(),
        )
        store(run.control / "tensorboard.json", record)
        assert tensorboard.running(run) is None
        assert not tensorboard.stop(run)
    assert bystander.poll() is None


def test_event_files_are_where_the_run_says(tmp_path: Path) -> None:
    ours = RunFactory(tmp_path / "ours").create()
    assert event_directory(ours.run) == ours.run.tensorboard
    elsewhere = RunFactory(tmp_path / "elsewhere").create(tensorboard=str(tmp_path / "events"))
    assert event_directory(elsewhere.run) == tmp_path / "events"
    foreign = RunDirectory(tmp_path / "foreign")
    assert event_directory(foreign) == foreign.root


def test_over_ssh_is_told_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    assert not tensorboard.is_remote()
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 10.0.0.2 22")
    assert tensorboard.is_remote()
    line = tensorboard.TensorBoard(6007, os.getpid(), "x", started=False).forward_line
    assert line == f"ssh -N -L 6007:127.0.0.1:6007 {socket.gethostname()}"


def test_a_browser_opens_on_the_curves_of_a_branch() -> None:
    board = TensorBoard(6007, 1, "/d", started=False)
    assert board.url_of(2) == "http://127.0.0.1:6007/?runFilter=branch-2%24#timeseries"
    wide = TensorBoard(6007, 1, "/d", started=False, host="0.0.0.0")
    assert wide.url == "http://127.0.0.1:6007/"


STAND_IN = """
import argparse, http.server
parser = argparse.ArgumentParser()
parser.add_argument("--host")
parser.add_argument("--port", type=int)
told, _ = parser.parse_known_args()
handler = http.server.BaseHTTPRequestHandler
http.server.HTTPServer((told.host, told.port), handler).serve_forever()
"""
"""Listens as TensorBoard does, and takes no seconds to start."""


def test_it_listens_on_this_machine_alone_and_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(tensorboard, "_MODULE", "stand_in")
    made = two_branches(tmp_path / "run", live=True)
    run = made.run
    board = tensorboard.start(run, with_run=True)
    try:
        # One process waits for the end of the run, another serves.
        process = psutil.Process(board.pid)
        family = [process, *process.children(recursive=True)]
        sockets = [one for each in family for one in each.net_connections("tcp")]
        listening = [one.laddr for one in sockets if one.status == psutil.CONN_LISTEN]
        places = {address.ip for address in listening if address.port == board.port}
        assert places == {"127.0.0.1"}
        running = tensorboard.running(run)
        assert running is not None
        assert (running.host, running.with_run) == ("127.0.0.1", True)
        without_heartbeats(made)
        wait_until(lambda: not psutil.pid_exists(board.pid) or is_zombie(board.pid), 30, "its end")
        wait_until(lambda: tensorboard.running(run) is None, 30, "nothing answers")
    finally:
        tensorboard.stop(run)


@needs("root")
def test_the_process_of_a_colleague_is_named_with_its_user(
    open_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(share(open_place))
    monkeypatch.setattr(tensorboard, "_is_tensorboard", lambda process: True)
    with sleeping() as process:
        with acting_as(ALICE):
            run.create()
            store(
                run.control / "tensorboard.json",
                TensorBoardProcess(
                    pid=process.pid,
                    port=6006,
                    directory=str(run.root),
                    after_boot=seconds_after_boot(process.pid),
                    run=run.identity(),
                ),
            )
        monkeypatch.setattr(tensorboard, "_answers", lambda host, port: True)
        with acting_as(BOB):
            found = tensorboard.running(run)
        assert found is not None
        assert found.user == f"user {ALICE}"
        with acting_as(BOB), pytest.raises(TfckptError) as refused:
            tensorboard.stop(run)
        assert str(refused.value) == (
            f"TensorBoard (process {process.pid}) belongs to user {ALICE} and cannot be ended by "
            f"you. End it as that user: `kill {process.pid}`."
        )
        assert process.poll() is None


def is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@needs("root")
def test_a_directory_elsewhere_that_another_user_named_is_not_served(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create()
    store(run.run_file, RunInfo(id="1", created_at=0.0, tensorboard=str(tmp_path / "private")))
    os.chown(run.run_file, BOB, -1)
    with pytest.raises(NotTrustedError, match=f"belongs to user {BOB}"):
        tensorboard.start(run)


def test_the_directory_that_is_served_is_the_one_that_was_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create()
    store(run.run_file, RunInfo(id="1", created_at=0.0))
    # Another user named it, until the look at who did.
    monkeypatch.setattr(tensorboard, "event_directory", lambda run: tmp_path / "private")
    assert tensorboard._served_directory(run) == run.root / EVENTS
