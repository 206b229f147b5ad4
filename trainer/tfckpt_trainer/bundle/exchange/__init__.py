"""Copies tensors between checkpoints and the files of other programs: npy, npz, safetensors, Keras.

Reading and writing TensorFlow's own format belongs in `bundle` and `bundle.writing`.
"""
