"""The settings of a run: what is read, and what is refused with which words."""

from __future__ import annotations

import os

import pytest

from requirements import needs
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.run_config import (
    CommandSettings,
    RunConfig,
    WebhookSettings,
    read_run_config,
    why_refused,
)

COMMAND = '[[alerts.commands]]\ncommand = ["mail", "-s", "alert"]\n'
WEBHOOK = '[[alerts.webhooks]]\nurl_env = "SLACK_URL"\n'


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.control.mkdir(parents=True)
    return run


def written(run: RunDirectory, text: str, mode: int = 0o644) -> RunDirectory:
    run.config_file.write_text(text)
    run.config_file.chmod(mode)
    return run


def test_without_a_file_nothing_is_set(run, tmp_path):
    assert read_run_config(run) == RunConfig()
    assert read_run_config(RunDirectory(tmp_path / "none")) == RunConfig()


def test_everything_that_can_be_set(run):
    config = read_run_config(
        written(
            run,
            'guards = ["not_finite *: pause"]\n'
            '[alerts]\nkinds = ["failed", "worker lost"]\n'
            f"{COMMAND}timeout_seconds = 5\n"
            "[[alerts.commands]]\ncommand = \"notify-send 'a run'\"\n"
            f'{WEBHOOK}body = "slack"\nretries = 0\n'
            '[[alerts.webhooks]]\nurl = "https://example.org/hook"\nheader_env = "TOKEN"\n',
        )
    )
    assert config.guards == ("not_finite *: pause",)
    assert config.alerts.kinds == (EventKind.FAILED, EventKind.WORKER_LOST)
    assert config.alerts.commands == (
        CommandSettings(command=["mail", "-s", "alert"], timeout_seconds=5),
        CommandSettings(command="notify-send 'a run'"),
    )
    assert config.alerts.commands[1].arguments == ["notify-send", "a run"]
    assert config.alerts.webhooks == (
        WebhookSettings(url_env="SLACK_URL", body="slack", retries=0),
        WebhookSettings(url="https://example.org/hook", header_env="TOKEN"),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("guards = 3", "Expected `array`, got `int`"),
        ("guards = [3]", "Expected `str`, got `int`"),
        ("guard = []", "unknown field `guard`"),
        ("[alerts]\ncommand = 'x'", "kinds, commands, webhooks"),
        ("[alerts]\nkinds = ['fail']", "Kinds are start, save,"),
        ("[[alerts.commands]]\ncommand = []", "command is empty"),
        ("[[alerts.commands]]\ncommand = '\"'", "No closing quotation"),
        ("[[alerts.commands]]\ncommand = 'a'\ntimeout_seconds = 0", "`float` > 0"),
        ("[[alerts.commands]]\ncommand = 'a'\ntimeout_seconds = nan", "timeout_seconds"),
        ("[[alerts.webhooks]]\nbody = 'json'", "one of url and url_env"),
        (f"{WEBHOOK}url = 'https://a'", "one of url and url_env"),
        (f"{WEBHOOK}body = 'xml'", "body"),
        (f"{WEBHOOK}header = 'A: b'", "header"),
        (f"{WEBHOOK}header_env = 'A B'", "header_env"),
        ("[[alerts.webhooks]]\nurl = 'http://example.org'", "expected https"),
        ("guards = [", "is not valid TOML"),
        (f"guards = {'[' * 100_000}", "is not valid TOML"),
        pytest.param(f"guards = [{'1' * 5000}]", "is not valid TOML", id="digits"),
        ("guards = ['\udcff']", "is not valid TOML"),
        (f"# {'x' * (1 << 18)}", "expected at most"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_error(run, text, words):
    run.config_file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError) as refused:
        read_run_config(run)
    assert str(run.config_file) in str(refused.value) and words in str(refused.value)


def test_no_link_directory_or_pipe_is_read(run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("guards = ['a']")
    for make in (
        lambda: run.config_file.symlink_to(elsewhere),
        run.config_file.mkdir,
        lambda: os.mkfifo(run.config_file),
    ):
        make()
        with pytest.raises(UsageError, match="regular file"):
            read_run_config(run)
        run.config_file.rmdir() if run.config_file.is_dir() else run.config_file.unlink()


@pytest.mark.parametrize("receiver", [COMMAND, WEBHOOK])
def test_alerts_of_a_file_that_others_may_write_are_not_sent(run, receiver):
    for mode in (0o664, 0o646):
        written(run, receiver, mode)
        with pytest.raises(UsageError, match="chmod go-w"):
            read_run_config(run, to_send=True)
        assert read_run_config(run).alerts.has_receivers
    assert read_run_config(written(run, receiver, 0o600), to_send=True).alerts.has_receivers
    guards = written(run, "guards = ['a']", 0o666)
    assert read_run_config(guards, to_send=True).guards == ("a",)


@needs("root")
@pytest.mark.parametrize("receiver", [COMMAND, WEBHOOK])
def test_alerts_of_a_file_of_another_user_are_not_sent(run, receiver):
    written(run, receiver)
    os.chown(run.config_file, 65534, 65534)
    with pytest.raises(UsageError, match=r"belongs to \w+ \(user 65534\); expected root"):
        read_run_config(run, to_send=True)
    assert read_run_config(run).alerts.has_receivers


@pytest.mark.parametrize(
    "url",
    ["https://example.org/a?b=c", "http://127.0.0.1:8080/", "http://localhost", "http://[::1]:1/"],
)
def test_addresses_of_webhooks(url):
    assert why_refused(url) == ""


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "not an address"),
        ("example.org", "not an address"),
        ("file:///etc/passwd", "not an address"),
        ("https:///path", "not an address"),
        ("https://[::1", "not an address"),
        ("https://a:port/", "not an address"),
        ("https://user:word@example.org/", "has a password"),
        ("http://example.org/", "expected https"),
        ("http://127.0.0.1.example.org/", "expected https"),
        ("https://example.org/\r\nHost: b", "control character"),
        ("https://example.org/ä", "not an address"),
    ],
)
def test_other_addresses_are_refused_without_being_repeated(url, words):
    assert words in why_refused(url) and (not url or url not in why_refused(url))
