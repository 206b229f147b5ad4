"""The terminal app and the command-line interface, without TensorFlow.

Code that a training process needs too belongs in `tfckpt_trainer`.
"""
