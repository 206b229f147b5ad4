"""What tests of training share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from this_process import put_back

from real_file_systems import small_tmpfs
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory


@pytest.fixture(autouse=True)
def no_false_alarm(tmp_path):
    """No run of these tests is told that it forgot to pass something."""
    yield
    # Trash may still be emptied meanwhile.
    for folder, _, names in os.walk(tmp_path):
        if "journal.jsonl" not in names:
            continue
        messages = [entry.message for entry in read_entries(RunDirectory(Path(folder).parent))]
        assert [message for message in messages if message.startswith("Not saved:")] == []


@pytest.fixture(scope="module")
def selected(request):
    """The values of the parameter `name` of those tests of a module that are to run."""
    of_module = [item for item in request.session.items if item.path == request.path]
    params = [item.callspec.params for item in of_module if hasattr(item, "callspec")]
    return list(dict.fromkeys(one["name"] for one in params if "name" in one))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 36 MB."""
    with small_tmpfs(tmp_path / "small", megabytes=36) as root:
        yield root


@pytest.fixture(autouse=True)
def process_as_before():
    """Puts back what a run changes in its process."""
    with put_back():
        yield


@pytest.fixture
def make_run(tmp_path):
    """Makes a run of a small model."""
    from tfckpt_trainer.training import TrainingRun
    from tfckpt_trainer.training.keras_library import keras

    def make(directory=tmp_path / "run", **options) -> TrainingRun:
        options.setdefault("model", keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
        return TrainingRun(directory, **options)

    return make
