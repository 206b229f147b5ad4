"""A retention rule is one class: options, files, dialog and plan follow from the list of rules."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from app_driving import opened, shown, until_shown
from rundir_factory import RunFactory
from textual.widgets import Input

from bundle_writing import array, write
from command_running import Tool
from tfckpt_trainer.catalog.retention import rules
from tfckpt_trainer.catalog.retention.plan import plan
from tfckpt_trainer.catalog.retention.policy import Policy, RetentionSettings
from tfckpt_trainer.catalog.retention.rules import Kept, RuleFields
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.cli.checkpoints import prune
from tfckpt_tui.formats.policy_input import parse_policy, policy_texts
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from tfckpt_tui.settings.config import Config, read_config


class KeepInTest(rules.NumberRule, frozen=True):
    """Keeps the oldest checkpoints."""

    number: int

    fields: ClassVar[RuleFields] = RuleFields(
        key="keep_in_test",
        metavar="N",
        help="Keep the oldest N.",
        example="how many",
        value_type=int,
    )

    def kept(self, checkpoints) -> Kept:
        return [(c, f"one of the first {self.number}") for c in checkpoints[-self.number :]]

    def __str__(self) -> str:
        return f"the first {self.number}"


@pytest.fixture
def keep_in_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Adds the rule to the list, and makes the command from the list again."""
    with monkeypatch.context() as changed:
        changed.setattr(rules, "RULES", (*rules.RULES, KeepInTest))
        importlib.reload(prune)
        yield
    importlib.reload(prune)


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    factory = RunFactory(tmp_path / "run").create()
    for step in (1, 2, 3, 4):
        factory.checkpoint(step, seconds_ago=7200)
    return factory


class KeepNamesInTest(KeepInTest, frozen=True):
    """Keeps the checkpoints with the names of a list; the list is one text."""

    number: str  # type: ignore[assignment]

    fields: ClassVar[RuleFields] = RuleFields(
        key="keep_names_in_test",
        metavar="NAMES",
        help="Keep the checkpoints with these names.",
        example="a,b",
        value_type=str,
    )

    @classmethod
    def from_value(cls, value: object) -> KeepNamesInTest:
        return cls(str(value))

    def check(self) -> None:
        pass


def test_the_dialog_takes_a_text_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, KeepNamesInTest))
    policy = parse_policy({"keep_names_in_test": " ckpt-100, ckpt-200 ", "keep_last": "1,000"})
    assert policy.values["keep_names_in_test"] == "ckpt-100, ckpt-200"
    assert policy.values["keep_last"] == 1000
    assert policy_texts(policy)["keep_names_in_test"] == "ckpt-100, ckpt-200"
    assert parse_policy({"keep_names_in_test": " "}).is_empty


def set_retention(run: RunDirectory, **section: object) -> None:
    """Writes the policy of a trainer into `run.json`."""
    info = json.loads(run.run_file.read_text())
    run.run_file.write_text(json.dumps({**info, "retention": section}))


def pruned_by(run: RunDirectory, policy: Policy) -> set[str]:
    return {c.name for c in plan(list_checkpoints(run), policy).deleted}


async def test_the_dialog_prunes_nothing_by_a_policy_with_a_rule_that_it_does_not_know(
    made: RunFactory,
) -> None:
    set_retention(made.run, keep_last=1, keep_newer_rule=3)
    async with TfckptApp(made.run).run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "ckpt-4")
        await pilot.press("p")
        await until_shown(pilot, "the rule keep_newer_rule")
        await until_shown(pilot, "No checkpoint goes to the trash.")
        await pilot.press("y")
        assert len(list_checkpoints(made.run)) == 4


async def test_the_dialog_prunes_by_every_rule_of_the_trainer(
    made: RunFactory, keep_in_test: None
) -> None:
    set_retention(made.run, keep_last=1, keep_in_test=2)
    assert pruned_by(made.run, Policy(keep_last=1, keep_in_test=2)) == {"ckpt-3"}
    async with TfckptApp(made.run).run_test(size=(140, 40)) as pilot:
        await until_shown(pilot, "ckpt-4")
        await pilot.press("p")
        await until_shown(pilot, "By the trainer's own policy.")
        await until_shown(pilot, "1 checkpoint goes to the trash")
        await until_shown(pilot, "one of the first 2")
        field = pilot.app.screen.query_one("#keep-in-test", Input)
        assert (field.value, field.border_title) == ("2", "keep in test")
        field.value = "1"
        await until_shown(pilot, "2 checkpoints go to the trash")


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40)])
async def test_the_dialog_shows_the_titles_of_all_rules_and_its_buttons(
    made: RunFactory, keep_in_test: None, size: tuple[int, int]
) -> None:
    async with TfckptApp(made.run).run_test(size=size) as pilot:
        await until_shown(pilot, "ckpt-4")
        await pilot.press("p")
        await until_shown(pilot, "move to the trash")
        words = shown(pilot.app)
        for title in ("last", "every steps", "every hours", "best", "in test"):
            assert f" keep {title} " in words, words


def test_a_new_rule_is_an_option_and_a_key_of_the_files(
    made: RunFactory,
    keep_in_test: None,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tool = Tool(capsys)
    root = made.run.root
    said = tool("prune", root, "--keep-in-test", "2", "--dry-run")
    assert "keep    ckpt-2" in said.data
    assert "delete  ckpt-3" in said.data
    assert "Keep the oldest N." in tool("prune", "--help").data

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    place = tmp_path / "config" / "tfckpt-tui" / "config.toml"
    place.parent.mkdir(parents=True)
    place.write_text("[retention]\nkeep_in_test = 3\n")
    assert read_config({}).retention.policy == Policy(keep_in_test=3)
    assert "keep_in_test = 3  # from the file" in tool("config").data
    said = tool("prune", root, "--dry-run")
    assert f"By {place}: keep the first 3." in said.words
    settings = RetentionSettings(Policy(keep_last=1, keep_in_test=2), trash_hours=1.0)
    assert settings.to_json()["keep_in_test"] == 2
    assert RetentionSettings.from_json(settings.to_json()) == settings


def test_without_the_rule_its_key_is_refused() -> None:
    with pytest.raises(TypeError, match="no rule 'keep_in_test'; there are keep_last"):
        Policy(keep_in_test=3)
    assert "keep_in_test" not in RetentionSettings.known_keys()
    assert Config().retention.policy.is_empty


@pytest.mark.parametrize("rule", rules.RULES)
def test_every_rule_has_a_key_that_other_versions_recognize(rule: type[rules.Rule]) -> None:
    assert rule.fields.key.startswith("keep_")
    assert rule.fields.option == f"--{rule.fields.key.replace('_', '-')}"
    assert rule.fields.title == rule.fields.key.replace("_", " ")
    assert rule.fields.help.startswith("Keep ")


@pytest.mark.parametrize("rule", rules.RULES)
def test_the_docstring_of_policies_describes_every_rule(rule: type[rules.Rule]) -> None:
    assert f" {rule.fields.key} (" in (Policy.__doc__ or ""), "Add it to Keyword Args of `Policy`."


def test_a_policy_is_written_as_it_is_read() -> None:
    policy = Policy(keep_last=5, keep_every_hours=6, keep_best=["loss:min:3", "accuracy:max:1"])
    assert str(policy) == (
        "keep the last 5, one every 6 h, the best 3 by min loss, the best 1 by max accuracy"
    )
    values = {
        "keep_last": 5,
        "keep_every_steps": None,
        "keep_every_hours": 6.0,
        "keep_best": ["loss:min:3", "accuracy:max:1"],
    }
    assert {key: policy.values[key] for key in values} == values
    assert Policy(**policy.values) == policy
    assert "keep_last=5" in repr(policy)


async def test_the_dialog_says_that_steps_and_times_disagree(tmp_path: Path) -> None:
    now = time.time()
    for step, age in ((75, 600), (100, 800), (500, 700)):
        for path in write(tmp_path / f"ckpt-{step}", {"w": array([1.0])}):
            os.utime(path, (now - age, now - age))
    async with opened(RunDirectory(tmp_path)) as pilot:
        await until_shown(pilot, "ckpt-75")
        await pilot.press("p")
        await until_shown(pilot, "keep last")
        await pilot.press("1")
        await until_shown(pilot, "ckpt-75 was written after ckpt-500 and has a smaller step.")


OWN = {
    "rules": ["KeepGood"],
    "reasons": {f"ckpt-{step}": "scored 0.9\x1b[2J" if step == 2 else "" for step in (1, 2, 3, 4)},
}
"""What a trainer recorded of a rule of its script."""


@pytest.mark.parametrize("options", [[], ["--keep-last", "1"], ["--config"]])
def test_a_rule_of_the_script_counts_in_every_prune_by_rules(
    made: RunFactory, capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str]
) -> None:
    set_retention(made.run, keep_last=1, keep_by_own_rules=OWN)
    rules_file = tmp_path / "rules.toml"
    rules_file.write_text("[retention]\nkeep_last = 1\n")
    words = [*options, rules_file] if options == ["--config"] else options
    said = Tool(capsys)("prune", made.run.root, *words, "--dry-run")
    assert "delete  ckpt-3" in said.data
    assert "keep    ckpt-2" in said.data
    assert "scored 0.9␛[2J" in said.data
    if not options:
        assert "By the trainer's own policy: keep the last 1, KeepGood." in said.words


def test_a_prune_by_name_shows_the_rule_of_the_script(
    made: RunFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    set_retention(made.run, keep_last=1, keep_by_own_rules=OWN)
    said = Tool(capsys)("prune", made.run.root, "1", "2", "--dry-run", "--json").json
    chosen = {row["name"]: row["reason"] for row in said["plan"]["decisions"]}
    assert chosen["ckpt-1"] == "chosen"
    assert chosen["ckpt-2"].startswith("chosen, but KeepGood keeps it")


def test_rules_of_the_script_have_no_key_in_the_configuration(
    made: RunFactory, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rules_file = tmp_path / "rules.toml"
    rules_file.write_text("[retention]\nkeep_by_own_rules = 1\n")
    said = Tool(capsys)("prune", made.run.root, "--config", rules_file, "--dry-run")
    assert said.code == 2
    assert "unknown key `keep_by_own_rules`" in said.words


async def test_the_dialogs_show_what_rules_of_the_script_keep(made: RunFactory) -> None:
    set_retention(made.run, keep_last=1, keep_by_own_rules=OWN)
    async with TfckptApp(made.run).run_test(size=(140, 40)) as pilot:
        await until_shown(pilot, "ckpt-4")
        await pilot.press("p")
        await until_shown(pilot, "2 checkpoints go to the trash")
        await until_shown(pilot, "scored 0.9␛[2J")
        pilot.app.screen.query_one("#keep-last", Input).value = "2"
        await until_shown(pilot, "Rules of the script always apply: KeepGood.")
        await until_shown(pilot, "1 checkpoint goes to the trash")
        await pilot.press("escape", "down", "down", "space", "p")
        await until_shown(pilot, "prune 1 checkpoint")
        await until_shown(pilot, "chosen, but KeepGood keeps it")
