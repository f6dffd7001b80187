"""Legal actions: an entry of the observation says which they are, and the policy keeps to them.

The mask travels with the observation, through rollouts, replay and export, so neither the learner
nor a rule's interface knows of it: whoever computes logits applies it.
"""

from __future__ import annotations

from torch import Tensor

from discorl.agents.base import Inputs
from discorl.observations import ACTION_MASK
from discorl.rollout import Window
from discorl.values.distributions import mask_logits


def keep_legal(logits: Tensor, inputs: Inputs) -> Tensor:
    """Logits [..., A] of which only legal actions can be taken, if the observation tells them.

    Its entry `action_mask` [..., A] is one where an action is legal, else zero.
    """
    observations = inputs.observations if isinstance(inputs, Window) else inputs
    if isinstance(observations, Tensor):
        return logits
    mask = observations.get(ACTION_MASK)
    if mask is None or mask.shape[-1:] != logits.shape[-1:] or mask.dim() != logits.dim():
        return logits
    return mask_logits(logits, mask)
