"""The commands `extract` and `convert`."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from json_reference import check

from bundle_writing import (
    GRAPH_KEY,
    NUMBERS,
    Object,
    Stored,
    array,
    graph,
    key_of,
    strings,
    variable,
    write,
)
from command_running import BINARY
from real_file_systems import make_read_only, small_tmpfs
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.exchange.extract import ArrayFormat
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.tensors import read_tensor_bytes
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.cli.confirmation import explain_interrupt
from tfckpt_tui.reports.new_files import ConvertReport, ExtractReport
from waiting import MOST_SECONDS, wait_until

KERNEL = np.arange(6.0, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a checkpoint; the current directory is another one."""
    nodes = [
        Object({"model": 1, "step": 3, "text": 4}),
        Object({"kernel": 2, "scale": 5}),
        Object(attributes=[variable("model/kernel", "kernel")]),
        Object(attributes=[variable("step")]),
        Object(attributes=[variable("text")]),
        Object(attributes=[variable("model/scale", "scale")]),
    ]
    (tmp_path / "run").mkdir()
    write(
        tmp_path / "run" / "ckpt-7",
        {
            key_of("model/kernel"): array(KERNEL),
            key_of("model/scale"): array(KERNEL[0].astype("float16")),
            key_of("step"): array(np.int64(7)),
            key_of("text"): strings([b"abc"]),
            GRAPH_KEY: graph(nodes),
        },
    )
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "run"


def test_all_numeric_tensors_are_extracted_and_the_rest_is_named(tool, run):
    said = tool("extract", run, "7", "--to", "npz")
    assert said.code == 0
    assert said.data == "ckpt-7.npz: 3 tensors, 38 B\n"
    assert said.words == "Left out, because they are not numeric: text.\n"
    with np.load("ckpt-7.npz") as found:
        assert sorted(found) == ["model/kernel", "model/scale", "step"]
        assert found["model/kernel"].tobytes() == KERNEL.tobytes()
        assert found["step"] == 7


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["model/kernel"], ["model/kernel"]),
        ([key_of("step")], ["step"]),
        (["model/*", "step"], ["model/kernel", "model/scale", "step"]),
        (["*"], ["model/kernel", "model/scale", "step"]),
    ],
)
def test_tensors_are_chosen_by_path_name_and_pattern(tool, run, wanted, names):
    said = tool("extract", run, "ckpt-7", *wanted, "--to", "npy", "--json")
    assert said.code == 0
    found = said.json
    check(ExtractReport, found)
    assert found["path"] == "ckpt-7"
    assert [one["stored_as"] for one in found["tensors"]] == names
    assert found["left_out"] == ([key_of("text")] if wanted == ["*"] else [])
    files = sorted(path.as_posix() for path in Path("ckpt-7").rglob("*.npy"))
    assert files == [f"ckpt-7/{name}.npy" for name in names]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["-o", "w.npz"], "npz"),
        (["-o", "w.SafeTensors"], "safetensors"),
        (["-o", "w.npz", "--to", "npy"], "npy"),
    ],
)
def test_the_ending_of_the_file_names_the_format(tool, run, words, kind):
    said = tool("extract", run, "7", *words, "--json")
    assert (said.code, said.json["format"]) == (0, kind)


@pytest.mark.parametrize("words", [[], ["-o", "w"], ["-o", "w.npy"], ["-o", "w.bin"]])
def test_a_format_that_nothing_names_is_asked_for(tool, run, words):
    said = tool("extract", run, "7", *words)
    assert said.code == 2
    assert "with --to, or by an --output that ends with .npz or .safetensors. See" in said.words
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["ckpt-7", "nothing"], 2, "ckpt-7 has no tensor 'nothing'. List its tensors with"),
        (["ckpt-7", "text"], 2, "text is string; only numeric tensors can be extracted."),
        (["ckpt-9"], 2, "There is no checkpoint ckpt-9"),
        (["ckpt-7", "-o", "no/such.npz"], 2, "no is not a directory; make it with `mkdir -p no`"),
        (["ckpt-7", "-o", "n" * 256], 1, f"{'n' * 256}: File name too long"),
        (["ckpt-7", "-o", "gs://b/w.npz"], 2, "gs://b/w.npz cannot be an output file"),
    ],
)
def test_what_cannot_be_extracted_is_said(tool, run, words, code, message):
    said = tool("extract", run, *words, "--to", "npz")
    assert said.code == code
    assert message in said.words
    assert list(Path().iterdir()) == []


def test_a_file_is_not_replaced(tool, run):
    Path("mine").write_text("mine")
    said = tool("extract", run, "7", "--to", "npz", "-o", "mine")
    assert said.code == 4
    assert "mine exists; choose another file with --output." in said.words
    assert Path("mine").read_text() == "mine"


def test_damage_is_reported_and_leaves_no_file(tool, run):
    data = run / "ckpt-7.data-00000-of-00001"
    data.write_bytes(b"\1" + data.read_bytes()[1:])
    said = tool("extract", run, "7", "--to", "safetensors")
    assert said.code == 1
    assert "does not match its checksum" in said.words
    assert list(Path().iterdir()) == []


def test_wider_types_are_said(tool, run):
    import ml_dtypes

    write(run / "ckpt-8", {"w": array(np.ones(3, ml_dtypes.bfloat16)), "v": array([1.0])})
    said = tool("extract", run, "8", "--to", "npz")
    assert said.words == (
        "1 tensor of type bfloat16 became float32, because npz does not have this type. "
        "The values are the same.\n"
    )


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_a_checkpoint_goes_out_and_comes_back(tool, run, kind):
    assert tool("extract", run, "7", "--to", kind).code == 0
    said = tool("convert", run, "ckpt-8", f"ckpt-7.{kind}")
    assert said.code == 0
    assert said.data == "ckpt-8: 3 tensors, 38 B, verified\n"
    assert said.data.endswith(", verified\n")
    assert verify(run / "ckpt-8").findings == ()
    before, after = read_index(run / "ckpt-7"), read_index(run / "ckpt-8")
    for name in map(key_of, ["model/kernel", "model/scale", "step"]):
        read = [read_tensor_bytes(run / "ckpt-7", before.entries[name])]
        assert read == [read_tensor_bytes(run / "ckpt-8", after.entries[name])]
    listed = tool("ls", run, "--json").json["checkpoints"]
    assert {one["name"]: one["state"] for one in listed} == {
        "ckpt-7": "complete",
        "ckpt-8": "verified",
    }
    shown = tool("inspect", run, "ckpt-8", "--json").json
    assert shown["object_graph"] is True
    assert {one["path"] for one in shown["tensors"]} == {"model/kernel", "model/scale", "step"}
    last = read_entries(RunDirectory(run))[-1]
    assert (last.message, last.checkpoint) == (f"Converted ckpt-7.{kind} into ckpt-8.", "ckpt-8")


def test_a_directory_is_made_and_shards_are_cut(tool, tmp_path):
    np.savez(tmp_path / "w.npz", **{f"v{n}": np.ones(100_000) for n in range(4)})
    arguments = ("--by-name", "--shard-size", 1, "--json")
    said = tool("convert", tmp_path / "new" / "run", "ckpt-0", tmp_path / "w.npz", *arguments)
    assert said.code == 0
    check(ConvertReport, said.json)
    assert said.json["tensors"] == 4
    assert [Path(path).name for path in said.json["files"]] == [
        "ckpt-0.data-00000-of-00002",
        "ckpt-0.data-00001-of-00002",
        "ckpt-0.index",
    ]
    assert sorted(read_index(tmp_path / "new" / "run" / "ckpt-0").entries) == [
        "v0", "v1", "v2", "v3",
    ]  # fmt: skip


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("name", "file", "code", "message"),
    [
        ("ckpt-7", "w.npz", 4, "exists; choose another name"),
        ("../up", "w.npz", 2, "'../up' is not a valid checkpoint name; use one such as ckpt-0."),
        ("ckpt-8", "missing.npz", 2, "missing.npz is not a file"),
        ("ckpt-8", "text", 1, "text is neither an npz, a safetensors nor a Keras file. Write its"),
        ("ckpt-8", "w.h5", 1, "w.h5 is not a valid Keras file: it cannot be read"),
        ("ckpt-8", "none.npz", 2, "none.npz has no arrays, so there is nothing to store."),
        ("ckpt-8", "m.keras", 1, "m.keras is not an npz file: it has no arrays."),
    ],
)
def test_what_cannot_be_converted_is_said(tool, run, name, file, code, message):
    np.savez("w.npz", a=np.ones(3))
    np.savez("none.npz")
    Path("text").write_text("no tensors here")
    Path("w.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with zipfile.ZipFile("m.keras", "x") as archive:
        archive.writestr("config.json", "{}")
    before = sorted(run.iterdir())
    said = tool("convert", run, name, file)
    assert said.code == code
    assert message in said.words
    assert sorted(run.iterdir()) == before


def test_the_name_of_a_pruned_checkpoint_is_not_used_again(tool, run):
    for step in (8, 9):
        write(run / f"ckpt-{step}", {"a": array([1.0])})
    for path in run.iterdir():
        os.utime(path, (1e9, 1e9))
    assert tool("prune", run, "ckpt-7", "--yes").code == 0
    np.savez("w.npz", a=np.ones(3))
    said = tool("convert", run, "ckpt-7", "w.npz")
    assert said.code == 4
    assert "choose another name" in said.words


@pytest.mark.parametrize("place", ["text", "text/new", "gs://bucket/run"])
def test_what_cannot_be_a_directory_of_a_new_checkpoint_is_refused(tool, tmp_path, place):
    (tmp_path / "text").write_text("")
    np.savez(tmp_path / "w.npz", a=np.ones(3))
    before = sorted(tmp_path.rglob("*"))
    where = place if ":" in place else tmp_path / place
    said = tool("convert", where, "ckpt-1", tmp_path / "w.npz")
    assert said.code == 2
    assert "is not a directory" in said.words or "cannot be a run directory" in said.words
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_that_was_made_for_nothing_is_removed(tool, tmp_path):
    (tmp_path / "w").write_text("no tensors here")
    assert tool("convert", tmp_path / "new" / "run", "ckpt-1", tmp_path / "w").code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


# convert --like


def test_a_changed_file_goes_back_into_the_same_structure(tool, run):
    assert tool("extract", run, "7", "model/*", "--to", "npz", "-o", "w.npz").code == 0
    with np.load("w.npz") as found:
        np.savez("new.npz", **{name: values * 2 for name, values in found.items()})
    said = tool("convert", run, "ckpt-8", "new.npz", "--like", run, "7")
    assert said.code == 0
    assert said.data == "ckpt-8: 4 tensors, 46 B, verified\n"
    assert "Taken from ckpt-7: step, text.\n" in said.words
    assert verify(run / "ckpt-8").findings == ()
    before, after = read_index(run / "ckpt-7"), read_index(run / "ckpt-8")
    kinds = [{n: (e.dtype, e.shape) for n, e in one.entries.items()} for one in (before, after)]
    assert kinds[0] == kinds[1]
    for name in ("step", "text"):
        key = key_of(name)
        assert after.entries[key].crc32c == before.entries[key].crc32c
    key = key_of("model/kernel")
    assert read_tensor_bytes(run / "ckpt-8", after.entries[key]) == (KERNEL * 2).tobytes()
    assert after.entries[GRAPH_KEY].crc32c == before.entries[GRAPH_KEY].crc32c
    said = tool("convert", run, "ckpt-9", "new.npz", "--like", run, "ckpt-7", "--json")
    check(ConvertReport, said.json)
    assert said.json["taken"] == ["step", "text"]


def test_a_name_with_another_step_than_the_tensors_is_said(tool, run):
    """Both numbers are true: the one is where a start looks, the other where training goes on."""
    assert tool("extract", run, "7", "--to", "npz", "-o", "w.npz").code == 0
    words = "Its name says step 42, but step is 7: training goes on from step 7."
    said = tool("convert", run, "ckpt-42", "w.npz")
    assert f"Done, but: {words}\n" in said.words
    said = tool("convert", run, "more-42", "w.npz", "--like", run, "ckpt-7", "--json")
    assert said.json["warning"] == words
    assert "Done" not in tool("convert", run, "again-7", "w.npz").words
    shown = tool("inspect", run, "ckpt-42").data
    assert "step        42 on branch 0\n" in shown
    assert "yes  step = 7; the name says 42\n" in shown
    assert "says" not in tool("inspect", run, "ckpt-7").data


def test_names_of_tensorflow_are_known_too_and_types_go_back(tool, run):
    wide = {key_of("model/scale"): np.array([1.0, 2.0, 1e6]), "step": np.int32(9)}
    np.savez("w.npz", **wide)
    said = tool("convert", run, "ckpt-8", "w.npz", "--like", run, "7")
    assert said.code == 0
    assert "Done, but: 1 value became infinite: too large for the new type." in said.words
    entries = read_index(run / "ckpt-8").entries
    stored = read_tensor_bytes(run / "ckpt-8", entries[key_of("model/scale")])
    assert np.frombuffer(stored, np.float16).tolist() == [1.0, 2.0, np.inf]
    assert read_tensor_bytes(run / "ckpt-8", entries[key_of("step")]) == np.int64(9).tobytes()


def test_values_that_a_smaller_type_changes_are_counted(tool, run):
    np.savez("w.npz", **{"model/kernel": np.array([[0.5, 0.1, 1e-60], [1e300, np.nan, 2.0]])})
    said = tool("convert", run, "ckpt-8", "w.npz", "--like", run, "7")
    assert said.code == 0
    assert "2 values of type float64 became the nearest float32." in said.words
    assert "1 value became infinite: too large for the new type." in said.words
    np.savez("w.npz", **{"model/kernel": KERNEL.astype(np.float64)})
    assert "became" not in tool("convert", run, "ckpt-9", "w.npz", "--like", run, "7").words


@pytest.mark.parametrize(
    ("tensors", "code", "message"),
    [
        ({"model/other": KERNEL}, 4, "ckpt-7 does not have these tensors of the file: model/other"),
        ({"model/kernel": KERNEL.T}, 4, "model/kernel is float32 3×2, expected float32 2×3."),
        ({"model/kernel": KERNEL > 0}, 4, "model/kernel is bool 2×3, expected float32 2×3."),
        ({"text": np.ones(1)}, 4, "text is float64 1, expected string 1."),
        ({"step": np.int64(1), key_of("step"): np.int64(1)}, 4, "are the same tensor."),
        ({"step": np.uint64(2**63)}, 4, "step has values that do not fit into int64."),
    ],
)
def test_a_file_that_does_not_match_is_refused(tool, run, tensors, code, message):
    np.savez("w.npz", **tensors)
    before = sorted(run.rglob("*"))
    said = tool("convert", run, "ckpt-8", "w.npz", "--like", run, "7")
    assert said.code == code
    assert message in said.words
    assert sorted(run.rglob("*")) == before
    assert (
        "Give either --like"
        in tool("convert", run, "a", "w.npz", "--like", run, "7", "--by-name").words
    )


# a full disk


def test_a_full_disk_is_said_with_what_is_needed_and_nothing_is_left(tool, tmp_path):
    values = np.zeros(1 << 18)
    with small_tmpfs(tmp_path / "disk", megabytes=5) as disk:
        for step in (1, 2):
            write(disk / f"ckpt-{step}", {"w": array(values + step)})
        np.savez(tmp_path / "w.npz", w=values)
        before = sorted(disk.rglob("*"))
        for words in (
            *(("extract", disk, "1", "--to", kind, "-o", disk / "out") for kind in ArrayFormat),
            ("convert", disk, "ckpt-3", tmp_path / "w.npz"),
            ("convert", disk, "ckpt-3", tmp_path / "w.npz", "--like", disk, "1"),
        ):
            said = tool(*words)
            assert said.code == 1
            assert "No space left on device. Needed: about 2.10 MB; free: 1.04 MB." in said.words
            assert sorted(disk.rglob("*")) == before
        said = tool("average", disk, "1", "2")
        assert "Needed: about 2.10 MB; free:" in said.words
        assert f"`tfckpt-tui prune {disk} CKPT --delete`" in said.words
        assert not list(disk.glob("average*"))


def test_a_directory_that_cannot_be_written_is_said_without_temporary_names(tool, tmp_path):
    with small_tmpfs(tmp_path / "disk", megabytes=2) as disk:
        for step in (1, 2):
            write(disk / f"ckpt-{step}", {"w": array(np.ones(3) * step)})
        np.savez(tmp_path / "w.npz", w=np.ones(3))
        make_read_only(disk)
        copy = f"Use copies: `tfckpt-tui copy {disk} CKPT DIRECTORY`."
        output = "Choose another place with --output."
        for words, advice in (
            *(
                (("extract", disk, "1", "--to", kind, "-o", disk / "x"), output)
                for kind in ArrayFormat
            ),
            (("convert", disk, "ckpt-3", tmp_path / "w.npz"), "Name another directory."),
            (("convert", disk / "new", "ckpt-3", tmp_path / "w.npz"), "Name another directory."),
            (("average", disk, "1", "2"), copy),
            (("edit", disk, "1", "--rename", "w", "v", "--yes"), copy),
        ):
            said = tool(*words)
            problem = f"{disk}: Read-only file system. Nothing was written. {advice}\n"
            assert (said.code, said.words) == (1, f"tfckpt-tui: {problem}")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        *((kind, signal.SIGTERM) for kind in ArrayFormat),
        (ArrayFormat.NPY, signal.SIGINT),
        (ArrayFormat.NPZ, signal.SIGHUP),
    ],
)
def test_nothing_is_left_of_an_extract_that_is_ended_by_a_signal(tmp_path, kind, number):
    """A tensor of zeros on a sparse file takes long enough."""
    size = 8 << 30
    write(tmp_path / "ckpt-1", {"w": Stored(NUMBERS["float32"], (size // 4,), [], size=size)})
    os.truncate(tmp_path / "ckpt-1.data-00000-of-00001", size)
    words = ["extract", tmp_path, "1", "--to", kind, "-o", tmp_path / "out"]
    process = subprocess.Popen([BINARY, *words], stdout=subprocess.DEVNULL)
    wait_until(lambda: list(tmp_path.glob(".out.*")), 60, "the beginning of the file")
    process.send_signal(number)
    assert process.wait(MOST_SECONDS) == 128 + number
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.e2e
@pytest.mark.parametrize(
    "words",
    [
        ["extract", "RUN", "1", "--to", "npz", "-o", "RUN/out"],
        ["average", "RUN", "1", "2"],
        ["edit", "RUN", "1", "--rename", "w", "v", "--yes"],
        ["convert", "RUN", "new-1", "RUN/file"],
    ],
    ids=lambda words: words[0],
)
def test_ctrl_c_says_that_nothing_was_written(tmp_path, words):
    size = 8 << 30
    for name in ("ckpt-1", "ckpt-2"):
        write(tmp_path / name, {"w": Stored(NUMBERS["float32"], (size // 4,), [], size=size)})
        os.truncate(tmp_path / f"{name}.data-00000-of-00001", size)
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}})
    (tmp_path / "file").write_bytes(struct.pack("<Q", len(header)) + header.encode())
    os.truncate(tmp_path / "file", 8 + len(header) + size)
    before = set(tmp_path.iterdir())
    command = [BINARY, *(word.replace("RUN", str(tmp_path)) for word in words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: set(tmp_path.iterdir()) - before, 60, "the beginning of the file")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=MOST_SECONDS)
    assert (process.returncode, said) == (130, "tfckpt-tui: Interrupted; nothing was written.\n")
    assert {path for path in tmp_path.iterdir() if path.name != ".tfckpt"} == before


MEASURED = """
import sys
from tfckpt_tui.cli.main import run

code = run(sys.argv[1:])
# Not `ru_maxrss`, which a process inherits from the one that started it.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(peak.split()[1])
sys.exit(code)
"""


@pytest.mark.e2e
def test_a_gigabyte_is_extracted_in_less_than_150_megabytes(tmp_path):
    """The checkpoint is on a sparse file, which takes neither time nor space to make."""
    size, zeros, checksum = 1 << 30, bytes(1 << 24), 0
    for _ in range(size // len(zeros)):
        checksum = crc32c(zeros, checksum)
    stored = Stored(NUMBERS["float32"], (size // 4,), [], crc=checksum, size=size)
    write(tmp_path / "ckpt-1", {"w": stored})
    os.truncate(tmp_path / "ckpt-1.data-00000-of-00001", size)
    words = ["extract", tmp_path, "1", "--to", "safetensors", "-o", tmp_path / "out"]
    try:
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=True
        )
        assert (tmp_path / "out").stat().st_size > size
    finally:
        (tmp_path / "out").unlink(missing_ok=True)
    said, peak = done.stdout.splitlines()
    assert said.endswith("out: 1 tensor, 1.07 GB")
    assert int(peak) * 1024 < 150_000_000


def test_ctrl_c_after_the_last_write_names_the_file(tmp_path):
    path = tmp_path / "out.npz"

    @explain_interrupt(path)
    def write_and_be_interrupted():
        path.write_bytes(b"")
        raise KeyboardInterrupt

    with pytest.raises(TfckptError, match=f"Interrupted; {path} was written."):
        write_and_be_interrupted()
