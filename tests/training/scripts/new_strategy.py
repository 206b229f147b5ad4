"""Creates the strategy of the first argument; a second one names its communication."""

from __future__ import annotations

import sys

import tensorflow as tf

from tfckpt_trainer.training import create_strategy

options = [
    tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation(name)
    )
    for name in sys.argv[2:]
]
create_strategy(sys.argv[1], communication=options[0] if options else None)
