"""Sizes for small rules in tests."""

from discorl.rules.meta_network import MetaNetworkSizes

SMALL = MetaNetworkSizes(
    predictions=6,
    hidden=8,
    prediction_embedding=(7, 1),
    policy_channels=(5, 2),
    policy_target_channels=6,
    meta_hidden=5,
    meta_embedding=4,
    meta_prediction_embedding=(7, 2),
    meta_policy_channels=(5, 3),
)
