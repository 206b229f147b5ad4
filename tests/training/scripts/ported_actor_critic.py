"""Actor-critic with one network on a cart with a pole, after TensorFlow's tutorial, reduced.

Lines that end with `# +` are added to the tutorial, and those with `# ~` are changed.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gone_back import SAVE_EVERY, StepLog, parsed_arguments

from tfckpt_trainer import TrainingRun  # +
from tfckpt_trainer.training import create_strategy

options = parsed_arguments()
strategy = create_strategy(options.strategy, threads=1)
seed = 42
tf.keras.utils.set_random_seed(seed)
eps = np.finfo(np.float32).eps.item()


class CartPole:
    """A pole on a cart: position and speed of the cart, angle and speed of the pole."""

    def __init__(self, seed):
        self.np_random = np.random.default_rng(seed)
        self.state = None

    def reset(self):
        self.state = self.np_random.uniform(-0.05, 0.05, 4)
        return self.state

    def step(self, action):
        _, x_speed, angle, angle_speed = self.state
        push = (10.0 if action == 1 else -10.0) + 0.05 * angle_speed**2 * np.sin(angle)
        turn = (9.8 * np.sin(angle) - np.cos(angle) * push / 1.1) / (
            0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1)
        )
        speed_up = push / 1.1 - 0.05 * turn * np.cos(angle) / 1.1
        self.state += 0.02 * np.array([x_speed, speed_up, angle_speed, turn])
        return self.state, 1.0, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2, {}

    def state_dict(self):  # +
        return {"random": self.np_random.bit_generator.state}  # +

    def load_state_dict(self, state):  # +
        self.np_random.bit_generator.state = state["random"]  # +


context = strategy.cluster_resolver
env = CartPole(seed + (context.task_id or 0 if context else 0))


class ActorCritic(tf.keras.Model):
    """One hidden layer for both the actor and the critic."""

    def __init__(self, num_actions, num_hidden_units):
        super().__init__()
        self.common = tf.keras.layers.Dense(num_hidden_units, activation="relu")
        self.actor = tf.keras.layers.Dense(num_actions)
        self.critic = tf.keras.layers.Dense(1)

    def call(self, inputs):
        x = self.common(inputs)
        return self.actor(x), self.critic(x)


def env_step(action):
    state, reward, done, _ = env.step(action)
    return state.astype(np.float32), np.array(reward, np.int32), np.array(done, np.int32)


def tf_env_step(action):
    return tf.numpy_function(env_step, [action], [tf.float32, tf.int32, tf.int32])


def run_episode(initial_state, model, max_steps):
    action_probs = tf.TensorArray(dtype=tf.float32, size=0, dynamic_size=True)
    values = tf.TensorArray(dtype=tf.float32, size=0, dynamic_size=True)
    rewards = tf.TensorArray(dtype=tf.int32, size=0, dynamic_size=True)
    initial_state_shape = initial_state.shape
    state = initial_state
    for t in tf.range(max_steps):
        state = tf.expand_dims(state, 0)
        action_logits_t, value = model(state)
        action = tf.random.categorical(action_logits_t, 1)[0, 0]
        action_probs_t = tf.nn.softmax(action_logits_t)
        values = values.write(t, tf.squeeze(value))
        action_probs = action_probs.write(t, action_probs_t[0, action])
        state, reward, done = tf_env_step(action)
        state.set_shape(initial_state_shape)
        rewards = rewards.write(t, reward)
        if tf.cast(done, tf.bool):
            break
    return action_probs.stack(), values.stack(), rewards.stack()


def get_expected_return(rewards, gamma):
    n = tf.shape(rewards)[0]
    returns = tf.TensorArray(dtype=tf.float32, size=n)
    rewards = tf.cast(rewards[::-1], dtype=tf.float32)
    discounted_sum = tf.constant(0.0)
    for i in tf.range(n):
        discounted_sum = rewards[i] + gamma * discounted_sum
        discounted_sum.set_shape([])
        returns = returns.write(i, discounted_sum)
    returns = returns.stack()[::-1]
    return (returns - tf.math.reduce_mean(returns)) / (tf.math.reduce_std(returns) + eps)


huber_loss = tf.keras.losses.Huber(reduction="sum")


def compute_loss(action_probs, values, returns):
    advantage = returns - values
    actor_loss = -tf.math.reduce_sum(tf.math.log(action_probs) * advantage)
    return actor_loss + huber_loss(values, returns)


with strategy.scope():
    model = ActorCritic(2, 8)
    optimizer = tf.keras.optimizers.Adam(learning_rate=0.01)
    model(tf.zeros((1, 4)))  # +
    optimizer.build(model.trainable_variables)  # +


def train_step(initial_state, model, optimizer, gamma, max_steps_per_episode):  # ~
    with tf.GradientTape() as tape:
        action_probs, values, rewards = run_episode(initial_state, model, max_steps_per_episode)
        returns = get_expected_return(rewards, gamma)
        action_probs, values, returns = [
            tf.expand_dims(x, 1) for x in [action_probs, values, returns]
        ]
        loss = compute_loss(action_probs, values, returns)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
    episode_reward = tf.math.reduce_sum(rewards)
    return {"episode_reward": tf.cast(episode_reward, tf.float32)}  # ~


max_steps_per_episode = 30
gamma = 0.99

run = TrainingRun(  # +
    model=model,  # +
    optimizer=optimizer,  # +
    extra={"env": env},  # +
    strategy=strategy,  # +
    total_steps=options.steps,  # +
    save_every_steps=SAVE_EVERY,  # +
    random_seed=options.random_seed,  # +
)  # +
step = run.function(  # +
    lambda state: train_step(state, model, optimizer, gamma, max_steps_per_episode)  # +
)  # +
run.state["running_reward"] = 0.0  # ~

log = StepLog(options, strategy)
for _ in run:  # ~
    initial_state = tf.constant(env.reset(), dtype=tf.float32)
    episode_reward = float(step(initial_state)["episode_reward"])  # ~
    run.state["running_reward"] = (  # ~
        episode_reward * 0.01 + run.state["running_reward"] * 0.99  # ~
    )
    log.write(
        run.step + 1,
        [*model.variables, *optimizer.variables],
        episode_reward=episode_reward,
        running_reward=run.state["running_reward"],
    )
