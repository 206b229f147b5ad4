"""What a check of exactness orders, and what each worker records of every step."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tfckpt_trainer.rundir.records.exactness import Exactness
from tfckpt_trainer.rundir.storage.documents import Document

CHECK_VARIABLE = "TFCKPT_CHECK"
"""Environment variable with a `CheckOrder` as JSON; a worker that has it is checked."""


class Pass(StrEnum):
    """One of the three times that the same steps are trained."""

    FIRST = "first"
    IN_PLACE = "in place"
    COLD = "cold"


class StateKind(StrEnum):
    """Kinds of state that training can change."""

    VARIABLE = "variable"
    GENERATOR = "tf.random.Generator"
    SEED_GENERATOR = "seed generator"
    METRIC = "metric"
    OPTIMIZER = "optimizer"
    MODEL = "model"
    LAYER = "layer"
    MODULE = "tf.Module"
    SAVED_MODEL = "SavedModel"
    TABLE = "lookup table"
    ITERATOR = "iterator"
    PYTHON_GENERATOR = "random generator"
    RANDOM_STATE = "random state"
    VALUES = "values"


class CheckOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to check.

    Attributes:
        directory: Where each worker writes its trace.
        warm_up: Steps before the save.
        steps: Steps after the save, which are repeated.
        run_directory: Path that the script passed to `TrainingRun`, which the check replaces; the
            worker fills it in.
    """

    directory: str
    warm_up: int
    steps: int
    run_directory: str = ""

    def trace(self, worker: int) -> str:
        """Path of the trace of a worker: one `CheckedStep` per line."""
        return f"{self.directory}/worker-{worker}.jsonl"


class StateDigest(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one object between two steps.

    Attributes:
        kind: The kind of object.
        digest: A checksum for each replica of this worker.
        title: Its name for users; empty if its path is the name.
        passed: Whether an object that was passed to `TrainingRun` holds it.
        expression: If not, how the script can write it; empty if it cannot.
    """

    kind: StateKind
    digest: str
    title: str = ""
    passed: bool = True
    expression: str = ""


class CheckFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What can make the repeated steps differ, as far as a worker knows.

    Attributes:
        strategy: Public name of the strategy.
        replicas: Replicas in sync over all workers.
        has_dataset: Whether a dataset was passed to `TrainingRun`.
        gpus: Number of GPUs that this worker uses.
        deterministic: Whether `enable_op_determinism` was called.
        threads: Threads within one operation; 0 if TensorFlow chooses.
        step_operations: Operations in the script's functions whose state no checkpoint can hold,
            each with the place in the script.
        input_operations: The same in functions of the dataset.
        input_causes: Why the position of the dataset is not exact, each as a noun phrase.
        input_remedies: What to change in the dataset, each as a sentence.
        iterators: Names of iterators that the script reads itself and did not pass.
        datasets: Names of datasets of the script, if none was passed to `TrainingRun`.
        run_directory: Path of the run directory that the script passed; empty if it passed none.
        exactness: What is known of an exact resume before anything is compared.
    """

    strategy: str = ""
    replicas: int = 1
    has_dataset: bool
    gpus: int = 0
    deterministic: bool = False
    threads: int = 0
    step_operations: list[str] = []
    input_operations: list[str] = []
    input_causes: list[str] = []
    input_remedies: list[str] = []
    iterators: list[str] = []
    datasets: list[str] = []
    run_directory: str = ""
    exactness: Exactness | None = None


class CheckedStep(Document, frozen=True, kw_only=True):
    """What one worker recorded after a step, or right after the save or the restore.

    Attributes:
        phase: Which of the three passes it belongs to.
        step: Steps done.
        metrics: What the step reported, as hexadecimal floats.
        batch: Checksum of the input of the step; empty if it is unknown.
        state: Digest of each object with state, by name.
        values: Python numbers that the script can see, by name, without those that the step
            reported; only before and after the first step.
        facts: Only after the first step of a pass.
        problem: Why the check cannot go on; then this is the last line.
    """

    phase: Pass
    step: int
    metrics: dict[str, str] = {}
    batch: str = ""
    state: dict[str, StateDigest] = {}
    values: dict[str, str] = {}
    facts: CheckFacts | None = None
    problem: str = ""
