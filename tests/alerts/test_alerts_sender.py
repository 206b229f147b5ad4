"""The sender of alerts: what is sent, once, to whom, and that nobody waits for a receiver."""

from __future__ import annotations

import os
import threading
import time
from unittest import mock

import pytest

from receiving_server import HANG, receiving
from tfckpt_trainer.alerts import sender as sender_module
from tfckpt_trainer.alerts.alert import ALERT_KINDS, BY_ALERTS
from tfckpt_trainer.alerts.sender import MOST_WAITING, AlertSender, sending_alerts
from tfckpt_trainer.alerts.webhook import WebhookReceiver
from tfckpt_trainer.rundir.event_log import note_event, read_entries, write_entry
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.storage.locks import take_lock
from tfckpt_trainer.rundir.storage.tail import TAIL_BYTES
from waiting import wait_until


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create()
    return run


@pytest.fixture(autouse=True)
def looks_often_and_waits_long(monkeypatch):
    monkeypatch.setattr(sender_module, "FOLLOW_SECONDS", 0.05)
    monkeypatch.setattr(sender_module, "FLUSH_SECONDS", 60.0)


def a_lock(run):
    """Fails if another sender of the run still follows its event log."""
    lock = take_lock(run.supervisor_lock)
    assert lock is not None
    return lock


def tells(run: RunDirectory, *urls: str, more: str = "", kinds: str = "") -> None:
    lines = [f"kinds = [{kinds}]"] if kinds else []
    text = "[alerts]\n" + "\n".join(lines) + "\n"
    for url in urls:
        text += f'[[alerts.webhooks]]\nurl = "{url}"\n{more}\n'
    run.config_file.write_text(text)


def event(kind=EventKind.FAILED, message="It failed.", at=None, **fields):
    return EventEntry(at=at or time.time(), kind=kind, message=message, **fields)


def noted(run):
    return [entry for entry in read_entries(run) if entry.by == BY_ALERTS]


def messages(server):
    return [body["message"] for body in server.bodies]


def test_a_supervisor_sends_new_events_of_all_processes_once(run):
    write_entry(run, event(message="before"))
    with receiving() as server:
        tells(run, server.url)
        with sending_alerts(run, a_lock(run)) as send:
            own = event(message="own")
            send(own)
            write_entry(run, own)
            write_entry(run, event(message="of a worker"))
            write_entry(run, event(EventKind.SAVE, message="no alert"))
            wait_until(lambda: len(server.requests) == 2, 10, "both are sent")
            write_entry(run, event(EventKind.FINISH, message="last"))
    assert sorted(messages(server)) == ["last", "of a worker", "own"]


def test_a_new_event_log_is_followed_from_its_beginning_but_a_replaced_one_is_not(run):
    with receiving() as server:
        tells(run, server.url)
        with sending_alerts(run, a_lock(run)):
            write_entry(run, event(message="first"))
            wait_until(lambda: server.requests, 10, "the first is sent")
            copy = run.event_log.with_suffix(".copy")
            copy.write_bytes(run.event_log.read_bytes() * 3)
            copy.rename(run.event_log)
            wait_until(lambda: follows(run, server), 10, "the new file is followed")
    assert set(messages(server)) == {"first", "probe"} and messages(server).count("first") == 1


def follows(run, server):
    write_entry(run, event(message="probe"))
    return "probe" in messages(server)


def test_a_restarted_supervisor_sends_nothing_twice(run):
    with receiving() as server:
        tells(run, server.url)
        for number in range(3):
            with sending_alerts(run, a_lock(run)):
                write_entry(run, event(message=f"start {number}"))
    assert messages(server) == [f"start {number}" for number in range(3)]


@pytest.mark.parametrize("kind", EventKind)
def test_kinds_that_are_alerts(run, kind):
    with receiving() as server:
        tells(run, server.url)
        sender = AlertSender(run, lambda words: None)
        sender.send(event(kind))
        sender.close(60)
    assert bool(server.requests) is (kind in ALERT_KINDS)


def test_kinds_can_be_chosen(run):
    with receiving() as server:
        tells(run, server.url, kinds='"save", "note"')
        with sending_alerts(run, a_lock(run)) as send:
            send(event(EventKind.FAILED))
            send(event(EventKind.SAVE, "saved"))
            note_event(run, EventKind.NOTE, "about alerts", by=BY_ALERTS)
    assert messages(server) == ["saved"]


def test_without_receivers_no_thread_remains(run):
    sender = AlertSender(run, lambda words: None, follows=True)
    wait_until(lambda: not sender._thread.is_alive(), 10, "the thread ends")
    sender.send(event())
    sender.close(60)


def test_a_closed_sender_leaves_no_thread(run):
    with receiving() as server:
        tells(run, server.url, server.url)
        sender = AlertSender(run, lambda words: None)
        sender.send(event())
        sender.close(60)
    assert len(server.requests) == 2 and threads_of_alerts() == []


def test_a_sender_that_takes_no_more_events_ends_its_threads(run):
    with receiving() as server:
        tells(run, server.url)
        sender = AlertSender(run, lambda words: None)
        sender.send(event())
        sender.end(60)
        wait_until(lambda: not threads_of_alerts(), 10, "the threads end")
    assert len(server.requests) == 1


def threads_of_alerts():
    names = ("tfckpt-alerts", "tfckpt-receiver")
    return [thread for thread in threading.enumerate() if thread.name in names]


def test_a_damaged_file_is_one_event(run):
    run.config_file.write_text("[alerts")
    with sending_alerts(run, a_lock(run)) as send:
        send(event())
    (told,) = noted(run)
    assert told.kind is EventKind.NOTE
    assert told.message.startswith("No alerts are sent.") and "is not valid TOML" in told.message


def test_a_receiver_that_fails_is_one_event_until_it_works_again(run):
    with receiving([403, 403, 200, 403]) as server:
        tells(run, server.url)
        with sending_alerts(run, a_lock(run)) as send:
            for number in range(4):
                send(event(message=str(number)))
    assert len(server.requests) == 4
    assert [entry.message for entry in noted(run)] == 2 * [
        "An alert was not sent: webhook 127.0.0.1: answered HTTP 403."
    ]


def test_no_event_ends_the_alerts_after_it(run, monkeypatch):
    write_entry(run, event(message="before"))
    deep = '{"a":' * 600 + "0" + "}" * 600
    with receiving() as server:
        tells(run, server.url)
        with sending_alerts(run, a_lock(run)) as send:
            with open(run.event_log, "ab") as file:
                file.write(b'{"at": 1, "kind": "failed", "message": "deep", "details": ')
                file.write(deep.encode() + b"}\n" + b"x" * (TAIL_BYTES + 1) + b"\n")
            write_entry(run, event(message="later"))
            wait_until(lambda: len(server.requests) == 2, 10, "both are sent")
            for number, (owner, name) in enumerate(
                [(WebhookReceiver, "deliver"), (sender_module, "make_alert")], 1
            ):
                with monkeypatch.context() as patch:
                    patch.setattr(owner, name, mock.Mock(side_effect=ZeroDivisionError("planted")))
                    send(event(message="lost"))
                    wait_until(lambda n=number: len(noted(run)) == n, 10, f"{name} is noted")
                send(event(message="sent"))
                wait_until(lambda n=number: len(server.requests) == 2 + n, 10, "the next is sent")
    assert messages(server) == ["deep", "later", "sent", "sent"]
    assert all("An alert was not sent: " in note.message for note in noted(run))


def test_a_receiver_that_hangs_delays_neither_the_sender_nor_another_receiver(run):
    with receiving([HANG]) as hanging, receiving() as working:
        tells(run, hanging.url, working.url, more="timeout_seconds = 600\nretries = 0")
        sender = AlertSender(run, lambda words: note_event_by_alerts(run, words))
        for number in range(3):
            sender.send(event(message=str(number)))
        wait_until(lambda: len(working.requests) == 3, 10, "the other receiver has all")
        sender.close(0.2)
        assert [thread.name for thread in threads_of_alerts()] == ["tfckpt-receiver"]
    # The server has hung up.
    wait_until(lambda: not threads_of_alerts(), 10, "the thread of the other ends too")
    assert len(hanging.requests) == 1
    assert noted(run)[0].message == (
        "An alert was not sent: webhook 127.0.0.1: 3 alerts were not sent in time."
    )


def note_event_by_alerts(run, words):
    note_event(run, EventKind.NOTE, words, by=BY_ALERTS)


def test_a_flood_of_events_fills_no_memory(run):
    told = []
    with receiving([HANG]) as server:
        tells(run, server.url, more="timeout_seconds = 600\nretries = 0")
        sender = AlertSender(run, told.append)
        for number in range(2 * MOST_WAITING):
            sender.send(event(message=str(number)))
        wait_until(lambda: told, 10, "the flood is noted")
        assert sender._channels[0]._waiting.qsize() <= MOST_WAITING
        sender.close(0.1)
    assert len(told) == 1 and "others are dropped" in told[0]


def test_no_secret_is_written(run, monkeypatch, capfd):
    secret = "s3cret-t0ken"
    monkeypatch.setenv("ALERT_URL", f"http://127.0.0.1:1/{secret}")
    run.config_file.write_text(
        '[[alerts.webhooks]]\nurl_env = "ALERT_URL"\nheader_env = "ALERT_URL"\nretries = 0\n'
    )
    with sending_alerts(run, a_lock(run)) as send:
        send(event())
    assert "webhook $ALERT_URL: cannot be reached" in noted(run)[0].message
    for path in run.root.rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()
    assert secret not in "".join(capfd.readouterr()) and secret in os.environ["ALERT_URL"]
