"""A class with many collaborators does too much: its constructor takes six at most.

A switch, which is a keyword with a truth value as its default, is no collaborator.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tfckpt_trainer
import tfckpt_tui

MOST = 6

PUBLIC_OPTIONS = {"TrainingRun"}
"""Its parameters are the options of a training run and not collaborators."""


def constructors() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yields class name and `__init__` of every class; dataclasses and Structs write none."""
    for package in (tfckpt_trainer, tfckpt_tui):
        for path in Path(package.__path__[0]).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    for member in node.body:
                        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                            yield node.name, member


def count_of_parameters(constructor: ast.FunctionDef) -> int:
    takes = constructor.args
    variable = [one for one in (takes.vararg, takes.kwarg) if one is not None]
    switches = [one for one in takes.kw_defaults if getattr(one, "value", None) in (True, False)]
    named = len([*takes.posonlyargs, *takes.args, *takes.kwonlyargs, *variable]) - 1
    return named - len(switches)


def test_no_constructor_takes_more_than_six_collaborators():
    counts = {name: count_of_parameters(constructor) for name, constructor in constructors()}
    assert len(counts) > 100
    assert {name for name, count in counts.items() if count > MOST} == PUBLIC_OPTIONS
