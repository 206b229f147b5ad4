"""What is known of a training script from outside: its errors, its objects, how it ends.

What a script does while it trains belongs in `training`.
"""
