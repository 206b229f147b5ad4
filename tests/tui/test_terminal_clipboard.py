"""Copying: what reaches the clipboard, and that no more is said than is known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from app_driving import opened, top, until_told
from rundir_factory import RunFactory

from tfckpt_tui.app.terminal.requests import copied_in_words, give_to_tmux

SENT = "Sent 3 lines to the clipboard of the terminal."
TMUX = "Sent 3 lines to tmux, which copies it only with `set -g set-clipboard on`."


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, SENT),
        ({"TERM": "xterm-256color"}, SENT),
        ({"TERM": "xterm-kitty"}, "Copied 3 lines."),
        ({"TERM": "xterm-256color", "WT_SESSION": "a"}, "Copied 3 lines."),
        ({"TERM": "tmux-256color"}, TMUX),
        ({"TERM": "xterm-256color", "TMUX": "a", "TERM_PROGRAM": "WezTerm"}, TMUX),
        ({"TERM": "screen-256color"}, TMUX),
        (
            {"TERM": "screen-256color", "STY": "1"},
            "Not copied: GNU screen passes nothing to the clipboard.",
        ),
        ({"TERM": "linux"}, "Not copied: this terminal has no clipboard."),
    ],
)
def test_a_text_is_copied_only_where_the_terminal_can(
    environment: dict[str, str], words: str
) -> None:
    assert copied_in_words("3 lines", environment, by_tmux=False) == words


def fake_tmux(directory: Path, script: str) -> None:
    program = directory / "tmux"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "took"),
    [('[ "$*" = "load-buffer -w -" ] && cat > copied', True), ("exit 1", False), (None, False)],
)
def test_tmux_copies_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, took: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    if script is not None:
        fake_tmux(tmp_path, script)
    path = f"{tmp_path}:{os.environ['PATH']}" if script is not None else str(tmp_path)
    monkeypatch.setenv("PATH", path)
    assert give_to_tmux("loß\n", {"TMUX": "/tmp/tmux-0/default,1,0"}) is took
    assert not give_to_tmux("other", {})
    if took:
        assert (tmp_path / "copied").read_text() == "loß\n"
        assert copied_in_words("3 lines", {"TMUX": "a"}, by_tmux=took) == "Copied 3 lines."


async def test_a_path_that_is_no_utf8_is_copied(tmp_path: Path) -> None:
    made = RunFactory(Path(os.fsdecode(bytes(tmp_path) + b"/run-\xff"))).create()
    made.checkpoint(100)
    async with opened(made.run) as pilot:
        await pilot.press("y")
        await until_told(pilot, "to the clipboard")
        assert "ckpt-100" in top(pilot.app)
        assert "run-?/ckpt-100" in pilot.app.clipboard
