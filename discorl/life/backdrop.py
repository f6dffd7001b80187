"""What the images of an environment have in common, and their reader need not look at.

The frames of a game like Pong differ in a few pixels. What they share then makes up nearly all of
what a network computes, and of its gradient; values and policy hardly come to depend on the frame.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from discorl.agents.base import Agent
from discorl.agents.convolutions import ImageTorso
from discorl.envs.wrappers import RunningMoments
from discorl.layers import Params
from discorl.learner import LearnerState
from discorl.observations import Observation, observation_leaves
from discorl.tree import tree_map

_LEAST_SPREAD = 1e-3
"""Images that never differ are not divided by zero."""


class Backdrop:
    """Running moments of the images that an agent reads centred, and their way into its parameters.

    Args:
      entries: prefix of a torso's parameters -> the entry of the observation that it reads.
      moments: that have seen nothing.
    """

    def __init__(self, entries: dict[str, str], moments: RunningMoments) -> None:
        self._entries = entries
        self.moments = moments

    @classmethod
    def of(cls, agent: Agent, moments: RunningMoments) -> Backdrop | None:
        """What an agent needs: None if it reads nothing centred."""
        torso = getattr(agent, "torso", None)
        entries = centred_entries(torso) if isinstance(torso, nn.Module) else {}
        return cls(entries, moments) if entries else None

    def take_in(self, observation: Observation) -> None:
        """Take in a batch [B, ...], and what other processes have seen."""
        leaves = observation_leaves(observation)
        self.moments.update({entry: leaves[entry].double() for entry in self._entries.values()})
        self.moments.share()

    def bring_up_to_date(self, state: LearnerState) -> LearnerState:
        """The agent, with what it knows of its images now."""
        news = self._news(state.params)
        target = state.target_params
        return replace(
            state,
            params={**state.params, **news},
            # Of their own: checkpoints keep no tensor twice.
            target_params=None if target is None else {**target, **tree_map(Tensor.clone, news)},
        )

    def _news(self, params: Params) -> dict[str, Tensor]:
        news = {}
        for prefix, entry in self._entries.items():
            like = params[f"{prefix}common"]
            spread = self.moments.deviation(entry).square().mean().sqrt()
            news[f"{prefix}common"] = self.moments.mean(entry).to(like)
            news[f"{prefix}spread"] = spread.clamp(min=_LEAST_SPREAD).to(like)
        return news


def centred_entries(torso: nn.Module) -> dict[str, str]:
    """See `Backdrop`: of a torso, whatever it is made of."""
    return {
        ".".join(["torso", *filter(None, [name]), ""]): module.centred
        for name, module in torso.named_modules()
        if isinstance(module, ImageTorso) and module.centred
    }
