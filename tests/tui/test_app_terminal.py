"""The app in a real pseudo-terminal: what reaches it, and how it is left."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
import traceback
from pathlib import Path

import psutil
import pyte
import pytest
from faster_textual import make_textual_usual
from rich.segment import Segment
from rundir_factory import RunFactory, two_branches
from test_app_hostile import HOSTILE, poison
from textual.color import Color

import tfckpt_tui
from requirements import needs
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.app import base_app
from tfckpt_tui.app.terminal import driver
from tfckpt_tui.app.terminal.driver import TerminalWriter
from tfckpt_tui.app.terminal.plain_text import PlainTextFilter
from waiting import LEAST_SECONDS, wait_until

pytestmark = pytest.mark.e2e

_OPEN = (
    "import sys; from pathlib import Path; from tfckpt_tui.app.app import main; "
    "from tfckpt_trainer.rundir.paths import RunDirectory; "
    "sys.exit(main(RunDirectory(Path(sys.argv[1]))))"
)
_SHELL = (
    "import os; os.environ['PS1'] = 'ready> '; os.execvp('bash', ['bash', '--norc', '--noprofile'])"
)
LEAVES = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?1003l", b"\x1b[?2004l")


def _run_here(code: str) -> int:
    """Runs a program in this process, which was forked, and returns its exit status."""
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    make_textual_usual()
    try:
        exec(code, {"__name__": "__main__"})
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


class Terminal:
    """A process in a pseudo-terminal, and the screen it draws."""

    def __init__(
        self,
        *arguments: str,
        width: int = 100,
        height: int = 30,
        code: str = _OPEN,
        starts_python: bool = False,
    ) -> None:
        """Starts it.

        Args:
            arguments: Those of the program.
            width: That of the terminal.
            height: That of the terminal.
            code: The program.
            starts_python: Whether Python starts for it, and ends. Otherwise the process has what
                this one has imported, except TensorFlow, whose threads do not survive a fork.
        """
        self.raw = b""
        self._screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self._screen)
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
            if not (starts_python or "tensorflow" in sys.modules):
                sys.argv = ["-c", *arguments]
                os._exit(_run_here(code))
            # Not `execv`: the readline library of pytest sets the size of its own terminal behind
            # Python's back, and that would count for more than the size of this one.
            own = dict(os.environ)
            os.execve(sys.executable, [sys.executable, "-c", code, *arguments], own)

    @property
    def text(self) -> str:
        return "\n".join(self._screen.display)

    @property
    def cells(self) -> list[tuple[object, ...]]:
        """What it shows; the colour of the text only where there is some."""
        rows = [self._screen.buffer[y] for y in range(self._screen.lines)]
        return [
            (cell.data, cell.bg, *(() if cell.data == " " else (cell.fg, cell.bold)))
            for row in rows
            for cell in (row[x] for x in range(self._screen.columns))
        ]

    def lose_all(self) -> None:
        """Clears the screen, unnoticed by the process."""
        self._screen.erase_in_display(2)

    @property
    def fileno(self) -> int:
        """The file descriptor of the person's side."""
        return self._fd

    def resize(self, width: int, height: int) -> None:
        self._screen.resize(height, width)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def read(self, seconds: float) -> bool:
        """Reads for a while; False once the process has closed its end."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if select.select([self._fd], [], [], 0.05)[0]:
                try:
                    data = os.read(self._fd, 1 << 16)
                except OSError:
                    return False
                if not data:
                    return False
                self.raw += data
                # A question to the terminal that the emulator takes for text.
                self._stream.feed(data.replace(b"\x1b[?2026$p", b""))
        return True

    def wait_for(self, text: str, timeout: float = LEAST_SECONDS) -> None:
        deadline = time.monotonic() + timeout
        while text not in self.text:
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.text}"
            assert self.read(0.1), f"ended without {text!r}:\n{self.text}"

    def wait_until_gone(self, text: str, timeout: float = LEAST_SECONDS) -> None:
        deadline = time.monotonic() + timeout
        while text in self.text:
            assert time.monotonic() < deadline, f"still {text!r} in:\n{self.text}"
            assert self.read(0.1), f"ended with {text!r}:\n{self.text}"

    def close(self) -> None:
        """Closes the terminal, as a window or an SSH connection closes."""
        os.close(self._fd)

    def status(self, timeout: float = LEAST_SECONDS) -> int:
        """Waits until the process has ended, without reading what it writes."""
        deadline = time.monotonic() + timeout
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                pytest.fail("it did not end")
            time.sleep(0.02)

    def end(self, timeout: float = LEAST_SECONDS) -> int:
        """Waits until the process has ended; returns its exit status."""
        deadline = time.monotonic() + timeout
        while self.read(0.1):
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                pytest.fail(f"it did not end:\n{self.text}")
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    return two_branches(tmp_path / "run", live=True)


@pytest.mark.matrix
@pytest.mark.parametrize("no_color", ["", "1"])
def test_q_leaves_the_terminal_as_it_was_and_without_colours_there_are_none(
    made: RunFactory, monkeypatch: pytest.MonkeyPatch, no_color: str
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    terminal = Terminal(str(made.run.root), starts_python=True)
    terminal.wait_for("ckpt-b1-400")
    terminal.wait_for("q detach")
    terminal.press("q")
    assert terminal.end() == 0
    for sequence in LEAVES:
        assert sequence in terminal.raw
    coloured = re.search(rb"\x1b\[[0-9;]*38;2;(\d+);(\d+);(\d+)", terminal.raw)
    if no_color:
        shades = re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)", terminal.raw)
        assert all(red == green == blue for red, green, blue in shades)
    else:
        assert coloured


@pytest.mark.parametrize("number", base_app._SIGNALS)
def test_a_signal_leaves_the_terminal_as_it_was(made: RunFactory, number: signal.Signals) -> None:
    terminal = Terminal(str(made.run.root))
    terminal.wait_for("ckpt-b1-400")
    os.kill(terminal.pid, number)
    assert terminal.end() == 128 + number
    for sequence in LEAVES:
        assert sequence in terminal.raw


def test_the_terminal_notifies_where_the_bell_rings(
    made: RunFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config" / "tfckpt-tui" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[app]\nnotify = 'osc777'\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TMUX", raising=False)
    terminal = Terminal(str(made.run.root))
    terminal.wait_for("ckpt-b1-400")
    made.event_log(EventKind.WORKER_LOST, "Worker 1; is \x1b[2J gone.", -5)
    terminal.wait_for("gone.")
    wait_until(lambda: terminal.read(0.05) and b"777;notify" in terminal.raw, 10, "notification")
    told = "tfckpt-tui;run: Worker 1, is ␛[2J gone."
    assert f"\x07\x1b]777;notify;{told}\x1b\\".encode() in terminal.raw
    terminal.press("q")
    assert terminal.end() == 0


def test_no_escape_of_the_data_reaches_the_terminal(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", live=True)
    poison("".join(HOSTILE[:3]), made)
    terminal = Terminal(str(made.run.root), width=180, height=50)
    terminal.wait_for("ckpt-b1-400")
    shown = {"r": "which checkpoint?", "p": "keep last", "l": "esc back", "u": "undo a prune"}
    for key, words in shown.items():
        terminal.press(key)
        terminal.wait_for(words)
        terminal.press("\x1b")
        terminal.wait_until_gone(words)
    terminal.press("q")
    assert terminal.end() == 0
    for sequence in (b"\x1b]52", b"\x1b]2;", b"\x1b[2J", b"\x9b31m", b"\xc2\x9b", b"\xc2\x90"):
        assert sequence not in terminal.raw


def test_an_idle_run_costs_nothing_on_the_wire(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", now=time.time() - 7 * 86400)
    terminal = Terminal(str(made.run.root))
    terminal.wait_for("ckpt-b1-400")
    # Free disk space is on the screen, and somebody else may fill the disk meanwhile.
    assert any(_is_silent(terminal, 2.0) for _ in range(8))
    terminal.press("q")
    assert terminal.end() == 0


def _is_silent(terminal: Terminal, seconds: float) -> bool:
    """Whether nothing reaches the terminal for a while."""
    count = len(terminal.raw)
    terminal.read(seconds)
    return len(terminal.raw) == count


def test_a_crash_leaves_the_run_alone_tells_what_to_report_and_opens_again(
    made: RunFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    defect = (
        "from tfckpt_tui.app.widgets.checkpoints.history import History\n"
        "def fail(self):\n    secret = 'a password'\n    raise KeyError('\\x1b[2J[/x]')\n"
        "History.toggle_mark = fail\n"
    )
    before = sorted(made.run.root.rglob("*"))
    terminal = Terminal(str(made.run.root), code=defect + _OPEN)
    terminal.wait_for("ckpt-b1-400")
    terminal.press(" ")
    terminal.wait_for("The app failed. Training continues")
    terminal.wait_for("KeyError")
    (report,) = (tmp_path / "state" / "tfckpt-tui").glob("crash-*.txt")
    assert "in fail" in report.read_text()
    assert "a password" not in report.read_text()
    terminal.press("r")
    # Until then, the screen has what was on it before: the checkpoints, and the report.
    terminal.wait_until_gone("The app failed.")
    terminal.wait_for("ckpt-b1-400")
    terminal.press(" ")
    terminal.wait_for("The app failed.")
    terminal.press("q")
    assert terminal.end() == 1
    assert b"a password" not in terminal.raw
    assert sorted(made.run.root.rglob("*")) == before
    for sequence in LEAVES:
        assert sequence in terminal.raw


def test_a_resize_is_followed_at_once(made: RunFactory) -> None:
    terminal = Terminal(str(made.run.root), width=120, height=40)
    terminal.wait_for("throughput")
    terminal.resize(40, 8)
    terminal.wait_for("This terminal is 40×8.")
    terminal.resize(80, 24)
    terminal.wait_for("ckpt-b1-400")
    terminal.wait_for("q detach")
    terminal.press("q")
    assert terminal.end() == 0


@pytest.mark.matrix
def test_changes_leave_what_a_whole_frame_shows(tmp_path: Path) -> None:
    """Opens pages over each other; after a resize, even to the same size, all is drawn anew."""
    made = two_branches(tmp_path / "run", now=time.time() - 7 * 86400)
    made.run.worker_log(0).write_text("步骤 5 損失 2.5\nstep 6 e\u0301t loss 2.4\n" * 20)
    terminal = Terminal(str(made.run.root))
    terminal.wait_for("ckpt-b1-400")
    pages = {"l": "損失", "?": "Keys of the logs", "qq": "ckpt-b1-400", "p": "keep last"}
    for keys, words in pages.items():
        terminal.press(keys)
        terminal.wait_for(words)
        assert any(_is_silent(terminal, 1.0) for _ in range(20))
        changed = terminal.cells
        terminal.lose_all()
        os.kill(terminal.pid, signal.SIGWINCH)
        wait_until(
            lambda left=changed: terminal.read(0.1) and terminal.cells == left,
            LEAST_SECONDS,
            f"the same frame after {keys}",
        )
    terminal.press("\x1b")
    terminal.wait_until_gone("keep last")
    terminal.press("q")
    assert terminal.end() == 0


@needs("bash")
def test_it_can_be_suspended_is_drawn_again_and_goes_on(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", now=time.time() - 7 * 86400)
    script = tmp_path / "open.py"
    script.write_text(_OPEN)
    terminal = Terminal(code=_SHELL, starts_python=True)
    terminal.wait_for("ready>")
    terminal.press(f"{sys.executable} {script} {made.run.root}\n")
    terminal.wait_for("ckpt-b1-400")
    terminal.press("\x1a")
    terminal.wait_for("Stopped")
    before = len(terminal.raw)
    terminal.press("fg\n")
    wait_for_frame(terminal, before)
    terminal.wait_for("q detach")
    terminal.press("?")
    terminal.wait_for("Keys of the dashboard")
    terminal.press("q")
    terminal.wait_until_gone("Keys of the dashboard")
    terminal.press("q")
    terminal.wait_for("ready>")
    terminal.press("exit\n")
    assert terminal.end() == 0


def wait_for_frame(terminal: Terminal, start: int) -> None:
    """Waits until the checkpoints are drawn after so many bytes."""

    def is_drawn() -> bool:
        terminal.read(0.1)
        return b"ckpt-b1-400" in terminal.raw[start:]

    wait_until(is_drawn, LEAST_SECONDS, "a new frame")


@needs("bash")
def test_a_signal_to_continue_leaves_the_terminal_as_it_was(
    made: RunFactory, tmp_path: Path
) -> None:
    names = tmp_path / "threads"
    tell = (
        "import signal, threading, traceback; from pathlib import Path\n"
        "def tell(_, frame):\n"
        "    names = [thread.name for thread in threading.enumerate()]\n"
        "    names += [one.f_code.co_name for one, _ in traceback.walk_stack(frame)]\n"
        "    Path(sys.argv[2]).write_text(' '.join(names))\n"
        # Python handles a signal with a lower number first: that to continue.
        "signal.signal(signal.SIGRTMIN, tell)\n"
    )
    script = tmp_path / "open.py"
    script.write_text("import sys\n" + tell + _OPEN)
    terminal = Terminal(code=_SHELL, starts_python=True)
    terminal.wait_for("ready>")
    before = termios.tcgetattr(terminal.fileno)
    terminal.press(f"{sys.executable} {script} {made.run.root} {names}\n")
    terminal.wait_for("q detach")
    (app,) = psutil.Process(terminal.pid).children()
    for _ in range(3):
        count = len(terminal.raw)
        # The handler of one may still be at work when the next one arrives.
        for _ in range(5):
            app.send_signal(signal.SIGCONT)
            terminal.read(0.02)
        wait_for_frame(terminal, count)

    def one_thread_reads_keys() -> bool:
        names.unlink(missing_ok=True)
        app.send_signal(signal.SIGRTMIN)
        wait_until(lambda: terminal.read(0.1) and names.exists() and names.read_text(), 60, "names")
        told = names.read_text().split()
        return "_sigcont_application" not in told and told.count("textual-input") == 1

    # While the handler of the last one is at work, keys are dropped.
    wait_until(one_thread_reads_keys, 60, "one thread that reads keys")
    terminal.press("q")
    terminal.wait_for("ready>")
    assert termios.tcgetattr(terminal.fileno) == before
    terminal.press("exit\n")
    assert terminal.end() == 0


def test_a_closed_terminal_ends_it_even_if_no_signal_says_so(made: RunFactory) -> None:
    deaf = (
        "import signal; from tfckpt_tui.app import base_app\n"
        "base_app._SIGNALS = (signal.SIGTERM,); signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    )
    terminal = Terminal(str(made.run.root), code=deaf + _OPEN, starts_python=True)
    terminal.wait_for("ckpt-b1-400")
    terminal.close()
    assert terminal.status() == 128 + signal.SIGHUP


def test_a_signal_ends_it_in_a_terminal_that_stopped(made: RunFactory, tmp_path: Path) -> None:
    told = tmp_path / "stopped"
    tell = (
        "import sys; from pathlib import Path; from tfckpt_tui.app.terminal import driver\n"
        "writer = driver.TerminalWriter; has_room = writer._has_room\n"
        "driver._MOST_QUEUED, driver._STALLED_SECONDS = 1, 0.1\n"
        "def tell(writer):\n"
        "    has = has_room(writer)\n"
        "    has or Path(sys.argv[2]).touch()\n"
        "    return has\n"
        "writer._has_room = tell\n"
    )
    code = tell + _OPEN
    terminal = Terminal(str(made.run.root), str(told), code=code, starts_python=True)
    terminal.wait_for("q detach")

    def has_stopped() -> bool:
        terminal.press("\t")
        return told.exists()

    # Nobody reads the frames of these keys.
    wait_until(has_stopped, LEAST_SECONDS, "a frame that the terminal does not take")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.status() == 128 + signal.SIGTERM
    terminal.close()


def test_a_stopped_terminal_delays_nobody_and_is_drawn_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "_STALLED_SECONDS", 0.05)
    resumed = threading.Event()
    reader, end = os.pipe()
    writer = TerminalWriter(end, resumed.set)
    writer.start()
    for _ in range(200):
        writer.write("x" * 8192)
    assert not resumed.is_set()

    def resumed_when_read() -> bool:
        while select.select([reader], [], [], 0)[0]:
            os.read(reader, 1 << 16)
        return resumed.is_set()

    wait_until(resumed_when_read, LEAST_SECONDS, "a terminal that goes on")
    writer.write("drawn again")
    writer.stop()
    assert os.read(reader, 1 << 20).endswith(b"drawn again")
    os.close(reader)
    os.close(end)


def test_it_ends_at_once_whatever_its_threads_are_doing(made: RunFactory) -> None:
    hung = (
        "import time; from tfckpt_tui.monitor.snapshot_reader import SnapshotReader\n"
        "SnapshotReader.read = lambda *_, **more: time.sleep(3600)\n"
    )
    terminal = Terminal(str(made.run.root), code=hung + _OPEN, starts_python=True)
    terminal.wait_for("reading the run directory")
    terminal.wait_for("the disk has not answered")
    terminal.press("q")
    assert terminal.end() == 0


def test_a_terminal_of_sixteen_colours_gets_no_others(
    made: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os; os.environ['TERM'] = 'xterm-16color'; del os.environ['COLORTERM']\n"
    terminal = Terminal(str(made.run.root), code=code + _OPEN)
    terminal.wait_for("ckpt-b1-400")
    terminal.press("q")
    assert terminal.end() == 0
    assert not re.search(rb"\x1b\[[0-9;]*[34]8;[25];", terminal.raw)
    assert re.search(rb"\x1b\[[0-9;]*(3|9)[0-7]", terminal.raw)


def test_a_plain_terminal_has_a_character_for_each_glyph_of_the_app() -> None:
    sources = Path(tfckpt_tui.__file__).parent.glob("*/**/*.py")
    used = {c for path in sources for c in path.read_text() if not c.isascii()}
    shown = "".join(sorted(used))
    (line,) = PlainTextFilter(has_blocks=False).apply([Segment(shown)], Color(0, 0, 0))
    assert [c for c in line.text if not c.isascii()] == []
    assert len(line.text) == len(shown)


@pytest.mark.parametrize(
    ("terminal_type", "allowed"), [("linux", "─│┤├┼┴┬└┘┌┐█▄▀▌▐·"), ("vt100", "")]
)
def test_a_plain_terminal_gets_its_glyphs_and_eight_colours(
    made: RunFactory, terminal_type: str, allowed: str
) -> None:
    code = f"import os; os.environ['TERM'] = {terminal_type!r}; del os.environ['COLORTERM']\n"
    terminal = Terminal(str(made.run.root), code=code + _OPEN, width=120, height=40)
    terminal.wait_for("ckpt-b1-400")
    terminal.wait_for("throughput")
    bar = next(row for row in terminal.text.splitlines() if "of 5,000" in row)
    assert re.search("=+-+" if terminal_type == "vt100" else "─+", bar), "what is done differs"
    for key, words in {"?": "Keys of the dashboard", "r": "which checkpoint?"}.items():
        terminal.press(key)
        terminal.wait_for(words)
        terminal.press("\x1b")
        terminal.wait_until_gone(words)
    terminal.press("q")
    assert terminal.end() == 0
    others = {one for one in terminal.raw.decode() if ord(one) > 126} - set(allowed)
    assert others == set()
    assert not re.search(rb"\x1b\[[0-9;]*[34]8;[25];", terminal.raw)
    assert not re.search(rb"\x1b\[(?:[0-9;]*;)?(?:9[0-7]|10[0-7])[;m]", terminal.raw)
    assert re.search(rb"\x1b\[(?:[0-9;]*;)?3[1-7][;m]", terminal.raw)
