"""Lists of runs on a network disk: what they ask of its server, and what they remember."""

from __future__ import annotations

import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pytest
from app_driving import until, until_shown
from msgspec.structs import replace
from rundir_factory import RunFactory, two_branches

from faulty_file_system import FaultyMount, faulty_mounts
from tfckpt_trainer.catalog.scan.alerts import Alert
from tfckpt_trainer.launch.batch.jobs import JobReport, JobState
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.words.advice import Advice
from tfckpt_tui.app.runs_app import RunsApp
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.runs.account import Glance, RunAccount
from tfckpt_tui.services.runs.brief_reading import brief_account, signs_of_start
from tfckpt_tui.services.runs.file_changes import KEPT_SECONDS, signature_of
from tfckpt_tui.services.runs.job_list import LONG_ENDED_SECONDS, JobList
from tfckpt_tui.services.runs.list_turns import (
    ENDED_OPERATIONS,
    LIVE_OPERATIONS,
    LONGEST_SECONDS,
    ListTurns,
    Looked,
)
from tfckpt_tui.services.runs.remembered_list import (
    RememberedRun,
    recall_runs,
    remember_run_as,
    remember_runs,
)
from tfckpt_tui.services.runs.search import RunSearch
from tfckpt_tui.settings.config import Config

AGO = 7200.0
LOOKS = 3
"""Of so many looks at a run that did not change, the operations are fewer than of a first one.

The client keeps no names: it asks for each part of each path.
"""

PAUSE = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    place = tmp_path_factory.mktemp("disk")
    with faulty_mounts(place, "there") as (mount,):
        yield mount, place / "server"


@pytest.fixture
def disk(served, monkeypatch, tmp_path):
    """A client of a server, a directory that it sees, and the same on the server."""
    mount, server = served
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name = Path(tempfile.mkdtemp(dir=server)).name
    yield mount, mount.root / name, server / name
    mount.clear()


def ended(root: Path, ending: Ending | None = None) -> RunDirectory:
    made = two_branches(root, time.time() - AGO)
    for index in range(2):
        if ending is not None:
            made.worker(index, activity=Activity.EXITED, ending=ending)
    age_all(root)
    return made.run


def age_all(root: Path) -> None:
    """Lets all files be as old as the run, so that they count as settled."""
    then = time.time() - AGO / 2
    for place, _, names in os.walk(root):
        for name in names:
            os.utime(os.path.join(place, name), (then, then))
        os.utime(place, (then, then))


def go_on(root: Path) -> None:
    """Starts a run again, as a trainer does."""
    made = RunFactory(root)
    made.event_log(EventKind.START, "started again")
    for index in range(2):
        made.live_worker(index)


def operations(mount: FaultyMount) -> int:
    return sum(mount.count_calls().values())


def test_a_run_that_has_ended_is_looked_at_by_few_operations(disk):
    mount, there, server = disk
    ended(server / "run")
    clock = Clock()
    jobs = JobList(clock=clock)
    mount.count_calls()
    (first,) = jobs.read([there / "run"], with_others=False)
    assert first.state is RunState.FAILED
    most = operations(mount)
    clock.now += LONG_ENDED_SECONDS
    assert jobs.read([there / "run"], with_others=False) == [first]
    assert 0 < LOOKS * operations(mount) < most
    go_on(server / "run")
    clock.now += LONG_ENDED_SECONDS
    (again,) = jobs.read([there / "run"], with_others=False)
    assert again.state is RunState.TRAINING


def test_a_request_to_a_run_that_goes_on_is_seen(disk):
    _, there, server = disk
    two_branches(server / "run", time.time())
    go_on(server / "run")
    age_all(server / "run" / ".tfckpt" / "control")
    clock = Clock()
    jobs = JobList(clock=clock)
    for _ in range(2):
        clock.now += LONGEST_SECONDS
        (first,) = jobs.read([there / "run"], with_others=False)
        assert first.words == "training"
    CommandQueue(RunDirectory(server / "run")).submit(CommandKind.STOP, requested_by="test")
    clock.now += LONGEST_SECONDS
    (again,) = jobs.read([there / "run"], with_others=False)
    assert again.words == "training, stop requested"


@pytest.mark.parametrize("ending", [None, Ending.STOPPED])
def test_a_chief_that_starts_or_was_cut_off_is_seen_by_its_heartbeat(disk, ending):
    _, there, server = disk
    ended(server / "run", ending)
    clock = Clock()
    jobs = JobList(clock=clock)
    (first,) = jobs.read([there / "run"], with_others=False)
    assert first.reported == (ending is not None)
    RunFactory(server / "run").live_worker(0)
    clock.now += LONG_ENDED_SECONDS
    (again,) = jobs.read([there / "run"], with_others=False)
    assert again.state not in HAS_ENDED


def remembered(there: Path) -> list[RememberedRun]:
    jobs = JobList()
    accounts = jobs.read([there / "run"], with_others=False)
    remember_runs(there, jobs.remembered(accounts))
    return [*recall_runs(there)]


def test_a_remembered_run_is_read_only_if_something_changed(disk):
    mount, there, server = disk
    ended(server / "run")
    mount.count_calls()
    known = remembered(there)
    most = operations(mount)
    jobs = JobList()
    jobs.recall(known)
    (unseen,) = jobs.read([there / "run"], with_others=False, most=0)
    assert unseen.words.startswith("failed ")
    assert unseen.remembered_for is not None
    assert jobs.unseen == 1
    (seen,) = jobs.read([there / "run"], with_others=False)
    assert 0 < LOOKS * operations(mount) < most
    assert (seen.state, seen.words, seen.remembered_for) == (RunState.FAILED, "failed", None)
    # What it remembers for the next list is as old as when it was read.
    assert jobs.remembered([seen])[0].account.at == known[0].account.at
    go_on(server / "run")
    jobs = JobList()
    jobs.recall(known)
    (again,) = jobs.read([there / "run"], with_others=False)
    assert again.state is RunState.TRAINING


def test_a_run_that_goes_on_or_just_ended_is_read_in_any_case(disk):
    _, there, server = disk
    two_branches(server / "run", time.time() - AGO)
    (known,) = remembered(there)
    assert known.signs == ()


def test_of_many_new_runs_those_that_go_on_are_read_first(disk):
    _, there, server = disk
    for name in ("a", "b", "c"):
        ended(server / name)
    go_on(server / "b")
    jobs = JobList()
    roots = [there / name for name in ("a", "b", "c")]
    (first,) = jobs.read(roots, with_others=False, most=1)
    assert (first.root, jobs.unseen) == (there / "b", 2)
    assert len(jobs.read(roots, with_others=False, most=2)) == len(roots)


async def test_rows_are_remembered_with_their_age_until_the_disk_answers(disk):
    mount, there, server = disk
    ended(server / "one")
    ended(server / "two")
    async with RunsApp(there, Config()).run_test(size=(120, 20)) as pilot:
        await until(pilot, lambda: len(pilot.app.runs.all_items) == 2, "both runs")
        await until_shown(pilot, "2 with problems")
    mount.set_faults(hang=True)
    async with RunsApp(there, Config()).run_test(size=(120, 20)) as pilot:
        await until_shown(pilot, "2 not read yet")
        words = [run.words for run in pilot.app.runs.all_items]
        assert all(one.startswith("failed ") for one in words), words
        await until_shown(pilot, words[0])
        mount.clear()
        await until_shown(pilot, "2 with problems")
        assert all(run.remembered_for is None for run in pilot.app.runs.all_items)


def test_runs_says_the_same_of_what_is_remembered(disk, tool):
    mount, there, server = disk
    for name in ("a", "b"):
        ended(server / name)
    mount.count_calls()
    first = tool("runs", there, "--json")
    most = operations(mount)
    assert len(first.json["runs"]) == 2
    assert tool("runs", there, "--json").data == first.data
    assert 2 * operations(mount) < most
    go_on(server / "a")
    states = [run["state"] for run in tool("runs", there, "--json").json["runs"]]
    assert states == ["training", "failed"]


@pytest.mark.parametrize(("state", "counts"), [("finished", True), ("queued", False)])
def test_a_run_counts_as_read_only_if_no_job_may_start_it(disk, state, counts):
    _, there, server = disk
    record = BatchJob(scheduler="slurm", id="7", user="u", name="n", submitted_at=1.0, script="s")
    report = JobReport(
        id="7", name="n", state=JobState(state), user="u", partition="p", working_directory="/"
    )
    job = JobView(record, report, told=frozenset({EventKind.REQUEUE}))
    account = brief_account(ended(server / "run").root)
    account = replace(account, root=there / "run", job=job)
    signs = signature_of(signs_of_start(RunDirectory(server / "run")))
    remember_runs(there, [remember_run_as(account, signs, time.time())])
    (known,) = recall_runs(there)
    assert known.account.job == job
    assert bool(known.signs) == counts


HOSTILE = "a\x1b[2Jb\x9b1mc\u202ed"


def test_texts_of_the_cache_are_safe_to_show(disk):
    _, there, _ = disk
    info = RunInfo(id="x", created_at=1.0, strategy=HOSTILE, worker_count=1, replica_count=1)
    account = RunAccount(
        time.time(),
        there / "run",
        info,
        alerts=(Alert("x", HOSTILE, HOSTILE, Advice((HOSTILE,))),),
        glance=Glance((1.0, None)),
    )
    remember_runs(there, [remember_run_as(account, (), time.time())])
    (known,) = recall_runs(there)
    texts = repr(known.account.alerts) + repr(known.account.info)
    assert "\\x1b" not in texts
    assert "\\x9b" not in texts
    assert "\\u202e" not in texts
    assert known.account.glance == account.glance


@pytest.mark.parametrize("root", ["elsewhere", "list/../elsewhere", "list", "list/a\0b"])
def test_directories_outside_the_list_are_not_remembered(disk, root):
    _, there, _ = disk
    account = RunAccount(time.time(), Path(f"{there}/{root}"))
    remember_runs(there / "list", [remember_run_as(account, (), 0.0)])
    assert [*recall_runs(there / "list")] == []


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"runs": 3}', b"[" * 100_000])
def test_a_damaged_cache_is_no_cache(disk, content, tmp_path):
    _, there, _ = disk
    account = RunAccount(time.time(), there / "run")
    remember_runs(there, [remember_run_as(account, (), 0.0)])
    (path,) = (tmp_path / "cache").rglob("runs.json")
    path.write_bytes(content)
    assert [*recall_runs(there)] == []


def test_a_later_search_asks_only_for_what_changed(disk):
    mount, there, server = disk
    for number in range(20):
        (server / f"run-{number}" / ".tfckpt").mkdir(parents=True)
    (server / "notes").mkdir()
    age_all(server)
    clock = Clock()
    search = RunSearch(there, clock=clock)
    mount.count_calls()
    assert len(search.find(60, whole=True)) == 20
    most = operations(mount)
    assert len(search.find(60, whole=True)) == 20
    assert LOOKS * operations(mount) < most
    (server / "notes" / "run" / ".tfckpt").mkdir(parents=True)
    (server / "run-3" / ".tfckpt").rmdir()
    (server / "run-3").rmdir()
    clock.now += KEPT_SECONDS
    found = search.find(60, whole=True)
    assert there / "notes" / "run" in found
    assert there / "run-3" not in found


def turns_of(live: int, resting: int, seconds: int) -> dict[Path, list[float]]:
    """Returns when each run is looked at by a list that is open for so many seconds."""
    clock = Clock()
    turns = ListTurns(clock)
    roots = [Path(f"/{number}") for number in range(live + resting)]
    looks: dict[Path, list[float]] = {root: [] for root in roots}

    def look(root: Path) -> None:
        goes_on = int(root.name) < live
        turns.note(root, Looked(clock.now, 0 if goes_on else PAUSE, True, goes_on, int(goes_on)))
        looks[root].append(clock.now)

    for root in roots:
        look(root)
    for second in range(2, seconds, 2):
        clock.now = float(second)
        for root in turns.choose(roots, frozenset()):
            look(root)
    return looks


def test_runs_of_a_long_list_take_turns_within_their_operations():
    looks = turns_of(live=20, resting=980, seconds=600)
    live = sum(len(looks[Path(f"/{number}")]) - 1 for number in range(20))
    rest = sum(len(looks[Path(f"/{number}")]) - 1 for number in range(20, 1000))
    assert live * 30 / 600 <= LIVE_OPERATIONS
    assert rest * 6 / 600 <= ENDED_OPERATIONS
    pauses = {root: max(b - a for a, b in pairwise(at)) for root, at in looks.items()}
    assert max(pauses[Path(f"/{number}")] for number in range(20)) <= LONGEST_SECONDS + 2
    # None waits for more than its turn.
    assert max(pauses.values()) <= 980 * 6 / ENDED_OPERATIONS + PAUSE


def test_runs_of_a_short_list_are_looked_at_as_on_a_local_disk():
    looks = turns_of(live=2, resting=20, seconds=120)
    assert len(looks[Path("/0")]) == 60
    assert looks[Path("/21")] == [0.0, 30.0, 60.0, 90.0]
