"""One call of the training loop: its input, and its steps on all replicas.

What happens between two calls belongs in `training.loop`.
"""
