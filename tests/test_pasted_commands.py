"""Commands in messages can be pasted: paths are quoted for the shell."""

from __future__ import annotations

import ast
from pathlib import Path

import tfckpt_trainer
import tfckpt_tui
from tfckpt_trainer.rundir.paths import RunDirectory

SOURCES = [
    path
    for package in (tfckpt_trainer, tfckpt_tui)
    for path in sorted(Path(package.__path__[0]).rglob("*.py"))
]
UNQUOTED = ("root", "str(", "prefix", "directory", "path")
"""How expressions begin or end that are paths, and no words of a shell."""


def unquoted(text: ast.JoinedStr) -> list[str]:
    """What a message puts into a command that may have spaces."""
    found = []
    within = False
    for part in text.values:
        if isinstance(part, ast.Constant):
            # A command begins after its program, and ends with the backquote.
            begun = str(part.value).rpartition("tfckpt-tui ")
            within = "`" not in (begun[2] if begun[1] else str(part.value)) and (
                within or bool(begun[1])
            )
        elif within and isinstance(part, ast.FormattedValue):
            source = ast.unparse(part.value)
            if source.startswith(UNQUOTED) or source.endswith(UNQUOTED):
                found.append(source)
    return found


def test_a_path_in_a_command_of_a_message_is_quoted() -> None:
    found = [
        f"{path}:{node.lineno}: {source}"
        for path in SOURCES
        if "tfckpt-tui " in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.JoinedStr)
        for source in unquoted(node)
    ]
    assert found == [], "Use `shell_word` of the run directory, or `shlex.quote`."


def test_the_word_of_a_directory_is_one_word() -> None:
    assert RunDirectory(Path("/data/my run")).shell_word == "'/data/my run'"
    assert RunDirectory(Path("/data/run")).shell_word == "/data/run"
