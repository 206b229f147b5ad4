"""Whose word a file is: what is executed or believed comes from its user or root alone."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar
from unittest import mock

import pytest

import tfckpt_trainer
import tfckpt_tui
from accounts import ALICE, BOB, acting_as, replace_as, share
from requirements import needs
from tfckpt_trainer.errors import NotTrustedError
from tfckpt_trainer.launch.options import LaunchOptions, LaunchRecord
from tfckpt_trainer.rundir.storage import owners
from tfckpt_trainer.rundir.storage.documents import Document, load, load_if_exists, store
from tfckpt_trainer.rundir.storage.files import read_bounded
from tfckpt_trainer.rundir.storage.owners import signed_by


class Order(Document, frozen=True, kw_only=True):
    """A document that is executed."""

    is_trusted: ClassVar[bool] = True
    has_copy: ClassVar[bool] = True

    command: str = ""


ORDER = b'{"command":"true","schema":1}'


@pytest.fixture
def order(tmp_path: Path) -> Path:
    path = tmp_path / "order.json"
    path.write_bytes(ORDER)
    path.chmod(0o600)
    return path


def test_an_own_file_is_trusted_also_while_it_is_replaced(order: Path) -> None:
    assert load(order, Order).command == "true"
    with open(order, "rb") as file:
        order.unlink()
        owners.require_owner(order, file.fileno(), os.geteuid())


def test_a_trusted_file_asks_for_no_name_of_a_user(
    order: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of users may be slow, or not answer."""
    monkeypatch.setattr("pwd.getpwuid", mock.Mock(side_effect=AssertionError))
    assert load(order, Order).command == "true"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_not(order: Path, mode: int) -> None:
    order.chmod(mode)
    with pytest.raises(NotTrustedError, match="other users may write to it") as refusal:
        load(order, Order)
    mend(refusal.value)
    assert load(order, Order).command == "true"


def test_a_further_link_to_an_own_file_is_not_trusted(order: Path, tmp_path: Path) -> None:
    link = tmp_path / "link's.json"
    os.link(order, link)
    with pytest.raises(NotTrustedError, match="another hard link") as refusal:
        load(link, Order)
    mend(refusal.value)
    assert load(link, Order).command == "true"


@needs("root")
def test_a_file_of_another_user_is_not_trusted_nor_is_its_copy(order: Path) -> None:
    shutil.copy(order, order.with_name("order.json.copy"))
    for path in (order, order.with_name("order.json.copy")):
        os.chown(path, BOB, -1)
    with pytest.raises(NotTrustedError, match=f"belongs to user {BOB}; expected root") as refusal:
        load(order, Order)
    order.write_bytes(b"{")
    os.chown(order, 0, -1)
    with pytest.raises(Exception, match="not a valid Order"):
        load(order, Order)
    replace_as(BOB, order, ORDER)
    mend(refusal.value)
    assert load(order, Order).command == "true"


@needs("root")
def test_a_file_of_root_is_trusted_by_all(open_place: Path) -> None:
    share(open_place)
    path = open_place / "order.json"
    replace_as(0, path, ORDER)
    with acting_as(ALICE):
        assert load(path, Order).command == "true"
    replace_as(BOB, path, ORDER)
    with (
        acting_as(ALICE),
        pytest.raises(NotTrustedError, match=f"user {BOB}; expected user {ALICE}"),
    ):
        load(path, Order)


@needs("root")
def test_a_disk_that_shows_all_files_as_those_of_another_user(
    order: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSHFS and squashing servers do; the kernel of the tests has none of them."""
    os.chown(order, BOB, -1)
    facts = os.fstat

    def squashed(descriptor: int) -> os.stat_result:
        seen = list(facts(descriptor))
        return os.stat_result([*seen[:4], BOB, *seen[5:]])

    monkeypatch.setattr(owners.os, "fstat", squashed)
    assert load(order, Order).command == "true"
    with pytest.raises(NotTrustedError):
        read_bounded(order, written_by=ALICE)


def mend(refusal: NotTrustedError) -> None:
    """Runs the command that an error names."""
    command = str(refusal).split("`")[1]
    subprocess.run(command, shell=True, check=True)


def test_a_launch_is_shown_whoever_wrote_it_and_executed_only_if_trusted(tmp_path: Path) -> None:
    path = tmp_path / "launch.json"
    options = LaunchOptions(run_directory="/r", command=("true",), working_directory="/")
    store(path, options)
    assert load_if_exists(path, LaunchOptions) == options
    path.chmod(0o666)
    assert load(path, LaunchRecord).command == ("true",)
    with pytest.raises(NotTrustedError):
        load_if_exists(path, LaunchOptions)


_TRUSTED = {"launch_file"}
_READERS = {"load", "load_if_exists"}
_OTHERS = {"store", "exists"}


def test_no_code_reads_a_launch_in_another_way() -> None:
    """The type then decides: what executes takes `LaunchOptions`, which `load` checks."""
    found = {"LaunchOptions": 0, "LaunchRecord": 0}
    for package in (tfckpt_trainer, tfckpt_tui):
        for path in Path(package.__path__[0]).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source if any(name in source for name in _TRUSTED) else "")
            for call in calls_with(tree, _TRUSTED):
                name = ast.unparse(call.func).rpartition(".")[2]
                assert name in _READERS | _OTHERS, f"{path}:{call.lineno}"
                if name in _READERS:
                    found[ast.unparse(call.args[1])] += 1
    assert min(found.values()) >= 3, found
    assert LaunchOptions.is_trusted and not LaunchRecord.is_trusted


def calls_with(tree: ast.AST, attributes: set[str]) -> list[ast.Call]:
    """Returns the innermost calls that name one of some attributes; fails for other uses."""
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in attributes]
    if not uses:
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    innermost = []
    for use in uses:
        around = [call for call in calls if any(node is use for node in ast.walk(call))]
        assert around, f"line {use.lineno}"
        innermost.append(min(around, key=lambda call: len(list(ast.walk(call)))))
    return innermost


@pytest.mark.parametrize(
    ("claim", "signed"),
    [
        ("root@host, app", True),
        ("root", True),
        (f"user {BOB}@host", False),
        ("worker 3", False),
        ("\0", False),
    ],
)
def test_who_names_another_user_is_named_too(claim, signed):
    expected = f"{claim} (file of user {BOB})" if signed else claim
    assert signed_by(claim, BOB) == signed_by(expected, BOB) == expected
