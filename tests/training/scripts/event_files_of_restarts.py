"""Writes event files of programs that restart; prints what TensorBoard keeps of them.

python event_files_of_restarts.py DIRECTORY
"""

import json
import sys
import time
from pathlib import Path

import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.context import RequestContext
from tensorboard.data.provider import RunTagFilter
from tensorboard.data.server_ingester import SubprocessServerDataIngester, get_server_binary
from tensorboard.util.grpc_util import ChannelCredsType

directory = Path(sys.argv[1])
ATTEMPTS = ((0, 101), (60, 131), (40, 91), (95, 151))
Summary, SessionLog = tf.compat.v1.Summary, tf.compat.v1.SessionLog

for attempt, steps in enumerate(ATTEMPTS):
    writer = tf.summary.create_file_writer(str(directory / "second"), filename_suffix=f".{attempt}")
    with writer.as_default():
        for step in range(*steps, 5):
            tf.summary.scalar("loss", step + attempt / 8, step=step)
            if step % 50 == 0:
                tf.summary.scalar("rare", step + attempt / 8, step=step)
    writer.close()
    with tf.compat.v1.Graph().as_default():
        first = tf.compat.v1.summary.FileWriter(
            str(directory / "first"), filename_suffix=f".{attempt}"
        )
        if attempt:
            first.add_session_log(SessionLog(status=SessionLog.START), steps[0])
        for step in range(*steps, 5):
            value = Summary.Value(tag="loss", simple_value=step + attempt / 8)
            first.add_summary(Summary(value=[value]), step)
        first.close()

ingester = SubprocessServerDataIngester(
    server_binary=get_server_binary(),
    logdir=str(directory),
    reload_interval=1,
    channel_creds_type=ChannelCredsType.LOCAL,
)
ingester.start()
accumulated = EventAccumulator(str(directory / "first"), {"scalars": 0}).Reload()
read = {"accumulated": [[event.step, event.value] for event in accumulated.Scalars("loss")]}
for run, tag in (("second", "loss"), ("second", "rare"), ("first", "loss")):
    for _ in range(120):
        found = ingester.data_provider.read_scalars(
            RequestContext(),
            experiment_id="",
            plugin_name="scalars",
            downsample=1000,
            run_tag_filter=RunTagFilter([run], [tag]),
        )
        points = found.get(run, {}).get(tag, [])
        if points and points[-1].step == 150:
            break
        time.sleep(0.5)
    read[f"{run}/{tag}"] = [[point.step, point.value] for point in points]
print(json.dumps(read))
