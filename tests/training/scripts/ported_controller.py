"""An image classifier in a controller of Model Garden's kind, in our own words, reduced.

Between evaluations, the controller has the trainer do several steps in one call. Lines that end
with `# +` are added to the plain script, and those with `# ~` are changed.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gone_back import SAVE_EVERY, StepLog, parsed_arguments

from tfckpt_trainer import TrainingRun  # +
from tfckpt_trainer.training import create_strategy

options = parsed_arguments()
strategy = create_strategy(options.strategy, threads=1)
tf.keras.utils.set_random_seed(3)

TRAIN_STEPS, STEPS_PER_LOOP, BATCH_SIZE, CLASSES = options.steps, 4, 8, 3
rng = np.random.RandomState(0)
images, labels = rng.rand(80, 8, 8, 3).astype("float32"), rng.randint(0, CLASSES, 80)


def augmented(seed, example):
    image, label = example
    image = tf.image.stateless_random_flip_left_right(image, [1, seed])
    return tf.image.stateless_random_crop(image, (7, 7, 3), [2, seed]), label


def train_input(context):
    dataset = tf.data.Dataset.from_tensor_slices((images[:64], labels[:64]))
    dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
    dataset = dataset.shuffle(64, seed=1).repeat().enumerate().map(augmented)  # ~ with a seed
    return dataset.batch(BATCH_SIZE // context.num_replicas_in_sync).prefetch(2)


def validation_input():
    dataset = tf.data.Dataset.from_tensor_slices((images[64:, :7, :7], labels[64:]))
    return dataset.batch(BATCH_SIZE)


def block(inputs, filters):
    hidden = tf.keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(inputs)
    hidden = tf.keras.layers.BatchNormalization(momentum=0.9)(hidden)
    shortcut = tf.keras.layers.Conv2D(filters, 1)(inputs)
    return tf.keras.layers.ReLU()(hidden + shortcut)


def resnet():
    inputs = tf.keras.Input((7, 7, 3))
    hidden = tf.keras.layers.GlobalAveragePooling2D()(block(block(inputs, 4), 8))
    outputs = tf.keras.layers.Dense(CLASSES)(tf.keras.layers.Dropout(0.2)(hidden))
    return tf.keras.Model(inputs, outputs)


class Trainer:
    """The model, and what is done in a loop of steps and in an evaluation."""

    def __init__(self):
        self.model = resnet()
        rate = tf.keras.optimizers.schedules.CosineDecay(0.1, TRAIN_STEPS)
        self.optimizer = tf.keras.optimizers.SGD(rate, momentum=0.9, nesterov=True)
        self.optimizer.build(self.model.trainable_variables)  # +
        self.loss_object = tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none"
        )
        self.train_loss = tf.keras.metrics.Mean("train_loss")
        self.train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy("train_accuracy")
        self.test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy("test_accuracy")
        self.run = TrainingRun(  # ~
            model=self.model,  # ~
            optimizer=self.optimizer,  # ~
            metrics={  # +
                "loss": self.train_loss,  # +
                "accuracy": self.train_accuracy,  # +
                "test_accuracy": self.test_accuracy,  # +
            },  # +
            dataset=train_input,  # ~
            save_every_steps=SAVE_EVERY,  # +
            total_steps=TRAIN_STEPS,  # +
            random_seed=options.random_seed,  # +
        )  # ~
        self.train = self.run.function(self.replica_step, steps_per_call=STEPS_PER_LOOP)  # ~
        self.test_dataset = strategy.experimental_distribute_dataset(validation_input())

    def replica_step(self, inputs):
        images, labels = inputs
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            losses = self.loss_object(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH_SIZE)
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        self.train_loss.update_state(loss * strategy.num_replicas_in_sync)
        self.train_accuracy.update_state(labels, logits)

    def train_loop_begin(self):
        self.train_loss.reset_state()
        self.train_accuracy.reset_state()

    def train_loop_end(self):
        return {"loss": self.train_loss.result(), "accuracy": self.train_accuracy.result()}

    def replica_test_step(self, inputs):
        images, labels = inputs
        self.test_accuracy.update_state(labels, self.model(images, training=False))

    @tf.function
    def test_step(self, inputs):
        strategy.run(self.replica_test_step, args=(inputs,))

    def evaluate(self):
        self.test_accuracy.reset_state()
        for inputs in self.test_dataset:
            self.test_step(inputs)
        return {"validation_accuracy": self.test_accuracy.result()}


class Controller:
    """Has a trainer train in loops, and evaluates it."""

    def __init__(self, trainer):
        self.trainer = trainer
        self.steps = StepLog(options, strategy)

    def train_and_evaluate(self, eval_interval):
        run = self.trainer.run  # +
        run.set_epoch_steps(STEPS_PER_LOOP)  # +
        for batches in run:  # ~
            self.trainer.train(batches)  # ~
            step = run.step + len(batches)  # ~
            output = self.trainer.train_loop_end()
            if step % STEPS_PER_LOOP == 0:  # +
                self.trainer.train_loop_begin()
            if step % eval_interval == 0:  # ~
                output |= self.trainer.evaluate()
            run.report(**output)  # +
            self.log(step, output)

    def log(self, step, output):
        owners = (self.trainer.model, self.trainer.optimizer)
        self.steps.write(step, [v for owner in owners for v in owner.variables], **output)


with strategy.scope():
    trainer = Trainer()
Controller(trainer).train_and_evaluate(eval_interval=8)
