"""Judges what a self-test found: one row for each thing that was compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from tfckpt_trainer.exactness.step_differences import describe_difference
from tfckpt_trainer.rundir.records.check import Pass
from tfckpt_trainer.rundir.records.selftest import WorkerDevices
from tfckpt_tui.formats import units
from tfckpt_tui.reports.checking import Outcome, Row
from tfckpt_tui.services.exactness.check import CheckResult
from tfckpt_tui.services.exactness.check_report import cause_of
from tfckpt_tui.tools.selftest.evidence import Steps, TrainingEvidence

STALL_SHARE = 0.9
"""The most of the time of a save for which training may stand still. In the foreground, it stands
still for all of it."""

HOST_BYTES = 256 << 20
"""What a save may add to the memory of a process, beside copies of the state."""

DEVICE_BYTES = 64 << 20
"""The same for the memory of a GPU."""

ADDED_SECONDS = 0.001
ADDED_SHARE = 0.1
"""What the library may add to a step: the larger of both."""

BUSY = "Run it again while the machine does nothing else. If it stays so, report this table."


@dataclass(frozen=True)
class Subject:
    """What a row is about, before it is judged."""

    name: str
    compared: str
    advice: str

    def row(self, passed: bool, finding: str) -> Row:
        """Returns the row; the advice only if it failed."""
        outcome = Outcome.PASSED if passed else Outcome.FAILED
        return Row(self.name, outcome, finding, self.compared, "" if passed else self.advice)

    def not_measured(self, why: str) -> Row:
        """Returns a row without a figure."""
        return Row(self.name, Outcome.NOT_MEASURED, why, self.compared)


LOGS = "Run `tfckpt-tui demo --detach` and read `tfckpt-tui logs RUN`; report both."

GPUS = Subject(
    "GPUs",
    "number of GPUs that TensorFlow lists against those of the driver, on each worker",
    "Install CUDA for TensorFlow: `pip install 'tensorflow[and-cuda]'`. Then "
    "`python -c 'import tensorflow as tf; print(tf.config.list_physical_devices())'` lists them.",
)
TRAINING = Subject(
    "training", "loss of the first and the last step: finite, and lower at the end", LOGS
)
CHECKPOINTS = Subject(
    "checkpoints",
    "every byte on disk against TensorFlow's checksums, every file against its record",
    "Check the disk of the scratch directory; choose another one with TMPDIR.",
)
KILLED = Subject(
    "killed worker",
    "loss of each step that was lost with SIGKILL against the same step after the restart, bit by "
    "bit, on each worker",
    LOGS,
)
STALL = Subject(
    "stall of a save",
    "time that training stood still for a save in the background, against the time from its step "
    f"to its commit: {STALL_SHARE:.0%} at most",
    BUSY,
)
HOST_MEMORY = Subject(
    "memory of the host",
    "peak of the resident memory before and after a save; it may add two copies of the state of "
    f"each replica and {units.size(HOST_BYTES)}",
    BUSY,
)
DEVICE_MEMORY = Subject(
    "memory of the GPUs",
    "peak that TensorFlow allocated while it saved, against training; it may add one copy of the "
    f"state and {units.size(DEVICE_BYTES)}",
    "Report this table: a save must not need more memory on a GPU.",
)
STEP_COST = Subject(
    "cost per step",
    f"median steps of the library's loop and of a plain loop, in turn; less than "
    f"{units.duration(ADDED_SECONDS)} or {ADDED_SHARE:.0%} more in a quarter of the pairs",
    BUSY,
)
IN_PLACE = Subject(
    "restore in place",
    "loss, input and all state of the steps after the restore against the first time, bit by bit",
    "",
)
COLD = Subject("restore in a new process", IN_PLACE.compared, "")

PASSES = {Pass.IN_PLACE: IN_PLACE, Pass.COLD: COLD}


def gpus(evidence: TrainingEvidence) -> Row:
    """Judges whether TensorFlow can use what the driver has."""
    devices = _devices(evidence)
    offered = sum(len(device.driver_gpus) for device in devices)
    used = sum(len(device.gpus) for device in devices)
    if not offered and not used:
        return GPUS.not_measured("no GPU")
    missing = any(len(device.gpus) < len(device.driver_gpus) for device in devices)
    return GPUS.row(not missing, f"{used} of {units.count(max(offered, used), 'GPU')}")


def training(evidence: TrainingEvidence) -> Row:
    """Judges whether the loss fell."""
    losses = [(line.step, float.fromhex(line.loss)) for line in _chief(evidence)]
    if not losses:
        return TRAINING.row(False, "no step")
    (first, before), (last, after) = losses[0], losses[-1]
    passed = all(math.isfinite(loss) for _, loss in losses) and after < before
    finding = f"loss {units.metric(before)} in step {first}, {units.metric(after)} in step {last}"
    return TRAINING.row(passed, finding)


def checkpoints(evidence: TrainingEvidence) -> Row:
    """Judges whether all checkpoints are sound."""
    results = evidence.verified
    bad = [name for name, verified in results.items() if not verified.ok or verified.unread]
    if bad:
        fault = results[bad[0]].record.fault
        why = fault.message if fault is not None else "it cannot be read"
        return CHECKPOINTS.row(False, f"{bad[0]}: {why}")
    tensors = sum(verified.record.tensors for verified in results.values())
    read = units.size(sum(verified.record.bytes for verified in results.values()))
    text = f"{units.count(len(results), 'checkpoint')}, {units.count(tensors, 'tensor')}, {read}"
    return CHECKPOINTS.row(0 < len(results) == len(evidence.records), text)


def killed_worker(evidence: TrainingEvidence) -> Row:
    """Judges whether the restart after a SIGKILL repeated the lost steps."""
    killed = evidence.killed
    if killed is None:
        return KILLED.row(False, "no worker was killed: no checkpoint was committed")
    name = f"worker {killed.worker} after step {killed.step}"
    if not evidence.restarts:
        return KILLED.row(False, f"{name} was not restarted")
    repeated = [_repeated(steps) for steps in evidence.steps]
    least = min(len(pairs) for pairs in repeated)
    if not least:
        return KILLED.row(False, f"{name}, restarted, but no step was trained again")
    for worker, pairs in enumerate(repeated):
        for step, (first, again) in pairs.items():
            if first != again:
                values = f"{float.fromhex(first)!r}, then {float.fromhex(again)!r}"
                return KILLED.row(False, f"{name}: worker {worker}, step {step}: {values}")
    return KILLED.row(True, f"{name}, restarted; {units.count(least, 'step')} equal")


def stall(evidence: TrainingEvidence) -> Row:
    """Judges the stall of a save in the background."""
    for record in evidence.records:
        cost, seconds = record.cost, record.duration_seconds
        if cost is not None and cost.background and seconds:
            size = units.size(sum(file.size for file in record.files))
            finding = (
                f"{units.duration(cost.stall_seconds)} of {units.duration(seconds)}, for {size}"
            )
            return STALL.row(cost.stall_seconds <= STALL_SHARE * seconds, finding)
    return STALL.row(False, "no save in the background was recorded")


def host_memory(evidence: TrainingEvidence) -> Row:
    """Judges what a save added to the memory of the process that added most."""
    added = []
    for steps, devices in zip(evidence.steps, _devices(evidence), strict=False):
        before = next((step.before_save for step in steps if step.before_save), None)
        after = next((step.after_save for step in steps if step.after_save), None)
        if before is not None and after is not None:
            limit = 2 * devices.local_replicas * devices.state_bytes + HOST_BYTES
            added.append((after.host - before.host, after.host, limit))
    if not added:
        return HOST_MEMORY.row(False, "no worker saw the end of a save")
    most, peak, _ = max(added)
    finding = f"peak {units.size(peak)} a process; a save added {units.size(most)}"
    return HOST_MEMORY.row(all(size <= limit for size, _, limit in added), finding)


def device_memory(evidence: TrainingEvidence) -> Row:
    """Judges what a save added to the memory of the GPU that needed most."""
    if not any(device.gpus for device in _devices(evidence)):
        return DEVICE_MEMORY.not_measured("no GPU")
    pairs = []
    for steps in evidence.steps:
        before = next((step.before_save for step in steps if step.before_save), None)
        after = next((step.after_save for step in steps if step.after_save), None)
        if before is not None and after is not None:
            pairs += list(zip(before.devices, after.devices, strict=True))
    if not pairs:
        return DEVICE_MEMORY.row(False, "no worker saw the end of a save")
    limit = _devices(evidence)[0].state_bytes + DEVICE_BYTES
    train, save = max(pairs, key=lambda pair: pair[1] - pair[0])
    finding = f"peak {units.size(train)} in training, {units.size(save)} while it saved"
    return DEVICE_MEMORY.row(save - train <= limit, finding)


def step_cost(evidence: TrainingEvidence) -> Row:
    """Judges what the library adds to a step of the chief."""
    cost = next((line.cost for line in _chief(evidence) if line.cost is not None), None)
    if cost is None:
        return STEP_COST.row(False, "no step was measured")
    low, median, high = (f"{1e6 * seconds:+,.0f}" for seconds in cost.added_seconds)
    finding = (
        f"{median} µs (quartiles {low} to {high} µs), {cost.blocks} pairs of {cost.steps} steps"
    )
    limit = max(ADDED_SECONDS, ADDED_SHARE * cost.plain_seconds)
    plain = units.step_time(cost.plain_seconds)
    return STEP_COST.row(cost.added_seconds[0] <= limit, f"{plain} plain, {finding}")


MEASURED: dict[Subject, Callable[[TrainingEvidence], Row]] = {
    GPUS: gpus,
    TRAINING: training,
    CHECKPOINTS: checkpoints,
    KILLED: killed_worker,
    STALL: stall,
    HOST_MEMORY: host_memory,
    DEVICE_MEMORY: device_memory,
    STEP_COST: step_cost,
}
"""The rows of the training that is measured."""


def restores(result: CheckResult) -> list[Row]:
    """Judges both restores of a check."""
    rows = []
    for repetition in result.repetitions:
        subject = PASSES[repetition.phase]
        difference, cause = repetition.difference, cause_of(result, repetition)
        finding = f"{units.count(repetition.steps, 'step')} equal"
        if difference is not None:
            finding = describe_difference(difference)
        judged = replace(subject, advice=cause.advice if cause is not None else LOGS)
        rows.append(judged.row(difference is None and repetition.steps > 0, finding))
    return rows


def not_run(subjects: list[Subject], why: str) -> list[Row]:
    """Returns the rows of a training that failed."""
    return [
        Row(subject.name, Outcome.FAILED, f"not run: {why}", subject.compared)
        for subject in subjects
    ]


def _chief(evidence: TrainingEvidence) -> Steps:
    return evidence.steps[0] if evidence.steps else ()


def _devices(evidence: TrainingEvidence) -> list[WorkerDevices]:
    """Returns the devices of each worker, as its first process found them."""
    by_worker = (
        next((step.devices for step in steps if step.devices), None) for steps in evidence.steps
    )
    return [devices for devices in by_worker if devices is not None]


def _repeated(steps: Steps) -> dict[int, tuple[str, str]]:
    """Returns the losses of the steps that two processes trained."""
    by_process: dict[int, dict[int, str]] = {}
    for line in steps:
        by_process.setdefault(line.process, {})[line.step] = line.loss
    first, *later = list(by_process.values()) or [{}]
    again = later[0] if later else {}
    return {step: (first[step], again[step]) for step in first if step in again}
