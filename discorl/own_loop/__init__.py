"""For people who keep their own training loop and module, and take the learning from here."""

from discorl.own_loop.collect import collect_rollout
from discorl.own_loop.trainer import DiscoTrainer

__all__ = ["DiscoTrainer", "collect_rollout"]
