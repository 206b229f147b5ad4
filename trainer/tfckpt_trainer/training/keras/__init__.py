"""Keras support: `fit`, a callback for `Model.fit`, and the state of callbacks.

Code for custom training loops belongs in `training.loop`.
"""
