"""Loads Keras files, and fails unless the model gives the outputs of another one."""

import sys
from pathlib import Path

import keras
import numpy as np

place, like = map(Path, sys.argv[1:3])
known = np.load(place / "outputs.npz")
for name in sys.argv[3:]:
    model = keras.models.load_model(like)
    if name.endswith(".keras"):
        model = keras.models.load_model(name)
    else:
        model.load_weights(name)
    np.testing.assert_array_equal(model(known["inputs"]), known["outputs"])
    assert int(model.optimizer.iterations) == 2
