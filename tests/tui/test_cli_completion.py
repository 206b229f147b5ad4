"""What shells complete: names of checkpoints and tensors, and run directories."""

from __future__ import annotations

import os
import pty
import select
import subprocess
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from bundle_writing import array, write, write_floats
from command_running import BINARY, complete_in_bash, run_binary
from requirements import needs
from tfckpt_tui.cli.completion import VARIABLE
from tfckpt_tui.cli.completion.checkpoint_names import MOST_OFFERED, names_in, offered
from tfckpt_tui.cli.completion.tensor_names import offered_paths
from tfckpt_tui.cli.main import _complete
from tfckpt_tui.services.runs.recent_runs import remember_run
from waiting import MOST_SECONDS


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    for name in ("ckpt-9", "ckpt-10", "ckpt-b1-20", "my model 3", "odd\x1b"):
        write_floats(tmp_path / "run" / name, (1.0,))
    return tmp_path / "run"


def asked(words: list[str], shell: str = "bash", directory: Path | None = None) -> list[str]:
    """What a shell is told; the last word is the incomplete one."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(TextIOWrapper(BytesIO())) as said:
        patch.setenv(VARIABLE, f"{shell}_complete")
        patch.setenv("COMP_WORDS", "\n".join(["tfckpt-tui", *words]))
        patch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words)))
        patch.chdir(directory or Path.cwd())
        assert _complete() == 0
    said.seek(0)
    return said.read().strip("\n").splitlines()


NAMES = ["ckpt-b1-20", "ckpt-10", "ckpt-9"]


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "RUN", "ckpt"],
        ["verify", "RUN", "ckpt-9", "ckpt"],
        ["compare", "RUN", "ckpt-9", "ckpt"],
        ["average", "RUN", "ckpt-9", "ckpt-10", "ckpt"],
        ["extract", "RUN", "--to", "npz", "ckpt"],
        ["restore", "RUN", "--name", "ckpt"],
        ["bisect", "RUN", "--to", "ckpt"],
        ["export", "RUN", "ckpt"],
        ["prune", "RUN", "ckpt"],
        ["edit", "RUN", "ckpt"],
        ["pin", "RUN", "ckpt"],
        ["copy", "RUN", "ckpt"],
        ["copy", "RUN", "ckpt-9", "ckpt"],
        ["convert", "other", "ckpt-0", "w.npz", "--like", "RUN", "ckpt"],
        ["convert", "--like", "RUN", "ckpt"],
    ],
)
def test_names_are_completed_where_a_command_takes_one(run: Path, words: list[str]) -> None:
    named = [str(run) if word == "RUN" else word for word in words]
    assert asked(named) == [f"plain,{name}" for name in NAMES]


@pytest.mark.parametrize(
    ("words", "are_offered"),
    [
        (["inspect", "RUN", "w-"], True),
        (["verify", "RUN", "ckpt-9", "w-"], True),
        (["compare", "RUN", "w-01.keras", "w-"], True),
        (["extract", "RUN", "w-"], True),
        (["prune", "RUN", "w-"], True),
        (["pin", "RUN", "w-"], False),
        (["restore", "RUN", "--name", "w-"], False),
    ],
)
def test_files_of_keras_are_completed_where_a_command_takes_them(
    run: Path, words: list[str], are_offered: bool
) -> None:
    files = ["w-03.safetensors", "w-02.weights.h5", "w-01.keras"]
    for name in (*files, "w-04.txt"):
        (run / name).write_bytes(b"")
    named = [str(run) if word == "RUN" else word for word in words]
    assert asked(named) == [f"plain,{name}" for name in files if are_offered]


def test_checkpoints_are_offered_before_files_and_once(run: Path) -> None:
    for name in ("ckpt-9.h5", ".ckpt.h5"):
        (run / name).write_bytes(b"")
    write_floats(run / "ckpt-8.h5", (1.0,))
    (run / "ckpt-8.h5").write_bytes(b"")
    said = asked(["inspect", str(run), "ckpt"])
    assert said == [f"plain,{name}" for name in (*NAMES, "ckpt-9.h5", "ckpt-8.h5")]


def test_directories_are_completed_where_a_command_takes_one(run: Path) -> None:
    here = run.parent
    (here / "backup").mkdir()
    for typed in ("ba", "/tm", "./b"):
        assert asked(["copy", str(run), "ckpt-9", typed], directory=here) == [f"dir,{typed}"]
    assert asked(["copy", str(run), ""], directory=here)[-2:] == ["plain,backup", "plain,run"]
    assert asked(["convert", "o", "c", "w.npz", "--like", "ru"], directory=here) == ["dir,ru"]
    after = ["convert", "--like", "run", "ckpt-9", "ru"]
    assert asked(after, directory=here) == ["dir,ru"]


def test_each_shell_gets_its_form(run: Path) -> None:
    words = ["inspect", str(run), "ckpt-1"]
    assert asked(words) == ["plain,ckpt-10"]
    assert asked(words, "zsh") == ["plain", "ckpt-10", "_"]
    assert asked(words, "fish") == ["plain,ckpt-10"]


def test_steps_are_completed_and_what_is_no_run_has_no_names(run: Path, tmp_path: Path) -> None:
    assert asked(["inspect", str(run), "1"]) == ["plain,10"]
    for place in ("missing", "gs://bucket/run"):
        assert asked(["inspect", place, "ckpt"]) == []
    (tmp_path / "file").write_text("")
    assert asked(["inspect", str(tmp_path / "file"), ""]) == []


def test_a_beginning_that_thousands_have_goes_on_by_one_character() -> None:
    names = [f"ckpt-{step}" for step in range(100_000)]
    assert offered(names, "ck") == [f"ckpt-{digit}" for digit in "0123456789"]
    assert offered(names, "ckpt-12") == ["ckpt-12", *(f"ckpt-12{digit}" for digit in "0123456789")]
    assert len(offered(names, "ckpt-1234")) == 11
    assert len(offered(names[: MOST_OFFERED + 1], "")) > 1


def test_names_come_from_the_names_of_files_alone(run: Path) -> None:
    (run / "ckpt-11.index").write_text("no index")
    assert "ckpt-11" in names_in(run)
    (run / "ckpt-12.data-00000-of-00001").write_text("")
    assert "ckpt-12" not in names_in(run)


def test_run_directories_are_those_of_late_then_those_here(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    remember_run(run)
    here = tmp_path / "here"
    (here / "models").mkdir(parents=True)
    assert asked(["ls", ""], directory=here) == [f"plain,{run}", "plain,models"]
    assert asked(["ls", "ru"], directory=here) == [f"plain,{run}"]
    for typed in ("mo", "/tm", "./m", "~"):
        assert asked(["ls", typed], directory=here) == [f"dir,{typed}"]
    assert asked(["./m"], directory=here) == ["dir,./m"]


@pytest.mark.parametrize(
    ("runs", "offered_runs"),
    [
        (["a/run-1", "a/run-2"], ["a/run-2", "a/run-1"]),
        (["a/run-1", "b/run-1"], ["b/run-1"]),
        (["run-a/run", "run-b/run"], ["run-b/run"]),
    ],
)
def test_no_shell_replaces_a_word_by_what_several_runs_begin_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: list[str], offered_runs: list[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in runs:
        remember_run(tmp_path / name)
    here = tmp_path / "here"
    here.mkdir()
    for words in (["ls", "ru"], ["copy", "here", "ckpt-1", "ru"]):
        said = asked(words, directory=here)
        assert said == [f"plain,{tmp_path / name}" for name in offered_runs]
    assert len(asked(["ls", ""], directory=here)) == len(runs)
    write_floats(tmp_path / "ru-1", (1.0,))
    assert asked(["copy", str(tmp_path), "ru"], directory=here) == ["plain,ru-1"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two checkpoints; the older one has another tensor."""
    root = tmp_path / "model"
    root.mkdir()
    tensors = {f"layer/{name}": array([1.0]) for name in ("kernel", "bias")}
    write(root / "ckpt-10", {**tensors, "head": array([1.0]), "odd\x1b": array([2.0])})
    write(root / "ckpt-9", {**tensors, "old": array([1.0])})
    return root


@pytest.mark.parametrize(
    ("words", "offered_words"),
    [
        (["extract", "RUN", "ckpt-9", ""], ["layer/bias", "layer/kernel", "old"]),
        (["extract", "RUN", "9", "old", "layer/k"], ["layer/kernel"]),
        (["extract", "RUN", "10", "--to", "npz", "he"], ["head"]),
        (["extract", "RUN", "11", ""], []),
        (["track", "RUN", ""], ["head", "layer/bias", "layer/kernel"]),
        (["compare", "RUN", "10", "9", "--histogram", "o"], ["old"]),
        (["edit", "RUN", "9", "--drop", "o"], ["old"]),
        (["edit", "RUN", "9", "--rename", "o"], ["old"]),
        (["edit", "RUN", "9", "--rename", "old", "layer/"], ["layer/bias", "layer/kernel"]),
        (["edit", "RUN", "10", "--copy", "9:o"], ["9:old"]),
        (["edit", "RUN", "10", "--copy", "9:old", "h"], ["head"]),
        (["edit", "RUN", "9", "--cast", "layer/b"], ["layer/bias"]),
        (["edit", "RUN", "9", "--cast", "layer/b", "float1"], ["float16"]),
    ],
)
def test_tensors_are_completed_from_one_checkpoint(model, words, offered_words) -> None:
    assert asked([str(model) if word == "RUN" else word for word in words]) == [
        f"plain,{word}" for word in offered_words
    ]


def test_a_damaged_index_has_no_tensors_to_offer(model: Path) -> None:
    (model / "ckpt-10.index").write_bytes(b"damaged")
    assert asked(["track", str(model), ""]) == []
    assert asked(["extract", str(model), "9", "ol"]) == ["plain,old"]


def test_many_tensors_go_on_by_one_part_of_their_path() -> None:
    paths = [f"model/layer{layer}/w{number}" for layer in range(20) for number in range(50)]
    assert offered_paths(paths, "mo") == sorted(f"model/layer{layer}/" for layer in range(20))
    assert len(offered_paths(paths, "model/layer7/")) == 50
    flat = [f"w{number}" for number in range(1000)]
    assert offered_paths(flat, "") == [f"w{digit}" for digit in range(10)]


@needs("bash")
def test_bash_inserts_names_with_spaces_as_one_word(run: Path) -> None:
    words = ["tfckpt-tui", "inspect", str(run), "my"]
    offered = complete_in_bash(words, 'eval "set -- ${COMPREPLY[0]}"; echo $#')
    assert offered == [r"my\ model\ 3", "1"]


@needs("bash")
def test_bash_completes_the_tensor_of_another_checkpoint(model: Path) -> None:
    """In an interactive bash, which splits words at colons unless it is told not to."""
    environment = {**os.environ, "PATH": f"{BINARY.parent}{os.pathsep}{os.environ['PATH']}"}
    main, end = pty.openpty()
    bash = subprocess.Popen(
        ["bash", "--norc", "-i"], stdin=end, stdout=end, stderr=end, env=environment
    )
    os.close(end)
    try:
        os.write(main, b'eval "$(tfckpt-tui completion bash)"; echo rea""dy\n')
        _read_until(main, "ready")
        os.write(main, f"tfckpt-tui edit {model} 10 --copy 9:layer/k\t".encode())
        _read_until(main, "9:layer/kernel ")
        os.write(main, b"layer/b\t")
        _read_until(main, "layer/bias ")
        # Other commands of the shell still have their words split at colons.
        os.write(main, b'\x15case $COMP_WORDBREAKS in *:*) echo sp""lit;; esac\n')
        _read_until(main, "split")
    finally:
        bash.kill()
        bash.wait()
        os.close(main)


def _read_until(terminal: int, text: str) -> None:
    """Reads what a terminal shows; fails if the text does not come."""
    shown = ""
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], MOST_SECONDS)
        assert ready, shown
        shown += os.read(terminal, 65536).decode()


@pytest.mark.e2e
def test_a_broken_line_is_answered_without_words(run: Path) -> None:
    words = f"tfckpt-tui inspect {run} 'ck"
    said = run_binary(_TFCKPT_TUI_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD="3")
    assert (said.code, said.words) == (0, "")
