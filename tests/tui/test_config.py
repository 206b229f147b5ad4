"""The configuration file, and which policy a prune goes by."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from app_driving import POLL, until_shown
from json_reference import check
from rundir_factory import RunFactory, two_branches
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._xterm_parser import XTermParser
from textual.color import Color
from textual.keys import _character_to_key

from command_running import Tool
from tfckpt_trainer.catalog.retention.policy import Policy, RetentionSettings
from tfckpt_trainer.catalog.retention.rules import BestBy
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import decode
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.contrast import FAINT_CONTRAST, TEXT_CONTRAST, contrast, parse_colour
from tfckpt_tui.app.screens.settings import all_settings
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.reports.configured import ConfigReport
from tfckpt_tui.settings.config import (
    AppSection,
    Config,
    DefaultPolicy,
    config_path,
    default_policy,
    read_config,
    write_settings,
)
from tfckpt_tui.settings.keys import NAMED_KEYS, SAME_AS, check_keys, is_key, key_name

OWN = RunInfo(id="run", created_at=0.0, retention={"keep_last": 7})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the configuration file belongs; it is not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    config_path().parent.mkdir(parents=True)
    return config_path()


def test_all_rules_are_read(home: Path) -> None:
    home.write_text(
        "[retention]\nkeep_last = 3\nkeep_every_steps = 1000\nkeep_every_hours = 6\n"
        'keep_best = ["loss:min:2", "accuracy:max:1"]\ntrash_hours = 24\n'
    )
    rules = default_policy(None, read_config(DEFAULT_KEYS))
    assert rules.policy == Policy(
        keep_last=3,
        keep_every_steps=1000,
        keep_every_hours=6.0,
        keep_best=(BestBy("loss", "min", 2), BestBy("accuracy", "max", 1)),
    )
    assert rules.source == str(home)
    assert rules.trash_hours == 24


def test_without_a_file_there_is_no_rule(home: Path) -> None:
    rules = default_policy(None, read_config(DEFAULT_KEYS))
    assert rules.policy.is_empty
    assert str(home) in rules.source


def test_the_trainers_own_policy_comes_first(home: Path) -> None:
    home.write_text("[retention]\nkeep_last = 3\n")
    assert default_policy(OWN, read_config(DEFAULT_KEYS)) == DefaultPolicy(
        Policy(keep_last=7), "the trainer's own policy"
    )


def test_a_policy_of_the_trainer_that_makes_no_sense_is_not_passed_over(home: Path) -> None:
    home.write_text("[retention]\nkeep_last = 3\n")
    odd = RunInfo(id="run", created_at=0.0, retention={"keep_best": ["loss"]})
    rules = default_policy(odd, read_config(DEFAULT_KEYS))
    assert rules.policy.is_empty
    assert "METRIC:min|max:N" in rules.source


def test_a_rule_of_a_newer_trainer_is_not_passed_over() -> None:
    info = b'{"id": "run", "created_at": 0, "retention": {"keep_last": 7, "keep_newer": 1}}'
    rules = default_policy(decode(info, RunInfo, "run.json"), Config())
    assert rules.policy.is_empty
    assert "the rule keep_newer is unknown" in rules.source


def test_other_settings_of_a_newer_trainer_are_ignored() -> None:
    section = b'{"keep_last": 7, "keep_newer": null, "trash_bytes": 1}'
    info = b'{"id": "run", "created_at": 0, "retention": %b}' % section
    policy = default_policy(decode(info, RunInfo, "run.json"), Config()).policy
    assert policy == Policy(keep_last=7)


@pytest.mark.parametrize("place", ["/dev/null", "/nowhere"])
def test_without_a_home_there_is_no_rule(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", place)
    assert read_config(DEFAULT_KEYS) == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[retention]\nkeep_lst = 3\n", "`keep_lst`"),
        ("[retention]\nkeep_lst = 3\n", "Keys of [retention] are keep_last, keep_every_steps"),
        ("[retention]\nkeep_last = 'x'\n", "keep_last"),
        ("[retention]\nkeep_last = 0\n", "must be more than 0"),
        ("[retention]\nkeep_best = ['loss']\n", "METRIC:min|max:N"),
        ("[retention]\ntrash_hours = -1\n", "trash_hours is -1"),
        ("[retention]\ntrash_hours = nan\n", "trash_hours is nan"),
        ("[retention]\nmake_room = true\n", "TrainingRun(make_room=True)"),
        ("[other]\n", "other"),
        ("[app]\npole = 1\n", "Keys of [app] are theme, poll, bell, notify, charts, columns."),
        ("[app]\npoll = 0.01\n", "it must be 0.1 or more"),
        ("[app]\ncharts = []\n", "charts is []; it must be 1 to 4 different names, none empty"),
        ("[app]\ncharts = ['loss', 'loss']\n", "it must be 1 to 4 different names"),
        ("[app]\ncharts = ['loss', '']\n", "it must be 1 to 4 different names"),
        ("[app.columns]\nshard = true\n", "no column `shard`. Columns are step, branch, size"),
        ("[app]\nbell = ['earthquake']\n", "earthquake"),
        ("[app]\nnotify = 'osc8'\n", "osc8"),
        ("[keys]\nsleep = 'f9'\n", "'sleep' is not an action, and no installed package brings it."),
        ("[keys]\nsave = 'r'\n", "r is the key of both save and restore"),
        ("[keys]\nsave = '/'\n", "slash is the key of both save and filter"),
        ("[keys]\nsave = ','\n", "Write comma for a comma."),
        ("[keys]\nsave = 'ctrl+c'\n", "ctrl+c cannot be used: it copies the selected text."),
        ("[keys]\nsave = 'f2,tab'\n", "tab cannot be used: it goes to the next pane."),
        ("[keys]\nevents = 'g'\n", "it goes to the first row. Give events another key."),
        ("[keys]\nhelp = 'escape'\n", "escape cannot be used"),
        ("[keys]\npin = 'h'\n", "it closes a group of variables on the screen of a checkpoint."),
        ("[keys]\nsave = 'F2'\n", "[keys]: save is 'F2', which is not a key. Write f2."),
        ("[keys]\nsave = 'foo'\n", "Use one such as s, S, f2, ctrl+s, space or asterisk."),
        ("[keys]\nsave = 'esc'\n", "Write escape."),
        ("[keys]\nsave = 'shift+s'\n", "Write S."),
        ("[keys]\nsave = 'S s'\n", "Write S,s."),
        ("[keys]\nsave = 'Ctrl-S'\n", "Write ctrl+s."),
        ("[keys]\nsave = 'ctrl+alt+s'\n", "Write alt+ctrl+s."),
        ("[keys]\nsave = 'ctrl+/'\n", "Write ctrl+slash."),
        ("[keys]\nsave = 'solidus'\n", "Write slash."),
        ("[keys]\nsave = 'asterix'\n", "Write asterisk."),
        ("[keys]\nsave = 'ctrl+m'\n", "ctrl+m cannot be used: terminals send enter for it."),
        ("[keys]\nsave = 'ctrl+i'\n", "ctrl+i cannot be used: terminals send tab for it."),
        ("keep_last = 3", "keep_last"),
        ("[retention", "is not valid TOML"),
        ("\x00", "is not valid TOML"),
        pytest.param(f"poll = {'1' * 5000}", "is not valid TOML", id="digits"),
        pytest.param(f"poll = {'[' * 50_000}", "is not valid TOML", id="brackets"),
    ],
)
def test_what_makes_no_sense_is_told_with_the_file(home: Path, text: str, message: str) -> None:
    home.write_text(text)
    with pytest.raises(UsageError) as error:
        read_config(DEFAULT_KEYS)
    assert str(home) in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "key"),
    [("help", "f1"), ("palette", "ctrl+p"), ("detach", "ctrl+q"), ("events", "h"), ("save", "")],
)
def test_keys_that_work_are_accepted(home: Path, name: str, key: str) -> None:
    home.write_text(f"[keys]\n{name} = '{key}'\n")
    assert read_config(DEFAULT_KEYS).keys == {name: key}


def test_the_keys_of_all_actions_can_be_used() -> None:
    check_keys({}, DEFAULT_KEYS)


def test_a_character_has_the_name_that_textual_gives_it() -> None:
    characters = [character for character in string.printable if not character.isspace()]
    assert [*map(key_name, characters)] == [*map(_character_to_key, characters)]


def test_all_keys_that_a_terminal_sends_can_be_used() -> None:
    usual = {
        key.value
        for keys in ANSI_SEQUENCES_KEYS.values()
        if isinstance(keys, tuple)
        for key in keys
    }
    modified = [
        f"\x1b[{code};{modifiers}{end}"
        for modifiers in (2, 3, 5, 6, 7, 9)
        for code, end in ((1, "Q"), (1, "A"), (13, "u"), (32, "u"), (47, "u"), (115, "u"))
    ]
    events_of = XTermParser()._sequence_to_key_events
    others = {event.key for sequence in modified for event in events_of(sequence)}
    assert {"alt+ctrl+s", "shift+enter", "shift+f2", "super+slash"} <= others
    # Only in a malformed sequence: with shift, a terminal sends the text S.
    others -= {"shift+s", "shift+slash"}
    wrong = [key for key in usual | others if not is_key(key)]
    assert sorted(wrong) == ["<scroll-down>", "<scroll-up>"]


def test_the_keys_without_characters_are_those_of_textual() -> None:
    # Older releases of Textual lack the second one.
    from textual._keyboard_protocol import FUNCTIONAL_KEYS, MODIFIER_FUNCTIONAL_KEYS

    characters = set(string.digits)
    functional = set(FUNCTIONAL_KEYS.values()) - MODIFIER_FUNCTIONAL_KEYS
    assert functional - characters | {"space"} == NAMED_KEYS


def test_all_printable_characters_can_be_used() -> None:
    characters = [chr(code) for code in range(0x3000) if chr(code).isprintable()]
    assert [one for one in characters if not is_key(_character_to_key(one))] == []


def test_keys_for_which_a_terminal_sends_another_cannot_be_used() -> None:
    letters = {f"ctrl+{letter}": chr(ord(letter) - 96) for letter in string.ascii_lowercase}
    controls = {**letters, "ctrl+left_square_bracket": "\x1b"}
    others = {
        key: sent.value
        for key, code in controls.items()
        for sent in ANSI_SEQUENCES_KEYS[code]
        if sent.value != key
    }
    assert others == SAME_AS


def test_prune_goes_by_it_and_says_so(tool: Tool, home: Path, tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run")
    made.run.root.mkdir()
    for step in (1, 2, 3):
        made.checkpoint(step, recorded=False, seconds_ago=7200)
    nothing = tool("prune", made.run.root, "--dry-run")
    assert nothing.code == 2
    home.write_text("[retention]\nkeep_last = 1\n")
    said = tool("prune", made.run.root, "--dry-run")
    assert said.code == 0
    assert f"By {home}: keep the last 1." in said.words
    assert "2 checkpoints to delete" in said.data


def test_a_file_can_be_named(tool: Tool, home: Path, tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create(retention={"keep_last": 1})
    for step in (1, 2, 3):
        made.checkpoint(step, seconds_ago=7200)
    own = tmp_path / "rules.toml"
    own.write_text("[retention]\nkeep_last = 2\n")
    said = tool("prune", made.run.root, "--dry-run", "--config", own)
    assert f"By {own}: keep the last 2." in said.words
    assert "1 checkpoint to delete" in said.data
    assert "2 checkpoints to delete" in tool("prune", made.run.root, "--dry-run").data
    own.write_text("[app]\nbell = []\n")
    empty = tool("prune", made.run.root, "--dry-run", "--config", own)
    assert f"No rules: {own} has none in [retention]." in empty.words
    missing = tool("prune", made.run.root, "--config", tmp_path / "none.toml")
    assert missing.code == 2
    both = tool("prune", made.run.root, "--config", own, "--keep-last", "1")
    assert both.code == 2


async def test_the_dialog_begins_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/ada/.config")
    made = RunFactory(tmp_path)
    for step in (1, 2, 3):
        made.checkpoint(step, recorded=False, seconds_ago=7200)
    config = Config(RetentionSettings(Policy(keep_last=1)))
    async with TfckptApp(made.run, config=config).run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "ckpt-3")
        await pilot.press("p")
        await until_shown(pilot, "By /home/ada/.config/tfckpt-tui/config.toml.")
        await until_shown(pilot, "2 checkpoints go to the trash")


async def test_an_action_without_a_key_is_in_the_palette_only(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run")
    app = TfckptApp(made.run, config=Config(keys={"pin": "", "detach": ""}))
    async with app.run_test(size=(160, 40)) as pilot:
        await until_shown(pilot, "ckpt-400")
        hints = app.screen.query_one(KeyBar)._hints
        assert "restore" in {hint.action for hint in hints}
        assert not {hint.action for hint in hints} & {"pin", "detach"}
        assert app.key_of("detach") == "ctrl+p"
        await pilot.press("enter")
        await until_shown(pilot, "statistics")
        hints = app.screen.query_one(KeyBar)._hints
        assert hints
        assert all(hint.key for hint in hints)


def test_config_shows_an_action_without_a_key(tool: Tool, home: Path) -> None:
    home.write_text("[keys]\nsave = ''\n")
    assert 'save = ""  # from the file' in tool("config").data


def test_config_shows_every_setting_and_where_it_comes_from(tool: Tool, home: Path) -> None:
    said = tool("config")
    assert said.code == 0
    assert 'theme = "tfckpt-dark"' in said.data
    assert "does not exist" in said.words
    home.write_text(
        "[app]\ntheme = 'tfckpt-contrast'\ncolumns = {shards = false}\n[keys]\nsave = 'f2'\n"
    )
    said = tool("config")
    assert f"# {home}" in said.data
    assert 'theme = "tfckpt-contrast"  # from the file' in said.data
    assert 'save = "f2"  # from the file' in said.data
    assert "[app.columns]\nshards = false  # from the file" in said.data
    found = tool("config", "--json").json
    check(ConfigReport, found)
    own = {(s["section"], s["name"]) for s in found["settings"] if s["source"] == "file"}
    assert own == {("app", "theme"), ("app.columns", "shards"), ("keys", "save")}


async def test_keys_themes_and_the_bell_are_as_configured(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text(
        "[app]\ntheme = 'tfckpt-colour-blind'\nbell = ['worker lost']\n[keys]\npin = 'f4'\n"
    )
    made = two_branches(tmp_path / "run")
    rung = []
    monkeypatch.setattr(TfckptApp, "bell", lambda self: rung.append(1))
    app = TfckptApp(made.run, config=read_config(DEFAULT_KEYS), poll=POLL)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until_shown(pilot, "f4 pin")
        assert app.theme == "tfckpt-colour-blind"
        await pilot.press("f4")
        await until_shown(pilot, "1 pinned")
        await pilot.press("question_mark")
        await until_shown(pilot, "f4         Pin or unpin")
        assert not rung
        made.event_log(EventKind.WORKER_LOST, "Worker 1 is gone.", -5)
        await until_shown(pilot, "Worker 1 is gone.")
        assert rung == [1]


@pytest.mark.parametrize("text", ["", "[app]\nbell = []\n"])
async def test_a_lost_worker_rings_unless_the_bell_is_switched_off(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    home.write_text(text)
    made = RunFactory(tmp_path / "run").create()
    rung: list[int] = []
    monkeypatch.setattr(TfckptApp, "bell", lambda self: rung.append(1))
    app = TfckptApp(made.run, config=read_config(DEFAULT_KEYS), poll=POLL)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until_shown(pilot, "no worker has written a heartbeat")
        made.event_log(EventKind.WORKER_LOST, "Worker 1 is gone.", -5)
        await until_shown(pilot, "Worker 1 is gone.")
        assert rung == ([] if text else [1])


def test_the_settings_say_whether_the_bell_is_as_usual() -> None:
    for bell, differs in (([EventKind.WORKER_LOST], False), ([], True)):
        found = all_settings(Config(app=AppSection(bell=bell)), (), (), "tfckpt-dark")
        (setting,) = (one for one in found if one.name == EventKind.WORKER_LOST.value)
        assert setting.is_own is differs


def test_a_theme_that_is_not_there_is_told_of(home: Path, tool: Tool, tmp_path: Path) -> None:
    home.write_text("[app]\ntheme = 'plaid'\n")
    with pytest.raises(
        UsageError, match=r"config.toml: theme 'plaid' does not exist. Choose one of .*tfckpt-dark"
    ):
        TfckptApp(RunFactory(tmp_path).create().run, config=read_config(DEFAULT_KEYS))
    said = tool("config")
    assert said.code == 2
    assert f"{home}: theme 'plaid' does not exist. Choose one of" in said.words


@pytest.mark.parametrize("name", ["ansi-dark", "ansi-light"])
def test_themes_with_the_colours_of_the_terminal_are_not_offered(home: Path, name: str) -> None:
    run = RunDirectory(Path("/nowhere"))
    assert name not in TfckptApp(run).available_themes
    home.write_text(f"[app]\ntheme = '{name}'\n")
    with pytest.raises(UsageError, match=rf"'{name}' does not exist. Choose one of atom.*, nord,"):
        TfckptApp(run, config=read_config(DEFAULT_KEYS))


def test_a_theme_of_ones_own_is_another_with_other_colours(home: Path, tool: Tool) -> None:
    home.write_text(
        '[app]\ntheme = "mine"\n[themes.mine]\nbased_on = "tfckpt-light"\n'
        'colours = { primary = "#123456", "branch-1" = "red" }\n'
    )
    app = TfckptApp(RunDirectory(Path("/nowhere")), config=read_config(DEFAULT_KEYS))
    assert app.theme == "mine"
    theme = app.available_themes["mine"]
    assert (theme.primary, theme.dark) == ("#123456", False)
    assert theme.variables["branch-1"] == "red"
    said = tool("config")
    assert '[themes.mine]\nbased_on = "tfckpt-light"' in said.data
    assert '[themes.mine.colours]\nprimary = "#123456"' in said.data
    assert theme.variables["branch-0"] == app.available_themes["tfckpt-light"].variables["branch-0"]


def test_a_theme_based_on_a_light_one_has_light_rows(home: Path) -> None:
    home.write_text('[app]\ntheme = "mine"\n[themes.mine]\nbased_on = "textual-light"\n')
    app = TfckptApp(RunDirectory(Path("/nowhere")), config=read_config(DEFAULT_KEYS))
    assert app.get_css_variables()["row"] == app.available_themes["tfckpt-light"].variables["row"]


@pytest.mark.parametrize(
    ("base", "background"),
    [("nord", "#333333"), ("tfckpt-dark", "#333333"), ("textual-light", "#cccccc")],
)
def test_texts_of_a_theme_of_ones_own_can_be_read(home: Path, base: str, background: str) -> None:
    home.write_text(
        f'[app]\ntheme = "mine"\n[themes.mine]\nbased_on = "{base}"\n'
        f'colours = {{ background = "{background}", surface = "{background}"'
        ', foreground = "#777777", error = "#aa4444", row = "#ffffff 10%", '
        '"branch-1" = "#667788", faint = "grey 20%" }\n'
    )
    app = TfckptApp(RunDirectory(Path("/nowhere")), config=read_config(DEFAULT_KEYS))
    found = app.get_css_variables()
    background = Color.parse(found["background"])
    for ground in ("background", "surface", "row", "row-focus"):
        behind = background + parse_colour(found[ground])
        for text in ("foreground", "error", "shade", "branch-1"):
            assert contrast(Color.parse(found[text]), behind) >= TEXT_CONTRAST, (text, ground)
        assert contrast(Color.parse(found["faint"]), behind) >= FAINT_CONTRAST, ground


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ('based_on = "nowhere"', "which does not exist"),
        ('based_on = "ansi-dark"', "which does not exist"),
        ('colours = { primary = "ansi_blue" }', "'ansi_blue', which is not a colour"),
        ('colours = { primary = "no colour" }', "is not a colour"),
        ('colours = { primary = "#6cb2ff 35%" }', "is not a colour"),
        ('colours = { row = "#6cb2ff 350%" }', "is not a colour"),
        ('colours = { shine = "red" }', "sets an unknown colour: 'shine'. Known colours: primary"),
    ],
)
def test_a_theme_without_sense_says_what_would_make_some(
    home: Path, tool: Tool, section: str, words: str
) -> None:
    home.write_text(f"[themes.mine]\n{section}\n")
    with pytest.raises(UsageError, match=words) as error:
        TfckptApp(RunDirectory(Path("/nowhere")), config=read_config(DEFAULT_KEYS))
    assert f"{home}: theme 'mine'" in str(error.value)
    said = tool("config")
    assert said.code == 2
    assert str(error.value) in said.words


def test_a_change_keeps_the_ends_of_lines(tmp_path: Path) -> None:
    place = tmp_path / "config.toml"
    before = b'# mine\r\n[app]\r\ntheme = "tfckpt-dark" # x\r\n\r\n[retention]\r\nkeep_last = 3\r\n'
    place.write_bytes(before)
    write_settings("app", {"theme": "tfckpt-light"}, DEFAULT_KEYS, place)
    assert place.read_bytes() == before.replace(b"tfckpt-dark", b"tfckpt-light")
