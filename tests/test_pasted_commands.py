"""Commands in messages can be pasted: paths are quoted for the shell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from string import Formatter

import tfckpt_trainer
import tfckpt_tui
from tfckpt_trainer.rundir.paths import RunDirectory

SOURCES = [
    path
    for package in (tfckpt_trainer, tfckpt_tui)
    for path in sorted(Path(package.__path__[0]).rglob("*.py"))
]
QUOTED = re.compile(r"shlex\.|shell_word|_word\(|\.pid\b|\.path\('?\w")
"""What an expression has that is one word of a shell."""

KNOWN = {
    "batch_script": {"math.ceil(least / 60)"},
    "check_directory": {"place"},
    "cluster": {"gpus", "workers"},
    "commands": {"name"},
    "config": {"unknown[0]"},
    "copy_command": {"_command(run, words, on_host)"},
    "diagnostics": {"file_names([dead[0].name])", "observed.directory + '/' + first.path"},
    "diagnostics_state_file": {"file", "keep", "write"},
    "documents": {"needed"},
    "earlier_start": {"attach"},
    "extensions": {"action.name", "clean(section.command)"},
    "job_control": {"command", "job.id"},
    "job_queries": {"job.id", "job_id"},
    "keras_library": {"value"},
    "likely_causes": {"key"},
    "main": {"error.ctx.command_path"},
    "named_processes": {"pid"},
    "new_checkpoint": {"place"},
    "no_trainer": {"unknown.record.id"},
    "observation": {"moved"},
    "packages": {"package"},
    "permissions": {"command", "right"},
    "process_watch": {"as_user", "os.geteuid()", "pid"},
    "restore": {"launch_command(run)", "place", "quoted", "start"},
    "restore_manager": {"given", "other", "place"},
    "self_test": {"workers"},
    "session": {"CHECK_VARIABLE"},
    "shutdown": {"name", "place"},
    "slurm": {"others + 1"},
    "source": {"place", "quoted"},
    "ssh_connection": {"host", "port", "words[0]"},
    "status": {"pid"},
    "symbolic_links": {"_removal(checkpoint)"},
    "table": {"command"},
    "training_directory": {"pid"},
}
"""Expressions that are no text of others, by module.

They are quoted where they are made, numbers, words of this library or the user, or a `JobId`.
"""


def within_backquotes(parts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields the expressions that a message has within backquotes.

    Args:
        parts: Texts of the message, each with the expression behind it; empty at the end.
    """
    within = False
    for text, expression in parts:
        within ^= text.count("`") % 2 == 1
        if within and expression:
            yield expression


def parts_of(text: ast.JoinedStr) -> Iterator[tuple[str, str]]:
    for part in text.values:
        if isinstance(part, ast.FormattedValue):
            yield "", ast.unparse(part.value)
        elif isinstance(part, ast.Constant):
            yield str(part.value), ""


def of_advice(call: ast.Call) -> Iterator[str]:
    """Yields the expressions within backquotes of `Advice.of(template, …, name=expression)`."""
    values = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    for template in call.args:
        if isinstance(template, ast.Constant) and isinstance(template.value, str):
            fields = Formatter().parse(template.value)
            yield from within_backquotes(
                (text, values.get(name or "", "")) for text, name, *_ in fields
            )


def pasted(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields what the messages of a module have within backquotes, with the line of each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield from ((node.lineno, found) for found in within_backquotes(parts_of(node)))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"of", "then"}
            and node.keywords
        ):
            yield from ((node.lineno, found) for found in of_advice(node))


def test_what_a_message_has_in_a_command_is_quoted() -> None:
    """Others choose the names of files and directories, and texts in documents."""
    found = [
        f"{path}:{line}: {expression}"
        for path in SOURCES
        for line, expression in pasted(ast.parse(path.read_text()))
        if not QUOTED.search(expression) and expression not in KNOWN.get(path.stem, ())
    ]
    assert found == [], "Use `shell_word` of the run directory, or `shlex.quote`."


def test_the_word_of_a_directory_is_one_word() -> None:
    assert RunDirectory(Path("/data/my run")).shell_word == "'/data/my run'"
    assert RunDirectory(Path("/data/run")).shell_word == "/data/run"
