"""Other installed packages bring commands and pages; the page on extensions shows how."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from app_driving import opened, shown, until, until_shown
from rundir_factory import RunFactory

from command_running import Tool
from documentation import DOCS
from tfckpt_trainer.errors import ExitCode, UsageError
from tfckpt_tui.app.actions.extensions import actions_of_packages
from tfckpt_tui.app.actions.table import ACTIONS, DEFAULT_KEYS
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.cli.main import cli
from tfckpt_tui.settings.config import config_path, read_config
from tfckpt_tui.settings.packages import brought_by_packages

FILE = re.compile(r"`([\w.]+)`:\n\n```\w+\n(.*?)```", re.DOTALL)
BUILD = "import hatchling.build, sys; hatchling.build.build_wheel(sys.argv[1])"

Install = Callable[..., None]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the page, built."""
    files = dict(FILE.findall((DOCS / "extending.md").read_text()))
    assert files.keys() == {"pyproject.toml", "tfckpt_gaps.py", "tfckpt_gaps_page.py"}
    source, wheels = (tmp_path_factory.mktemp(name) for name in ("source", "wheels"))
    for name, text in files.items():
        (source / name).write_text(text)
    subprocess.run([sys.executable, "-c", BUILD, wheels], cwd=source, check=True)
    (built,) = wheels.iterdir()
    return built


@pytest.fixture
def install(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Returns what installs the package for this test, with other texts in its files."""

    def unpack(*, entry: str = "gaps", key: str = "f9", text: str = "") -> None:
        site = tmp_path / "site"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        brought_by_packages.cache_clear()
        (points,) = site.glob("*/entry_points.txt")
        points.write_text(points.read_text().replace("gaps =", f"{entry} ="))
        for module in site.glob("*.py"):
            module.write_text(text or module.read_text().replace('"f9"', f'"{key}"'))
        monkeypatch.syspath_prepend(site)

    loaded = set(sys.modules)
    yield unpack
    brought_by_packages.cache_clear()
    for name in set(sys.modules) - loaded:
        if name.startswith("tfckpt_gaps"):
            del sys.modules[name]


def names_of(app: TfckptApp) -> list[str]:
    return [action.name for action in app.actions]


def test_the_command_of_the_page_is_one_of_all(
    install: Install, tool: Tool, ended: RunFactory
) -> None:
    assert tool("gaps", ended.run.root).code == ExitCode.USAGE
    install()
    said = tool("gaps", ended.run.root)
    assert said.code == ExitCode.DONE
    header, *rows = said.data.splitlines()
    assert header.split() == ["GAP", "SAVED"]
    assert len(rows) == len(tool("ls", ended.run.root, "--json").json["checkpoints"]) - 1
    assert re.search(r"Other packages:\n  gaps +Show the longest times", tool("--help").data)
    assert "Did you mean gaps?" in tool("gap").words
    assert tool("gaps", ended.run.root / "none").code == ExitCode.USAGE


def test_a_command_may_choose_a_heading_of_the_help_but_no_name_of_ours(
    install: Install, tool: Tool
) -> None:
    text = """
import click
from tfckpt_tui.cli.main import ToolCommand
@click.command(cls=ToolCommand, heading="Work with tensors")
def command():
    'Count tensors.'
page = None
"""
    install(text=text)
    said = tool("--help").data
    assert re.search(r"Work with tensors:\n(  .*\n)+?  gaps +Count tensors\.\n", said)
    assert "Other packages" not in said
    install(entry="copy", text=text)
    assert "Copy checkpoints to another directory" in tool("copy", "--help").data


async def test_the_page_follows_the_run_and_its_key_is_in_the_palette(
    install: Install, live: RunFactory
) -> None:
    install()
    async with opened(live.run) as pilot:
        await until_shown(pilot, "ckpt-b1-400")
        await until(pilot, lambda: "gaps" in names_of(pilot.app), "it was imported")
        await pilot.press("f9")
        await until_shown(pilot, "times without a save")
        rows = shown(pilot.app).count(" s  ckpt-")
        live.checkpoint(600, branch=1)
        await until(pilot, lambda: shown(pilot.app).count(" s  ckpt-") > rows, "it has the newest")
        await pilot.press("escape", "ctrl+p", *"gaps")
        await until_shown(pilot, "gaps: Show the longest times without a save")
        await pilot.press("escape")


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("s", "s is taken."),
        ("f8,q", "q is taken."),
        ("?", "question_mark is taken."),
        ("escape", "escape cannot be used"),
        ("ctrl+i", "ctrl+i cannot be used"),
        ("f99", "'f99', which is not a key"),
    ],
)
def test_a_page_whose_key_is_taken_is_in_the_palette_alone(
    install: Install, key: str, why: str
) -> None:
    install(key=key)
    found = actions_of_packages(ACTIONS, {})
    assert [action.key for action in found.actions] == [""]
    (problem,) = found.problems
    assert problem.startswith("gaps of tfckpt-gaps has no key: ")
    assert why in problem
    assert problem.endswith('Give it one in [keys] of the configuration: `gaps = "f8"`.')


async def test_what_is_wrong_with_a_page_is_told(install: Install, live: RunFactory) -> None:
    install(key="s")
    async with opened(live.run) as pilot:
        await until_shown(pilot, "gaps of tfckpt-gaps has no key: s is taken.")


async def test_the_configuration_gives_a_page_its_key(install: Install, live: RunFactory) -> None:
    install(key="")
    async with opened(live.run) as pilot:
        await until(pilot, lambda: "gaps" in names_of(pilot.app), "it is in the palette")
        assert "has no key" not in shown(pilot.app)
    path = config_path()
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_text("[keys]\ngaps = 'f8'\n")
    async with opened(live.run, config=read_config(DEFAULT_KEYS)) as pilot:
        await until(pilot, lambda: "gaps" in names_of(pilot.app), "it has its key")
        await pilot.press("f8")
        await until_shown(pilot, "times without a save")
    path.write_text("[keys]\ngaps = 's'\n")
    with pytest.raises(UsageError, match="s is the key of both save and gaps"):
        read_config(DEFAULT_KEYS)


@pytest.mark.parametrize("text", ["[tfckpt_tui.commands]\nno sign\n", "\udcff"])
def test_the_broken_metadata_of_any_package_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: Tool, ended: RunFactory, text: str
) -> None:
    place = tmp_path / "site" / "others-1.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1\n")
    (place / "entry_points.txt").write_bytes(os.fsencode(text))
    monkeypatch.syspath_prepend(tmp_path / "site")
    brought_by_packages.cache_clear()
    assert tool("--help").code == ExitCode.DONE
    assert "Did you mean guards?" in tool("guard").words
    brought_by_packages.cache_clear()


BROKEN = {
    "import nothing_of_this_name": "cannot be imported: ModuleNotFoundError: No module named "
    "'nothing_of_this_name'",
    "raise RuntimeError('too old.')": "cannot be imported: RuntimeError: too old. Install",
    "raise SystemExit('needs more')": "cannot be imported: SystemExit: needs more. Install",
    "raise type('Odd', (BaseException,), {})('no')": "cannot be imported: Odd: no. Install",
    "command = page = 3": "is int; expected ",
}


@pytest.mark.parametrize("text", BROKEN)
async def test_what_cannot_be_imported_is_told_with_its_package_and_all_else_works(
    install: Install, tool: Tool, live: RunFactory, text: str
) -> None:
    install(text=text)
    for said in (tool("gaps", live.run.root), tool("gaps", "--help"), tool("--help")):
        words = " ".join((said.words or said.data).split())
        assert f"gaps of tfckpt-gaps {BROKEN[text]}" in words
        assert "`pip uninstall tfckpt-gaps`" in words
    assert tool("ls", live.run.root).code == ExitCode.DONE
    assert "GuardsReport" in tool("schema", "guards").data
    context = click.Context(cli)
    assert "gaps" in [item.value for item in cli.shell_complete(context, "ga")]
    async with opened(live.run) as pilot:
        await until_shown(pilot, "gaps of tfckpt-gaps")
        assert "gaps" not in names_of(pilot.app)


FAULTY = {
    "requires=(lambda run, selection: 1 / 0,)": "ZeroDivisionError: division by zero",
    "perform=lambda dashboard: 1 / 0": "ZeroDivisionError: division by zero",
    "key=None": "cannot be used: AttributeError: 'NoneType' object has no attribute 'split'",
    "needed_when=lambda run, selection: 1 / 0": "",
}


@pytest.mark.parametrize("field", FAULTY)
async def test_a_faulty_page_is_told_and_the_app_goes_on(
    install: Install, live: RunFactory, field: str
) -> None:
    text = (
        "from tfckpt_tui.app.actions.action import AppAction\n"
        "fields = dict(name='', key='f9', label='', title='', help='', perform=lambda d: None)\n"
        f"page = AppAction(**fields | dict({field}))\n"
    )
    install(text=text)
    async with opened(live.run, size=(200, 50)) as pilot:
        if "cannot" not in FAULTY[field]:
            await until(pilot, lambda: "gaps" in names_of(pilot.app), "it was imported")
            await pilot.press("f9")
        if FAULTY[field]:
            await until_shown(pilot, "gaps of tfckpt-gaps ")
            told = {note.message for note in pilot.app._notifications}
            assert any(FAULTY[field] in message for message in told)
        await pilot.press("question_mark")
        await until_shown(pilot, "Free disk space by a retention policy")
        await pilot.press("escape")


def test_no_package_replaces_a_command(install: Install, tool: Tool, ended: RunFactory) -> None:
    install(entry="ls")
    assert "GAP" not in tool("ls", ended.run.root).data
    assert "Other packages" not in tool("--help").data


async def test_no_package_replaces_an_action(install: Install, live: RunFactory) -> None:
    install(entry="save")
    async with opened(live.run) as pilot:
        await until_shown(pilot, "save of tfckpt-gaps is left out")
        assert names_of(pilot.app).count("save") == 1
