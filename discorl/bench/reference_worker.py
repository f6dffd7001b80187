"""The published JAX learner step, in a Python that has it: see docs/reference_environment.sh.

    python reference_worker.py BATCH.npz WEIGHTS.npz CORES

Run by `reference.Reference` and never imported: that Python need not have this package. Reads words
on standard input, a line each: `step` takes a step, `clock` does nothing. Every answer is the
processor time that this process has taken so far.
"""

import os
import sys
import time

import dm_env.specs
import jax
import numpy as np
from disco_rl import agent as agents
from disco_rl import types


def learner_step(batch: dict[str, np.ndarray], weights: dict[str, np.ndarray]):  # type: ignore[no-untyped-def]
    """A function that takes one step on the batch, at the published setting."""
    settings = agents.get_settings_disco()
    settings.learning_rate = 1e-2
    num_actions = batch["logits"].shape[-1]
    agent = agents.Agent(
        agent_settings=settings,
        single_observation_spec=dm_env.specs.Array(batch["observations"].shape[2:], np.float32),
        single_action_spec=dm_env.specs.BoundedArray((), np.int32, 0, num_actions - 1),
        batch_axis_name=None,
    )
    key = jax.random.PRNGKey(0)
    memory = agent.initial_actor_state(key)
    rollout = types.ActorRollout(
        observations=batch["observations"].astype(np.float32),
        actions=batch["actions"].astype(np.int32),
        rewards=batch["rewards"],
        discounts=batch["discounts"],
        agent_outs={"logits": batch["logits"]},
        states=memory,
        logits=batch["logits"],
    )
    layers = {name.rpartition("/")[0] for name in weights}
    rule = {layer: {k: weights[f"{layer}/{k}"] for k in ("w", "b")} for layer in layers}
    compiled = jax.jit(agent.learner_step, static_argnums=5)
    state = agent.initial_learner_state(key)

    def step() -> None:
        nonlocal state
        state, _, _ = compiled(key, rollout, state, memory, rule, False)
        jax.block_until_ready(state)

    return step


def main() -> None:
    """Answer until standard input ends."""
    step = learner_step(dict(np.load(sys.argv[1])), dict(np.load(sys.argv[2])))
    for line in sys.stdin:
        if line.strip() == "step":
            step()
        print(time.process_time(), flush=True)


if __name__ == "__main__":
    # Before JAX asks how many there are.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[3])])
    main()
