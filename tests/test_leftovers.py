"""A test that leaves something behind fails, and is told what; one that does not passes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from real_file_systems import small_tmpfs

pytestmark = pytest.mark.e2e

CONFTEST = """
import waiting

pytest_plugins = ("leftovers",)
# Nothing that these tests leave ends by itself.
waiting.LEAST_SECONDS = 0.1
"""

START = """
import locale, os, signal, subprocess, sys, threading, time
import pytest

kept = []

@pytest.fixture(scope="module")
def shared():
    with open("/dev/zero"), subprocess.Popen(["sleep", "600"]) as process:
        yield
        process.kill()

def test_of_what_ends(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("GREETING", "hello")
    monkeypatch.chdir(tmp_path)
    subprocess.run(["true"], check=True)
    kept.append(threading.Thread(target=time.sleep, args=(0.02,)))
    kept[-1].start()

def test_of_a_shared_fixture(request, monkeypatch):
    monkeypatch.setenv("GREETING", "hello")
    request.getfixturevalue("shared")
"""

LEAKS = {
    "thread lasts": "threading.Thread(target=time.sleep, args=(60,), name='lasts', daemon=True)"
    ".start()",
    "process N: sleep 600": "kept.append(subprocess.Popen(['sleep', '600']))",
    "process N: sleep 601": "subprocess.run(['sh', '-c', 'setsid sleep 601 & :'])",
    "process N: a zombie": "kept.append(subprocess.Popen(['true'])); "
    "os.waitid(os.P_PID, kept[-1].pid, os.WEXITED | os.WNOWAIT)",
    "descriptor N: /dev/null": "kept.append(open('/dev/null'))",
    "handler of signal SIGUSR2: <built-in function print>": "signal.signal(signal.SIGUSR2, print)",
    "environment variable GREETING: 'hello', was None": "os.environ['GREETING'] = 'hello'",
    "environment variable GREETING: None, was 'hello'": "del os.environ['GREETING']",
    "time zone: ('ABC', 'ABC')": "os.environ['TZ'] = 'ABC+1'; time.tzset(); del os.environ['TZ']",
    "working directory: '/'": "os.chdir('/')",
    "umask: '0o27'": "os.umask(0o027)",
    "locale: 'C'": "locale.setlocale(locale.LC_ALL, 'C')",
    "sys.excepthook: <built-in function print>": "sys.excepthook = print",
    "threading.excepthook: <built-in function print>": "threading.excepthook = print",
}


def said_of(directory: Path, *bodies: str) -> list[str]:
    """Runs tests with these bodies after those that leave nothing; returns what each is told."""
    (directory / "conftest.py").write_text(CONFTEST)
    tests = (f"\ndef test_{n}(tmp_path):\n    {body}\n" for n, body in enumerate(bodies))
    (directory / "test_leaks.py").write_text(START + "".join(tests))
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--basetemp", directory / "temp"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", directory, directory],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert f"{len(bodies) + 2} passed, {len(bodies)} error" in done.stdout, done.stdout
    return re.findall(r"leaves behind:\n  (.*)\n[_=]", done.stdout)


def test_each_kind_of_leftover_is_named(tmp_path: Path) -> None:
    told = said_of(tmp_path, *LEAKS.values())
    assert len(told) == len(LEAKS)
    for expected, found in zip(LEAKS, told, strict=True):
        assert re.sub(r"(process|descriptor) \d+", r"\1 N", found).startswith(expected)


def test_a_mount_is_named(tmp_path: Path) -> None:
    place = tmp_path / "temp" / "test_00"
    with small_tmpfs(tmp_path / "disk") as disk:
        bind = f"subprocess.run(['mount', '--bind', '{disk}', tmp_path], check=True)"
        try:
            assert said_of(tmp_path, bind) == [f"mount {place}"]
        finally:
            subprocess.run(["umount", place], check=True)
