"""Trains with the callbacks of Keras, and saves the last state as TensorFlow does."""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

root = Path(sys.argv[1])
keras.utils.set_random_seed(1)
model = keras.Sequential(
    [
        keras.layers.Input((4,)),
        keras.layers.Dense(3, name="first"),
        # Four variables of one shape: only their order tells them apart.
        keras.layers.BatchNormalization(name="norm"),
        keras.layers.Dense(2, name="last"),
    ],
    name="model",
)
model.compile("adam", "mse")
callbacks = [
    keras.callbacks.ModelCheckpoint(root / "m-{epoch:02d}-{loss:.2f}.keras"),
    keras.callbacks.ModelCheckpoint(root / "w-{epoch:02d}.weights.h5", save_weights_only=True),
    keras.callbacks.ModelCheckpoint(root / "old-{epoch:02d}.h5"),
    keras.callbacks.BackupAndRestore(root / "backup", delete_checkpoint=False),
]
inputs = np.random.default_rng(1).random((8, 4), np.float32)
model.fit(inputs, inputs[:, :2], epochs=2, verbose=0, callbacks=callbacks)
tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(root / "ckpt-2")


class Subclassed(keras.Model):
    """Layers that Keras names alike, with variables of the same shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(4)
        self.batch_norm = keras.layers.BatchNormalization()
        self.last = keras.layers.Dense(4)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.last(self.batch_norm(self.first(inputs)))


subclassed = Subclassed()
subclassed(inputs)
(root / "subclassed").mkdir()
subclassed.save_weights(root / "subclassed" / "w.weights.h5")
tf.train.Checkpoint(model=subclassed).write(root / "subclassed" / "ckpt-1")
np.savez(root / "outputs.npz", inputs=inputs, outputs=model(inputs))
