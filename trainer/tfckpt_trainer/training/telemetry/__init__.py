"""Reports of a worker: step metrics, heartbeat, TensorBoard summaries and the event log.

Code that changes what the trainer does belongs in `loop` or `checkpoint`.
"""
