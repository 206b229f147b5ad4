"""The notifications of terminals: which one is sent where, and that no text ends it early."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import needs
from tfckpt_tui.app.terminal.requests import find_notification, notification
from tfckpt_tui.settings.config import NotifySequence

ST = "\x1b\\"
HOSTILE = "a;b\x1b]0;title\x07\x1b\\\x9c\nc\u202e"


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({}, NotifySequence.OFF),
        ({"TERM": "xterm-256color"}, NotifySequence.OFF),
        ({"TERM": "linux"}, NotifySequence.OFF),
        ({"TERM": "screen-256color", "TERM_PROGRAM": "tmux", "TMUX": "a"}, NotifySequence.OFF),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode"}, NotifySequence.OFF),
        ({"TERM": "xterm-kitty"}, NotifySequence.OSC99),
        ({"TERM": "tmux-256color", "TMUX": "a", "KITTY_WINDOW_ID": "1"}, NotifySequence.OSC99),
        ({"TERM": "xterm-ghostty"}, NotifySequence.OSC777),
        ({"TERM": "foot-extra"}, NotifySequence.OSC777),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, NotifySequence.OSC777),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, NotifySequence.OSC9),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, NotifySequence.OSC9),
    ],
)
def test_the_terminal_is_known_by_its_variables(
    environment: dict[str, str], kind: NotifySequence
) -> None:
    assert find_notification(environment) is kind
    assert notification(NotifySequence.AUTO, "a", environment) == notification(
        kind, "a", environment
    )


def test_what_each_kind_sends() -> None:
    assert notification(NotifySequence.OFF, "a", {"TERM": "xterm-kitty"}) == ""
    assert notification(NotifySequence.OSC9, "a b", {}) == f"\x1b]9;tfckpt-tui: a b{ST}"
    assert notification(NotifySequence.OSC777, "a b", {}) == f"\x1b]777;notify;tfckpt-tui;a b{ST}"
    assert notification(NotifySequence.OSC99, "a b", {}) == (
        f"\x1b]99;i=tfckpt:d=0:p=title;tfckpt-tui{ST}\x1b]99;i=tfckpt:d=1:p=body;a b{ST}"
    )


def test_tmux_passes_it_on() -> None:
    sent = notification(NotifySequence.OSC9, "a", {"TMUX": "/tmp/tmux"})
    assert sent == f"\x1bPtmux;\x1b\x1b]9;tfckpt-tui: a\x1b{ST}{ST}"


@pytest.mark.parametrize("kind", [NotifySequence.OSC9, NotifySequence.OSC777])
@given(text=st.one_of(st.text(), st.text(alphabet=HOSTILE)))
def test_no_text_ends_it_early_or_begins_a_field(kind: NotifySequence, text: str) -> None:
    without = notification(kind, "", {})
    sent = notification(kind, text, {})
    said = sent.removeprefix(without.removesuffix(ST)).removesuffix(ST)
    assert sent == without.removesuffix(ST) + said + ST
    assert ";" not in said and len(said) <= 800
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in said)


@pytest.mark.e2e
@needs("tmux")
def test_a_real_tmux_passes_it_to_the_terminal_outside(tmp_path: object) -> None:
    from terminal import Terminal

    from waiting import wait_until

    code = (
        "import os, sys, time; from tfckpt_tui.app.terminal.requests import *; "
        "sys.stdout.write(notification(NotifySequence.OSC777, 'ab', os.environ)); "
        "sys.stdout.flush(); time.sleep(600)"
    )
    socket = f"{tmp_path}/tmux"
    inside = f'{sys.executable} -c "{code}"'
    options = ["set", "-g", "allow-passthrough", "on", ";"]
    command = ["tmux", "-f", "/dev/null", "-S", socket, "start-server", ";", *options]
    with Terminal([*command, "new-session", inside], environment={"TMUX": ""}) as outside:
        wait_until(
            lambda: b"\x1b]777;notify;tfckpt-tui;ab\x1b\\" in outside.raw, 60, "the notification"
        )
        os.system(f"tmux -S {socket} kill-server")
