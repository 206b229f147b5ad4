"""Keras: `fit`, the callback for `Model.fit`, and the state of callbacks.

Loops of one's own use `training.loop` directly.
"""
