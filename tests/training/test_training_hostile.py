"""No file that anyone drops into the run directory ends training, and no error in a command."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from unittest import mock
from uuid import uuid4

import pytest
from msgspec.structs import replace
from steered import SteeredRun
from this_process import until_taken
from training_cluster import Cluster

from accounts import ALICE, BOB, GROUP, acting_as, share
from requirements import needs
from tfckpt_trainer import Policy
from tfckpt_trainer.catalog.commit.saves import commit_save
from tfckpt_trainer.catalog.directory import trash
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.status_files import load_status
from tfckpt_trainer.rundir.paths import RunDirectory, checkpoint_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.trash import TrashManifest, TrashPhase
from tfckpt_trainer.rundir.storage.documents import load, store
from waiting import wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow

OPTIONS = ["--keep-last", "3", "--trash-hours", "0.001", "--take-orders"]
"""No scheduled saves: an injected error in one ends training, because no command asked for it."""

WRONG = [
    (CommandKind.PRUNE, {"names": 5}),
    (CommandKind.PRUNE, {"names": None}),
    (CommandKind.PRUNE, {}),
    (CommandKind.RESTORE, {"name": ["ckpt-1"]}),
    (CommandKind.RESTORE, {"name": "x" * 3_000_000}),
    (CommandKind.STOP, {"save": None}),
    (CommandKind.UNDO, {"trash": {"id": 5}}),
    (CommandKind.SAVE, {"now": True}),
    (CommandKind.PAUSE, {"until": 10**30}),
    (CommandKind.RESUME, {"deep": [[[[[]]]]]}),
    (CommandKind.PROFILE, {"workers": []}),
    (CommandKind.SET, {"values": {"learning_rate": 0.1}, "at_step": 10**400}),
    (CommandKind.SKIP, {"batches": 1, "at_step": 2**60}),
]


@pytest.fixture(
    scope="module",
    params=["one-device", *weekly("multi-worker")],
)
def steered(request, tmp_path_factory):
    """A run of one worker, and one of two."""
    run_dir = tmp_path_factory.mktemp("hostile") / "run"
    workers = 1 if request.param == "one-device" else 2
    with Cluster(run_dir, "steered.py", OPTIONS, workers, request.param) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(5)
        yield run


def drop(run: RunDirectory, name: str, kind: CommandKind, arguments: object, **fields) -> None:
    """Writes a command as any program may."""
    now = time.time()
    path = run.inbox / f"{name}.json"
    command = {"id": name, "requested_at": now, "expires_at": now + 60, "requested_by": "test"}
    path.write_text(json.dumps({**command, "kind": kind, "arguments": arguments, **fields}))


def outcome_of(steered: SteeredRun, name: str) -> Command:
    def final() -> Command | None:
        # Not `look_up`: what a client wrote into the inbox may say that it is final.
        command = load_status(steered.run.done / f"{name}.json", Command)
        return command if command is not None and command.state.is_final else None

    return wait_until(final, 60, f"the outcome of {name}")


def test_wrong_arguments_are_refused_and_training_goes_on(steered):
    for number, (kind, arguments) in enumerate(WRONG):
        drop(steered.run, f"wrong-{number}", kind, arguments)
    # Whatever else a client writes is replaced by what the trainer knows.
    drop(steered.run, "forged", CommandKind.SAVE, {}, state="done", seen_by=[7], step=10**30)
    for number, (kind, _) in enumerate(WRONG):
        outcome = outcome_of(steered, f"wrong-{number}")
        assert outcome.state is CommandState.REFUSED
        assert f"The arguments of {kind} are invalid" in outcome.message
    forged = outcome_of(steered, "forged")
    assert forged.state is CommandState.DONE
    assert forged.seen_by == list(range(len(steered.workers())))
    steered.progress()
    refused = [e for e in read_entries(steered.run) if e.kind is EventKind.REFUSED]
    assert len([e for e in refused if "are invalid" in e.message]) == len(WRONG)


ARGUMENTS: dict[CommandKind, dict[str, object]] = {
    CommandKind.RESTORE: {"name": "ckpt-2"},
    CommandKind.PRUNE: {"names": ["ckpt-2"]},
    CommandKind.SET: {"values": {"mixup": 0.25}},
    CommandKind.SKIP: {"batches": 1},
    CommandKind.PROFILE: {"steps": 1},
}


def test_no_error_in_any_part_of_a_handler_ends_training(make_run):
    import tensorflow as tf

    from tfckpt_trainer.training.commands.handler import AGREED, Handler
    from tfckpt_trainer.training.commands.handlers import HANDLERS

    raising = mock.Mock(side_effect=ZeroDivisionError("planted"))
    later = [handler for handler in HANDLERS if handler.is_due is not Handler.is_due]
    parts = [(handler, part) for handler in HANDLERS for part in ("prepare", "commit")]
    parts += [(handler, "carry_on") for handler in later]
    failing = {(handler.arguments.kind, part) for handler, part in parts}

    mixup = [0.5]
    dataset = tf.data.Dataset.from_tensors(tf.ones((1, 2))).repeat()
    run = make_run(dataset=dataset, total_steps=3 * len(parts) + 3)
    run.tunable("mixup", lambda: mixup[0], lambda value: mixup.__setitem__(0, value))
    directory, step = RunDirectory(run.directory), run.function(tf.reduce_mean)
    queue = CommandQueue(directory)
    asked = {}
    with pytest.MonkeyPatch.context() as patch:
        for batch in run:
            step(batch)
            if run.step % 3:
                # A command acts two steps later; one that is planned, three.
                continue
            patch.undo()
            if not parts:
                for handler in HANDLERS:
                    patch.setattr(handler, "ended", raising)
                continue
            handler, part = parts.pop(0)
            kind = handler.arguments.kind
            given = ARGUMENTS.get(kind, {})
            if part == "commit":
                patch.setattr(handler, "prepare", lambda *_: AGREED)
            elif kind is CommandKind.SET and part == "carry_on":
                given = {**given, "at_step": run.step + 3}
            patch.setattr(handler, part, raising)
            if part == "commit":
                patch.setattr(handler, "put_back", raising)
            asked[kind, part] = queue.submit(kind, given, requested_by="test", lifetime=60)
            until_taken(run)

    outcomes = {key: queue.wait(command, timeout=30) for key, command in asked.items()}
    assert {key for key, outcome in outcomes.items() if "planted" in outcome.message} == (
        failing - {(CommandKind.SET, "carry_on")}
    )
    assert outcomes[CommandKind.SET, "carry_on"].state is CommandState.DONE
    assert mixup == [0.5]
    told = [e.message for e in read_entries(directory) if "planted" in e.message]
    assert len(told) == len(failing) + len(HANDLERS)


def test_a_document_of_a_newer_release_prevents_a_start_and_no_restart(make_run, monkeypatch):
    import tensorflow as tf

    run = RunDirectory(make_run(dataset=None).directory)
    (run.control / "other.json").write_text('{"schema": 99}')
    with pytest.raises(RefusedError, match=r"other\.json was written by a newer"):
        make_run()
    monkeypatch.setenv("TFCKPT_ATTEMPT", "1")
    again = make_run(dataset=tf.data.Dataset.from_tensors(tf.ones((1, 2))).repeat(), total_steps=2)
    step = again.function(tf.reduce_mean)
    for batch in again:
        step(batch)
    assert (run.root / "ckpt-2.index").exists()


IN_A_HANDLER = "tfckpt_trainer.training.commands"
IN_A_RESTORE = "tfckpt_trainer.training.checkpoint.restores.restore_manager"
IN_A_SAVE = "tfckpt_trainer.training.checkpoint.saves.worker_part"

BROKEN = [
    (0, f"{IN_A_HANDLER}.trash.move_to_trash", CommandKind.PRUNE),
    (0, f"{IN_A_HANDLER}.trash.undo", CommandKind.UNDO),
    # On the chief alone, before the others hear what to restore.
    (0, f"{IN_A_RESTORE}.Catalog", CommandKind.RESTORE),
    # Between two exchanges of a save, and in the part that one worker does alone.
    (-1, f"{IN_A_SAVE}.untracked_variables", CommandKind.SAVE),
    (0, "tfckpt_trainer.training.checkpoint.saves.saver.begin_save", CommandKind.SAVE),
    (0, "tfckpt_trainer.training.checkpoint.saves.saver.commit_save", CommandKind.SAVE),
    (-1, f"{IN_A_SAVE}.verify", CommandKind.STOP),
    (-1, f"{IN_A_SAVE}.find_differing", CommandKind.STOP),
    # After the last exchange, and after the loop was told to pause.
    (-1, f"{IN_A_HANDLER}.pause.CommandAnswer", CommandKind.PAUSE),
]


def give_order(steered: SteeredRun, worker: int, target: str) -> None:
    """Makes a function of one worker raise from the next step on; "" mends it."""
    order = steered.run.root / f"break-{worker}"
    done = order.with_suffix(".done")
    done.unlink(missing_ok=True)
    half = order.with_suffix(".half")
    half.write_text(target)
    half.rename(order)
    wait_until(done.exists, 30, f"worker {worker} to take its order")


@pytest.mark.parametrize(("worker", "target", "kind"), BROKEN)
def test_an_error_in_a_command_fails_the_command_on_all_workers(steered, worker, target, kind):
    count = len(steered.workers())
    index = worker % count
    arguments = {"name": "ckpt-25"} if kind is CommandKind.RESTORE else {}
    arguments = {"names": ["ckpt-25"]} if kind is CommandKind.PRUNE else arguments
    give_order(steered, index, target)
    try:
        failed = steered.ask(kind, **arguments)
    finally:
        give_order(steered, index, "")
    assert failed.state is CommandState.FAILED, failed
    assert "injected" in failed.message
    assert f"worker {index}: " in failed.message
    assert "steered.py" not in failed.message
    # All workers do the next one together.
    steered.progress()
    saved = steered.ask(CommandKind.SAVE)
    assert saved.state is CommandState.DONE, saved
    restored = steered.ask(CommandKind.RESTORE, name=saved.result["name"])
    assert restored.state is CommandState.DONE, restored
    steered.progress()


def test_what_others_put_in_place_of_a_coming_file_holds_up_no_save_and_is_not_written(
    steered, tmp_path
):
    run, private = steered.run, tmp_path / "private"
    private.write_text("precious")
    step = steered.ask(CommandKind.PAUSE).result["step"]
    name = checkpoint_name(step, steered.workers()[0].branch)
    for directory, stem in (
        (run.worker_state_directory(name), "worker-0"),
        (run.saving_directory, name),
    ):
        directory.mkdir(exist_ok=True)
        os.mkfifo(directory / f"{stem}.index")
        (directory / f"{stem}.data-00000-of-00001").symlink_to(private)
    obstacle = run.worker_state_directory(name) / "worker-0.json"
    obstacle.mkdir()
    (obstacle / "notes").write_text("theirs")
    saved = steered.ask(CommandKind.SAVE)
    assert (saved.state, saved.result["name"]) == (CommandState.DONE, name), saved
    assert private.read_text() == "precious"
    (kept,) = run.worker_state_directory(name).glob("*/notes")
    assert kept.read_text() == "theirs"
    steered.ask(CommandKind.RESUME)
    steered.progress()


def write(text: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(text)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "empty": write(b""),
    "null": write(b"null"),
    "other fields": write(b'{"names": 5}'),
    "wrong types": write(
        b'{"schema": 1, "name": 5, "step": "x", "checkpoint": [], "workers": 1e999}'
    ),
    "newer": write(b'{"schema": 99}'),
    "huge number": write(b'{"schema": 1, "step": %s}' % (b"9" * 5000)),
    "nested": write(b"[" * 1_000_000),
    "megabytes": write(b'{"schema": 1, "name": "%s"}' % (b"x" * 20_000_000)),
    "bytes": write(bytes(range(256)) * 16),
    "directory": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o644),
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "loop": lambda path: path.symlink_to(path.name),
    "unreadable": lambda path: (path.touch(), path.chmod(0)),
}


def targets_of(run: RunDirectory) -> list[Path]:
    """Every file of the run directory but logs and data of checkpoints, and some that may come."""
    # Training deletes directories meanwhile, which `walk` passes over.
    files = [Path(folder, name) for folder, _, names in os.walk(run.control) for name in names]
    found = [path for path in files if path.suffix not in {".log", ".lock", ".tmp"}]
    more = [
        run.state_file,
        run.head_file,
        run.job_file,
        run.launch_file,
        run.supervisor_status,
        run.worker_status(9),
        run.record("ckpt-1"),
        run.verification("ckpt-1"),
        run.pin("ckpt-1"),
        run.trash / "20260101T000000-abcdef" / "manifest.json",
        run.save_manifest("ckpt-1"),
        run.inbox / "any.json",
        run.active / "any.json",
        run.trash_order,
        run.root / "ckpt-7.index",
        run.root / "ckpt-8.data-00000-of-00001",
    ]
    return [*found, *more]


def replace_by(make: Callable[[Path], object], path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)


@pytest.mark.parametrize("content", HOSTILE)
def test_no_file_in_the_run_directory_ends_training(steered, content):
    for path in targets_of(steered.run):
        try:
            replace_by(HOSTILE[content], path)
        except OSError:
            # The trainer wrote or moved it in the meantime.
            continue
    pids = [process.pid for process in steered.cluster.processes]
    asked = [steered.ask(kind) for kind in (CommandKind.SAVE, CommandKind.UNDO)]
    asked.append(steered.ask(CommandKind.RESTORE, name="ckpt-1"))
    asked.append(steered.ask(CommandKind.PRUNE, names=["ckpt-1"]))
    assert all("Error(" not in outcome.message for outcome in asked), asked
    assert all("An error in tfckpt_trainer" not in outcome.message for outcome in asked), asked
    for path in steered.run.status_directory.iterdir():
        # A directory in the place of a heartbeat stays until someone removes it.
        if path.is_dir():
            path.rmdir()
    # So does what is in the place of the log that other tests read.
    replace_by(Path.touch, steered.run.event_log)
    steered.progress()
    assert [process.poll() for process in steered.cluster.processes] == [None] * len(pids)


@needs("root")
def test_what_a_stranger_leaves_keeps_no_run_from_its_first_start(make_run, tmp_path):
    root = tmp_path / "run"
    root.mkdir()
    (root / "ckpt-260.index").symlink_to("/nowhere")
    (root / "ckpt-340.data-00000-of-00001").write_bytes(b"")
    (root / "ckpt-380.data-00000-of-00001").write_bytes(b"evil")
    record = RunDirectory(root).record("ckpt-380")
    record.parent.mkdir(parents=True)
    record.write_bytes(b"evil")
    for path in (*root.glob("ckpt-*"), record):
        os.chown(path, BOB, GROUP, follow_symlinks=False)
    (root / "ckpt-400.data-00000-of-00001").write_bytes(b"")
    with pytest.raises(RefusedError, match="ckpt-400") as refused:
        list(make_run(total_steps=2))
    assert "ckpt-260" not in str(refused.value)
    (root / "ckpt-400.data-00000-of-00001").unlink()
    assert len(list(make_run(total_steps=2))) == 2
    messages = [entry.message for entry in read_entries(RunDirectory(root))]
    # One entry for each of the two starts, also about thousands.
    _, words = (message for message in messages if "were passed over: they are no" in message)
    assert all(name in words for name in ("ckpt-260", "ckpt-340", "ckpt-380"))


@needs("root")
def test_a_start_continues_from_nothing_that_a_stranger_adds(make_run, open_place, tmp_path):
    list(make_run(tmp_path / "other", total_steps=3))
    root = share(open_place)
    root.chmod(0o1777)
    for path in (tmp_path / "other").glob("ckpt-3.*"):
        copied = shutil.copy(path, root / path.name.replace("3", "900", 1))
        os.chown(copied, BOB, GROUP)
    with acting_as(ALICE, 0o022):
        assert len(list(make_run(root, total_steps=2))) == 2
        messages = [entry.message for entry in read_entries(RunDirectory(root))]
        words = f"ckpt-900 was passed over: it belongs to user {BOB}, who added it there."
        assert words in messages and "Started at step 0." in messages
        found = {c.name: c.is_head for c in Catalog(RunDirectory(root)).scan(time.time())}
    assert found == {"ckpt-900": False, "ckpt-2": True}


def files_of_no_checkpoint(run: RunDirectory, name: str) -> None:
    """Writes what a checkpoint with a name that none can have would have, wherever it would."""
    for place in (run.root, run.saving_directory):
        (place / f"{name}_temp").mkdir(parents=True)
        (place / f"{name}_temp" / "part-00000-of-00001.index").touch()
        for end in (".index", ".data-00000-of-00001", ".json", ".meta"):
            with suppress(OSError):
                (place / f"{name}{end}").write_bytes(bytes(60))
    for place in (run.records_directory, run.pins_directory, run.verifications_directory):
        place.mkdir(parents=True, exist_ok=True)
        for end in ("", ".json", ".json.copy"):
            with suppress(OSError):
                (place / f"{name}{end}").touch()


@pytest.mark.parametrize("name", [".", "..", "a" * 240])
def test_names_that_no_checkpoint_can_have_stop_no_start_and_no_save(make_run, tmp_path, name):
    run = RunDirectory(tmp_path / "run")
    files_of_no_checkpoint(run, name)
    assert len(list(make_run(save_every_steps=1, total_steps=2))) == 2
    shutil.rmtree(run.root)
    training = make_run(save_every_steps=1, total_steps=4)
    for _ in training:
        if training.step == 2:
            files_of_no_checkpoint(run, name)
            (run.state_file).write_text(f'model_checkpoint_path: "{name}"\n')
    assert {"ckpt-2", "ckpt-3", "ckpt-4"} <= {path.stem for path in run.root.glob("*.index")}
    (run.state_file).write_text(f'model_checkpoint_path: "{name}"\n')
    assert len(list(make_run(total_steps=6))) == 2
    found = Catalog(run).scan(time.time())
    assert {checkpoint.name for checkpoint in found} <= {f"ckpt-{step}" for step in range(7)}


def closed_directory(path: Path) -> None:
    path.mkdir(mode=0o700)
    (path / "of others").write_bytes(b"")


def closed_file(path: Path) -> None:
    path.touch(mode=0o600)


def put_in_place(run: RunDirectory, places: Iterable[Path], make: Callable[[Path], object]) -> None:
    """Has Bob put something in the place of directories and files of the run."""
    os.seteuid(0)
    for place in places:
        new = place.with_name(f"{place.name}.new")
        make(new)
        os.chown(new, BOB, GROUP)
        # Training may create a directory again at once.
        wait_until(lambda old=place, new=new: _has_replaced(old, new), 10, f"another {place}")
    os.seteuid(ALICE)


def _has_replaced(old: Path, new: Path) -> bool:
    with suppress(OSError):
        old.rename(f"{old}.old-{uuid4().hex}")
    with suppress(OSError):
        new.rename(old)
    return not new.exists()


@needs("root")
@pytest.mark.parametrize("make", [closed_directory, closed_file])
@pytest.mark.parametrize("places", ["all below", "the directory itself"])
def test_what_a_colleague_closes_while_a_run_trains_costs_no_save_and_no_restart(
    make_run, open_place, tmp_path, places, make
):
    # Imports what training needs: modules may lie in a directory that only root can read.
    list(make_run(save_every_steps=1, total_steps=2, retention=Policy(keep_last=1)))
    run = RunDirectory(share(open_place))
    obstacles = [run.control]
    if places == "all below":
        # The states of workers belong to the checkpoints: no start is right without them.
        kept = {run.worker_states_directory}
        obstacles = [
            one for one in run.directories if one.parent == run.control and one not in kept
        ]
        obstacles += [run.run_file, run.state_file, run.head_file, run.trash_order, run.job_file]
        if make is closed_directory:
            obstacles.append(run.command_file)
    with acting_as(ALICE, 0o002):
        training = make_run(run.root, save_every_steps=1, total_steps=4)
        for _ in training:
            if training.step == 2:
                put_in_place(run, obstacles, make)
        assert sorted(path.name for path in run.root.glob("*.index"))[-1] == "ckpt-4.index"
        assert load(run.record("ckpt-4"), CheckpointRecord).step == 4
        messages = [entry.message for entry in read_entries(run)]
        assert [m for m in messages if "closed to this user. It is" in m or "not a directory" in m]
        put_in_place(run, obstacles if places == "all below" else (), make)
        assert run.move_others_aside(closed=True) or places != "all below"
        assert len(list(make_run(run.root, save_every_steps=1, total_steps=6))) == 2
        # What was there is kept.
        assert len(list(run.root.rglob("*.damaged-*"))) >= len(obstacles)


def test_a_start_waits_for_no_lock_of_the_trash(make_run, tmp_path, monkeypatch):
    run = RunDirectory(tmp_path / "run")
    list(make_run(save_every_steps=1, total_steps=2, retention=Policy(keep_last=1)))
    (manifest,) = run.trash.glob("*/manifest.json")
    store(manifest, replace(load(manifest, TrashManifest), phase=TrashPhase.PRUNING))
    monkeypatch.setattr(trash, "LOCK_SECONDS", 0.0)
    with open(run.trash_lock, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert len(list(make_run(total_steps=4))) == 2
    messages = [entry.message for entry in read_entries(run)]
    (told,) = [m for m in messages if m.startswith("What was interrupted in the trash stays as")]
    assert "Another prune, undo, pin or emptying" in told


def test_what_has_the_names_of_coming_checkpoints_stops_no_save(make_run, tmp_path):
    root = tmp_path / "run"
    training = make_run(save_every_steps=1, total_steps=4)
    for _ in training:
        if training.step == 1:
            for name in ("ckpt-3", "ckpt-b1-3", "ckpt-b1-4", "ckpt-b2-4", "ckpt-b3-4"):
                (root / f"{name}.data-00000-of-00001").mkdir()
    assert {path.stem for path in root.glob("*.index")} >= {"ckpt-b2-3", "ckpt-b4-4"}


def test_a_name_that_is_taken_while_a_save_is_written_costs_no_save(
    make_run, tmp_path, monkeypatch
):
    from tfckpt_trainer.training.checkpoint.saves import saver

    root, taken = tmp_path / "run", []

    def commit(run: RunDirectory, record: CheckpointRecord) -> str:
        if record.step == 2 and len(taken) < 2:
            taken.append(record.name)
            (root / f"{record.name}.index").mkdir()
        return commit_save(run, record)

    monkeypatch.setattr(saver, "commit_save", commit)
    assert len(list(make_run(total_steps=2))) == 2
    assert taken == ["ckpt-2", "ckpt-b1-2"]
    assert (root / "ckpt-b2-2.index").is_file()
    assert list(make_run(total_steps=2)) == []


def test_what_is_put_in_the_way_of_the_last_save_costs_no_step(make_run, tmp_path, monkeypatch):
    from tfckpt_trainer.training.checkpoint.saves import saver

    run = RunDirectory(tmp_path / "run")

    def commit(run: RunDirectory, record: CheckpointRecord) -> str:
        if not run.root.joinpath("moved").exists():
            run.records_directory.rename(run.root / "moved")
            run.records_directory.write_text("no directory")
        return commit_save(run, record)

    monkeypatch.setattr(saver, "commit_save", commit)
    assert len(list(make_run(total_steps=2))) == 2
    assert load(run.record("ckpt-2"), CheckpointRecord).step == 2


def test_the_name_of_the_checkpoint_of_a_start_is_clean_on_the_terminal(make_run, tmp_path, capsys):
    made, root, name = tmp_path / "made", tmp_path / "run", "a\x1b[31m-2"
    list(make_run(made, total_steps=2))
    root.mkdir()
    for path in made.glob("ckpt-2.*"):
        shutil.copy(path, root / path.name.replace("ckpt-2", name))
    (root / "checkpoint").write_text('model_checkpoint_path: "a\\033[31m-2"\n')
    capsys.readouterr()
    list(make_run(root, total_steps=3))
    said = capsys.readouterr().err
    assert "Started at step 2 from a" in said
    assert "\x1b" not in said
