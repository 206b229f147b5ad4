"""URLs of object storage are refused as directories, in every way that a user can name one."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_running import Tool
from tfckpt_trainer.errors import ExitCode, UsageError
from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_tui.cli.main import cli
from tfckpt_tui.services.runs.launch_form import LaunchForm
from tfckpt_tui.services.runs.open_run import open_run

URL = "gs://bucket/run"


@pytest.mark.parametrize(
    "url", [URL, Path(URL), "s3://b/r", "S3A://b/r", "hdfs:///user/me", "abfss://c@a/r", "x-y://z"]
)
def test_a_url_is_refused_with_the_reason_and_a_way_out(url):
    with pytest.raises(UsageError) as refused:
        refuse_url(url)
    assert "atomic renames and file locks" in str(refused.value)
    assert "a directory on a disk that all workers share" in str(refused.value)
    assert str(refused.value).startswith(f"{str(url).split(':')[0].lower()}://")


def test_a_file_url_names_its_path():
    with pytest.raises(UsageError, match=r"Use /data/run instead\."):
        refuse_url("file:///data/run")


@pytest.mark.parametrize("path", ["/data/gs://x", "run:1", "C:/run", "host:/data", "./gs:/x"])
def test_a_path_is_not_a_url(path):
    refuse_url(path)


def test_every_command_that_takes_a_directory_refuses_it(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    tool = Tool(capsys)
    commands = ["attach", "browse", "status", "ls", "journal", "verify", "export", "logs", "save"]
    commands += ["restore", "pause", "stop", "prune", "undo", "trash", "tensorboard"]
    assert set(commands) <= set(cli.list_commands(None))
    for words in [[name, URL] for name in commands] + [[URL], ["demo", "--dir", URL]]:
        done = tool(*words)
        assert done.code == ExitCode.USAGE, words
        assert "cannot be a run directory" in done.words, words
    done = tool("launch", URL, "--", "true")
    assert done.code == ExitCode.USAGE
    assert list(tmp_path.iterdir()) == []


def test_the_services_and_the_form_of_the_app_refuse_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    options = LaunchOptions(run_directory=URL, command=("true",), working_directory="/")
    for refuse in (
        lambda: open_run(URL),
        lambda: launch(options),
        lambda: LaunchForm(directory=URL, command="true").options(),
    ):
        with pytest.raises(UsageError, match="expected a path"):
            refuse()
    assert list(tmp_path.iterdir()) == []
