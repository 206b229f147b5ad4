"""Whatever a client writes as a command is taken, refused with an answer, or deleted."""

from __future__ import annotations

import json
import os
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import (
    ARGUMENTS,
    CommandKind,
    CommandState,
    parse_arguments,
)

ANY_NAME = st.sampled_from(["name", "names", "partial", "save", "trash"]) | st.text(max_size=5)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**40) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_NAME, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS_OF_ANY_TYPE = st.dictionaries(ANY_NAME, ANY_JSON, max_size=3)

WRONG = {
    CommandKind.SAVE: [{"save": True}],
    CommandKind.PAUSE: [{"step": 1}],
    CommandKind.RESUME: [{"": None}],
    CommandKind.RESTORE: [
        {},
        {"name": None},
        {"name": 5},
        {"name": ""},
        {"name": ["ckpt-1"]},
        {"name": "x" * 1_000_000},
        {"name": "ckpt-1", "partial": "yes"},
        {"name": "ckpt-1", "partial": 10**400},
        {"name": "ckpt-1", "step": 1},
        {"name": "ckpt-1", "values": {"rate": None}},
        {"name": "ckpt-1", "values": ["rate"]},
    ],
    CommandKind.STOP: [{"save": None}, {"save": "false"}, {"save": 0}, {"svae": False}],
    CommandKind.PRUNE: [
        {},
        {"names": 5},
        {"names": None},
        {"names": []},
        {"names": "ckpt-1"},
        {"names": [5]},
        {"names": [["ckpt-1"]]},
        {"names": {"ckpt-1": True}},
    ],
    CommandKind.UNDO: [{"trash": 5}, {"trash": ["a"]}, {"trash": {"id": "a"}}],
    CommandKind.CHECK: [{"steps": 0}, {"steps": -1}, {"steps": 10**9}, {"steps": "3"}],
    CommandKind.GUARDS: [{"guards": []}],
    CommandKind.PROFILE: [{"steps": 0}, {"steps": 1001}, {"workers": [-1]}, {"workers": 1}],
    CommandKind.SKIP: [{}, {"batches": 0}, {"batches": 1.5}, {"batches": 1, "at_step": "5"}],
    CommandKind.SET: [
        {},
        {"values": {}},
        {"values": {"rate": None}},
        {"values": {"rate": "1e-3"}},
        {"values": {"": 1.0}},
        {"values": ["rate"]},
        {"values": {"rate": 1.0}, "over": -1},
        {"values": {"rate": 1.0}, "at_step": "soon"},
    ],
}

RIGHT = {
    CommandKind.SAVE: [{}],
    CommandKind.PAUSE: [{}],
    CommandKind.RESUME: [{}],
    CommandKind.RESTORE: [
        {"name": "ckpt-1"},
        {"name": "ckpt-1", "partial": True, "values": {"rate": 1.0}},
    ],
    CommandKind.STOP: [{}, {"save": False}],
    CommandKind.PRUNE: [{"names": ["ckpt-1", "ckpt-2"]}],
    CommandKind.UNDO: [{}, {"trash": None}, {"trash": "20260101T000000-abcdef"}],
    CommandKind.CHECK: [{}, {"steps": 100}],
    CommandKind.SET: [{"values": {"rate": 1}}, {"values": {"rate": 0.1}, "at_step": 5, "over": 9}],
    CommandKind.GUARDS: [{}],
    CommandKind.PROFILE: [{}, {"steps": 5, "workers": [0, 1]}],
    CommandKind.SKIP: [{"batches": 1}, {"batches": 10, "at_step": 5}],
}


def drop(run: RunDirectory, name: str, **fields) -> None:
    """Writes a file into the inbox, as any program may."""
    now = time.time()
    command = {"id": name, "requested_at": now, "expires_at": now + 60, "requested_by": "any"}
    (run.inbox / f"{name}.json").write_text(json.dumps({**command, **fields}))


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.create()
    return directory


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory):
    directory = RunDirectory(tmp_path_factory.mktemp("shared"))
    directory.create()
    return directory


def test_each_kind_has_a_record_of_its_arguments():
    assert set(ARGUMENTS) == set(WRONG) == set(RIGHT) == set(CommandKind)


@pytest.mark.parametrize(
    ("kind", "given"), [(kind, given) for kind, all_of in WRONG.items() for given in all_of]
)
def test_wrong_arguments_are_refused_with_an_answer(run, kind, given):
    box = CommandQueue(run)
    with pytest.raises(UsageError, match=f"The arguments of {kind} are invalid"):
        box.submit(kind, given, requested_by="test")
    drop(run, "wrong", kind=kind, arguments=given)
    refused = box.claim(time.time())
    assert refused.state is CommandState.REFUSED
    assert refused.message.startswith(f"The arguments of {kind} are invalid: ")
    assert box.look_up("wrong") == refused
    assert (box.pending(), box.working()) == ([], [])


NAMES = "it must be a list of names of checkpoints, at least one"


@pytest.mark.parametrize(
    ("kind", "given", "problem"),
    [
        (CommandKind.PRUNE, {"names": 5}, f"names is 5; {NAMES}"),
        (CommandKind.PRUNE, {"names": "a\u00e9"}, f'names is "a\u00e9"; {NAMES}'),
        (CommandKind.PRUNE, {"names": []}, f"names is []; {NAMES}"),
        (CommandKind.PRUNE, {}, f"names is missing; {NAMES}"),
        (CommandKind.PRUNE, None, "they are null; they must be an object, such as {}"),
        (CommandKind.SAVE, [1], "they are [1]; they must be an object, such as {}"),
        (CommandKind.STOP, {"svae": False}, 'there is no argument "svae"'),
        (CommandKind.STOP, {"save": None}, "save is null; it must be true or false"),
        (CommandKind.RESTORE, {"name": ""}, 'name is ""; it must be the name of a checkpoint'),
        (CommandKind.UNDO, {"trash": 1}, "trash is 1; it must be the id of a prune, or null for"),
        (CommandKind.CHECK, {"steps": 0}, "steps is 0; it must be a whole number from 1 to 100"),
    ],
)
def test_a_refusal_says_what_was_expected_and_keeps_what_was_asked(run, kind, given, problem):
    box = CommandQueue(run)
    drop(run, "wrong", kind=kind, arguments=given)
    assert bool(box.pending()) == isinstance(given, dict)
    box.clear_damaged(0.0)
    box.clear_damaged(100.0)
    refused = box.claim(time.time())
    assert refused.message.startswith(f"The arguments of {kind} are invalid: {problem}")
    assert refused.arguments == (given if isinstance(given, dict) else {})
    assert box.look_up("wrong") == refused


@pytest.mark.parametrize("fields", [{"kind": "sav"}, {"kind": "save", "expires_at": "soon"}, {}])
def test_what_is_no_command_is_deleted_in_the_words_of_the_product(run, fields):
    drop(run, "wrong", **fields)
    box = CommandQueue(run)
    assert box.clear_damaged(0.0) == []
    (cleared,) = box.clear_damaged(100.0)
    assert cleared.startswith("Deleted wrong.json from inbox: it is not a command. A command is")
    assert "kind: save, restore, pause" in cleared and "$" not in cleared


def test_of_many_files_that_are_no_commands_the_first_are_named(run):
    for number in range(12):
        drop(run, f"wrong-{number:02}", kind="sav")
    box = CommandQueue(run)
    box.clear_damaged(0.0)
    *named, more = box.clear_damaged(100.0)
    assert len({text.partition(" from ")[0] for text in named}) == 5
    assert all(text.startswith("Deleted wrong-") for text in named)
    assert more == "Deleted 7 more files that are no commands."
    assert not list(run.inbox.iterdir())


def test_a_refusal_keeps_no_arguments_of_any_size(run):
    drop(run, "wrong", kind="prune", arguments={"names": "x" * 100_000})
    refused = CommandQueue(run).claim(time.time())
    assert (refused.arguments, len(refused.message) < 300) == ({}, True)


@pytest.mark.parametrize(
    ("kind", "given"), [(kind, given) for kind, all_of in RIGHT.items() for given in all_of]
)
def test_right_arguments_are_taken_as_they_are(run, kind, given):
    box = CommandQueue(run)
    box.submit(kind, given, requested_by="test")
    seen = box.claim(time.time())
    assert (seen.state, seen.arguments) == (CommandState.SEEN, given)
    parsed = msgspec.to_builtins(parse_arguments(kind, given))
    assert {name: parsed[name] for name in given} == given


@given(kind=st.sampled_from(CommandKind), given=ARGUMENTS_OF_ANY_TYPE)
def test_parsing_either_gives_the_record_or_refuses(kind, given):
    try:
        parsed = parse_arguments(kind, given)
    except UsageError:
        return
    assert type(parsed) is ARGUMENTS[kind]
    assert given.items() <= msgspec.to_builtins(parsed).items()


@given(
    fields=st.fixed_dictionaries(
        {"kind": st.sampled_from([kind.value for kind in CommandKind]) | ANY_JSON},
        optional={
            "arguments": ARGUMENTS_OF_ANY_TYPE | ANY_JSON,
            "requested_at": st.just(0) | ANY_JSON,
            "expires_at": st.just(1e11) | ANY_JSON,
            "requested_by": ANY_JSON,
            "state": st.sampled_from(["requested", "done"]) | ANY_JSON,
            "seen_by": ANY_JSON,
            "step": ANY_JSON,
            "result": ANY_JSON,
            "history": ANY_JSON,
            "advice": ANY_JSON,
            "schema": ANY_JSON,
            "later": ANY_JSON,
        },
    )
)
def test_any_file_in_the_inbox_leaves_the_queue_working(shared_run, fields):
    box = CommandQueue(shared_run)
    drop(shared_run, "any", **fields)
    taken = box.claim(time.time())
    if taken is not None and not taken.state.is_final:
        # What the trainer goes on to write can be written, and is its own.
        assert [t.state for t in taken.history] == ["requested", "seen"]
        assert (taken.result, taken.seen_by, taken.step) == ({}, [], None)
        box.update(taken)
        box.finish(msgspec.structs.replace(taken, state=CommandState.DONE))
    box.clear_damaged(0.0)
    box.clear_damaged(100.0)
    assert list(shared_run.inbox.iterdir()) == []
    (shared_run.done / "any.json").unlink(missing_ok=True)
    command = box.submit(CommandKind.SAVE, requested_by="test")
    assert box.claim(time.time()).id == command.id
    box.finish(command)


def test_what_is_no_regular_file_does_not_block_the_queue(run):
    (run.inbox / "directory.json").mkdir()
    os.mkfifo(run.inbox / "pipe.json")
    (run.inbox / "link.json").symlink_to("/etc/passwd")
    (run.inbox / "loop.json").symlink_to("loop.json")
    box = CommandQueue(run)
    command = box.submit(CommandKind.SAVE, requested_by="test")
    assert box.claim(time.time()).id == command.id
    assert box.clear_damaged(0.0) == box.clear_damaged(100.0) == []
    assert not box.has_damaged
