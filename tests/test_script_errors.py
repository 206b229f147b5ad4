"""An error of a training script is told in one line, which begins with the line of the script."""

from __future__ import annotations

import sysconfig

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.scripts.script_errors import (
    LONGEST_MESSAGE,
    describe_script_error,
    find_crash_line,
    find_script_error,
    split_message,
)

PACKAGES = sysconfig.get_path("purelib")
PYTHON = sysconfig.get_path("stdlib")

IN_A_GRAPH = f"""Graph execution error:

Detected at node assert_less/Assert/AssertGuard/Assert defined at (most recent call last):
  File "{PYTHON}/threading.py", line 1002, in _bootstrap

  File "/home/me/train.py", line 40, in <module>

  File "/home/me/train.py", line 17, in step

  File "{PACKAGES}/keras/src/layers/layer.py", line 3, in __call__

%s
\t [[{{{{node assert_less/Assert/AssertGuard/Assert}}}}]] [Op:__inference__distributed_448]"""

SEVERAL = f"""Graph execution error:

Detected at node 'Gather' defined at (most recent call last):
  File "/home/me/train.py", line 17, in step

  File "{PACKAGES}/tensorflow/python/ops.py", line 3, in gather

Detected at node 'Gather' defined at (most recent call last):
  File "/home/me/other.py", line 99, in step

2 root error(s) found.
  (0) INVALID_ARGUMENT:  indices[0] = 9 is not in [0, 4)
\t [[{{{{node Gather}}}}]]
\t [[while/_12]]
  (1) INVALID_ARGUMENT:  indices[0] = 9 is not in [0, 4)
\t [[{{{{node Gather}}}}]]
0 successful operations.
0 derived errors ignored. [Op:__inference_f_12]"""

WHILE_TRACING = f"""in user code:

    File "/home/me/train.py", line 19, in step  *
        logits = model(x)
    File "{PACKAGES}/keras/src/utils/traceback_utils.py", line 122, in error_handler  **
        raise e.with_traceback(filtered_tb) from None

    ValueError: Exception encountered when calling Sequential.call().

    \x1b[1mInvalid input shape. Expected shape (None, 8), but found (8,)\x1b[0m

    Arguments received by Sequential.call():
      • inputs=tf.Tensor(shape=(8,), dtype=float32)
      • training=None
"""

IN_A_DATASET = f"""{{{{function_node __wrapped__IteratorGetNext_device_/CPU:0}}}} KeyError: 'b'
Traceback (most recent call last):

  File "{PACKAGES}/tensorflow/python/ops/script_ops.py", line 269, in __call__
    ret = func(*args)
          ^^^^^^^^^^^

  File "/home/me/data.py", line 4, in lines
    yield words['b']
          ~~~~~^^^^^

KeyError: 'b'


\t [[{{{{node PyFunc}}}}]] [Op:IteratorGetNext] name: """


class InvalidArgumentError(Exception):
    """Named as TensorFlow's."""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            InvalidArgumentError(IN_A_GRAPH % "assertion failed: [too large] [x:] [10]"),
            "/home/me/train.py:17: InvalidArgumentError: assertion failed: [too large] [x:] [10]",
        ),
        (
            InvalidArgumentError(SEVERAL),
            "/home/me/train.py:17: InvalidArgumentError: indices[0] = 9 is not in [0, 4)",
        ),
        (
            ValueError(WHILE_TRACING),
            "/home/me/train.py:19: ValueError: Exception encountered when calling "
            "Sequential.call(). Invalid input shape. Expected shape (None, 8), but found (8,)",
        ),
        (
            InvalidArgumentError(IN_A_DATASET),
            "/home/me/data.py:4: InvalidArgumentError: KeyError: 'b'",
        ),
        (KeyError("learning rate"), "KeyError: 'learning rate'"),
        (ValueError(), "ValueError"),
        (ValueError("two\nlines\n"), "ValueError: two lines"),
    ],
    ids=["graph", "several nodes", "tracing", "py_function", "no message", "empty", "lines"],
)
def test_the_line_of_the_script_comes_first_and_then_the_message(error, told):
    assert str(describe_script_error(error)) == told


def raised(act):
    try:
        act()
    except Exception as error:
        return describe_script_error(error)
    raise AssertionError("nothing was raised")


def test_of_a_stack_in_python_the_innermost_line_of_the_script_counts(monkeypatch, tmp_path):
    def fail():
        return int("seven")

    error = raised(fail)
    assert error.line.source == 'return int("seven")'
    assert error.line.file == __file__
    assert error.message == "ValueError: invalid literal for int() with base 10: 'seven'"

    import fractions

    error = raised(lambda: fractions.Fraction("x"))
    assert error.line.source == 'error = raised(lambda: fractions.Fraction("x"))'
    monkeypatch.chdir(tmp_path)
    assert str(error.line).startswith("/")
    monkeypatch.chdir(sysconfig.os.path.dirname(__file__))
    assert str(error).startswith("test_script_errors.py:")


IN_PYTHON = f"""Traceback (most recent call last):
  File "/home/me/train.py", line 5, in <module>
    main()
  File "/home/me/train.py", line 3, in main
    json.loads("x")
    ~~~~~~~~~~^^^^^
  File "{PYTHON}/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
%s: Expecting value: line 1"""


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (
            IN_PYTHON % "json.decoder.JSONDecodeError",
            "/home/me/train.py:3: JSONDecodeError: Expecting value: line 1",
        ),
        (
            "starts\n" + IN_PYTHON % "ValueError" + "\nI0000 an unrelated line\n",
            "/home/me/train.py:3: ValueError: Expecting value: line 1",
        ),
        (
            IN_PYTHON % "KeyError" + "\nDuring handling of it\n" + IN_PYTHON % "ValueError",
            "/home/me/train.py:3: ValueError: Expecting value: line 1",
        ),
        (
            (IN_PYTHON % "tensorflow.python.errors.InvalidArgumentError").rpartition(" Exp")[0]
            + " "
            + (IN_A_GRAPH % "assertion failed").expandtabs(),
            "/home/me/train.py:17: InvalidArgumentError: assertion failed",
        ),
        ("step 1\nstep 2", None),
        ("Traceback (most recent call last):", None),
        ("Traceback (most recent call last):\n  File", None),
    ],
)
def test_the_last_traceback_of_a_log_is_described_alike(log, told):
    error = find_script_error(log.splitlines())
    assert (None if error is None else str(error)) == told


@given(st.lists(st.sampled_from([*IN_PYTHON.splitlines(), *SEVERAL.splitlines()]) | st.text()))
def test_no_log_makes_it_fail(lines):
    find_script_error(lines)


class HostileError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_an_error_that_cannot_describe_itself_is_named():
    assert describe_script_error(HostileError()).message == "HostileError"


def test_a_long_message_is_cut():
    message = describe_script_error(ValueError("x" * 10_000)).message
    assert len(message) <= LONGEST_MESSAGE + len("ValueError: …")


@given(st.text(max_size=300))
def test_splitting_never_fails_and_leaves_words(text):
    lines, message = split_message(text)
    assert "\n" not in message
    assert bool(message) == bool(text.split())
    assert isinstance(lines, list)


WORDS = st.text("abcXYZ019.,:;()[]{}<>=+-*/'\"ö…", min_size=1, max_size=12)
MESSAGES = st.lists(st.lists(WORDS, min_size=1, max_size=5).map(" ".join), max_size=5)


@given(MESSAGES, st.sampled_from([IN_A_GRAPH, 'in user code:\n\n    File "/a.py", line 3\n\n%s']))
def test_no_word_of_a_message_is_lost(lines, frame):
    _, message = split_message(frame.replace("%s", "\n".join(lines)))
    for word in " ".join(lines).split():
        assert word in message


def test_the_line_of_a_crash_is_that_of_the_thread_that_crashed() -> None:
    log = f"""Fatal Python error: Segmentation fault

Thread 0x00007f (most recent call first):
  File "/home/me/reader.py", line 8 in read

Current thread 0x00007e (most recent call first):
  File "{PYTHON}/ctypes/__init__.py", line 519 in string_at
  File "/home/me/train.py", line 4 in peek
  File "/home/me/train.py", line 6 in <module>

Extension modules: numpy"""
    line = find_crash_line(log.splitlines())
    assert line is not None
    assert (str(line), line.function) == ("/home/me/train.py:4", "peek")
    assert find_crash_line(["Current thread 0x1:", "  <no Python frame>"]) is None
    assert find_crash_line([]) is None
