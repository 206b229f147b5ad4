"""`alert test`: what each receiver answers, on screen and as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from json_reference import check
from rundir_factory import RunFactory, two_branches

from command_running import Tool
from receiving_server import receiving
from tfckpt_tui.reports.configured import AlertTestReport

SECRET = "s3cret-t0ken"


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    return two_branches(tmp_path / "run")


def test_each_receiver_gets_one_test_and_the_answers_are_shown(
    tool: Tool, made: RunFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    command = [sys.executable, "-c", code, str(tmp_path / "got")]
    with receiving() as working, receiving([500] * 9) as failing:
        monkeypatch.setenv("SLACK_URL", f"{working.url}/{SECRET}")
        made.run.config_file.write_text(
            f"[[alerts.commands]]\ncommand = {json.dumps(command)}\n"
            '[[alerts.webhooks]]\nurl_env = "SLACK_URL"\nbody = "slack"\n'
            f'[[alerts.webhooks]]\nurl = "{failing.url}"\n'
        )
        said = tool("alert", "test", made.run.root)
        printed = tool("alert", "test", made.run.root, "--kind", "finish", "--json")
    assert said.code == printed.code == 1
    lines = said.data.splitlines()
    assert lines[0].split() == ["RECEIVER", "ALERT", "TIME", "RESULT"]
    assert lines[1].startswith("command python") and lines[1].endswith("ended with status 0")
    assert "webhook $SLACK_URL" in lines[2] and lines[2].endswith("answered HTTP 200")
    assert "not sent" in lines[3] and lines[3].endswith("answered HTTP 500")
    assert len(failing.requests) == 2, "a test is not repeated"
    check(AlertTestReport, printed.json)
    deliveries = printed.json["deliveries"]
    assert [one["sent"] for one in deliveries] == [True, True, False]
    assert [one["http_status"] for one in deliveries] == [None, 200, 500]
    got = json.loads((tmp_path / "got").read_text())
    assert got["kind"] == "finish" and got["is_test"] and "This is a test" in got["message"]
    assert working.bodies[0]["text"].startswith("test of an alert: This is a test")
    assert SECRET not in said.data + said.words + printed.data + printed.words


def test_a_test_that_was_sent_to_all_succeeds(tool: Tool, made: RunFactory) -> None:
    with receiving() as server:
        made.run.config_file.write_text(f'[[alerts.webhooks]]\nurl = "{server.url}"\n')
        assert tool("alert", "test", made.run.root).code == 0
    assert server.bodies[0]["kind"] == "failed"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no receiver"),
        ("[alerts", "is not valid TOML"),
        ("[[alerts.webhooks]]\nurls = 'a'", "unknown field `urls`"),
    ],
)
def test_a_file_without_receivers_is_an_error(
    tool: Tool, made: RunFactory, text: str, words: str
) -> None:
    made.run.config_file.write_text(text)
    said = tool("alert", "test", made.run.root)
    assert said.code == 2 and words in said.words and str(made.run.config_file) in said.words


def test_there_is_no_alert_but_the_test(tool: Tool, made: RunFactory) -> None:
    assert tool("alert", "tset", made.run.root).code == 2
    assert tool("alert", "test", made.run.root, "--kind", "fail").code == 2
