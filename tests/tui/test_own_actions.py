"""Users' own actions: real commands, what they find, and names that are hostile."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from pathlib import Path

import msgspec
import psutil
import pytest
from json_reference import check
from rundir_factory import RunFactory

from command_running import Tool
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.stored_results import store_action_result
from tfckpt_trainer.catalog.retention.prune import move_to_trash, undo
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.results import ActionResult
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.reports.configured import ActionReport
from tfckpt_tui.reports.listing import ListReport
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from tfckpt_tui.services.processes.own_actions import ActionOutcome, command_of, run_action
from tfckpt_tui.settings.config import config_path, read_config
from tfckpt_tui.settings.own_actions import ActionSection, ActsOn
from waiting import wait_until

HOSTILE = ("; rm -rf *", "$(touch hit)", "-rf", "two\nlines", "größer", "'quoted'", "{name}")


def script(tmp_path: Path, text: str) -> str:
    """Returns the command that runs a Python script."""
    path = tmp_path / "script.py"
    path.write_text(f"import json, os, sys, time\n{text}\n")
    return shlex.join((sys.executable, str(path)))


def prints(tmp_path: Path, **values: object) -> str:
    return script(tmp_path, f"print({json.dumps(json.dumps(values))})")


def acts(made: RunFactory, command: str, **fields: object) -> ActionOutcome:
    """Runs an action for the newest checkpoint."""
    action = ActionSection(command=command, **fields)  # type: ignore[arg-type]
    newest = list_checkpoints(made.run)[0]
    return run_action(made.run, "evaluate", action, [newest], on_output=lambda data: None)


def lives(pid: int) -> bool:
    """Whether a process runs; one that nobody waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def configure(text: str) -> None:
    place = config_path()
    assert place is not None
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))


# -- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('[actions.e]\ncommand = ""\n', "[actions.e]: it has no command; write one such as"),
        ('[actions.e]\ncommand = "a \'b"\n', "[actions.e]: the command cannot be split"),
        ('[actions.e]\ncommand = "a {foo}"\n', 'unknown placeholder {foo}. With on = "checkpoint"'),
        ('[actions.e]\ncommand = "a {path}"\non = "run"\n', "there are {run}."),
        ('[actions.e]\ncommand = "{path}"\n', "the first word is the program"),
        ('[actions.e]\ncommand = "a x{paths}"\non = "marked"\n', "{paths} has to be a word of its"),
        (
            '[actions.e]\ncommand = "a"\non = "run"\ncolumn = "b"\n',
            "column needs on = ",
        ),
        ('[actions.e]\ncommand = "a"\ncolumn = "step"\n', "'step' is a column of all checkpoints"),
        (
            '[actions.e]\ncommand = "a"\ncolumn = "a b"\n',
            "Keys of [actions.NAME] are command",
        ),
        ('[actions.e]\ncommand = "a"\ncolour = "b"\n', "unknown field `colour`"),
        ("[actions.e]\n", "missing required field `command`"),
        ('[actions.save]\ncommand = "a"\n', "[actions.save]: the app has an action of this name"),
        ('[actions.E]\ncommand = "a"\n', "[actions.E]: a name has small letters"),
        ('[actions.e]\ncommand = "a"\non = "run"\neach_new = true\n', "each_new needs on = "),
        ('[actions.e]\ncommand = "a"\nkey = "s"\n', "s is the key of both save and e"),
        ('[actions.e]\ncommand = "a"\nkey = "tab"\n', "tab cannot be used"),
    ],
)
def test_an_action_that_cannot_be_says_why(section: str, message: str) -> None:
    configure(section)
    with pytest.raises(UsageError) as error:
        read_config(DEFAULT_KEYS)
    assert message in str(error.value)
    assert str(config_path()) in str(error.value)


def test_a_run_directory_defines_no_action(live: RunFactory, tool: Tool) -> None:
    live.run.config_file.write_text('[actions.evaluate]\ncommand = "touch hit"\n')
    said = tool("act", live.run.root, "evaluate")
    assert said.code == 2
    assert f"There is no action 'evaluate'. It has no actions. Add one to {config_path()}" in (
        said.words
    )


# -- words of the command --------------------------------------------------------------------


def test_placeholders_are_filled_in_each_word(live: RunFactory) -> None:
    newest = list_checkpoints(live.run)[0]
    action = ActionSection(command="x '{name} {step}' --at={path} {branch} {run} {{name}} '{}' ''")
    root = str(live.run.root)
    assert command_of(action, live.run, [newest]) == [
        *("x", "ckpt-b1-400 400", f"--at={root}/ckpt-b1-400", "1", root, "{name}", "{}", "")
    ]


def test_marked_checkpoints_become_words(live: RunFactory) -> None:
    two = list_checkpoints(live.run)[:2]
    action = ActionSection(command="x {paths} y", on=ActsOn.MARKED)
    paths = [str(live.run.root / one.name) for one in two]
    assert command_of(action, live.run, two) == ["x", *paths, "y"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_one_word_and_reaches_no_shell(tmp_path: Path, name: str) -> None:
    made = RunFactory(tmp_path / name / "run").create()
    made.checkpoint(5, name=name, recorded=False)
    (newest,) = list_checkpoints(made.run)
    command = script(tmp_path, "print(json.dumps(sys.argv[1:]))")
    said = bytearray()
    action = ActionSection(command=f"{command} {{path}} x{{name}}")
    done = run_action(made.run, "e", action, [newest], on_output=said.extend)
    assert done.problem == ""
    assert json.loads(said) == [str(made.run.root / name), f"x{name}"]
    shell = ActionSection(command="sh -c 'printf %s \"$1\"' -- {path}")
    said.clear()
    run_action(made.run, "e", shell, [newest], on_output=said.extend)
    assert said.decode() == str(made.run.root / name)
    assert not list(tmp_path.rglob("hit"))


def test_a_name_never_becomes_an_option(live: RunFactory) -> None:
    newest = msgspec.structs.replace(list_checkpoints(live.run)[0], name="-rf")
    with pytest.raises(RefusedError, match="would take '-rf' for an option"):
        command_of(ActionSection(command="rm {name}"), live.run, [newest])


# -- what a command does ---------------------------------------------------------------------


def test_a_command_is_niced_and_has_no_input(live: RunFactory, tmp_path: Path) -> None:
    # The process has begun when it gets its priority.
    command = script(
        tmp_path,
        "import time\nend = time.monotonic() + 30\n"
        "while os.nice(0) < 10 and time.monotonic() < end: time.sleep(0.01)\n"
        "print(json.dumps({'nice': os.nice(0), 'input': len(sys.stdin.read())}))",
    )
    before = os.nice(0)
    done = acts(live, command, column=["nice", "input"])
    assert done.values == {"nice": min(19, max(before, 10)), "input": 0}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sys.exit(3)", "The command ended with status 3."),
        ("os.kill(os.getpid(), 9)", "The command was killed by SIGKILL."),
        ("print('no json')", "has no finite number 'accuracy'"),
        ("print('{\"accuracy\": NaN}')", "has no finite number 'accuracy'"),
        ("print('{\"accuracy\": true}')", "has no finite number 'accuracy'"),
        ("print('{\"accuracy\": 1' + '0' * 400 + '}')", "has no finite number 'accuracy'"),
        ("print('[' * 50_000)", "has no finite number 'accuracy'"),
        ("print('[1]')", "has no finite number 'accuracy'"),
        ("pass", "has no finite number 'accuracy'"),
    ],
)
def test_a_command_that_fails_says_why_and_stores_nothing(
    live: RunFactory, tmp_path: Path, text: str, problem: str
) -> None:
    assert problem in acts(live, script(tmp_path, text), column="accuracy").problem
    assert "evaluate" not in list_checkpoints(live.run)[0].results


def test_a_missing_program_and_directory_are_said(live: RunFactory) -> None:
    assert "no-such-program cannot be run in" in acts(live, "no-such-program").problem
    assert "/nowhere is no directory" in acts(live, "true", directory="/nowhere").problem


def test_a_metric_of_training_stays(live: RunFactory, tmp_path: Path) -> None:
    before = list_checkpoints(live.run)[0].metrics["loss"]
    done = acts(live, prints(tmp_path, loss=0.0), column="loss")
    assert "loss is a metric of training" in done.problem
    assert list_checkpoints(live.run)[0].metrics["loss"] == before


def test_huge_and_binary_output_is_passed_on_in_parts(live: RunFactory, tmp_path: Path) -> None:
    text = (
        "for n in range(1600): sys.stdout.buffer.write(bytes(range(256)) * 256)\n"
        "sys.stdout.buffer.write(b'\\n'); print('{\"accuracy\": 1}')"
    )
    action = ActionSection(command=script(tmp_path, text), column="accuracy")
    sizes: list[int] = []
    newest = list_checkpoints(live.run)[:1]
    done = run_action(live.run, "e", action, newest, on_output=lambda data: sizes.append(len(data)))
    assert done.values == {"accuracy": 1.0}
    assert sum(sizes) > 100_000_000
    assert max(sizes) <= 1 << 16


def test_a_cancelled_command_leaves_no_process(live: RunFactory, tmp_path: Path) -> None:
    text = (
        "import signal, subprocess\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "print(os.getpid(), child.pid, flush=True)\ntime.sleep(1000)"
    )
    said, asked = bytearray(), threading.Event()
    action = ActionSection(command=script(tmp_path, text))
    newest = list_checkpoints(live.run)[:1]
    outcomes: list[ActionOutcome] = []

    def run() -> None:
        outcomes.append(
            run_action(live.run, "e", action, newest, on_output=said.extend, cancelled=asked.is_set)
        )

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: said.endswith(b"\n"), 30, "the processes")
    asked.set()
    thread.join(30)
    assert (outcomes[0].problem, outcomes[0].was_cancelled) == ("cancelled", True)
    wait_until(lambda: not any(lives(int(pid)) for pid in said.split()), 30, "their end")


def test_what_a_command_leaves_running_is_ended(live: RunFactory, tmp_path: Path) -> None:
    text = "import subprocess; print(subprocess.Popen(['sleep', '1000']).pid)"
    said = bytearray()
    action = ActionSection(command=script(tmp_path, text))
    newest = list_checkpoints(live.run)[:1]
    assert run_action(live.run, "e", action, newest, on_output=said.extend).problem == ""
    wait_until(lambda: not lives(int(said)), 30, "its end")


# -- results ---------------------------------------------------------------------------------


def found(run: RunDirectory) -> dict[str, float | None]:
    return {one.name: one.metrics.get("accuracy") for one in list_checkpoints(run)}


def test_results_are_metrics_for_all_commands(live: RunFactory, tool: Tool, tmp_path: Path) -> None:
    command = script(tmp_path, "print(json.dumps({'accuracy': abs(int(sys.argv[1]) - 250)}))")
    configure(f"[actions.evaluate]\ncommand = {command + ' {step}'!r}\ncolumn = 'accuracy'\n")
    said = tool("act", live.run.root, "evaluate", "ckpt-200", "ckpt-500", "--json")
    check(ActionReport, said.json)
    assert [one["values"] for one in said.json["runs"]] == [{"accuracy": 50}, {"accuracy": 250}]
    said = tool("act", live.run.root, "evaluate", "--all-new")
    assert said.data.splitlines()[0].startswith("ckpt-100: accuracy 150")
    assert "evaluate was run for all" in tool("act", live.run.root, "evaluate", "--all-new").data
    listed = tool("ls", live.run.root, "--filter", "accuracy<100", "--json").json
    check(ListReport, listed)
    assert {one["name"] for one in listed["checkpoints"]} == {"ckpt-200", "ckpt-300"}
    plan = tool("prune", live.run.root, "--keep-best", "accuracy:max:1", "--dry-run").data
    assert "max accuracy 250" in next(line for line in plan.splitlines() if "ckpt-500" in line)
    assert "accuracy" in tool("inspect", live.run.root, "ckpt-500").data
    said = tool("bisect", live.run.root, "--to", "ckpt-500", "--bad", "accuracy>200")
    assert "The first bad one is ckpt-500" in said.data
    said = tool("bisect", live.run.root, "--bad", "f1>200")
    assert (said.code, "it has no f1" in said.data) == (1, True)


def test_results_go_and_come_back_with_the_checkpoint(
    ended: RunFactory, tool: Tool, tmp_path: Path
) -> None:
    configure(f"[actions.e]\ncommand = {prints(tmp_path, accuracy=0.5)!r}\ncolumn = 'accuracy'\n")
    tool("act", ended.run.root, "e", "ckpt-200")
    move_to_trash(ended.run, ["ckpt-200"], by="ada", now=ended.now, update_state_file=True)
    assert not ended.run.results("ckpt-200").exists()
    undo(ended.run, None, update_state_file=True)
    assert found(ended.run)["ckpt-200"] == 0.5


def test_results_of_other_files_do_not_count(ended: RunFactory) -> None:
    (newest, *_) = list_checkpoints(ended.run)
    store(ended.run, newest, 0.5)
    assert found(ended.run)[newest.name] == 0.5
    os.utime(ended.run.root / f"{newest.name}.index", (1, 1))
    assert found(ended.run)[newest.name] is None


def store(run: RunDirectory, checkpoint: Checkpoint, value: float, action: str = "e") -> None:
    from tfckpt_trainer.catalog.directory.checkpoint_files import FileScanner

    files = FileScanner(run.root).scan()[checkpoint.name]
    result = ActionResult(at=1.0, values={"accuracy": value})
    store_action_result(run, files, action, result, into_run=True)


@pytest.mark.parametrize(
    "text", ["", "{", '{"schema": 2, "name": "x"}', '{"schema": 2, "name": 1, "crc32": "0"}']
)
def test_damaged_and_hostile_results_say_nothing(ended: RunFactory, text: str) -> None:
    (newest, *_) = list_checkpoints(ended.run)
    store(ended.run, newest, 0.5)
    ended.run.results(newest.name).write_text(text)
    assert found(ended.run)[newest.name] is None


def test_results_of_several_actions_stay(ended: RunFactory) -> None:
    (newest, *_) = list_checkpoints(ended.run)
    store(ended.run, newest, 0.5, "first")
    store(ended.run, newest, 0.6, "second")
    assert list(list_checkpoints(ended.run)[0].results) == ["first", "second"]
    assert found(ended.run)[newest.name] == 0.6


def test_a_directory_of_another_program_is_not_written_to(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "foreign")
    made.run.root.mkdir()
    made.checkpoint(5, recorded=False, listed=False)
    before = sorted(os.listdir(made.run.root))
    store(made.run, list_checkpoints(made.run)[0], 0.5)
    assert sorted(os.listdir(made.run.root)) == before
    assert found(made.run) == {"ckpt-5": 0.5}


# -- the command -----------------------------------------------------------------------------


def test_output_goes_to_standard_error_and_failures_exit_1(live: RunFactory, tool: Tool) -> None:
    configure("[actions.e]\ncommand = \"sh -c 'echo said; exit 2'\"\n")
    said = tool("act", live.run.root, "e")
    assert (said.code, said.data) == (1, "ckpt-b1-400: The command ended with status 2.\n")
    assert "said" in said.words


def test_each_new_ends_with_the_run(ended: RunFactory, tool: Tool) -> None:
    configure('[actions.e]\ncommand = "true"\n')
    assert "already" in tool("act", ended.run.root, "e", "--each-new").data
    said = tool("act", ended.run.root, "e", "--all-new", "--each-new")
    assert len(said.data.splitlines()) == 6


def test_an_action_on_the_run_or_on_marked_ones_says_so(live: RunFactory, tool: Tool) -> None:
    configure(
        '[actions.r]\ncommand = "echo {run}"\non = "run"\n'
        '[actions.m]\ncommand = "echo {paths}"\non = "marked"\n'
    )
    assert "acts on the run" in tool("act", live.run.root, "r", "ckpt-500").words
    assert "acts on several" in tool("act", live.run.root, "m", "--all-new").words
    assert str(live.run.root) in tool("act", live.run.root, "r").words
    said = tool("act", live.run.root, "m", "ckpt-500", "ckpt-100")
    assert said.data.startswith("ckpt-500, ckpt-100: done in ")
