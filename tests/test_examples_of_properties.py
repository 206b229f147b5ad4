"""The examples of properties are the same at each change, whatever was imported before."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def examples() -> list[object]:
    """The examples of a property."""
    seen: list[object] = []

    @given(st.binary(max_size=99) | st.integers() | st.text(max_size=99))
    @settings(max_examples=200, database=None)
    def note(value: object) -> None:
        seen.append(value)

    note()
    return seen


def test_they_do_not_depend_on_what_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = examples()
    path = tmp_path / "of_this_project.py"
    path.write_text("\n".join(f"a{n} = {7919 * n}, b'{n:09}', 'text {n}'" for n in range(10, 300)))
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, path.stem, module)
    found.loader.exec_module(module)
    assert examples() == before
