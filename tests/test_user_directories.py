"""Where a user has no home directory, as in containers, there is no cache and no configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from requirements import require
from tfckpt_trainer.machine import user_directories

WITHOUT_USER = 4242
"""A user id that has no entry in the password file."""

SCAN = """
from pathlib import Path
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.paths import RunDirectory
catalog = Catalog(RunDirectory(Path(sys.argv[2])))
print(len(catalog.scan(0.0)))
"""

CONFIG = """
from tfckpt_tui.settings.config import Config, read_config
from tfckpt_tui.services.runs.recent_runs import last_look, remembered_runs, remember_run
assert read_config({}) == Config()
remember_run(Path(sys.argv[2]))
print(remembered_runs(), last_look(Path(sys.argv[2])).listing)
"""

COMMAND = """
from tfckpt_tui.cli.main import run
sys.exit(run(sys.argv[3:]))
"""


@pytest.fixture
def homeless(open_place: Path):
    """Runs code as a user whom the password file does not know, without HOME and XDG variables."""
    require("root")

    def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        names = {"HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"}
        # It stays root in effect: the interpreter may be where no other user may read.
        head = "import os, sys\nfrom pathlib import Path\nos.setreuid(int(sys.argv[1]), 0)\n"
        words = [sys.executable, "-c", head + code, str(WITHOUT_USER), str(open_place), *arguments]
        environment = {name: value for name, value in os.environ.items() if name not in names}
        return subprocess.run(
            words, env=environment, cwd=open_place, capture_output=True, text=True
        )

    return run


def test_a_catalog_is_scanned_without_a_home(homeless):
    done = homeless(SCAN)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_settings_are_the_defaults_without_a_home(homeless, open_place):
    done = homeless(CONFIG)
    assert (done.returncode, done.stdout) == (0, "[] ListOrder(filter='', order=None)\n"), (
        done.stderr
    )
    assert not list(open_place.glob("~*"))


@pytest.mark.e2e
def test_config_says_that_there_is_no_place_for_it(homeless):
    done = homeless(COMMAND, "config")
    assert done.returncode == 0, done.stderr
    assert "There is no home directory" in done.stderr
    data = json.loads(homeless(COMMAND, "config", "--json").stdout)
    assert (data["path"], data["exists"]) == (None, False)


def test_the_demo_asks_for_a_directory_without_a_home(homeless):
    done = homeless(COMMAND, "demo", "--detach")
    assert done.returncode == 2
    assert "tfckpt-tui demo --dir" in done.stderr


@pytest.mark.parametrize("kind", ["cache", "config", "state"])
def test_the_xdg_variables_name_the_directories(monkeypatch, kind):
    monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", "/somewhere")
    found = getattr(user_directories, f"{kind}_directory")()
    assert found == Path("/somewhere/tfckpt-tui")


@pytest.mark.parametrize(
    ("kind", "place"), [("cache", ".cache"), ("config", ".config"), ("state", ".local/state")]
)
def test_the_directories_are_in_the_home(monkeypatch, kind, place):
    monkeypatch.delenv(f"XDG_{kind.upper()}_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    found = getattr(user_directories, f"{kind}_directory")()
    assert found == Path("/home/ada", place, "tfckpt-tui")


@pytest.mark.parametrize("kind", ["cache", "config", "state"])
@pytest.mark.parametrize("value", ["", " ", "here"])
def test_a_variable_without_an_absolute_path_is_ignored(monkeypatch, kind, value):
    monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", value)
    monkeypatch.setenv("HOME", "/home/ada")
    found = getattr(user_directories, f"{kind}_directory")()
    assert found.is_relative_to("/home/ada")
