"""Training and discovery, each in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from discorl.discovery.config import DiscoverConfig
from discorl.discovery.run import start_discovery
from discorl.settings import check_known
from discorl.training.presets import make_config
from discorl.training.run import start_run


def train(env: str, rule: str, out: str | Path, **settings: Any) -> dict[str, Any]:
    """Train an agent in a new run folder and return what its `result.json` holds.

    It prints nothing; `metrics.jsonl` in the folder grows while it works.

    Args:
      env: an environment, with settings after a colon where wanted: `catch:rows=10,columns=7`.
      rule: a name of the library of rules, or a rule file.
      out: the run folder; it must not hold a run yet.
      **settings: fields of `TrainConfig`, over those of the preset; `preset` chooses that.
    """
    return start_run(make_config(env, rule, **settings), Path(out))


def discover(out: str | Path, **settings: Any) -> dict[str, Any]:
    """Discover a rule in a new run folder and return what its `result.json` holds.

    It prints nothing; `metrics.jsonl` in the folder grows while it works, and at the end fresh
    agents of `eval_steps` updates try the rule.

    The folder then has `rule.safetensors`, the newest rule, and `best_rule.safetensors`, the one
    whose fresh agents did best: both can be trained with.

    Args:
      out: the run folder; it must not hold a run yet.
      **settings: fields of `DiscoverConfig`.
    """
    check_known(DiscoverConfig, settings, "discovery setting")
    return start_discovery(DiscoverConfig(**settings), Path(out))
