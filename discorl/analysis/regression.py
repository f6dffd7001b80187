"""Linear regression with a ridge: cross-validated R², and slopes."""

from __future__ import annotations

import numpy as np

FOLDS = 5
_RIDGES = np.logspace(-6, 3, 10)
"""Candidates, relative to the number of samples; features are standardised."""
_SMALL = 1e-12


def cross_validated_r2(features: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """R² of predicting what was not seen: features [n, d], targets [n, m], groups [n] -> [m].

    Samples of one group, such as the steps of a trajectory, are never split between fitting and
    predicting. Each fit chooses its ridge by leave-one-out within what it fits. Not a number for
    targets that do not vary.
    """
    predicted = np.empty_like(targets)
    for fold in range(FOLDS):
        left_out = groups % FOLDS == fold
        predicted[left_out] = _predict(features[~left_out], targets[~left_out], features[left_out])
    return r_squared(targets, predicted)


def r_squared(targets: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """The share of the targets' variance [n, m] that a prediction explains: [m]."""
    spread = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
    error = ((targets - predicted) ** 2).sum(axis=0)
    constant = spread < _SMALL * len(targets)
    share: np.ndarray = np.where(constant, np.nan, 1 - error / np.where(constant, 1, spread))
    return share


def slope(feature: np.ndarray, target: np.ndarray) -> float:
    """Of the least-squares line through feature [n] and target [n]; not a number if there is
    none."""
    centred = feature - feature.mean()
    spread = float(centred @ centred)
    return float(centred @ target) / spread if spread > _SMALL * len(feature) else float("nan")


def _predict(features: np.ndarray, targets: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """What a fit on features [n, d] and targets [n, m] says of others [k, d]: [k, m]."""
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale[scale < _SMALL] = np.inf  # A feature that never varied tells nothing.
    middle = targets.mean(axis=0)
    left, sizes, right = np.linalg.svd((features - mean) / scale, full_matrices=False)
    inner = left.T @ (targets - middle)
    errors, weights = [], []
    for ridge in _RIDGES * len(features):
        kept = sizes**2 / (sizes**2 + ridge)
        residual = targets - middle - left @ (kept[:, None] * inner)
        leverage = (left**2) @ kept + 1 / len(features)
        errors.append(((residual / np.maximum(1 - leverage, _SMALL)[:, None]) ** 2).sum(axis=0))
        weights.append(right.T @ ((sizes / (sizes**2 + ridge))[:, None] * inner))
    best = np.argmin(errors, axis=0)
    chosen = np.stack([weights[index][:, column] for column, index in enumerate(best)], axis=1)
    predicted: np.ndarray = ((unseen - mean) / scale) @ chosen + middle
    return predicted
