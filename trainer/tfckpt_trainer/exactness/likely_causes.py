"""Says why repeated steps differ, and what to change in the script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfckpt_trainer.exactness.step_differences import StepDifference, What
from tfckpt_trainer.rundir.records.check import CheckFacts, Pass, StateKind
from tfckpt_trainer.words.counts import count

SHOWN_VALUES = 3

_PYTHON = ("tf.py_function", "tf.numpy_function")
"""How the operations begin that call Python."""


@dataclass(frozen=True)
class Cause:
    """A likely cause.

    Attributes:
        id: Its name in JSON.
        why: The cause, as sentences.
        advice: What to change.
    """

    id: str
    why: str
    advice: str


def likely_cause(difference: StepDifference, *, in_place_exact: bool = False) -> Cause:
    """Returns the cause that fits a difference best.

    Args:
        difference: The first difference of a pass.
        in_place_exact: Whether the pass in place repeated all steps exactly.
    """
    if difference.what is What.END:
        return _ended_early(difference)
    if difference.what is What.STATE and not difference.passed:
        return _not_passed(difference)
    if difference.what is What.STATE and difference.after_steps == 0:
        return _not_restored(difference)
    if difference.what is What.INPUT:
        return _input(difference)
    if difference.phase is Pass.COLD and in_place_exact:
        return _NEW_PROCESS
    facts = difference.facts or CheckFacts(has_dataset=True)
    causes = (rule(difference, facts) for rule in _RULES)
    return next((cause for cause in causes if cause is not None), _UNKNOWN)


def _ended_early(difference: StepDifference) -> Cause:
    steps = max(1, difference.after_steps - 1)
    return Cause(
        "ended-early",
        f"The repeated training ended before step {difference.step}: the script left its loop, or "
        "its data ended earlier than the first time.",
        f"Check at most {count(steps, 'step')}, or give the script more steps.",
    )


def _not_passed(difference: StepDifference) -> Cause:
    name, kind = difference.name, difference.kind
    why = f"The {_words(kind)} {name} was not passed to TrainingRun, so no checkpoint holds it."
    if kind is StateKind.PYTHON_GENERATOR:
        return Cause(
            "unsaved-generator",
            why,
            f"Draw from `random` or `np.random`, which are saved. Or keep the state of {name}: "
            "`run.before_save` puts it into run.worker_state, `run.after_restore` takes it back.",
        )
    if kind is StateKind.SEED_GENERATOR and name == "of keras.random":
        return Cause(
            "unsaved-generator",
            "Keras drew random numbers without a seed of the script's own: its global generator "
            "is in no checkpoint.",
            "Pass `seed=keras.random.SeedGenerator(…)` to the functions of keras.random, and pass "
            "that generator to TrainingRun in extra={…}.",
        )
    argument = "metrics" if kind is StateKind.METRIC else "extra"
    identifier = {
        StateKind.GENERATOR: "unsaved-generator",
        StateKind.SEED_GENERATOR: "unsaved-generator",
        StateKind.TABLE: "unsaved-table",
    }.get(kind or StateKind.VARIABLE, "unsaved-variable")
    expression = difference.expression
    key = expression.rpartition(".")[2].partition("[")[0]
    advice = (
        f"Pass it: TrainingRun(…, {argument}={{{key!r}: {expression}}})."
        if expression
        else "Pass the object that holds it to TrainingRun, in extra={…}."
    )
    return Cause(identifier, why, advice)


def _not_restored(difference: StepDifference) -> Cause:
    name, kind = difference.name, difference.kind
    if kind is StateKind.RANDOM_STATE:
        return Cause(
            "random-state",
            f"{name} has another state right after the restore. Something drew from it at once, "
            "such as a thread, or a function that run.after_restore calls.",
            "Draw random numbers only in the training loop.",
        )
    if kind is StateKind.VALUES:
        return Cause(
            "values",
            f"{name} has other values right after the restore.",
            "Do not change it in a function that run.after_restore calls.",
        )
    return Cause(
        "not-restored",
        f"The {_words(kind)} {name} belongs to an object that was passed, but differs right after "
        "the restore: the checkpoint does not hold it on this worker.",
        f"Pass the object that holds {name} to TrainingRun by itself, in extra={{…}}.",
    )


def _input(difference: StepDifference) -> Cause:
    causes = _known_input(difference)
    if causes:
        return causes[0]
    facts = difference.facts or CheckFacts(has_dataset=True)
    if facts.input_operations:
        return Cause(
            "stateful-map",
            "The dataset calls operations whose random state no checkpoint can hold: "
            f"{', '.join(facts.input_operations)}.",
            "Use tf.random.stateless_… or tf.image.stateless_random_… with a seed from the "
            "dataset, such as tf.data.Dataset.random(seed=…) or a counter.",
        )
    return Cause(
        "input",
        "The dataset gives other batches, although all variables are equal. A seed is missing in "
        "`shuffle` or `Dataset.random`, the order is not deterministic, or the elements come from "
        "Python.",
        "Pass a seed to each shuffle, leave `deterministic` at True, and read elements with "
        "tf.data instead of from_generator.",
    )


def _known_input(difference: StepDifference) -> list[Cause]:
    """Returns what the trainer found in the dataset at its start, if it found anything."""
    facts = difference.facts
    if facts is None or not facts.input_causes:
        return []
    why = f"The dataset uses {' and '.join(facts.input_causes)}. No checkpoint can hold that state."
    return [Cause("stateful-map", why, " ".join(facts.input_remedies))]


def _input_state(difference: StepDifference, _: CheckFacts) -> Cause | None:
    """The dataset may change variables: a tf.random.Generator, for example."""
    if difference.what is not What.STATE:
        return None
    return next(iter(_known_input(difference)), None)


def _random_operations(_: StepDifference, facts: CheckFacts) -> Cause | None:
    operations = [
        operation for operation in facts.step_operations if not operation.startswith(_PYTHON)
    ]
    if not operations:
        return None
    return Cause(
        "stateful-operation",
        f"The script calls operations whose random state no checkpoint can hold: "
        f"{', '.join(operations)}.",
        "Pass random_seed=… to TrainingRun or fit; or use a tf.random.Generator and pass it in "
        "extra={…}, or tf.random.stateless_….",
    )


def _python_values(difference: StepDifference, _: CheckFacts) -> Cause | None:
    if not difference.values:
        return None
    name = difference.values[0][0]
    key = name.rpartition(".")[2]
    return Cause(
        "python-value",
        "A Python value may change the result, and the restore does not bring it back: "
        f"{_changed(difference)}.",
        f"Keep it in run.state: `run.state[{key!r}]` is saved and restored.",
    )


def _changed(difference: StepDifference) -> str:
    return "; ".join(
        f"{name} was {before} at the save and is {after} after the restore"
        for name, before, after in difference.values[:SHOWN_VALUES]
    )


def _learning_rate(difference: StepDifference, _: CheckFacts) -> Cause | None:
    if not difference.name.endswith("/learning_rate"):
        return None
    evidence = f": {_changed(difference)}" if difference.values else ""
    return Cause(
        "learning-rate",
        "The script or a callback sets the learning rate, from something that the restore does "
        f"not bring back{evidence}.",
        "Compute it from run.step, or give the optimizer a schedule of keras.optimizers.schedules.",
    )


def _iterators(_: StepDifference, facts: CheckFacts) -> Cause | None:
    if not facts.iterators:
        return None
    name = facts.iterators[0]
    key = name.rpartition(".")[2].partition("[")[0]
    return Cause(
        "unsaved-iterator",
        f"The iterator {name} was not passed to TrainingRun, so no checkpoint holds its position.",
        "Pass the dataset, and loop over the run: TrainingRun(…, dataset=dataset). Or pass the "
        f"iterator: extra={{{key!r}: {name}}}.",
    )


def _own_datasets(_: StepDifference, facts: CheckFacts) -> Cause | None:
    if facts.has_dataset or not facts.datasets:
        return None
    shown = " and ".join(facts.datasets[:SHOWN_VALUES])
    return Cause(
        "input",
        f"TrainingRun was given no dataset, and the script has {shown}. No checkpoint holds their "
        "positions and the order of their shuffles.",
        "Pass the dataset: TrainingRun(…, dataset=dataset), and loop over the run. A dataset that "
        "is made in each step needs a seed of the step: shuffle(…, seed=run.step).",
    )


def _no_dataset(_: StepDifference, facts: CheckFacts) -> Cause | None:
    if facts.has_dataset or facts.iterators:
        return None
    return Cause(
        "input",
        "TrainingRun was given no dataset, so the position in the data is neither saved nor "
        "restored.",
        "Pass the dataset: TrainingRun(…, dataset=dataset), and loop over the run. For Keras, "
        "use tfckpt_trainer.training.fit.",
    )


def _python_operations(_: StepDifference, facts: CheckFacts) -> Cause | None:
    operations = [operation for operation in facts.step_operations if operation.startswith(_PYTHON)]
    if not operations:
        return None
    return Cause(
        "python-operation",
        f"The script calls Python from TensorFlow: {', '.join(operations)}. State of that code is "
        "in no checkpoint.",
        "Write the function with TensorFlow operations, or keep its state in run.state.",
    )


def _parameter_servers(_: StepDifference, facts: CheckFacts) -> Cause | None:
    if facts.strategy != "ParameterServerStrategy" or facts.replicas == 1:
        return None
    return Cause(
        "parameter-servers",
        "With parameter servers, workers draw from the seeds of Dropout and update moving "
        "averages in the order in which they arrive.",
        "Train with one worker, with another strategy, or without layers that draw or average.",
    )


def _gpu(_: StepDifference, facts: CheckFacts) -> Cause | None:
    if not facts.gpus or facts.deterministic:
        return None
    return Cause(
        "gpu-atomics",
        "Some operations of a GPU add with atomics, in any order, so their sums differ in the "
        "last bits.",
        "Call tf.config.experimental.enable_op_determinism() at the start of the script. Steps "
        "become slower.",
    )


def _threads(_: StepDifference, facts: CheckFacts) -> Cause | None:
    if facts.threads == 1 or facts.deterministic:
        return None
    return Cause(
        "threads",
        "Threads within one operation may add in any order, so sums differ in the last bits.",
        "Call tf.config.experimental.enable_op_determinism(), or use one thread: "
        "create_strategy(…, threads=1).",
    )


# What names an operation or an object of the script comes before what only may matter.
_RULES: tuple[Callable[[StepDifference, CheckFacts], Cause | None], ...] = (
    _random_operations,
    _learning_rate,
    _iterators,
    _own_datasets,
    _python_operations,
    _parameter_servers,
    _input_state,
    _python_values,
    _no_dataset,
    _gpu,
    _threads,
)

_NEW_PROCESS = Cause(
    "new-process",
    "In place all steps were repeated, but not in a new process. The script draws without a seed "
    "when it starts, such as for constants or the order of its data, or it depends on the time or "
    "the hash of strings.",
    "Call keras.utils.set_random_seed(…) at the start of the script, and set PYTHONHASHSEED.",
)

_UNKNOWN = Cause(
    "unknown",
    "All state that can be found was equal before this step. The step uses state that is in no "
    "variable, such as the order of shuffled validation data, or an operation that is not "
    "deterministic.",
    "Do not shuffle validation data. Call tf.config.experimental.enable_op_determinism() and check "
    "again. If the steps still differ, look for state in libraries that the step calls.",
)


def _words(kind: StateKind | None) -> str:
    return kind.value if kind is not None else "state"
