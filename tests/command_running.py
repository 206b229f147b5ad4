"""Runs the real `tfckpt-tui` and tells what it said, or the same in this process, quicker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from tfckpt_tui.cli.main import JsonOption, cli, run
from tfckpt_tui.reports.base import ErrorReport, Report
from waiting import MOST_SECONDS

BINARY = Path(sys.executable).with_name("tfckpt-tui")


@dataclass(frozen=True)
class Said:
    """What a command left: exit code, data and words."""

    code: int
    data: str
    words: str

    @property
    def json(self) -> dict[str, Any]:
        """Its data as a JSON document."""
        document: dict[str, Any] = json.loads(self.data)
        return document


class Tool:
    """`tfckpt-tui` in this process: the same code behind `main`, without starting Python."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> Said:
        self._capsys.readouterr()
        code = run([str(word) for word in words])
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        own = [str(word) for word in words[: words.index("--") if "--" in words else None]]
        if "--json" in own:
            check_documents(own, captured.out)
        return Said(code, captured.out, captured.err)


def check_documents(words: Sequence[str], data: str) -> None:
    """Fails unless each document that a command printed is one of those that it declares."""
    command = next(filter(None, (cli.get_command(click.Context(cli), word) for word in words)))
    (option,) = (option for option in command.params if isinstance(option, JsonOption))
    place = 0
    while data[place:].strip():
        document, end = json.JSONDecoder().raw_decode(data[place:].lstrip())
        place = len(data) - len(data[place:].lstrip()) + end
        known = (*option.reports, ErrorReport)
        assert any(fits(report, document) for report in known), document


def fits(report: type[Report], document: dict[str, Any]) -> bool:
    """Whether a document has exactly the fields of a record, in their order."""
    try:
        filled = msgspec.to_builtins(msgspec.convert(document, report))
    except msgspec.ValidationError:
        return False
    return as_text(filled) == as_text(document)


def as_text(document: dict[str, Any]) -> str:
    """A document as text, in which 1 and 1.0 are the same."""
    return json.dumps(json.loads(json.dumps(document), parse_int=float), indent=2)


def run_binary(*words: object, **environment: str) -> Said:
    """Runs the real binary without a terminal."""
    ended = subprocess.run(
        [BINARY, *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=MOST_SECONDS,
        env={**os.environ, **environment},
    )
    said = Said(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
    assert "Traceback" not in said.words
    return said


def complete_in_bash(words: Sequence[str], *after: str) -> list[str]:
    """Completes the last of `words` with the script for bash.

    Args:
        words: The words of the command line, as bash would write them.
        after: Commands that bash runs after that; `COMPREPLY` has what is offered.

    Returns:
        The lines of output: each offered word, and what the commands print.
    """
    script = [
        'eval "$(tfckpt-tui completion bash)"',
        f"COMP_WORDS=({' '.join(words)})",
        f"COMP_CWORD={len(words) - 1}",
        f"_tfckpt_tui_completion tfckpt-tui {words[-1]} {words[-2]}",
        'printf "%s\\n" "${COMPREPLY[@]}"',
        *after,
    ]
    ended = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(script)],
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        env={**os.environ, "PATH": f"{BINARY.parent}{os.pathsep}{os.environ['PATH']}"},
    )
    assert ended.stderr == ""
    return ended.stdout.splitlines()
