"""No method of ours replaces a private one of Textual by accident."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from textual.dom import DOMNode

import tfckpt_tui

MEANT = (
    "BaseApp._display replaces App._display",
    "BaseApp._handle_exception replaces App._handle_exception",
    "BaseApp._fatal_error replaces App._fatal_error",
)
"""Textual prints a traceback with the values of all variables and has no other place to keep it
from that; that the app's own way works is tested with a real crash. Errors of screens of an app
that quits come to the second. The first is the only place that has each frame before its escape
sequences are made."""


def our_widgets() -> list[type]:
    classes = []
    for module_info in pkgutil.walk_packages(tfckpt_tui.__path__, "tfckpt_tui."):
        module = importlib.import_module(module_info.name)
        classes += [
            member
            for _, member in inspect.getmembers(module, inspect.isclass)
            if member.__module__ == module_info.name and issubclass(member, DOMNode)
        ]
    return classes


def test_no_private_method_of_textual_is_replaced():
    classes = our_widgets()
    assert len(classes) > 10
    replaced = [
        f"{ours.__name__}.{name} replaces {base.__name__}.{name}"
        for ours in classes
        for name, member in vars(ours).items()
        if name.startswith("_") and not name.startswith("__") and inspect.isfunction(member)
        for base in ours.__mro__[1:]
        if base.__module__.startswith("textual") and inspect.isfunction(vars(base).get(name))
    ]
    assert replaced == [*MEANT]
