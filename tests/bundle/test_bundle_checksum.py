"""Checksums of data in pieces."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundle_writing import write_floats
from tfckpt_trainer.bundle.checksum import combine, crc32c
from waiting import MOST_SECONDS


@given(first=st.binary(max_size=300), second=st.binary(max_size=5000))
def test_checksums_of_two_pieces_make_that_of_both(first, second):
    assert combine(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)
    assert combine(0, crc32c(second), len(second)) == crc32c(second)


WITHOUT_EXTENSION = """
import sys
sys.modules["google_crc32c.cext"] = None
from tfckpt_tui.cli.main import run
from tfckpt_tui import open_run
launch = "launch --detach -- true"
for command in ("ls", "status", "runs", "prune --keep-last 1", launch, "verify --json"):
    name, *options = command.split()
    print(run([name, sys.argv[1], *options]))
print(run(["journal", sys.argv[1]]), run(["ls", "--help"]))
try:
    open_run(sys.argv[1])
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.e2e
def test_without_the_c_extension_no_checkpoint_is_judged(tmp_path):
    write_floats(tmp_path / "ckpt-1", [1.0])
    command = [sys.executable, "-c", WITHOUT_EXTENSION, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=MOST_SECONDS)
    assert "corrupt" not in said.stdout
    assert said.stdout.startswith("1\n1\n1\n1\n1\n{")
    assert said.stdout.endswith("0 0\nMissingExtensionError\n")
    install = "pip install --force-reinstall --no-cache-dir google-crc32c"
    assert [install in line for line in said.stderr.splitlines()] == [True] * 6
