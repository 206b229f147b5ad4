"""What the README says is what the product does."""

from __future__ import annotations

import re

import pytest

from documentation import ROOT, load_tool

README = (ROOT / "README.md").read_text()


def test_ci_runs_the_test_command_of_the_readme_word_for_word():
    commands = re.findall(r"```sh\n(python3 -m venv .*)\n```", README)
    assert len(commands) == 2
    assert commands[1].endswith("pytest")
    assert commands[1] in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("command", sorted(set(re.findall(r"tfckpt-tui ([a-z]+) ", README))))
def test_every_command_it_names_exists(command):
    from tfckpt_tui.cli.main import cli

    assert command in cli.list_commands(None)


@pytest.mark.parametrize("name", ["dashboard", "checkpoint", "restore", "charts", "logs"])
def test_no_picture_shows_a_screen_as_it_was(name):
    making = load_tool("make_picture")
    assert set(making.PICTURES) == {"dashboard", "checkpoint", "restore", "charts", "logs"}
    picture = (ROOT / "docs" / "images" / f"{name}.svg").read_text()
    assert making.state_of(name) in picture, "make it again: python docs/tools/make_picture.py"
