"""Input pipelines of tf.data: what of their position can be saved, and how it comes back.

What a training step reads from them belongs in `loop.inputs`.
"""
