"""What the app advises names its keys, not the commands of the command line."""

from __future__ import annotations

import ast
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from answering_trainer import AnsweringTrainer
from app_driving import POLL, opened, top, until, until_shown
from batch_runs import with_job
from rundir_factory import RunFactory

import tfckpt_trainer
import tfckpt_tui
from tfckpt_trainer.catalog.directory.pins import set_pins
from tfckpt_trainer.catalog.retention.plan import plan_of_names
from tfckpt_trainer.catalog.scan.alerts import find_alerts, missing_directory_alert
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.launch.preflight import already_alive
from tfckpt_trainer.rundir.command_queue import CommandQueue, advance
from tfckpt_trainer.rundir.disk_reserve import disk_full_error
from tfckpt_trainer.rundir.full_disk import advice_to_free_space
from tfckpt_trainer.rundir.heartbeats.health import RunState, WorkerState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import (
    Command,
    CommandKind,
    CommandState,
    parse_arguments,
)
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus, WorkerProcess
from tfckpt_trainer.rundir.records.worker import (
    Activity,
    NotFiniteMetric,
    SaveStatus,
    WorkerStatus,
)
from tfckpt_trainer.words.advice import Advice, command_or_key
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.services.checkpoints.verify import Verifier
from tfckpt_tui.services.control import prune
from tfckpt_tui.services.control.job_control import submit_again
from tfckpt_tui.services.control.request import FrontEnd, ask
from tfckpt_tui.services.control.restore import choose_start
from tfckpt_tui.services.processes import export
from tfckpt_tui.services.runs.failure import find_failure
from tfckpt_tui.settings.config import Config

OPTION = re.compile(r"(?:^|[ `(])--[a-z]|`tfckpt-tui [a-z]")
"""An option, or a command of the program."""

ONLY_COMMANDS = re.compile(r"`tfckpt-tui (?:export|launch --slurm|attach) [^`]*`")
"""What the app cannot do itself."""

SPELLED_OUT = {"command_or_key", "only_command", "add_argument", "join", "startswith"}
"""Functions whose arguments are options, but no message of the app."""

NOT_IN_THE_APP = {
    "bundle/exchange": "takes tensors out, and puts them in",
    "cluster/slurm.py": "errors of the training script",
    "code_version.py": "options of Git",
    "examples": "training scripts",
    "training": "errors of the training script, but for the commands of the app",
    "rundir/heartbeats/liveness.py": "errors of the training script",
    "launch/slurm": "commands of Slurm, and errors of its batch script",
    "tools/copying": "copy",
    "services/exactness": "check",
    "tools/reporting": "report",
    "tools/selftest": "selftest",
    "tools/tensors": "extract, convert, average, edit",
    "services/processes/foreground.py": "launch --foreground",
    "services/runs/launch_form.py": "the command that launches a run again",
    "services/runs/check_directory.py": "what the app opens",
    "services/runs/process_watch.py": "attach",
    "services/runs/process_stacks.py": "options of py-spy",
    "services/runs/training_directory.py": "attach",
    "services/checkpoints/look_up.py": "ls and status",
    "reports": "what the documentation says of JSON",
    "settings/config.py": "the option that names the file",
    "app/crash_app.py": "after the app has ended",
    "app/screens/tensor_pages.py": "commands that take a file and have no key",
    "cli": "the command line",
}
"""Modules whose messages the app does not show, and why."""

IN_THE_APP = (
    "training/commands/pause.py",
    "training/commands/restore.py",
    "training/commands/save.py",
    "training/checkpoint/saves/disk_space.py",
    "services/checkpoints/track.py",
)


def message_parts(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the texts of a module that may be a part of a message, with their lines.

    None, if the module has nothing that looks like an option: it need not be parsed.
    """
    source = path.read_text()
    if "--" not in source and "tfckpt-tui " not in source:
        return
    tree = ast.parse(source)
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(id(node.value))
        if isinstance(node, ast.Call) and _name(node.func) in SPELLED_OUT:
            left_out |= {id(one) for one in ast.walk(node)}
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"Advice", "Advice.of"}:
            # The second argument, if any, is for the app.
            left_out |= {id(one) for one in ast.walk(node.args[0]) if len(node.args) > 1}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in left_out:
            yield node.lineno, node.value


def _name(function: ast.expr) -> str:
    return getattr(function, "id", getattr(function, "attr", ""))


ALLOWED = (
    "--lock",
    "--reload_interval",
    "--logdir",
    "--host",
    "--port",
    "python train.py --steps 5000",
    "google-crc32c is installed without its C extension",
    "Closes the app. `tfckpt-tui attach RUN`",
    "This run was not launched by tfckpt-tui",
    " was not launched by tfckpt-tui",
    "only `tfckpt-tui launch` keeps logs.",
    "In {file}: from the next start on, each alert is sent",
    "[actions.stats]",
    "`tfckpt-tui convert`",
    ". Upgrade with `pip install --upgrade ",
    # Of the table of `get` alone.
    ", with --until-step N",
    "Number of tensors with values that are not finite; null before `verify --finite`",
)
"""Words of other programs, and commands for what the app cannot do."""


def test_no_message_of_the_app_spells_out_an_option() -> None:
    found = []
    for package in (tfckpt_trainer, tfckpt_tui):
        root = Path(package.__file__ or "").parent
        for path in root.rglob("*.py"):
            place = path.relative_to(root).as_posix()
            is_elsewhere = any(place.startswith(one) for one in NOT_IN_THE_APP)
            if is_elsewhere and place not in IN_THE_APP:
                continue
            found += [
                f"{place}:{row}: {text}"
                for row, text in message_parts(path)
                if OPTION.search(text) and not any(text.startswith(one) for one in ALLOWED)
            ]
    assert found == []


def key_of(action: str) -> str:
    """The key of an action; fails if there is no such action."""
    assert action in DEFAULT_KEYS, f"{action!r} is not an action of the app"
    return DEFAULT_KEYS[action]


def refused(work: Callable[[], Any]) -> TfckptError:
    """The error that work raises."""
    with pytest.raises(TfckptError) as caught:
        work()
    return caught.value


def errors_of(made: RunFactory) -> Iterator[TfckptError]:
    """Errors of a run that has ended, as the actions of the app get them."""
    run, through = made.run, FrontEnd.APP
    required = {
        CommandKind.RESTORE: {"name": "ckpt-1"},
        CommandKind.PRUNE: {"names": ["ckpt-1"]},
        CommandKind.SET: {"values": {"rate": 0.1}},
        CommandKind.SKIP: {"batches": 1},
    }
    for kind in CommandKind:
        arguments = parse_arguments(kind, required.get(kind, {}))
        yield refused(lambda arguments=arguments: ask(run, arguments, through=through))
    yield refused(lambda: set_pins(run, ["ckpt-1"], pinned=True))
    yield refused(lambda: Verifier(run).verify("ckpt-1"))
    checkpoints = Catalog(run).scan(time.time())
    yield refused(lambda: plan_of_names(checkpoints, ["ckpt-1"]))
    yield refused(lambda: choose_start(run, "ckpt-1", through=through))
    yield refused(lambda: submit_again(run, through=through))
    yield refused(lambda: export.script_of(run))
    pruned = prune.prune(run, ["ckpt-100"], through=through)
    yield refused(lambda: set_pins(run, ["ckpt-100"], pinned=True))
    yield disk_full_error(run, OSError(28, "No space left on device"))
    yield already_alive(run)
    with_job(made)
    yield refused(lambda: submit_again(run, through=through))
    (run.control / "pins").mkdir(exist_ok=True)
    assert pruned.trash


def test_errors_name_keys_in_the_app_and_commands_on_the_command_line(ended: RunFactory) -> None:
    words = [(describe_error(one, key_of), describe_error(one)) for one in errors_of(ended)]
    assert len({in_app for in_app, _ in words}) >= 8
    for in_app, on_command_line in words:
        assert not OPTION.search(ONLY_COMMANDS.sub("", in_app)), in_app
        assert in_app.endswith("."), in_app
        if "the key" in in_app:
            assert "`tfckpt-tui " in on_command_line


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("prune", "RUN", "-rf"), "prune RUN -- -rf"),
        (("prune", "RUN", "--delete", "-rf", "-x"), "prune RUN --delete -- -rf -x"),
        (("prune", "RUN", "a-b", "-"), "prune RUN a-b -"),
    ],
)
def test_a_name_that_begins_with_a_dash_is_no_option(words: tuple[str, ...], command: str) -> None:
    assert command_or_key("prune", *words).command == f"`tfckpt-tui {command}`"


def test_a_full_disk_under_an_export_names_no_option_in_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "export", fail)
    error = refused(
        lambda: export.export_checkpoint(
            RunDirectory(tmp_path),
            "ckpt-1",
            export.ExportFormat.WEIGHTS,
            export.Script((sys.executable, "train.py"), tmp_path, {}),
            target=tmp_path / "m.weights.h5",
            through=FrontEnd.APP,
        )
    )
    assert describe_error(error, key_of).endswith("Free disk space there, or choose another path.")
    assert describe_error(error).endswith("or choose another path with --to.")


CHIEF = {
    "activity": Activity.TRAINING,
    "host": "trainhost",
    "pid": 1,
    "process_started_at": 100.0,
    "updated_at": 200.0,
    "interval_seconds": 1.0,
    "step": 63,
    "step_seconds": 0.1,
}


def alerts_of(made: RunFactory) -> Iterator[Any]:
    """One alert of each kind, in each of its forms."""
    checkpoints = Catalog(made.run).scan(time.time())
    lost = (NotFiniteMetric(name="loss", value="nan", step=411),)
    failed = {"failed": 2, "problem": "no room"}
    for changes in (
        {"saves": SaveStatus(**failed)},
        {"saves": SaveStatus(**failed, every_steps=10)},
        {"saves": SaveStatus(**failed, waits_for_room=True)},
        {"saves": SaveStatus(every_steps=10, unsaved_steps=90, unsaved_seconds=90.0)},
        {"not_finite": lost},
        {"write_problem": "Permission denied"},
    ):
        chief = WorkerStatus(**{**CHIEF, "index": 0, **changes})
        for state in (WorkerState.TRAINING, WorkerState.EXITED):
            yield from find_alerts(made.run.root, [(chief, state)], checkpoints)
            yield from find_alerts(made.run.root, [(chief, state)], [])
    process = WorkerProcess(index=0, pid=12, process_started_at=100.0)
    supervisor = SupervisorStatus(
        pid=11,
        host="trainhost",
        process_started_at=99.0,
        updated_at=900.0,
        interval_seconds=1.0,
        state=SupervisorState.RUNNING,
        workers=[process],
    )
    yield from find_alerts(made.run.root, [], [], supervisor)
    left = [(WorkerStatus(**{**CHIEF, "index": 0}), WorkerState.TRAINING)]
    yield from find_alerts(made.run.root, left, [], supervisor, supervisor_lives=False)
    yield from find_failure(made.run, RunState.FAILED, "Worker 0 is gone (process 1).")
    yield missing_directory_alert(str(made.run.root))


def test_alerts_name_keys(ended: RunFactory) -> None:
    found = list(alerts_of(ended))
    assert len({alert.kind for alert in found}) == 8
    for alert in found:
        in_app = alert.advice.in_app(key_of)
        assert not OPTION.search(in_app), in_app
        assert "`tfckpt-tui" not in alert.message


async def test_a_changed_key_is_the_one_that_messages_name(live: RunFactory) -> None:
    live.live_worker(0, saves=SaveStatus(failed=1, problem="no room"))
    config = Config(keys={"save": "f6", "diagnostics": "i"})
    app = TfckptApp(live.run, poll=POLL, config=config)
    async with app.run_test(size=(100, 30)) as pilot:
        await until_shown(pilot, "i shows what to do")
        await pilot.press("i")
        await until(
            pilot,
            lambda: "save with the key f6." in " ".join(top(pilot.app).split()),
            "the changed key",
        )


async def test_a_refused_command_is_shown_with_the_key_that_helps(live: RunFactory) -> None:
    restore = ("restore", live.run.root, "--name", "ckpt-400", "--partial")
    advice = Advice.of(
        "To restore only what fits, use {how}.", how=command_or_key("restore", *restore)
    )

    def refuse(box: CommandQueue, command: Command) -> None:
        box.finish(advance(command, CommandState.REFUSED, "Shapes differ.", advice=advice))

    with AnsweringTrainer(live.run, refuse):
        async with opened(live.run, size=(120, 40)) as pilot:
            await pilot.press("s")
            await until_shown(pilot, "Shapes differ. To restore only what fits, use the key r.")
            assert "--partial" not in top(pilot.app)


def test_pruning_is_offered_only_if_there_are_checkpoints(
    ended: RunFactory, tmp_path: Path
) -> None:
    assert "prune" in advice_to_free_space(ended.run).in_app(key_of)
    empty = RunDirectory(tmp_path / "empty")
    empty.create()
    words = advice_to_free_space(empty).in_app(key_of)
    assert words.endswith(", or free space elsewhere on this disk.")
    assert "prune" not in words
    told = advice_to_free_space(empty, has_trash=False)
    assert str(told) == told.in_app(key_of) == "Free space elsewhere on this disk."
