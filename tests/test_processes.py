"""Several processes that train one agent are one: in what they learn, and in how they end."""

import subprocess
import sys
from pathlib import Path

import process_checks
import pytest
import torch

from discorl.group import SOLO
from discorl.rollout import Rollout

TOLERANCE = 1e-10
SIZES = (2, 3)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Size of the group -> what each of its processes came to."""
    folder = tmp_path_factory.mktemp("processes")
    script = Path(process_checks.__file__)
    for size in SIZES:
        ranks = [
            subprocess.Popen([sys.executable, script, str(rank), str(size), str(folder)])
            for rank in range(size)
        ]
        try:
            assert [rank.wait(timeout=240) for rank in ranks] == [0] * size
        finally:
            for rank in ranks:
                rank.kill()
    with torch.serialization.safe_globals([Rollout]):
        return {
            size: [torch.load(folder / f"{rank}_of_{size}.pt") for rank in range(size)]
            for size in SIZES
        }


def assert_near(found, expected):
    """Each tensor by its largest magnitude."""
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        scale = max(1.0, tensor.abs().max().item()) if tensor.numel() else 1.0
        torch.testing.assert_close(
            found[name], tensor, rtol=0, atol=TOLERANCE * scale, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("name", process_checks.CASES)
def test_several_processes_are_one(outcomes, name):
    expected = process_checks.CASES[name](SOLO)
    for size in SIZES:
        for found, *_ in outcomes[size]:
            assert_near(found[name], expected)
            for key, tensor in outcomes[size][0][0][name].items():
                assert torch.equal(found[name][key], tensor), key


def test_a_life_in_several_processes_is_one(outcomes):
    """With memory, replay and scaled rewards: one process learns the same from their batches."""
    for size in SIZES:
        ranks = outcomes[size]
        batches = process_checks.joined([used for _, _, used, _ in ranks])
        assert sum(batch is not None for batch in batches) >= 3
        expected, own = process_checks.live(SOLO, batches)
        for _, lived, _, _ in ranks:
            assert_near(lived, expected)
        rewards = [used[1].observations for _, _, used, _ in ranks]
        assert not torch.equal(rewards[0], rewards[1])  # Each lives through something else.
        assert own[1].actions.shape == batches[1].actions.shape


def test_a_differentiable_step_is_not_shared(outcomes):
    assert all("plain step" in refused[0] for _, _, _, refused in outcomes[2])
