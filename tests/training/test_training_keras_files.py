"""`fit` goes on from what Keras's own callbacks have saved, or says why it does not."""

from __future__ import annotations

import json

import pytest
from training_cluster import SCRIPTS, Cluster

from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory

pytestmark = pytest.mark.tensorflow

CASES = [
    "files", "initial_epoch", "keras", "late", "loaded", "optimizer", "other", "own start",
    "shapes", "torn", "without",
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fits")


@pytest.fixture(scope="module")
def found(place):
    words = ["keras", "backup", *(case for case in CASES if case != "keras"), "--root", place]
    done = run_with_tensorflow(SCRIPTS / "fit_goes_on.py", *words)
    assert done.returncode == 0, done.stderr[-3000:]
    cases: dict[str, dict] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            cases |= json.loads(line)
    return cases


@pytest.mark.parametrize("case", ["backup", "files", "initial_epoch"])
def test_it_goes_on_as_keras_does_bit_for_bit(found, case):
    assert found[case]["epochs"] == [2, 3]
    assert found[case]["values"] == found["keras"]


def test_it_says_from_which_file_and_which_it_passed_over(found, place):
    start = "Started at step 4 with weights, optimizer state and epoch of "
    (told,) = (text for text in found["files"]["messages"] if text.startswith("Started"))
    assert told.startswith(f"{start}{place}/run-files/kept.keras. The input pipeline starts over.")
    assert "torn.weights.h5: " in told
    assert "is not a valid Keras file" in told


def test_a_log_goes_on_too(found, place):
    assert found["files"]["epochs"] == [2, 3]
    rows = (place / "log.csv").read_text().splitlines()
    assert [row.partition(",")[0] for row in rows] == ["epoch", "0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ("optimizer", "has the state of adam, and the optimizer of the script is rm_sprop"),
        ("shapes", "its shapes are not those of this model"),
        ("torn", "is not a valid Keras file"),
        ("late", "it has done 2 epochs, and initial_epoch is 3"),
    ],
)
def test_a_backup_that_does_not_fit_is_refused_and_not_lost(found, case, problem):
    refusal = found[case]["refused"]
    assert problem in refusal
    assert "A start at step 0 would lose what it holds." in refusal


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("loaded", "kept.keras: the script has loaded its weights."),
        ("other", "kept.keras: its shapes are not those of this model."),
    ],
)
def test_another_file_in_the_directory_of_the_run_is_named_with_the_reason(found, case, reason):
    assert found[case]["epochs"] == [0, 1, 2, 3]
    assert any(reason in message for message in found[case]["messages"])


@pytest.mark.parametrize(("case", "first"), [("own start", 1), ("without", 0)])
def test_a_script_that_chose_its_start_and_an_empty_backup_begin_anew(found, case, first):
    assert found[case]["epochs"][0] == first
    assert "Started at step 0." in found[case]["messages"]


@pytest.fixture(scope="module")
def found_by_keras_2(tmp_path_factory):
    cases = ["keras", "backup", "initial_epoch", "late", "shapes", "torn", "without"]
    # Its callback supports no strategy of one device.
    words = [*cases, "--strategy", "mirrored", "--root", tmp_path_factory.mktemp("keras-2")]
    done = run_with_tensorflow(SCRIPTS / "fit_goes_on.py", *words, TF_USE_LEGACY_KERAS="1")
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {case: said for line in lines for case, said in line.items()}


@pytest.mark.needs("tf_keras")
def test_keras_2_goes_on_from_its_checkpoint(found_by_keras_2):
    for case, first in (("backup", 4), ("initial_epoch", 2)):
        found = found_by_keras_2[case]
        assert found["epochs"] == [2, 3]
        told = f"Started at step {first} with weights, optimizer state and epoch of "
        assert any(text.startswith(told) and "chief/ckpt-2." in text for text in found["messages"])
        pairs = zip(found["values"], found_by_keras_2["keras"], strict=True)
        # A checkpoint has the mean of what the replicas have as moving averages.
        assert {index for index, (ours, theirs) in enumerate(pairs) if ours != theirs} <= {4, 5}
    assert found_by_keras_2["without"]["epochs"] == [0, 1, 2, 3]


@pytest.mark.needs("tf_keras")
@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ("shapes", "layer_with_weights-0/kernel is float32 4×8 in the checkpoint and float32 4×9"),
        ("torn", "ckpt-2 is damaged"),
        ("late", "it has done 2 epochs, and initial_epoch is 3"),
    ],
)
def test_a_backup_of_keras_2_that_does_not_fit_is_refused(found_by_keras_2, case, problem):
    refusal = found_by_keras_2[case]["refused"]
    assert problem in refusal
    assert "chief.old`." in refusal


@pytest.mark.needs("tf_keras")
def test_a_legacy_optimizer_begins_anew_beside_the_file_of_another_one(tmp_path):
    words = ["kept", "legacy", "--root", tmp_path]
    script = SCRIPTS / "fit_goes_on.py"
    done = run_with_tensorflow(script, *words, TF_USE_LEGACY_KERAS="1")
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])["legacy"]
    assert found["epochs"] == [0, 1, 2, 3]
    reason = "kept.keras: Keras loads no state into a legacy optimizer."
    assert any(reason in message for message in found["messages"])


@pytest.mark.weekly
def test_two_workers_load_the_same_file(found, place):
    assert found["keras"]
    words = ["two", "--root", str(place)]
    with Cluster(place / "two", "fit_goes_on.py", words) as cluster:
        assert cluster.wait() == [0, 0], cluster.output()
    entries = read_entries(RunDirectory(place / "two"))
    assert any(entry.message.startswith("Started at step 4 with weights") for entry in entries)
    logs = [cluster.log(worker).read_text().splitlines() for worker in (0, 1)]
    first, second = (json.loads(log[-1])["two"] for log in logs)
    assert first["epochs"] == second["epochs"] == [2, 3]
    # Each replica has moving averages of its own.
    averages = [4, 5]
    for index, (ours, theirs) in enumerate(zip(first["values"], second["values"], strict=True)):
        assert index in averages or ours == theirs
