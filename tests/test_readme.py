"""What the README says is what the product does."""

from __future__ import annotations

import re

import pytest

from documentation import ROOT, load_tool
from requirements import NEEDS

README = (ROOT / "README.md").read_text()


def test_ci_runs_the_test_command_of_the_readme_word_for_word():
    commands = re.findall(r"```sh\n(python3 -m venv .*)\n```", README)
    assert len(commands) == 2
    assert commands[1].endswith("pytest")
    assert commands[1] in (ROOT / ".ci" / "run").read_text().splitlines()


def test_it_names_the_packages_that_tests_need():
    (line,) = [line for line in README.splitlines() if "skipped without" in line]
    named = re.search(r"`apt-get install (.*)`", line)[1].split()
    needed = re.findall(r"apt-get install ([\w.-]+)", " ".join(n.remedy for n in NEEDS.values()))
    assert named == sorted(set(needed))


def test_it_is_read_in_five_minutes_and_begins_with_what_a_newcomer_needs():
    assert len(README.split()) <= 1200
    first_screen, _, rest = README.partition("![")
    assert "| TensorFlow |" in first_screen
    assert rest.index("tfckpt-tui demo") < rest.index("TrainingRun")
    keys = README.partition("| key |")[2].partition("<!-- end of keys -->")[0]
    assert keys.count("\n| `") == 10


@pytest.mark.parametrize(
    "page", ["README.md", "docs/how-to/any-directory.md", "docs/how-to/scripts.md"]
)
def test_every_command_it_names_exists(page):
    from tfckpt_tui.cli.main import cli

    commands = set(re.findall(r"tfckpt-tui ([a-z]+) ", (ROOT / page).read_text()))
    assert commands
    assert sorted(commands - set(cli.list_commands(None))) == []


@pytest.mark.parametrize("name", ["dashboard", "checkpoint", "restore", "charts", "logs"])
def test_no_picture_shows_a_screen_as_it_was(name):
    making = load_tool("make_picture")
    assert set(making.PICTURES) == {"dashboard", "checkpoint", "restore", "charts", "logs"}
    picture = (ROOT / "docs" / "images" / f"{name}.svg").read_text()
    assert making.state_of(name) in picture, "make it again: python docs/tools/make_picture.py"
