"""Finds the objects that names from Keras mean; object graphs have other paths for them.

Keras names a variable by its layers, as in `model/sequential/dense/kernel`. The same variable is
held by attributes, as in `model/_operations/1/_kernel`: by these TensorFlow restores it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.bundle.analysis.contents import Role, Variable
from tfckpt_trainer.bundle.object_graph import unescaped


def find_named(variables: Sequence[Variable], path: str) -> list[Variable]:
    """Returns the variables at and below a path with names from Keras, without slot variables."""
    return [
        variable
        for variable in variables
        if variable.role is not Role.SLOT
        and variable.object_path
        and (variable.path == path or variable.path.startswith(f"{path}/"))
    ]


def find_attribute(variables: Sequence[Variable], named: Sequence[Variable], name: str) -> str:
    """Returns the path of the attribute with this name that holds exactly these variables.

    Args:
        variables: All variables of the checkpoint.
        named: Those to find.
        name: A name from Keras, such as `kernel`; the attribute may be `_kernel`.

    Returns:
        The path of the attribute; empty if no object of this name holds just these variables, such
        as a layer in a list.
    """
    wanted = {variable.entry.name for variable in named}
    path = named[0].object_path
    while path:
        held = {
            variable.entry.name
            for variable in variables
            if variable.object_path == path or variable.object_path.startswith(f"{path}/")
        }
        if not held <= wanted:
            return ""
        if held == wanted and unescaped(path.rpartition("/")[2]) in {name, f"_{name}"}:
            return path
        path = path.rpartition("/")[0]
    return ""
