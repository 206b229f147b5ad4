"""Receivers of alerts: real commands and real servers that work, fail, hang and redirect."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import psutil
import pytest

from receiving_server import DRIP, HANG, receiving
from tfckpt_trainer.alerts.alert import make_alert
from tfckpt_trainer.alerts.receivers import CommandReceiver
from tfckpt_trainer.alerts.webhook import FIRST_PAUSE_SECONDS, WebhookReceiver
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.run_config import CommandSettings, WebhookSettings
from waiting import wait_until

SECRET = "s3cret-t0ken"


@pytest.fixture
def alert(tmp_path):
    entry = EventEntry(
        at=1.7e9,
        kind=EventKind.FAILED,
        message="Worker 1 \x1b[31mfailed\x07 <!channel> \u202e&\ud800",
        step=1200,
        details={"log": ["\x1b]0;title\x07"], "value": float("nan")},
    )
    return make_alert(RunDirectory(tmp_path / "run"), entry)


def webhook(environment=None, waited=None, **settings):
    return WebhookReceiver(
        WebhookSettings(**settings),
        environment or {},
        sleep=(waited if waited is not None else []).append,
        jitter=lambda: 1.0,
    )


# -- commands ---------------------------------------------------------------------------------


def run_python(code, *arguments, **settings):
    return CommandReceiver(
        CommandSettings(command=[sys.executable, "-c", code, *arguments], **settings)
    )


def test_a_command_gets_the_event_as_json_on_its_standard_input(alert, tmp_path):
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    delivery = run_python(code, str(tmp_path / "got")).deliver(alert)
    assert delivery.is_sent and delivery.result == "ended with status 0"
    got = json.loads((tmp_path / "got").read_text())
    assert got["kind"] == "failed" and got["step"] == 1200 and got["id"] == alert.id
    assert got["run"] == str(tmp_path / "run") and got["host"] == socket.gethostname()
    assert "\x1b" not in json.dumps(got, ensure_ascii=False) and "␛[31mfailed" in got["message"]


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("import sys; sys.exit(3)", "ended with status 3"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
    ],
)
def test_a_command_that_fails(alert, code, result):
    delivery = run_python(code).deliver(alert)
    assert not delivery.is_sent and delivery.result == result


def test_a_command_that_cannot_be_run(alert):
    delivery = CommandReceiver(CommandSettings(command="/no/such/program a")).deliver(alert)
    assert delivery.result == "cannot be run: No such file or directory"
    assert delivery.receiver == "command program"


def test_a_command_that_hangs_is_killed_with_what_it_started(alert, tmp_path):
    told = tmp_path / "told"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n"
        "time.sleep(1000)"
    )
    delivery = run_python(code, str(told), timeout_seconds=3).deliver(alert)
    assert not delivery.is_sent and delivery.result == "was killed after 3 s"
    child = int(told.read_text())
    wait_until(lambda: not psutil.pid_exists(child) or is_dead(child), 10, "the child is dead")


def is_dead(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# -- webhooks ---------------------------------------------------------------------------------


def test_a_webhook_gets_the_event_as_json(alert):
    with receiving() as server:
        delivery = webhook(url=f"{server.url}/a?b=c").deliver(alert)
    assert delivery.is_sent and delivery.http_status == 200 and delivery.tries == 1
    ((path, headers, body),) = server.requests
    assert path == "/a?b=c" and headers["Content-Type"] == "application/json"
    assert "Authorization" not in headers
    assert body["kind"] == "failed" and body["details"]["value"] is None


def test_a_message_of_slack_mentions_nobody(alert):
    with receiving() as server:
        assert webhook(url=server.url, body="slack").deliver(alert).is_sent
    text = server.bodies[0]["text"]
    assert list(server.bodies[0]) == ["text"] and text.startswith("failed: Worker 1 ")
    assert "&lt;!channel&gt;" in text and "<" not in text and "(step 1,200)" in text


def test_secrets_come_from_the_environment(alert):
    with receiving() as server:
        environment = {"URL": f"{server.url}/{SECRET}", "TOKEN": f"Bearer {SECRET}\n"}
        receiver = webhook(environment, url_env="URL", header_env="TOKEN")
        delivery = receiver.deliver(alert)
    assert delivery.is_sent and delivery.receiver == "webhook $URL"
    path, headers, _ = server.requests[0]
    assert path == f"/{SECRET}" and headers["Authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "has no $URL"),
        ({"URL": f"https://example.org/{SECRET}"}, "has no $TOKEN"),
        ({"URL": f"http://example.org/{SECRET}"}, "expected https"),
        ({"URL": f"{SECRET}\r\nHost: a"}, "no header may have"),
        ({"URL": "http://127.0.0.1:1", "TOKEN": f"{SECRET}\r\nHost: a"}, "no header may have"),
        ({"URL": "http://127.0.0.1:1", "TOKEN": f"{SECRET}ä"}, "no header may have"),
        ({"URL": f"http://127.0.0.1:1/{SECRET}", "TOKEN": SECRET}, "Connection refused"),
        ({"URL": f"https://user:{SECRET}@example.org", "TOKEN": SECRET}, "has a password"),
    ],
)
def test_no_error_repeats_a_secret(alert, environment, words):
    receiver = webhook(environment, url_env="URL", header_env="TOKEN", retries=0)
    delivery = receiver.deliver(alert)
    assert not delivery.is_sent and words in delivery.result
    assert SECRET not in repr(delivery) and SECRET not in repr(receiver)


def test_a_server_that_fails_is_tried_again_after_longer_and_longer_pauses(alert):
    waited = []
    with receiving([500, 429, 503]) as server:
        delivery = webhook(url=server.url, waited=waited).deliver(alert)
    assert delivery.is_sent and delivery.tries == 4
    assert waited == [FIRST_PAUSE_SECONDS * factor for factor in (1, 2, 4)]
    assert len({body["id"] for body in server.bodies}) == 1


@pytest.mark.parametrize(("part", "share"), [(0.0, 0.5), (0.5, 0.75)])
def test_a_part_of_the_pause_is_random(alert, part, share):
    waited = []
    settings = WebhookSettings(url="http://127.0.0.1:1", retries=1)
    receiver = WebhookReceiver(settings, {}, sleep=waited.append, jitter=lambda: part)
    assert not receiver.deliver(alert).is_sent
    assert waited == [FIRST_PAUSE_SECONDS * share]


def test_a_server_that_goes_on_failing_is_left_alone(alert):
    with receiving([500] * 9) as server:
        delivery = webhook(url=server.url, retries=2).deliver(alert)
    assert not delivery.is_sent and len(server.requests) == 3
    assert delivery.result == "answered HTTP 500 (3 tries)"


def test_a_refusal_is_not_tried_again(alert):
    with receiving([403]) as server:
        delivery = webhook(url=server.url).deliver(alert)
    assert not delivery.is_sent and delivery.http_status == 403 and len(server.requests) == 1


@pytest.mark.parametrize("answer", [HANG, DRIP])
def test_a_server_that_hangs_is_given_up(alert, answer):
    with receiving([answer]) as server:
        delivery = webhook(url=server.url, timeout_seconds=0.5, retries=0).deliver(alert)
    assert not delivery.is_sent and delivery.result == "did not answer within 0.5 s"


def test_a_redirect_is_not_followed(alert):
    with receiving() as other, receiving([307], {"Location": other.url}) as server:
        delivery = webhook({"TOKEN": SECRET}, url=server.url, header_env="TOKEN").deliver(alert)
    assert not delivery.is_sent and "HTTP 307" in delivery.result
    assert len(server.requests) == 1 and other.requests == []


def test_only_https_goes_through_the_proxy_of_the_environment(alert, monkeypatch):
    with receiving() as proxy, receiving() as server:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        assert webhook(url=server.url).deliver(alert).is_sent
        assert proxy.requests == []
        delivery = webhook(url="https://example.org/", retries=0).deliver(alert)
        assert not delivery.is_sent and proxy.requests[0][0] == "example.org:443"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        webhook(url="https://127.0.0.1:1", retries=0).deliver(alert)
        assert len(proxy.requests) == 1


def test_a_certificate_must_be_trusted(alert, tmp_path, monkeypatch):
    certificate = tmp_path / "own.pem"
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
        f"-addext subjectAltName=IP:127.0.0.1 -keyout {certificate} -out {certificate}.part",
        shell=True,
        check=True,
        capture_output=True,
    )
    trusted = certificate.with_suffix(".pem.part")
    certificate.write_text(certificate.read_text() + trusted.read_text())
    with receiving(certificate=certificate) as server:
        delivery = webhook(url=server.url, retries=0).deliver(alert)
        assert not delivery.is_sent and "cannot be reached" in delivery.result
        assert server.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", os.fspath(trusted))
        assert webhook(url=server.url, retries=0).deliver(alert).is_sent
    assert server.bodies[0]["kind"] == "failed"
