"""Finds tensors by what a user writes: a path as `inspect` shows it, a tensor name, or a pattern.

A path has precedence. TensorFlow may name a weight after its optimizer, so patterns that were
matched with both at once would find weights by `optimizer/*`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from tfckpt_trainer.bundle.analysis.contents import Variable
from tfckpt_trainer.bundle.writing.object_graph_builder import variable_path
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.words.advice import only_command

_NAMES: tuple[Callable[[Variable], str], ...] = (
    lambda variable: variable.path,
    lambda variable: variable.title,
    lambda variable: variable.object_path,
    lambda variable: variable.entry.name,
    lambda variable: variable_path(variable.entry.name),
)
"""What a tensor can be called; the first under which there is one counts."""


def find_tensors(variables: Iterable[Variable], text: str) -> list[Variable]:
    """Returns the tensors with this path or name; several only if their titles are equal."""
    candidates = list(variables)
    for name in _NAMES:
        matches = [variable for variable in candidates if name(variable) == text]
        if matches:
            return matches
    return []


def match_tensors(variables: Iterable[Variable], pattern: str) -> list[Variable]:
    """Returns the tensors with this path or name, otherwise those that match the pattern.

    Args:
        variables: The tensors of one checkpoint.
        pattern: A text, or a pattern such as `model/*`.
    """
    candidates = list(variables)
    matches = find_tensors(candidates, pattern)
    for name in _NAMES if not matches else ():
        matches = [variable for variable in candidates if fnmatchcase(name(variable), pattern)]
        if matches:
            break
    return matches


def tensors_by_name(variables: Iterable[Variable]) -> dict[str, Variable]:
    """Returns the tensors by all their names; `find_tensors` for many names at once."""
    all_variables = list(variables)
    return {
        name(variable): variable
        for name in reversed(_NAMES)
        for variable in all_variables
        if name(variable)
    }


def nearest_path(variables: Iterable[Variable], text: str) -> str:
    """Returns the path that a misspelt or shortened name most likely means; empty if none is near.

    Args:
        variables: The tensors.
        text: What was written; patterns have no nearest path.
    """
    if any(wildcard in text for wildcard in "*?["):
        return ""
    paths = list(dict.fromkeys(variable.path for variable in variables))
    wanted = text.casefold()
    containing = [path for path in paths if wanted in path.casefold()] if wanted else []
    if containing:
        return min(containing, key=len)
    by_form = {path.casefold(): path for path in paths}
    near = get_close_matches(wanted, by_form, n=1)
    return by_form[near[0]] if near else ""


def unknown_tensor(
    prefix: Path, variables: Iterable[Variable], text: str, what: str = "tensor"
) -> UsageError:
    """Returns the error about a tensor that a checkpoint does not have.

    Args:
        prefix: The checkpoint.
        variables: Its tensors.
        text: What was written.
        what: What was looked for.
    """
    near = nearest_path(variables, text)
    return UsageError(
        f"{prefix.name} has no {what} {text!r}.{f' Did you mean {near}?' if near else ''}",
        only_command("List its tensors with ", "inspect", prefix.parent, prefix.name),
    )
