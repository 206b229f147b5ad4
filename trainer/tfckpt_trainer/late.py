"""Imports what a package offers when it is first used.

Each function returns the `__getattr__` of a package. Type checkers need the names too, imported
under `TYPE_CHECKING`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


def late_names(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Offers names of modules.

    Args:
        package: Name of the package.
        modules: The module of each name.
    """

    def attribute(name: str) -> object:
        if name not in modules:
            raise _no_attribute(package, name)
        return getattr(import_module(modules[name]), name)

    return attribute


def late_modules(package: str) -> Callable[[str], ModuleType]:
    """Offers the modules of a package.

    Args:
        package: Name of the package.
    """

    def module(name: str) -> ModuleType:
        path = f"{package}.{name}"
        try:
            return import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise
            raise _no_attribute(package, name) from None

    return module


def _no_attribute(package: str, name: str) -> AttributeError:
    return AttributeError(f"module {package!r} has no attribute {name!r}")
