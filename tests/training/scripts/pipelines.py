"""Trains three steps with each kind of input pipeline, resumes, and prints what came back."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import keras
import msgspec
import tensorflow as tf

from tfckpt_trainer import SaveOptions, TrainingRun
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.training import create_strategy
from tfckpt_trainer.training.pipelines.pipeline import probe

parser = argparse.ArgumentParser()
parser.add_argument("--directory", type=Path, required=True)
parser.add_argument("--only", nargs="*", help="names of pipelines to train with")
parser.add_argument("--each", type=int, default=1, help="so many batches between two restores")
options = parser.parse_args()

strategy = create_strategy("one-device", threads=1)
SUMMARIES = tf.summary.create_file_writer(str(options.directory / "summaries"))
IMAGE = tf.fill([4, 4, 3], 100.0)


def indexes():
    return tf.data.Dataset.range(100).shuffle(10, seed=3)


def stateless(index):
    return index, tf.reduce_mean(tf.image.stateless_random_brightness(IMAGE, 0.5, seed=[1, index]))


@tf.function
def compiled_image(index):
    return random_image(index)


def random_image(index):
    return index, tf.reduce_mean(tf.image.random_brightness(IMAGE, 0.5))


def keras_layer():
    layer = keras.layers.RandomBrightness(0.5)
    return indexes().map(lambda index: (index, tf.reduce_mean(layer(IMAGE))))


def whole_layer():
    return keras.layers.RandomBrightness(0.5)


def generator():
    random = tf.random.Generator.from_seed(1)
    return indexes().map(lambda index: (index, random.uniform([])))


def changed_variable():
    counter = tf.Variable(0)
    return indexes().map(lambda index: (index, counter.assign_add(1)))


def read_variable():
    scale = tf.Variable(2.0)
    return indexes().map(lambda index: (index, scale + 1.0))


def mutable_table():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
    return indexes().map(lambda index: (index, table.lookup(index)))


def static_table():
    values = tf.lookup.KeyValueTensorInitializer([0, 1], [5, 6], tf.int64, tf.int64)
    return indexes().map(tf.lookup.StaticHashTable(values, 0).lookup)


def from_generator():
    signature = tf.TensorSpec([], tf.int64)
    return tf.data.Dataset.from_generator(lambda: iter(range(100)), output_signature=signature)


def nested_generator():
    return tf.data.Dataset.range(4).flat_map(lambda _: from_generator())


def captured(make):
    """A dataset within a function, whose iterator exists only after the first element."""
    inner = make()
    return tf.data.Dataset.range(4).flat_map(lambda _: inner)


def hidden(dataset):
    """The same dataset, without the Python objects that it is made of."""
    variant = tf.data.experimental.to_variant(dataset)
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


def on_device():
    return indexes().apply(tf.data.experimental.copy_to_device("/CPU:0"))


def watched(index):
    """Operations that TensorFlow calls stateful, and that have no state."""
    tf.debugging.assert_less(index, tf.constant(1000, tf.int64))
    tf.print(index, output_stream=f"file://{options.directory}/printed")
    tf.io.write_file(f"{options.directory}/written", "")
    with SUMMARIES.as_default():
        tf.summary.scalar("index", index, step=index)
    total = tf.data.Dataset.range(3).reduce(tf.constant(0, tf.int64), lambda a, b: a + b)
    number = tf.cast(index + total, tf.float32)
    return index, tf.cond(index > 5, lambda: tf.debugging.check_numerics(number, ""), lambda: 0.0)


def sampled_box(index):
    tf.debugging.check_numerics(1.0, "named first")
    image, boxes = tf.constant([9, 9, 3]), tf.zeros([1, 1, 4])
    return index, tf.image.sample_distorted_bounding_box(image, boxes, seed=1)[0]


def checked_draw(index):
    return index, tf.debugging.check_numerics(tf.random.uniform([]), "named first")


def check(index):
    return index, tf.debugging.check_numerics(1.0, "never")


def double(index):
    return index * 2


def classes(index):
    return tf.cast(index % 2, tf.int32)


PIPELINES = {
    "plain": lambda: indexes(),
    "stateless": lambda: indexes().map(stateless),
    "random_image": lambda: indexes().map(random_image),
    "compiled": lambda: indexes().map(compiled_image),
    "parallel": lambda: indexes().map(random_image, num_parallel_calls=2).batch(2).prefetch(2),
    "shuffled": lambda: indexes().map(random_image).shuffle(10, seed=4),
    "keras_layer": keras_layer,
    "whole_layer": lambda: indexes().map(lambda index: IMAGE[:1, :1, :1]).map(whole_layer()),
    "generator": generator,
    "changed_variable": changed_variable,
    "captured_map": lambda: captured(lambda: indexes().map(random_image)),
    "captured_generator": lambda: captured(from_generator),
    "captured_on_device": lambda: captured(on_device),
    "late": lambda: hidden(captured(on_device)),
    "late_map": lambda: hidden(captured(lambda: indexes().map(random_image))),
    "checked": lambda: indexes().map(check),
    "watched": lambda: indexes().map(watched),
    "box": lambda: indexes().map(sampled_box),
    "behind_a_check": lambda: indexes().map(checked_draw),
    "hidden_check": lambda: hidden(indexes().map(check)),
    "read_variable": read_variable,
    "mutable_table": mutable_table,
    "static_table": static_table,
    "from_generator": from_generator,
    "nested_generator": nested_generator,
    "shuffled_generator": lambda: from_generator().shuffle(10, seed=3),
    "py_function": lambda: indexes().map(lambda i: tf.py_function(double, [i], tf.int64)),
    "numpy_function": lambda: indexes().map(lambda i: tf.numpy_function(double, [i], tf.int64)),
    "rejection_resample": lambda: indexes().rejection_resample(classes, [0.5, 0.5], seed=3),
    "prefetch_to_device": lambda: indexes().apply(
        tf.data.experimental.prefetch_to_device("/CPU:0")
    ),
    "long": lambda: (
        indexes()
        .filter(lambda index: index % 2 == 0)
        .cache()
        .repeat()
        .enumerate()
        .map(lambda number, index: (index, tf.random.stateless_uniform([], [7, number])))
        .interleave(lambda *both: tf.data.Dataset.from_tensors(both), cycle_length=2)
        .batch(2)
        .prefetch(tf.data.AUTOTUNE)
    ),
    "sampled": lambda: tf.data.Dataset.sample_from_datasets([indexes(), indexes()], seed=3),
    "two": lambda: {"exact": indexes(), "counted": from_generator()},
}
SKIPPING = {"from_generator", "shuffled_generator", "two", "prefetch_to_device"}


def train(directory, dataset, steps, **saving):
    """Trains to a step; returns the batches."""
    model = tf.Module()
    model.weight = tf.Variable(1.0)
    run = TrainingRun(
        directory,
        model=model,
        dataset=dataset,
        strategy=strategy,
        total_steps=steps,
        saving=SaveOptions(**saving),
    )
    batches = []
    for batch in run:
        run.report(loss=1.0)
        batches.append(tf.nest.map_structure(lambda tensor: tensor.numpy().tolist(), batch))
    return batches


def undisturbed(dataset, count):
    """Returns batches that no run reads."""
    datasets = dataset if isinstance(dataset, dict) else {"": dataset}
    iterators = {name: iter(one) for name, one in datasets.items()}
    batches = [
        {
            name: tf.nest.map_structure(lambda tensor: tensor.numpy().tolist(), next(one))
            for name, one in iterators.items()
        }
        for _ in range(count)
    ]
    return batches if isinstance(dataset, dict) else [batch[""] for batch in batches]


def event_log(run):
    return [(entry.kind.value, entry.message, entry.details) for entry in read_entries(run)]


def attempt(name, make):
    """Returns what a run with this pipeline saves, and what resuming it brings back."""
    directory = options.directory / name
    run = RunDirectory(directory)
    first = train(directory, make(), 3)
    shutil.copytree(directory, options.directory / f"{name}-skipping")
    resumed = train(directory, make(), 5)
    records = [c.record for c in Catalog(run).scan(0)]
    found = {
        "undisturbed": undisturbed(make(), 5),
        "batches": first + resumed,
        "saved": [record.name for record in records],
        "exactness": msgspec.to_builtins(records[0].exactness),
        "contents": records[0].contents,
        "journal": event_log(run),
    }
    if name in SKIPPING:
        place = options.directory / f"{name}-skipping"
        found["skipped"] = first + train(place, make(), 5, skip_input=True)
        found["skipped_journal"] = event_log(RunDirectory(place))
    return found


def refusal(name, make):
    """Returns why a run that has to be exact refuses this pipeline, and what it left."""
    directory = options.directory / f"{name}-exact"
    try:
        train(directory, make(), 1, require_exact=True)
    except TfckptError as error:
        return str(error)
    return ""


def own_iterators():
    """Returns what a run makes of iterators that the script keeps itself."""
    model = tf.Module()
    model.weight = tf.Variable(1.0)
    random = iter(indexes().map(random_image))
    run = TrainingRun(
        options.directory / "own",
        model=model,
        strategy=strategy,
        total_steps=3,
        extra={"images": random},
    )
    for _ in run:
        run.report(loss=next(random)[1])
    record = next(c.record for c in Catalog(RunDirectory(run.directory)).scan(0))
    try:
        TrainingRun(
            options.directory / "refused",
            model=model,
            strategy=strategy,
            extra={"words": iter(from_generator())},
        )
    except TfckptError as error:
        return {"exactness": msgspec.to_builtins(record.exactness), "refusal": str(error)}
    return {}


def interleaved(dataset, *, deterministic):
    return dataset.interleave(
        tf.data.Dataset.from_tensors,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=deterministic,
    )


def orders():
    """Returns what makes the order of pipelines differ in another process."""
    numbers = tf.data.Dataset.range(9)
    any_order = tf.data.Options()
    any_order.deterministic = False
    inner = interleaved(numbers, deterministic=False)
    large = tf.zeros([17, 1 << 20], tf.float32)
    found = {
        "repeated": numbers.shuffle(9).batch(2).repeat(),
        "random": tf.data.Dataset.random().take(9).repeat(2),
        "seeded": numbers.shuffle(9, seed=0).repeat(),
        "one epoch": numbers.shuffle(9).repeat(1),
        "behind": numbers.repeat().shuffle(9),
        "map": numbers.map(double, num_parallel_calls=2, deterministic=False),
        "option": numbers.with_options(any_order).batch(2),
        "interleave": interleaved(numbers, deterministic=False).batch(2),
        "interleave in order": interleaved(numbers, deterministic=None).batch(2),
        "in a function": numbers.flat_map(lambda _: interleaved(numbers, deterministic=False)),
        "captured": numbers.flat_map(lambda _: inner),
        "large arrays": interleaved(tf.data.Dataset.from_tensor_slices(large), deterministic=True),
    }
    return {name: probe(iter(dataset)).facts(name).causes for name, dataset in found.items()}


SHUFFLED = {
    "repeat": lambda shuffled: shuffled.repeat().batch(4),
    "smaller last batch": lambda shuffled: shuffled.batch(4).repeat(),
    "equal batches": lambda shuffled: shuffled.take(20).batch(4).repeat(),
    "drop_remainder": lambda shuffled: shuffled.batch(4, drop_remainder=True).repeat(),
    "padded_batch": lambda shuffled: shuffled.padded_batch(4).repeat(),
    "map": lambda shuffled: shuffled.map(double).repeat().batch(4),
    "map in threads": lambda shuffled: shuffled.map(double, num_parallel_calls=2).repeat().batch(4),
    "filter": lambda shuffled: shuffled.filter(lambda one: one % 3 > 0).repeat().batch(4),
    "take": lambda shuffled: shuffled.take(20).repeat().batch(4),
    "flat_map": lambda shuffled: shuffled.flat_map(tf.data.Dataset.from_tensors).repeat().batch(4),
    "enumerate": lambda shuffled: shuffled.enumerate().map(lambda _, one: one).repeat().batch(4),
    "prefetch": lambda shuffled: shuffled.prefetch(2).repeat().batch(4),
    "equal batches, prefetch": lambda shuffled: shuffled.take(20).batch(4).prefetch(2).repeat(),
    "one order": lambda _: (
        tf.data.Dataset.range(23).shuffle(9, 3, reshuffle_each_iteration=False).batch(4).repeat()
    ),
}
"""Ways to repeat 23 elements that are shuffled anew in each pass."""


def orders_after_restores():
    """Returns the causes that are named for each way, and where a restore changed the order."""
    found = {}
    for name, make in SHUFFLED.items():

        def iterator(make=make):
            options = tf.data.Options()
            # What TensorFlow reads ahead depends on the load of the machine.
            options.experimental_optimization.inject_prefetch = False
            options.autotune.enabled = False
            dataset = make(tf.data.Dataset.range(23).shuffle(9, seed=3))
            return iter(dataset.with_options(options))

        def following(one, count):
            return [next(one).numpy().tolist() for _ in range(count)]

        whole, order, saves, changed = iterator(), [], {}, []
        for position in range(options.each, 14, options.each):
            order += following(whole, position - len(order))
            prefix = f"{options.directory}/order-{position}"
            saves[position] = tf.train.Checkpoint(iterator=whole).write(prefix)
        # What is left of a pass, and more than the next one.
        order += following(whole, 13)
        for position, saved in saves.items():
            other = iterator()
            tf.train.Checkpoint(iterator=other).read(saved)
            if following(other, 13) != order[position : position + 13]:
                changed.append(position)
        found[name] = [probe(whole).facts(name).causes, changed]
    return found


results = {
    "own": own_iterators(),
    "orders": orders(),
    "restored": orders_after_restores(),
    "facts": {
        name: msgspec.to_builtins(probe(iter(make())).facts(name))
        for name, make in PIPELINES.items()
        if name not in {"two", *(options.only or PIPELINES)}
    },
}
for name, make in PIPELINES.items():
    if options.only is not None and name not in options.only:
        continue
    try:
        results[name] = attempt(name, make)
        results[name]["refusal"] = refusal(name, make)
    except Exception as error:
        results[name] = {"error": f"{type(error).__name__}: {error}"}
(options.directory / "results.json").write_text(json.dumps(results))
sys.stdout.flush()
