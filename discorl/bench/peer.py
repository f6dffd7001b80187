"""The peer: disco-torch's trainer with the reference network.

The package has no agent of its own. Its example unrolls the network step by step, and within a
step action by action; that is how its users run it, and what `stepwise` does. The batched agent
is the best that can be done around its trainer.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.rollout import Rollout


class PeerAgent(nn.Module):
    """The reference network as an ordinary module."""

    def __init__(self, inputs: int, num_actions: int, stepwise: bool) -> None:
        super().__init__()
        self.num_actions, self.stepwise = num_actions, stepwise
        cells = hidden = 128
        self.torso = nn.Sequential(nn.Linear(inputs, 512), nn.ReLU(), nn.Linear(512, 512))
        self.logits = nn.Linear(512, num_actions)
        self.y = nn.Linear(512, 600)
        self.root = nn.Linear(512, cells)
        self.lstm = nn.LSTMCell(num_actions, cells)
        sizes = {"z": 600, "aux_pi": num_actions, "q": 601}
        self.heads = nn.ModuleDict(
            {
                name: nn.Sequential(nn.Linear(cells, hidden), nn.ReLU(), nn.Linear(hidden, size))
                for name, size in sizes.items()
            }
        )

    def forward(self, observations: Tensor, should_reset: Tensor) -> dict[str, Tensor]:
        """[T, B, inputs] -> every head."""
        steps, batch = observations.shape[:2]
        if self.stepwise:
            outs = [self._heads(observation) for observation in observations]
            return {name: torch.stack([out[name] for out in outs]) for name in outs[0]}
        out = self._heads(observations.reshape(steps * batch, -1))
        return {name: x.reshape(steps, batch, *x.shape[1:]) for name, x in out.items()}

    def forward_step(self, observations: Tensor, state: Any) -> tuple[dict[str, Tensor], Any]:
        """One acting step."""
        return self._heads(observations), state

    def init_lstm_state(self, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The network keeps no memory between steps."""
        return torch.zeros(batch, 1, device=device), torch.zeros(batch, 1, device=device)

    def _heads(self, x: Tensor) -> dict[str, Tensor]:
        torso = self.torso(x)
        cell = self.root(torso)
        out = {"logits": self.logits(torso), "y": self.y(torso)}
        model = self._action_by_action if self.stepwise else self._all_actions
        return out | model(cell)

    def _action_by_action(self, cell: Tensor) -> dict[str, Tensor]:
        outs = []
        for action in torch.eye(self.num_actions):
            hidden, _ = self.lstm(action.expand(len(cell), -1), (torch.tanh(cell), cell))
            outs.append({name: head(hidden) for name, head in self.heads.items()})
        return {name: torch.stack([out[name] for out in outs], dim=1) for name in self.heads}

    def _all_actions(self, cell: Tensor) -> dict[str, Tensor]:
        roots = cell.repeat_interleave(self.num_actions, dim=0)
        actions = torch.eye(self.num_actions).repeat(len(cell), 1)
        hidden, _ = self.lstm(actions, (torch.tanh(roots), roots))
        return {
            name: head(hidden).reshape(len(cell), self.num_actions, -1)
            for name, head in self.heads.items()
        }


class Peer:
    """disco-torch learning from the same batch."""

    def __init__(self, rollout: Rollout, weights: Path, stepwise: bool = True) -> None:
        try:
            from disco_torch import DiscoTrainer
        except ImportError as error:
            raise DiscorlError(
                f"the peer is not installed: {install_line('bench')}, or pass --no-peer"
            ) from error
        observations = rollout.observations
        assert isinstance(observations, Tensor)
        inputs = observations.flatten(start_dim=2).shape[-1]
        self._agent = PeerAgent(inputs, rollout.num_actions, stepwise)
        with contextlib.redirect_stdout(io.StringIO()):  # It prints what it loaded.
            self._trainer = DiscoTrainer(self._agent, device="cpu", weights_path=str(weights))
        flat = observations.flatten(start_dim=2).float()
        with torch.no_grad():
            behaviour = self._agent(flat, torch.zeros_like(rollout.rewards))
        self.batch = {
            "observations": flat,
            "actions": rollout.actions,
            "rewards": rollout.rewards[1:],
            "discounts": rollout.discounts[1:] * 0.997,
            "agent_out": behaviour | {"logits": rollout.logits},
        }

    def step(self) -> None:
        """One gradient step on the batch."""
        self._trainer._gradient_step(self.batch)

    def bytes_per_step(self) -> float:
        """Memory that its replay takes for one step of one trajectory."""
        leaves = [v for v in self.batch.values() if isinstance(v, Tensor)]
        leaves += list(self.batch["agent_out"].values())
        stored = sum(leaf.numel() * leaf.element_size() for leaf in leaves)
        return float(stored / self.batch["actions"].numel())
