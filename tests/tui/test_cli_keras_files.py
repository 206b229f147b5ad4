"""Files that Keras's callbacks wrote, in the commands for checkpoints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from checkpoint_directory import contents
from json_reference import check
from msgspec.structs import replace

from bundle_writing import write_floats
from command_running import Said, Tool
from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.bundle.exchange import hdf5
from tfckpt_trainer.bundle.exchange.array_file import PIECE
from tfckpt_trainer.bundle.exchange.convert import open_array_file
from tfckpt_trainer.catalog.directory.trash import MANIFEST, list_trash
from tfckpt_trainer.catalog.retention.prune import settle_interrupted_prunes
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.trash import TrashPhase
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.reports.new_files import ExtractReport
from tfckpt_tui.reports.retention import PruneReport
from tfckpt_tui.reports.tensors import CompareReport, InspectFileReport
from tfckpt_tui.reports.verification import VerifyReport
from weekly import weekly

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads files that are known not to crash HDF5 without a process for each."""
    monkeypatch.setattr(hdf5.Hdf5Reader, "_try_elsewhere", lambda self, size: None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("keras")
    done = run_with_tensorflow(SCRIPTS / "keras_callbacks.py", root)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of them, which no command may change."""
    shutil.copytree(made, tmp_path / "root")
    before = contents(tmp_path / "root")
    yield tmp_path / "root"
    after = contents(tmp_path / "root")
    assert {name: after[name] for name in before} == before


def keras_model(root: Path) -> str:
    return next(path.name for path in root.glob("m-02-*.keras"))


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tried")
def test_what_the_callbacks_wrote_is_a_history(tool: Tool, root: Path) -> None:
    found = tool("ls", root, "--json").json
    assert {(one["format"], one["epoch"]) for one in found["other_files"]} == {
        (form, epoch) for form in ("Keras model", "Keras weights", "Keras HDF5") for epoch in (1, 2)
    }
    (backup,) = tool("ls", root / "backup", "--json").json["other_files"]
    assert backup["epoch"] == 2


@pytest.mark.tensorflow
def test_inspect_shows_the_tensors_of_each_format(tool: Tool, root: Path) -> None:
    for name in (keras_model(root), "w-02.weights.h5", "old-02.h5"):
        said = tool("inspect", root, name, "--stats", "--json").json
        check(InspectFileReport, said)
        assert (said["epoch"], len(said["tensors"])) == (2, 22)
        sums = [one["statistics"]["norm"] for one in said["tensors"] if one["shape"] == [4, 3]]
        assert len(sums) == 3 and all(sums)
    said = tool("inspect", root, "w-02.weights.h5", "--filter", "first")
    assert re.search(r"layers/dense/vars/0 +float32 +4×3 +48 B +model/first\n", said.data)


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tried")
def test_a_file_is_compared_with_a_checkpoint_by_path(tool: Tool, root: Path) -> None:
    for name in (keras_model(root), "w-02.weights.h5", "old-02.h5"):
        assert tool("compare", root, "ckpt-2", name).data == f"ckpt-2 → {name}: 22 equal\n"
    said = tool("compare", root, "w-01.weights.h5", "2", "--json", "--norms").json
    check(CompareReport, tool("compare", root, "w-01.weights.h5", "2", "--json").json)
    assert said["counts"] == {
        **dict.fromkeys(said["counts"], 0), "changed": 21, "equal": 1,
    }  # fmt: skip
    (kernel,) = (one for one in said["tensors"] if one["path"] == "model/model/first/kernel")
    assert kernel["change"]["relative"] > 0
    same = tool("compare", root, "w-02.weights.h5", keras_model(root))
    assert same.data.endswith(": 22 equal\n")


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tried")
def test_layers_of_a_subclassed_model_are_found_by_their_attributes(tool: Tool, root: Path) -> None:
    said = tool("compare", root / "subclassed", "ckpt-1", "w.weights.h5")
    assert said.data == "ckpt-1 → w.weights.h5: 8 equal\n"


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_extract_writes_what_numpy_reads(tool: Tool, root: Path, tmp_path: Path, kind: str) -> None:
    said = tool("extract", root, "w-02.weights.h5", "-o", tmp_path / f"x.{kind}", "--json")
    check(ExtractReport, said.json)
    with open_array_file(tmp_path / f"x.{kind}") as reader:
        found = {one.name: list(one.chunks()) for one in reader.arrays}
    with h5py.File(root / "w-02.weights.h5") as file:
        assert len(found) == 22
        for name, chunks in found.items():
            assert np.array_equal(np.concatenate(chunks), np.ravel(file[name]))


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("name", ["w-01.weights.h5", "old-01.h5"])
def test_convert_like_restores_model_and_optimizer(
    tool: Tool, root: Path, tmp_path: Path, name: str
) -> None:
    said = tool("convert", root, "from-keras-1", root / name, "--like", root, "ckpt-2")
    assert said.data.startswith("from-keras-1: 22 tensors, ")
    assert "22 equal" in tool("compare", root, "from-keras-1", name).data


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tried")
def test_extract_like_writes_files_that_keras_loads(tool: Tool, root: Path, tmp_path: Path) -> None:
    first = next(root.glob("m-01-*.keras"))
    places = {"a.keras": first, "b.weights.h5": root / "w-01.weights.h5"}
    for name, like in places.items():
        said = tool("extract", root, "2", "--like", like, "-o", root / name, "--json")
        check(ExtractReport, said.json)
        assert (said.json["taken"], said.json["left_out"]) == ([], [])
        assert tool("compare", root, "ckpt-2", name).data.endswith(": 22 equal\n")
        assert tool("extract", root, "2", "--like", like, "-o", root / name).code == 4
    done = run_with_tensorflow(
        SCRIPTS / "keras_outputs.py", root, first, *(root / name for name in places)
    )
    assert done.returncode == 0, done.stderr
    said = tool("extract", root, "2", "--like", root / "old-01.h5", "-o", root / "c.h5")
    assert tool("compare", root, "ckpt-2", "c.h5").data.endswith(": 22 equal\n")


@pytest.mark.usefixtures("tried")
def test_extract_like_says_what_does_not_fit(tool: Tool, tmp_path: Path) -> None:
    write(tmp_path / "a.h5", x=np.arange(6.0).reshape(2, 3), y=[1.0])
    write(tmp_path / "b.h5", x=np.zeros((2, 3)), z=[2.0])
    write(tmp_path / "c.h5", x=np.zeros((3, 2)))
    write(tmp_path / "d.h5", w=[1.0])

    def extract(like: str, output: str = "new.h5") -> Said:
        return tool("extract", tmp_path, "a.h5", "--like", tmp_path / like, "-o", tmp_path / output)

    assert "is float64 2×3; x is float64 3×2. Give --like" in extract("c.h5").words
    assert "have no tensor in common" in extract("d.h5").words
    assert "has to end in .h5, as --like does" in extract("b.h5", "new.keras").words
    assert "is no file of Keras" in extract("none.h5").words
    assert sorted(contents(tmp_path)) == ["a.h5", "b.h5", "c.h5", "d.h5"]
    said = extract("b.h5")
    assert "Taken from b.h5: z." in said.words
    assert "Left out, because b.h5 has no place for them: y." in said.words
    with h5py.File(tmp_path / "new.h5") as file:
        assert file["x"][:].tolist() == [[0, 1, 2], [3, 4, 5]] and file["z"][:] == [2]


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tried")
def test_verify_says_what_was_checked(tool: Tool, root: Path) -> None:
    said = tool("verify", root)
    assert said.code == 0
    assert re.search(r"keras  sound  \(.*\): CRC-32 of 3 files in it\n", said.data)
    assert "all values were read; it has no checksums" in said.data
    document = tool("verify", root, "--json").json
    check(VerifyReport, document)
    assert len(document["files"]) == 6
    # One bit of the values in the archive.
    name = keras_model(root)
    data = bytearray((root / name).read_bytes())
    with h5py.File(root / "w-02.weights.h5") as file:
        kernel = file["layers/dense/vars/0"][:].tobytes()
    data[data.index(kernel)] ^= 1
    (root / "bad.keras").write_bytes(data)
    said = tool("verify", root, "bad.keras")
    assert said.code == 1 and "bad.keras  corrupt" in said.data and "Bad CRC-32" in said.data


def write(path: Path, **arrays: object) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name.replace("__", "/"), data=array)
    return path


@pytest.mark.e2e
def test_a_limit_of_memory_makes_no_file_corrupt(root: Path) -> None:
    verify = [sys.executable, "-m", "tfckpt_tui", "verify", root]
    limited = ["bash", "-c", 'ulimit -v 6000000; exec "$@"', "bash", *verify]
    said = subprocess.run(limited, capture_output=True, text=True, check=True)
    assert "w-02.weights.h5  readable" in said.stdout
    assert "corrupt" not in said.stdout.replace("0 corrupt", "")


def test_a_file_whose_reader_was_killed_is_not_called_corrupt(
    tool: Tool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5, "_TRY", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    (file, *_) = sorted(root.glob("*.weights.h5"))
    said = tool("verify", root, file.name)
    assert said.code != 0
    assert "cannot be checked: the process that reads its structure was killed by SIGKILL" in (
        said.data + said.words
    )
    assert "corrupt" not in said.data + said.words


def test_a_file_that_keeps_hdf5_in_a_loop_is_damaged(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_group("vars").attrs["name"] = "layer"
    data = bytearray((tmp_path / "x.h5").read_bytes())
    # The size of the first object in the heap of texts.
    data[data.index(b"GCOL") + 24] = 0
    (tmp_path / "x.h5").write_bytes(data)
    monkeypatch.setattr(hdf5, "TRY_SECONDS", 3)
    said = tool("inspect", tmp_path, "x.h5")
    assert said.code == 1 and "reading its structure took more than 3 s" in said.words


def says(tool: Tool, path: Path, *words: str) -> Said:
    said = tool("inspect", path.parent, path.name, "--stats")
    for word in words:
        assert word in said.words + said.data, said
    return said


@pytest.mark.e2e
def test_a_checksum_of_hdf5_is_compared(tool: Tool, tmp_path: Path) -> None:
    values = np.arange(1000.0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=values, chunks=(100,), fletcher32=True)
        file.create_dataset("b", data=[np.nan])
    said = tool("verify", tmp_path, "a.h5", "--finite")
    assert said.code == 1
    assert "Fletcher-32 of 1 of 2 tensors; 1 tensor with NaN or infinite values" in said.data
    data = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "b.h5").write_bytes(data.replace(values[150:160].tobytes(), bytes(80)))
    said = tool("verify", tmp_path, "b.h5")
    assert said.code == 1 and "b.h5  corrupt" in said.data


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("end", ["keras", "h5"])
def test_values_that_do_not_match_their_checksum_are_used_by_no_command(
    tool: Tool, tmp_path: Path, end: str
) -> None:
    values, wrong = np.arange(1000.0), np.arange(1000.0)
    wrong[155] = -1
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=values, chunks=(100,), fletcher32=end == "h5")
    if end == "keras":
        with zipfile.ZipFile(tmp_path / "a.keras", "w") as archive:
            archive.write(tmp_path / "a.h5", "model.weights.h5")
    data = (tmp_path / f"a.{end}").read_bytes()
    bad = tmp_path / f"bad.{end}"
    bad.write_bytes(data.replace(values[150:160].tobytes(), wrong[150:160].tobytes()))
    assert bad.read_bytes() != data
    before = contents(tmp_path)
    for words in (
        ("extract", tmp_path, bad.name, "-o", tmp_path / "x.npz"),
        ("convert", tmp_path, "x", bad),
        ("compare", tmp_path, f"a.{end}", bad.name),
        ("compare", tmp_path, f"a.{end}", bad.name, "--norms"),
        ("inspect", tmp_path, bad.name, "--stats"),
    ):
        said = tool(*words)
        assert said.code == 1
        assert f"{bad.name} is not a valid Keras file" in said.words + said.data, said
    assert contents(tmp_path) == before
    assert tool("extract", tmp_path, f"a.{end}", "-o", tmp_path / "x.npz").code == 0


@pytest.mark.e2e
def test_a_large_tensor_is_read_in_pieces(tmp_path: Path) -> None:
    values = np.arange(3 * PIECE // 4 + 7, dtype=">i4").reshape(-1, 1)
    write(tmp_path / "w.h5", a=values, b=np.float32(3), c=np.zeros((0, 4)), d=values[:2].T)
    with open_array_file(tmp_path / "w.h5") as reader:
        found = {one.name: [chunk.copy() for chunk in one.chunks()] for one in reader.arrays}
    assert max(chunk.nbytes for chunk in found["a"]) <= PIECE and len(found["a"]) == 4
    assert np.array_equal(np.concatenate(found["a"]), values.reshape(-1))
    assert found["b"][0].tolist() == [3.0] and sum(map(len, found["c"])) == 0
    assert np.concatenate(found["d"]).tolist() == [0, 1]


@pytest.mark.e2e
def test_bfloat16_as_keras_stores_it(tmp_path: Path) -> None:
    import ml_dtypes

    with h5py.File(tmp_path / "w.h5", "w") as file:
        data = np.array([1.5, -2], ml_dtypes.bfloat16)
        file.create_dataset("a", data=data.view("V2")).attrs["dtype"] = "bfloat16"
    with open_array_file(tmp_path / "w.h5") as reader:
        (array,) = reader.arrays
        assert array.dtype == "bfloat16"
        assert np.concatenate(list(array.chunks())).astype(float).tolist() == [1.5, -2]


def external(path: Path) -> None:
    write(path.with_name("secret.h5"), a=[1.0])
    with h5py.File(path, "w") as file:
        file["a"] = h5py.ExternalLink("secret.h5", "/a")


def external_data(path: Path) -> None:
    path.with_name("secret").write_bytes(bytes(8))
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (1,), "f8", external=[(str(path.with_name("secret")), 0, 8)])


def virtual(path: Path) -> None:
    write(path.with_name("secret.h5"), a=[1.0])
    layout = h5py.VirtualLayout((1,), "f8")
    layout[:] = h5py.VirtualSource(path.with_name("secret.h5"), "a", (1,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("a", layout)


def soft(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["a"] = h5py.SoftLink("/")


def huge(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (1 << 40, 1 << 20), "f8", chunks=(1024, 1024))


def huge_chunk(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (1 << 28,), "f8", chunks=(1 << 28,))


def compressed(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=np.zeros(1 << 22), compression="gzip", chunks=(1 << 22,))


def objects(path: Path) -> None:
    write(path, a=["text", "more"])


def truncated(path: Path) -> None:
    data = write(path, a=np.ones(9000)).read_bytes()
    path.write_bytes(data[: len(data) // 2])


def empty_values(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=h5py.Empty("f4"))


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (external, "a is a link, which is not followed"),
        (soft, "a is a link, which is not followed"),
        (external_data, "a has its data in another file, which is not read"),
        (virtual, "a has its data in another file, which is not read"),
        (huge, "a has 0 bytes; expected 9223372036854775808 for its shape"),
        (huge_chunk, "a is stored in pieces of more than 256 MiB"),
        (compressed, "a is compressed, which is not supported"),
        (objects, "a has the type object, which cannot be converted"),
        (truncated, "it cannot be read: "),
        (empty_values, "a has no values"),
    ],
)
def test_hostile_hdf5_files_are_refused(tool: Tool, tmp_path: Path, make, words: str) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "x.h5")
    assert says(tool, tmp_path / "x.h5", words).code != 0
    with zipfile.ZipFile(tmp_path / "x.keras", "w") as archive:
        archive.write(tmp_path / "x.h5", "model.weights.h5")
    assert says(tool, tmp_path / "x.keras", words).code != 0
    assert tool("verify", tmp_path, "x.h5").code == 1


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("make", [external, virtual, compressed, empty_values, objects])
def test_an_hdf5_file_with_what_keras_never_writes_is_passed_over_and_not_called_corrupt(
    tool: Tool,
    tmp_path: Path,
    make,  # type: ignore[no-untyped-def]
) -> None:
    write_floats(tmp_path / "ckpt-1", (1.0,))
    for name in ("features.h5", "a.weights.h5"):
        make(tmp_path / name)
        said = tool("verify", tmp_path)
        assert (said.code, f"{name} was skipped" in said.words) == (0, True)
        said = tool("verify", tmp_path, name)
        assert (said.code, "corrupt" in said.data + said.words) == (1, False)


@pytest.mark.e2e
def test_a_group_in_itself_ends(tool: Tool, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["group/a"] = [1.0]
        file["group/again"] = file["group"]
        file["b\x1b[31m"] = file["group/a"]
    said = says(tool, tmp_path / "x.h5", "1 tensor, 8 B")
    assert said.code == 0 and "\x1b" not in said.data


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", bytes(50_000_000))


def cut_archive(path: Path) -> None:
    weights = write(path.with_name("w.h5"), a=np.ones(2000))
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(weights, "model.weights.h5")
    data = path.read_bytes()
    path.write_bytes(data[:100] + data[-120:])


def outside(path: Path) -> None:
    weights = write(path.with_name("w.h5"), a=np.ones(2000))
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(weights, "model.weights.h5")
        archive.infolist()[0].file_size = archive.infolist()[0].compress_size = 1 << 30


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("make", [bomb, cut_archive, outside])
def test_hostile_archives_are_refused(tool: Tool, tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "x.keras")
    said = says(tool, tmp_path / "x.keras", "x.keras is not")
    assert said.code == 1
    assert tool("verify", tmp_path, "x.keras").code == 1


def test_a_truncated_archive_may_be_of_either_kind(tool: Tool, tmp_path: Path) -> None:
    weights = write(tmp_path / "w.h5", a=np.ones(50))
    with zipfile.ZipFile(tmp_path / "x.keras", "w") as archive:
        archive.write(weights, "model.weights.h5")
    data = (tmp_path / "x.keras").read_bytes()
    (tmp_path / "x.keras").write_bytes(data[: len(data) // 2])
    words = "x.keras is not a complete npz or Keras file: the end of the archive is missing. Copy"
    for command in ("inspect", "verify"):
        said = tool(command, tmp_path, "x.keras")
        assert said.code == 1 and words in said.words + said.data


@pytest.mark.usefixtures("tried")
def test_verify_counts_files(tool: Tool, tmp_path: Path) -> None:
    weights = write(tmp_path / "a.h5", a=np.ones(50))
    with zipfile.ZipFile(tmp_path / "b.keras", "w") as archive:
        archive.write(weights, "model.weights.h5")
    (tmp_path / "c.h5").write_bytes(weights.read_bytes()[:1000])

    for number, name in enumerate(("c.h5", "a.h5", "b.keras")):
        os.utime(tmp_path / name, (1e9 + number,) * 2)

    def last(*names: str) -> str:
        return tool("verify", tmp_path, *names).data.splitlines()[-1]

    assert last("a.h5") == "1 file: 0 sound, 1 readable."
    assert last("b.keras") == "1 file: 1 sound."
    assert last("b.keras", "c.h5") == "2 files: 1 sound, 1 corrupt."
    assert last() == "3 files: 1 sound, 1 readable, 1 corrupt."


@pytest.mark.e2e
@pytest.mark.parametrize("first", [7, *weekly(6)])
def test_every_damaged_file_is_said_to_be_damaged(tool: Tool, tmp_path: Path, first: int) -> None:
    data = write(tmp_path / "w.h5", layers__a=np.ones(50), b=np.arange(9)).read_bytes()
    for place in range(first, len(data), 1997):
        for value in (0, 0xFF):
            bad = data[:place] + bytes([value]) * 8 + data[place + 8 :]
            (tmp_path / "x.h5").write_bytes(bad)
            assert tool("inspect", tmp_path, "x.h5", "--stats").code in {0, 1, 2}
    for cut in (7, 1500):
        (tmp_path / "x.h5").write_bytes(data[:cut])
        assert tool("inspect", tmp_path, "x.h5").code == 1


@pytest.mark.e2e
def test_without_h5py_the_files_are_listed_with_what_to_install(tmp_path: Path) -> None:
    write(tmp_path / "w-05.weights.h5", a=[1.0])
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / "sitecustomize.py").write_text(
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in {'h5py', 'tensorflow', 'keras'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "block")}
    root = str(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tfckpt_tui", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    assert re.search("w-05.weights.h5 +Keras weights +epoch 5", run("ls", root).stdout)
    said = run("inspect", root, "w-05.weights.h5")
    assert said.returncode == 2 and "`pip install 'tfckpt-tui[h5]'`" in said.stderr
    assert "was skipped: w-05.weights.h5 is an HDF5 file" in run("verify", root).stderr


def test_other_commands_say_what_a_file_is(tool: Tool, tmp_path: Path) -> None:
    write(tmp_path / "w.weights.h5", a=[1.0])
    said = tool("pin", tmp_path, "w.weights.h5")
    assert said.code == 4 and "Keras weights: `model.load_weights` loads it" in said.words


def history(root: Path, *epochs: int) -> None:
    for epoch in epochs:
        path = write(root / f"w-{epoch:02d}.weights.h5", a=[float(epoch)])
        os.utime(path, (1e9 + epoch, 1e9 + epoch))


def test_files_are_pruned_by_name_and_come_back(tool: Tool, tmp_path: Path) -> None:
    history(tmp_path, 1, 2, 3)
    assert tool("journal", tmp_path).data == "There are no events yet.\n"
    before = contents(tmp_path)
    names = ("w-01.weights.h5", "w-02.weights.h5")
    ruled = tool("prune", tmp_path, "--keep-last", "1", "--dry-run")
    assert "To prune one of 3 files, name it." in ruled.data
    planned = tool("prune", tmp_path, *names, "--dry-run")
    assert planned.data.count("delete") == 2 and contents(tmp_path) == before
    said = tool("prune", tmp_path, *names, "--yes", "--json")
    check(PruneReport, said.json)
    (left,) = tool("ls", tmp_path, "--json").json["other_files"]
    assert left["name"] == "w-03.weights.h5"
    assert all(name in tool("trash", tmp_path).data for name in names)
    assert tool("undo", tmp_path).code == 0
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before
    assert tool("prune", tmp_path, names[0], "--yes").code == 0
    assert tool("trash", tmp_path, "empty", "--yes").code == 0
    assert tool("trash", tmp_path).data == "The trash is empty.\n"
    assert sorted(path.name for path in tmp_path.glob("*.h5")) == [names[1], "w-03.weights.h5"]


def test_what_must_stay_is_not_pruned(tool: Tool, tmp_path: Path) -> None:
    history(tmp_path, 1, 2, 3)
    (tmp_path / "w-04.weights.h5").symlink_to("w-01.weights.h5")
    (tmp_path / "w-05.weights.h5").mkdir()
    os.utime(tmp_path / "w-02.weights.h5")
    os.utime(tmp_path / "w-03.weights.h5", (time.time() + 5,) * 2)
    before = contents(tmp_path)
    for words, reason in (
        (["w-03.weights.h5"], "w-03.weights.h5 cannot be pruned: the newest Keras weights."),
        (["w-02.weights.h5"], "just changed: perhaps a program still writes it."),
        (["w-04.weights.h5"], "it is a directory or a symbolic link."),
        (["w-05.weights.h5"], "it is a directory or a symbolic link."),
        (["w-01.weights.h5", "ckpt-1"], "Name files of other formats alone"),
        (["w-01.weights.h5", "--delete"], "without --delete"),
    ):
        said = tool("prune", tmp_path, *words, "--yes")
        assert said.code in {2, 4} and reason in said.words, said
    assert contents(tmp_path) == before


def test_what_only_has_the_name_of_a_format_is_not_its_newest(tool: Tool, tmp_path: Path) -> None:
    history(tmp_path, 1, 2)
    junk = tmp_path / "zz.weights.h5"
    junk.write_text("junk\n")
    os.utime(junk, (1e9 + 3,) * 2)
    said = tool("prune", tmp_path, "w-02.weights.h5", "--yes")
    assert (said.code, "the newest Keras weights" in said.words) == (4, True)
    said = tool("prune", tmp_path, junk.name, "--yes")
    assert (said.code, "its content is not that of the format" in said.words) == (4, True)
    junk.write_bytes(bytes(7))
    os.utime(junk, (1e9 + 3,) * 2)
    assert tool("prune", tmp_path, junk.name, "--yes").code == 0
    assert sorted(path.name for path in tmp_path.glob("*.h5")) == [
        "w-01.weights.h5", "w-02.weights.h5"
    ]  # fmt: skip


def test_a_file_that_was_saved_again_is_not_replaced_by_an_undo(tool: Tool, tmp_path: Path) -> None:
    history(tmp_path, 1, 2)
    assert tool("prune", tmp_path, "w-01.weights.h5", "--yes").code == 0
    (tmp_path / "w-01.weights.h5").write_text("new")
    said = tool("undo", tmp_path)
    assert said.code == 4 and "w-01.weights.h5 exists again" in said.words
    assert (tmp_path / "w-01.weights.h5").read_text() == "new"


def test_what_an_interrupted_prune_of_files_had_moved_comes_back(
    tool: Tool, tmp_path: Path
) -> None:
    history(tmp_path, 1, 2, 3)
    run = RunDirectory(tmp_path)
    assert tool("prune", tmp_path, "w-01.weights.h5", "w-02.weights.h5", "--yes").code == 0
    (manifest,) = list_trash(run)
    place = run.trash / manifest.id
    (place / "w-02.weights.h5").rename(tmp_path / "w-02.weights.h5")
    store(place / MANIFEST, replace(manifest, phase=TrashPhase.PRUNING))
    (settled,) = settle_interrupted_prunes(run)
    assert (settled.phase, settled.names) == (TrashPhase.UNDOING, ["w-01.weights.h5"])
    assert len(list(tmp_path.glob("*.h5"))) == 3
    assert list_trash(run) == []


def test_nothing_in_the_current_directory_is_executed_to_read_a_file(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.h5", x=[1.0])
    for module in ("h5py", "numpy", "tfckpt_trainer"):
        (tmp_path / f"{module}.py").write_text("open('executed', 'w')\n")
    monkeypatch.chdir(tmp_path)
    assert tool("verify", tmp_path, "a.h5").code == 0
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_a_pointer_of_git_lfs_is_no_damaged_file(tool: Tool, tmp_path: Path, command: str) -> None:
    (tmp_path / "a.keras").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d\n")
    said = tool(command, tmp_path, "a.keras")
    assert said.code == 1
    assert "a.keras: it is a pointer of Git LFS; fetch the file with `git lfs pull`" in said.words
    assert "corrupt" not in said.data


def test_a_manifest_cannot_name_another_file(tool: Tool, tmp_path: Path) -> None:
    history(tmp_path, 1, 2)
    run = RunDirectory(tmp_path)
    assert tool("prune", tmp_path, "w-01.weights.h5", "--yes").code == 0
    (manifest,) = list_trash(run)
    (trashed,) = manifest.checkpoints
    (run.trash / manifest.id / "w-01.weights.h5").rename(run.trash / manifest.id / "train.py")
    other = replace(trashed, name="train.py", files=["train.py"])
    store(run.trash / manifest.id / MANIFEST, replace(manifest, checkpoints=[other]))
    assert "not a file of checkpoint" in tool("undo", tmp_path).words
    assert not (tmp_path / "train.py").exists()


def test_a_file_that_cannot_be_opened_is_opened_in_another_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import h5py

    (tmp_path / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    monkeypatch.setattr(h5py, "File", None)
    with pytest.raises(DamagedFileError, match="is not a valid Keras file: it cannot be read"):
        hdf5.Hdf5Reader(tmp_path / "a.h5")
