"""Reports of a worker: step metrics, heartbeat, TensorBoard summaries, event log, `run.json`.

Code that changes what the trainer does belongs in `loop` or `checkpoint`.
"""
