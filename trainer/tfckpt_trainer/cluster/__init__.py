"""TensorFlow clusters: tasks, addresses, `TF_CONFIG`, and clusters that a scheduler describes.

Pure functions without TensorFlow, for the launcher and the training process. Code that starts
processes belongs in `launch`.
"""
