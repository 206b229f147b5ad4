"""The arrays that the two processes of an export exchange: any tensor, and no pickle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array(True),
    np.array([[b"a", b""], [b"ends in zero\0", "Größe".encode()]], dtype=object),
    np.array(b"scalar", dtype=object),
    np.zeros((0, 2), np.int64),
    np.empty((0,), dtype=object),
]


class Payload:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_arrays_and_strings_are_read_as_they_were_written(tmp_path):
    from tfckpt_trainer.training.loop.export import load_arrays, store_arrays

    store_arrays(tmp_path / "a.npz", ARRAYS)
    read = load_arrays(tmp_path / "a.npz")
    assert [(a.dtype, a.shape) for a in read] == [(a.dtype, a.shape) for a in ARRAYS]
    for found, expected in zip(read, ARRAYS, strict=True):
        assert found.tolist() == expected.tolist()


def test_a_pickled_object_is_refused_and_not_run(tmp_path):
    from tfckpt_trainer.errors import DamagedFileError
    from tfckpt_trainer.training.loop.export import load_arrays

    touched = tmp_path / "touched"
    np.savez(tmp_path / "a.npz", np.array([Payload(touched)], dtype=object))
    with pytest.raises(DamagedFileError, match=r"a\.npz is not a valid array file"):
        load_arrays(tmp_path / "a.npz")
    assert not touched.exists()


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 cut off"])
def test_a_damaged_file_is_refused(tmp_path, content):
    from tfckpt_trainer.errors import DamagedFileError
    from tfckpt_trainer.training.loop.export import load_arrays

    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"a\.npz is not a valid array file"):
        load_arrays(tmp_path / "a.npz")
