"""What tools of the command line need of checkpoints or of TensorFlow, and no other part does.

What training or the app needs too belongs in `bundle`, `catalog` or `training`.
"""
