"""The `checkpoint` file, read as TensorFlow reads it."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.bundle.state_file import (
    StateFile,
    StateFileCondition,
    StateFileError,
    parse_state_file,
)
from tfckpt_trainer.bundle.text_format import LONGEST_VALUE, MOST_VALUES
from weekly import tries

NEWEST = 'model_checkpoint_path: "ckpt-2"'
PATH = Path("checkpoint")

READ = [
    f"{NEWEST}  # the best one",
    f'# all_model_checkpoint_paths: "x"\n\n  {NEWEST}\r\n',
    "model_checkpoint_path: 'ckpt-2'",
    "model_checkpoint_path:'ckpt\"-2'",
    "model_checkpoint_path\n:\n\n'ckpt-2'",
    'model_checkpoint_path : "ck" \'pt\'\n# between\n"-2"',
    f"{NEWEST};",
    f"{NEWEST}, all_model_checkpoint_paths: 'a'; all_model_checkpoint_paths: 'b'",
    f"{NEWEST} all_model_checkpoint_paths: 'a' last_preserved_timestamp: 2",
    f"{NEWEST}all_model_checkpoint_paths:'a'last_preserved_timestamp:2",
    f"{NEWEST}\nall_model_checkpoint_paths: ['a', 'b' \"c\" , 'd']",
    f"{NEWEST}\nall_model_checkpoint_paths: []",
    f"{NEWEST}\nall_model_checkpoint_timestamps: [1, 2.5f, -3e2F, .5]\n",
    f"{NEWEST}\nall_model_checkpoint_timestamps: 1_0 last_preserved_timestamp: +7.",
    f"{NEWEST}\nall_model_checkpoint_timestamps: [inf, -Infinity, inff, nan, NaNf, -nan]",
    f"{NEWEST}\nmodel_checkpoint_path: 'ckpt-3'\nlast_preserved_timestamp: 1\n"
    "last_preserved_timestamp: 2",
    r'model_checkpoint_path: "ckpt\u002d2\U0001F600\x2d\xa\055\7\n\t\'\"\\\a\v"',
    r'model_checkpoint_path: "\303\244 \xc3\xa4 ä \u00e4 \d \é"',
    r'model_checkpoint_path: "a\u005cnb\\x4"',
]
"""Texts that TensorFlow takes, of all that protobuf's text format allows."""

IGNORED = [
    f"{NEWEST}\nunknown_field: 1",
    f"{NEWEST}\n2: 'a'",
    f"{NEWEST} {{ a: 1 }}",
    "model_checkpoint_path { a: 'ckpt-2' }",
    "model_checkpoint_path: { a: { b: 'ckpt-2' } }",
    f"[some.extension]: 1\n{NEWEST}",
    "model_checkpoint_path: ['ckpt-2']",
    "model_checkpoint_path 'ckpt-2'",
    "model_checkpoint_path: ckpt-2",
    "model_checkpoint_path: 5",
    "model_checkpoint_path:",
    "model_checkpoint_path: 'ckpt\n-2'",
    "model_checkpoint_path: 'ckpt-2\"",
    "model_checkpoint_path: 'ckpt-2\\'",
    f"{NEWEST};;",
    f"; {NEWEST}",
    f"{NEWEST}\nall_model_checkpoint_paths: ['a',]",
    f"{NEWEST}\nall_model_checkpoint_paths: ['a' 'b'",
    f"{NEWEST}\nall_model_checkpoint_paths: [[]]",
    f"{NEWEST}\nall_model_checkpoint_timestamps: 012",
    f"{NEWEST}\nall_model_checkpoint_timestamps: 0x12",
    f"{NEWEST}\nall_model_checkpoint_timestamps: '1'",
    f"{NEWEST}\nall_model_checkpoint_timestamps: - 1",
    f"{NEWEST}\nall_model_checkpoint_timestamps: true",
    r'model_checkpoint_path: "\xg"',
    r'model_checkpoint_path: "\x"',
    r'model_checkpoint_path: "\u12"',
    r'model_checkpoint_path: "\ud800"',
    r'model_checkpoint_path: "\777"',
    r'model_checkpoint_path: "\377"',
    f"\ufeff{NEWEST}",
]
"""Texts that TensorFlow ignores, so that a trainer starts from scratch."""

WITHOUT_NEWEST = [
    ("", StateFileCondition.EMPTY),
    (" \n# a comment", StateFileCondition.EMPTY),
    ("model_checkpoint_path: ''", StateFileCondition.INCOMPLETE),
    (f"{NEWEST} model_checkpoint_path: ''", StateFileCondition.INCOMPLETE),
    ("all_model_checkpoint_paths: 'ckpt-2'", StateFileCondition.INCOMPLETE),
    ("last_preserved_timestamp: 0", StateFileCondition.INCOMPLETE),
]
"""Texts for which TensorFlow raises a ValueError, so that a trainer does not start."""


def condition_of(text: str | bytes) -> StateFileCondition:
    with pytest.raises(StateFileError, match="Restore the file from a copy") as raised:
        parse(text)
    return raised.value.condition


def parse(text: str | bytes) -> StateFile:
    return parse_state_file(text if isinstance(text, bytes) else text.encode(), PATH)


@pytest.mark.parametrize(("text", "condition"), WITHOUT_NEWEST)
def test_without_a_newest_checkpoint(text, condition):
    assert condition_of(text) is condition


@pytest.mark.parametrize("text", IGNORED)
def test_what_is_no_state_file(text):
    assert condition_of(text) is StateFileCondition.DAMAGED


def test_what_is_not_utf_8():
    assert condition_of(b"# \xff\n" + NEWEST.encode()) is StateFileCondition.UNDECODABLE


def test_what_is_written_in_other_ways():
    state = parse(
        "# kept\nmodel_checkpoint_path: 'ck' \"pt\\u002d2\"; all_model_checkpoint_paths: ['a', 'b']"
        "all_model_checkpoint_timestamps\n: [1.5f, 2], last_preserved_timestamp: inf # end"
    )
    assert state == StateFile("ckpt-2", ("a", "b"), (1.5, 2.0), math.inf)


def test_an_error_names_the_line():
    with pytest.raises(StateFileError, match="found 'steps' at line 3; expected a field"):
        parse(f"{NEWEST}\n\nsteps: 5")
    # The token after it is on a later line.
    with pytest.raises(StateFileError, match="found '3' at line 1; expected a text in quotes"):
        parse('model_checkpoint_path: 3\n\n\nall_model_checkpoint_paths: "x"')
    with pytest.raises(StateFileError, match="found 'zz' at line 2; expected a number"):
        parse('model_checkpoint_path: "a"\nlast_preserved_timestamp: zz\n\n# end\n')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"model_checkpoint_path: '{'a' * LONGEST_VALUE}'", "65,536 characters"),
        ("model_checkpoint_path:" + " 'aaaaaaaa'" * (LONGEST_VALUE // 8), "a text in quotes"),
        (f"last_preserved_timestamp: {'1' * (LONGEST_VALUE + 1)}", "65,536 characters"),
        (
            f"all_model_checkpoint_timestamps: [{'1,' * MOST_VALUES}1]",
            "more than 1,048,576 values",
        ),
        ("{" * 100_000, "a field of the message"),
        ("model_checkpoint_path: " + "[" * 100_000, "a text in quotes"),
    ],
    ids=["text", "texts", "number", "list", "depth", "brackets"],
)
def test_what_is_too_large(text, words):
    with pytest.raises(StateFileError, match=words):
        parse(text)


# What follows compares with protobuf itself, whose parser is the one that TensorFlow calls.


def read_by_protobuf(text: str) -> str:
    """Returns what TensorFlow reads, as text; `ignored` if it ignores the file."""
    text_format = pytest.importorskip("google.protobuf.text_format")
    message = state_message()()
    try:
        text_format.Merge(text, message)
    except text_format.ParseError:
        return "ignored"
    if not message.model_checkpoint_path:
        return "without newest"
    return repr((
        message.model_checkpoint_path,
        list(message.all_model_checkpoint_paths),
        list(message.all_model_checkpoint_timestamps),
        message.last_preserved_timestamp or 0.0,
    ))  # fmt: skip


@cache
def state_message() -> Any:
    """Returns TensorFlow's `CheckpointState`, made without TensorFlow."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="state.proto", syntax="proto3")
    message = file.message_type.add(name="CheckpointState")
    field = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind, label) in enumerate([
        ("model_checkpoint_path", field.TYPE_STRING, field.LABEL_OPTIONAL),
        ("all_model_checkpoint_paths", field.TYPE_STRING, field.LABEL_REPEATED),
        ("all_model_checkpoint_timestamps", field.TYPE_DOUBLE, field.LABEL_REPEATED),
        ("last_preserved_timestamp", field.TYPE_DOUBLE, field.LABEL_OPTIONAL),
    ], 1):  # fmt: skip
        message.field.add(name=name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("CheckpointState"))


def read_by_us(text: str) -> str:
    try:
        state = parse(text)
    except StateFileError as error:
        is_ignored = error.condition is StateFileCondition.DAMAGED
        return "ignored" if is_ignored else "without newest"
    return repr((
        state.latest,
        list(state.all_paths),
        list(state.timestamps),
        state.last_preserved or 0.0,
    ))  # fmt: skip


@pytest.mark.parametrize("text", [*READ, *IGNORED, *(text for text, _ in WITHOUT_NEWEST)])
def test_as_protobuf_reads_it(text):
    assert read_by_us(text) == read_by_protobuf(text)
    assert (text in READ) == (read_by_us(text)[0] == "(")


GAPS = st.sampled_from([*[" ", "\n", "\t", " # c'\n", "\xa0"] * 20, "", "\x0b", " # '", "\\\n"])
GOOD = st.sampled_from([
    r"\u002d", r"\u00e9", r"\u005cn", r"\U0001F600", r"\x2", r"\xc3\xa9", r"\055", r"\7", r"\n",
    r"\\", r"\'", r"\"", r"\?", r"\d", "ü", r"\ü", "4", "x2", "ckpt-1", "a", "/", " ", ";", "#",
])  # fmt: skip
BAD = st.sampled_from([r"\u005c", r"\ud83d", r"\400", r"\377", r"\x", r"\u1", "\\", "\n", "'"])
CONTENT = st.lists(st.sampled_from([GOOD] * 19 + [BAD]).flatmap(lambda of: of), max_size=4)
QUOTES = st.sampled_from("'\"")
TEXTS = st.builds(lambda quote, parts: quote + "".join(parts) + quote, QUOTES, CONTENT)
NUMBERS = st.floats().map(repr) | st.sampled_from([
    "1", "-1.5", "1.5f", "+.5", "5.", "1e400", "1e-3F", "0", "-0", "inf", "-inff", "Infinity",
    "nan", "nanf", "1_0", "1ff", "\u0663", "010", "0x1F", "1__0", "--1", "true",
])  # fmt: skip
NAMES = st.sampled_from([
    "model_checkpoint_path", "all_model_checkpoint_paths", "all_model_checkpoint_timestamps",
    "last_preserved_timestamp",
])  # fmt: skip
ODD_NAMES = st.sampled_from(
    ["Model_checkpoint_path", "step", "1", "[a.b]", "model_checkpoint_path-"]
)
MARKS = st.sampled_from([":", ";", ",", "[", "]", "{", "}", "<", ">", "'", '"', "\\", "#", "\0"])


@st.composite
def values(draw: st.DrawFn, name: str) -> list[str]:
    """The tokens of the value of a field, nearly always of its own kind."""
    kind = NUMBERS if name.endswith(("stamp", "stamps")) else TEXTS
    if name.startswith("all") and draw(st.booleans()):
        listed = draw(st.lists(kind, max_size=4))
        return ["[", *[token for value in listed for token in (value, ",")][:-1], "]"]
    return draw(st.lists(kind, min_size=1, max_size=1 if kind is NUMBERS else 3))


@st.composite
def state_texts(draw: st.DrawFn) -> str:
    """Texts of which about half are state files, with anything between their tokens."""
    tokens = []
    names = draw(st.lists(NAMES, max_size=3)) + ["model_checkpoint_path"] * draw(st.integers(0, 1))
    for name in draw(st.permutations(names)):
        separators = draw(st.sampled_from([[], [], [";"], [","]]))
        tokens += [name, ":", *draw(values(name)), *separators]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1]))):
        place = draw(st.integers(0, len(tokens)))
        odd = draw(MARKS | ODD_NAMES | TEXTS | NUMBERS)
        tokens[place : place + draw(st.integers(0, 1))] = [odd]
    return "".join(token + draw(GAPS) for token in tokens)


@tries(1000)
@given(text=state_texts())
def test_any_text_as_protobuf_reads_it(text):
    assert read_by_us(text) == read_by_protobuf(text)


@pytest.mark.tensorflow
def test_tensorflow_finds_the_same_newest(tmp_path):
    import tensorflow as tf

    def told() -> str:
        try:
            state = tf.train.get_checkpoint_state(str(tmp_path))
        except ValueError as error:
            return type(error).__name__
        return "ignored" if state is None else state.model_checkpoint_path

    expected = dict.fromkeys(IGNORED, "ignored")
    expected |= {text: "ValueError" for text, _ in WITHOUT_NEWEST}
    expected |= {text: str(tmp_path / str(parse(text).latest)) for text in READ}
    for text, outcome in expected.items():
        (tmp_path / "checkpoint").write_text(text, newline="")
        assert told() == outcome, text
    (tmp_path / "checkpoint").write_bytes(b"# \xff\n" + NEWEST.encode())
    assert told() == "UnicodeDecodeError"
