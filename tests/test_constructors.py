"""Parameters that several constructors take together are one idea, and belong in one record.

A switch, which is a keyword with a truth value as its default, may travel along.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import tfckpt_trainer
import tfckpt_tui

TOGETHER = 5
"""As many of the same name and type, in two constructors, are one record."""

Parameters = frozenset[tuple[str, str]]


def constructors() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yields class name and `__init__` of every class; dataclasses and Structs write none."""
    for package in (tfckpt_trainer, tfckpt_tui):
        for path in Path(package.__path__[0]).rglob("*.py"):
            source = path.read_text()
            for node in ast.walk(ast.parse(source)) if "def __init__" in source else ():
                if isinstance(node, ast.ClassDef):
                    for member in node.body:
                        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                            yield f"{path.stem}.{node.name}", member


def parameters(constructor: ast.FunctionDef) -> Parameters:
    """Returns names and types of the parameters of a constructor that are no switches."""
    takes = constructor.args
    switches = {
        keyword.arg
        for keyword, default in zip(takes.kwonlyargs, takes.kw_defaults, strict=True)
        if isinstance(default, ast.Constant) and isinstance(default.value, bool)
    }
    return frozenset(
        (parameter.arg, ast.unparse(parameter.annotation))
        for parameter in (*takes.posonlyargs, *takes.args, *takes.kwonlyargs)
        if parameter.annotation is not None and parameter.arg not in switches
    )


def taken_together(constructors: dict[str, Parameters]) -> dict[tuple[str, str], list[str]]:
    """Returns, by two classes, the names of the parameters that are one record."""
    return {
        (one, other): sorted(name for name, _ in constructors[one] & constructors[other])
        for one, other in combinations(sorted(constructors), 2)
        if len(constructors[one] & constructors[other]) >= TOGETHER
    }


def test_no_two_constructors_take_the_parts_of_one_record() -> None:
    found = {name: parameters(constructor) for name, constructor in constructors()}
    assert len(found) > 100
    assert taken_together(found) == {}, "Make them a frozen Struct, and pass that."


def test_parts_of_a_record_are_recognized() -> None:
    source = """
class Saver:
    def __init__(self, run: Run, group: Group, state: State, names: Names, disk: Disk): ...
class Restorer:
    def __init__(self, disk: Disk, *, names: Names, state: State, group: Group, run: Run): ...
class Pruner:
    def __init__(self, run: Run, group: Group, state: State, names: Names, disk: float): ...
"""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    found = {node.name: parameters(node.body[0]) for node in classes}  # type: ignore[arg-type]
    assert list(taken_together(found)) == [("Restorer", "Saver")]
