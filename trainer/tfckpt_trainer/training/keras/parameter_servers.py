"""What `fit` supports with parameter servers."""

from __future__ import annotations

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras_library import is_keras_3, keras

_ONLY_KERAS_2 = (
    "fit supports parameter servers with Keras 2 only: Keras 3 trains on the chief alone there, "
    "and its optimizers and metrics read a variable and then write it. Train with a loop over "
    "TrainingRun. Or `pip install tf-keras`, and set TF_USE_LEGACY_KERAS=1 before the script "
    "imports TensorFlow."
)

_ONLY_ASYNCHRONOUS = (
    "With parameter servers, the steps of fit are asynchronous, as those of keras.Model.fit. Leave "
    "asynchronous out, or train with a loop over TrainingRun."
)


def check_parameter_servers(model: keras.Model, *, asynchronous: bool) -> None:
    """Makes sure that `fit` can train a model with parameter servers.

    Raises:
        UsageError: It cannot.
    """
    if is_keras_3(model):
        raise UsageError(_ONLY_KERAS_2)
    if not asynchronous:
        raise UsageError(_ONLY_ASYNCHRONOUS)
