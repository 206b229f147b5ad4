"""`guards`: lists the guards of a run, changes them, and replays one."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from answering_trainer import AnsweringTrainer, done, final
from json_reference import check
from rundir_factory import RunFactory, two_branches, without_heartbeats

from command_running import Tool
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import note_event
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind, SeriesPoint
from tfckpt_trainer.rundir.records.hyperparameter import Bounds, Hyperparameter
from tfckpt_trainer.rundir.records.run import GuardInForce, GuardSource
from tfckpt_trainer.rundir.run_config import read_run_config
from tfckpt_trainer.rundir.storage.documents import append
from tfckpt_tui.cli.main import cli
from tfckpt_tui.reports.guards import GuardReplayReport, GuardsReport
from tfckpt_tui.services.control import guard_settings
from tfckpt_tui.services.runs.brief_reading import read_next_start

SPIKE = "spike loss: go_back, skip_batches 10"
NOT_FINITE = "not_finite: save, pause"
OWN = "high_ratio 3: notify"


@pytest.fixture
def live(tmp_path: Path) -> RunFactory:
    """A run whose trainer evaluates three guards, one of a class of the script."""
    made = two_branches(tmp_path / "run", live=True)
    guards = [
        GuardInForce(rule=OWN, source=GuardSource.SCRIPT),
        GuardInForce(rule=SPIKE, source=GuardSource.SCRIPT),
        GuardInForce(rule=NOT_FINITE, source=GuardSource.CONFIG),
    ]
    made.create(guards=guards)
    for step in (410, 420):
        made.event_log(
            EventKind.GUARD,
            f"{SPIKE}: loss is 9.",
            seconds_ago=500 - step,
            step=step,
            details={"rule": SPIKE, "worker": 1},
        )
    return made


def config(made: RunFactory, text: str) -> Path:
    made.run.config_file.write_text(text, encoding="utf-8")
    return made.run.config_file


def test_guards_in_force_say_how_often_they_fired(tool: Tool, live: RunFactory) -> None:
    config(live, f"guards = [{NOT_FINITE!r}, 'disk_full 1h : notify']\n")
    said = tool("guards", live.run.root)
    assert said.code == 0
    own, spike, finite, added = said.data.splitlines()[1:]
    assert own.split("  ")[0] == OWN
    assert "script" in spike
    assert "in force" in spike
    assert ", step 420 " in spike
    assert " 2 " in spike
    assert "config" in finite
    assert "in force" in finite
    assert added.split("  ")[0] == "disk_full 1h: notify"
    assert "from the next start" in added


def test_guards_are_printed_as_json(tool: Tool, live: RunFactory) -> None:
    printed = tool("guards", live.run.root, "--json").json
    check(GuardsReport, printed)
    own, spike, _ = printed["guards"]
    assert (own["fired"], own["last_at"], own["last_message"]) == (0, None, "")
    assert (spike["fired"], spike["last_step"], spike["in_force"]) == (2, 420, True)
    assert spike["last_message"] == f"{SPIKE}: loss is 9."


def test_without_a_trainer_the_guards_are_those_of_the_next_start(
    tool: Tool, live: RunFactory
) -> None:
    without_heartbeats(live)
    config(live, "guards = ['below loss 1: stop']\n")
    printed = tool("guards", live.run.root, "--json").json
    assert [guard["rule"] for guard in printed["guards"]] == [OWN, SPIKE, "below loss 1: stop"]
    assert not any(guard["in_force"] for guard in printed["guards"])


def test_a_run_without_guards_says_how_to_have_some(tool: Tool, tmp_path: Path) -> None:
    said = tool("guards", two_branches(tmp_path / "run").run.root)
    assert (said.code, said.data) == (0, "")
    assert "--add RULE" in said.words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("guards = ['spike loss']", "An action is missing"),
        ("guards = [", "is not valid TOML"),
        ("guard = []", "Keys of the file: guards, alerts"),
    ],
)
def test_damaged_settings_are_a_problem(
    tool: Tool, live: RunFactory, text: str, words: str
) -> None:
    config(live, text)
    said = tool("guards", live.run.root)
    assert said.code == 1
    assert SPIKE in said.data
    assert words in said.words


def test_a_run_whose_settings_cannot_be_read_may_have_guards(tool: Tool, ended: RunFactory) -> None:
    assert "The run has no guards." in tool("guards", ended.run.root).words
    config(ended, "guards = [")
    said = tool("guards", ended.run.root)
    assert (said.code, "has no guards" in said.words) == (1, False)


def test_adding_and_removing_keeps_the_rest_of_the_file(tool: Tool, ended: RunFactory) -> None:
    path = config(ended, "# Mine.\n[alerts]\nkinds = ['guard']  # only these\n")
    words = ["--add", "not_finite *:save,pause", "--add", SPIKE]
    said = tool("guards", ended.run.root, *words)
    assert said.code == 0
    assert read_run_config(ended.run).guards == (NOT_FINITE, SPIKE)
    assert "from the next start" in said.data
    assert "No trainer answers; the next start takes the guards." in said.words
    printed = tool("guards", ended.run.root, "--remove", NOT_FINITE, "--json").json
    check(GuardsReport, printed)
    assert [guard["rule"] for guard in printed["guards"]] == [SPIKE]
    text = path.read_text()
    assert text.startswith("# Mine.\n")
    assert text.endswith("[alerts]\nkinds = ['guard']  # only these\n")
    assert read_run_config(ended.run).guards == (SPIKE,)


def test_a_live_trainer_takes_a_change_at_once(tool: Tool, live: RunFactory) -> None:
    config(live, f"guards = [{NOT_FINITE!r}]\n")

    def take(box: CommandQueue, command: Command) -> None:
        rules = read_run_config(live.run).guards
        guards = [GuardInForce(rule=rule, source=GuardSource.CONFIG) for rule in rules]
        live.create(guards=guards)
        done("2 guards in force.")(box, command)

    with AnsweringTrainer(live.run, take) as trainer:
        said = tool("guards", live.run.root, "--add", "disk_full 1h: notify")
    assert [command.kind for command in trainer.taken] == [CommandKind.GUARDS]
    assert said.code == 0
    assert said.words.endswith(f"Changed {live.run.config_file}. 2 guards in force.\n")
    first, second = said.data.splitlines()[1:]
    assert NOT_FINITE in first
    assert "in force" in second


def test_a_trainer_that_does_not_take_a_change_is_an_error(tool: Tool, live: RunFactory) -> None:
    with AnsweringTrainer(live.run, final(CommandState.FAILED, "An error.")):
        said = tool("guards", live.run.root, "--add", NOT_FINITE)
    assert said.code == 1
    assert "The trainer did not: guards failed: An error." in said.words
    assert read_run_config(live.run).guards == (NOT_FINITE,)


def test_settings_with_alerts_stay_the_user_s_own(tool: Tool, ended: RunFactory) -> None:
    """A file that others may write to, or that was private and is not, would be a hole."""
    path = config(ended, "[[alerts.commands]]\ncommand = 'notify-send run'\n")
    path.chmod(0o600)
    before = os.umask(0o002)
    try:
        assert tool("guards", ended.run.root, "--add", SPIKE).code == 0
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    for mode, act, rule in ((0o644, "--add", NOT_FINITE), (0o640, "--remove", SPIKE)):
        path.chmod(mode)
        assert tool("guards", ended.run.root, act, rule).code == 0
        assert path.stat().st_mode & 0o777 == mode
    assert read_run_config(ended.run).guards == (NOT_FINITE,)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--add", "spike loss: fly"], "'fly' is no action. Write one of: notify"),
        (["--add", "spike  loss:pause"], "has the guard 'spike loss: pause' already"),
        (["--remove", SPIKE], "The guards of the file are:\n  spike loss: pause"),
        (["--add", SPIKE, "--remove", NOT_FINITE], "has no guard"),
        (["--add", SPIKE, "--replay", SPIKE], "Give --replay alone"),
        (["--replay", "spike"], "spike has no METRIC. Write spike METRIC deviations=8 window=200"),
    ],
)
def test_a_wrong_change_changes_nothing(
    tool: Tool, ended: RunFactory, words: list[str], said: str
) -> None:
    path = config(ended, "guards = ['spike loss: pause']\n")
    refused = tool("guards", ended.run.root, *words)
    assert refused.code == 2
    assert said in refused.words
    assert path.read_text() == "guards = ['spike loss: pause']\n"


def test_what_somebody_changed_meanwhile_is_not_lost(
    tool: Tool, ended: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ended.run.config_file
    theirs = 'guards = ["not_finite loss: stop"]\n'

    def begin(run: RunDirectory, write: Callable[[], None]) -> None:
        path.write_text(theirs)
        write()

    monkeypatch.setattr(guard_settings, "begin_change", begin)
    said = tool("guards", ended.run.root, "--add", "not_finite accuracy: stop", "--yes")
    assert (said.code, path.read_text()) == (4, theirs)
    assert f"Somebody changed {path} meanwhile. Nothing was changed" in said.words


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("spike loss: set lr 0.1", "There is no hyperparameter lr. The run has: learning_rate"),
        ("spike loss: scale learning_rate -1", "learning_rate cannot be -0.001; it must be"),
    ],
)
@pytest.mark.parametrize("is_live", [True, False])
def test_a_guard_that_can_never_act_is_refused(
    tool: Tool, live: RunFactory, is_live: bool, rule: str, said: str
) -> None:
    rate = Hyperparameter(
        name="learning_rate", value=0.001, script_value=0.001, bounds=Bounds(low=0)
    )
    live.tells(rate)
    if not is_live:
        start = read_next_start(live.run, time.time())
        assert start is not None
        live.records(start.checkpoint, rate)
        without_heartbeats(live)
    refused = tool("guards", live.run.root, "--add", rule, "--yes")
    assert refused.code == 2
    assert f"The guard {rule!r} cannot act. {said}" in refused.words
    assert read_run_config(live.run).guards == ()


def test_a_metric_that_nobody_has_reported_is_asked_about(
    tool: Tool, ended: RunFactory, tmp_path: Path
) -> None:
    rule = "above los 3: pause"
    asked = tool("guards", ended.run.root, "--add", rule)
    assert asked.code == 4
    assert "No metric los is recorded. Did you mean loss? The metrics are: loss" in asked.words
    assert "Give --yes" in asked.words
    assert read_run_config(ended.run).guards == ()
    assert tool("guards", ended.run.root, "--add", rule, "--yes").code == 0
    assert "Did you mean loss?" in tool("guards", ended.run.root).words
    new = RunFactory(tmp_path / "new")
    new.create()
    asked = tool("guards", new.run.root, "--add", "above loss 3: pause")
    assert (asked.code, read_run_config(new.run).guards) == (4, ())
    assert "The run has reported no metric yet, so loss may never be reported." in asked.words


def test_damaged_settings_are_not_changed(tool: Tool, ended: RunFactory, tmp_path: Path) -> None:
    path = config(ended, "guards = [")
    said = tool("guards", ended.run.root, "--add", SPIKE)
    assert (said.code, path.read_text()) == (2, "guards = [")
    assert "is not valid TOML" in said.words
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text("guards = []\n")
    path.unlink()
    path.symlink_to(elsewhere)
    assert tool("guards", ended.run.root, "--add", SPIKE).code == 2
    assert elsewhere.read_text() == "guards = []\n"


def test_an_invalid_guard_can_be_removed(tool: Tool, ended: RunFactory) -> None:
    config(ended, "guards = ['spike', 'spike loss: pause']\n")
    assert tool("guards", ended.run.root, "--remove", "spike").code == 0
    assert read_run_config(ended.run).guards == ("spike loss: pause",)


def test_a_replay_says_what_a_guard_would_have_done(tool: Tool, ended: RunFactory) -> None:
    ended.event_log(EventKind.SAVE, "Saved.", 500, step=400, checkpoint="ckpt-b1-400")
    for step, loss in ((440, 60.0), (444, math.nan), (448, 2.0)):
        metrics = {"loss": None if math.isnan(loss) else loss}
        append(
            ended.run.series,
            SeriesPoint(at=ended.now - 500 + step, step=step, branch=1, metrics=metrics),
        )
    *before, spike_line, last_but_one, last = ended.run.series.read_bytes().splitlines()
    # Points that were reported together are in one line of older runs.
    ended.run.series.write_bytes(b"\n".join([*before, spike_line + last_but_one, last]) + b"\n")
    journal = ended.run.event_log.read_bytes()
    words = ["--replay", SPIKE, "--replay", "not_finite: save, pause"]
    said = tool("guards", ended.run.root, *words)
    assert said.code == 0
    spike, fired, finite, paused = said.data.splitlines()
    assert spike.startswith(f"{SPIKE}: it would have fired 1 time in ")
    assert spike.endswith(" from step 0 to 448.")
    assert "step 440  loss is 60, " in fired
    assert fired.endswith("go_back, skip_batches 10 (to ckpt-b1-400)")
    assert finite.startswith("not_finite: save, pause: it would have fired 1 time")
    assert paused.endswith("loss is NaN: save, pause")
    assert "Recorded values are about a second apart; a guard sees every step." in said.words
    printed = tool("guards", ended.run.root, *words, "--json").json
    check(GuardReplayReport, printed)
    (one,) = printed["replays"][0]["firings"]
    assert (one["step"], one["checkpoint"], one["values"]["loss"]) == (440, "ckpt-b1-400", 60.0)
    assert len(one["window"]) > 100
    assert ended.run.event_log.read_bytes() == journal


def test_what_cannot_be_replayed_is_a_problem(tool: Tool, ended: RunFactory) -> None:
    said = tool("guards", ended.run.root, "--replay", "disk_full 2h: notify", "--replay", SPIKE)
    assert said.code == 1
    assert "Free disk space is not recorded" in said.words
    assert said.data.startswith(SPIKE)
    printed = tool("guards", ended.run.root, "--replay", "above accuracy 1: notify", "--json").json
    check(GuardReplayReport, printed)
    assert "The metrics are: loss." in printed["replays"][0]["why_not"]


def test_details_of_events_are_not_trusted(tool: Tool, live: RunFactory) -> None:
    note_event(live.run, EventKind.GUARD, "\x1b[31mred", details={"rule": ["x"]})
    note_event(live.run, EventKind.GUARD, "\x1b[31mred", details={"rule": OWN})
    printed = tool("guards", live.run.root, "--json").json
    assert printed["guards"][0]["fired"] == 1
    assert "\x1b" not in printed["guards"][0]["last_message"]


@pytest.mark.parametrize(
    ("option", "offered"), [("replayed", [OWN, SPIKE, NOT_FINITE]), ("remove", [NOT_FINITE])]
)
def test_rules_are_completed(live: RunFactory, option: str, offered: list[str]) -> None:
    command = cli.get_command(None, "guards")  # type: ignore[arg-type]
    assert command is not None
    context = command.make_context("guards", [str(live.run.root)])
    (found,) = [param for param in command.params if param.name == option]
    items = found.type.shell_complete(context, found, "")
    assert [item.value for item in items] == offered
    assert found.type.shell_complete(context, found, "not_finite: n") == []
