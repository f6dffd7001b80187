"""Pure functions on values: transforms, distributions, returns, moving averages, losses.

Nothing here knows about networks, rules or environments. Time comes first in every shape.
"""

from discorl.values.distributions import categorical_kl, entropy, lookup
from discorl.values.losses import ValueReading, value_loss_from_target, value_loss_from_td
from discorl.values.moving_average import MovingAverage, update_together
from discorl.values.returns import (
    RetraceReturns,
    VTraceReturns,
    importance_weights,
    retrace,
    vtrace,
)
from discorl.values.transforms import (
    signed_hyperbolic,
    signed_log,
    signed_parabolic,
    two_hot_decode,
    two_hot_encode,
)

__all__ = [
    "MovingAverage",
    "RetraceReturns",
    "VTraceReturns",
    "ValueReading",
    "categorical_kl",
    "entropy",
    "importance_weights",
    "lookup",
    "retrace",
    "signed_hyperbolic",
    "signed_log",
    "signed_parabolic",
    "two_hot_decode",
    "two_hot_encode",
    "update_together",
    "value_loss_from_target",
    "value_loss_from_td",
    "vtrace",
]
