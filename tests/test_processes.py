"""Several processes that train one agent are one: in what they learn, and in how they end."""

import subprocess
import sys
from pathlib import Path

import process_checks
import pytest
import torch
from goldens import NO_WEIGHTS
from process_checks import PUBLISHED

from discorl.errors import DiscorlError
from discorl.group import SOLO
from discorl.processes import ProcessGroup, join_group
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


def needs_weights(name):
    """Skip what has no outcome because the published weights are missing."""
    if name.startswith(PUBLISHED) and PUBLISHED not in process_checks.RULES:
        pytest.skip(NO_WEIGHTS)


@pytest.mark.parametrize("name", [*dict.fromkeys([*process_checks.CASES, f"{PUBLISHED}, plain"])])
def test_several_processes_are_one(outcomes, name):
    needs_weights(name)
    expected = process_checks.CASES[name](SOLO)
    for size in SIZES:
        for found, *_ in outcomes[size]:
            assert_near(found[name], expected)
            for key, tensor in outcomes[size][0][0][name].items():
                assert torch.equal(found[name][key], tensor), key


@pytest.mark.parametrize("name", [*dict.fromkeys([*process_checks.LIVES, PUBLISHED])])
def test_a_life_in_several_processes_is_one(outcomes, name):
    """With memory, replay, scaled rewards and episodes that are cut off: one process learns the
    same from their batches."""
    needs_weights(name)
    for size in SIZES:
        lives = [lives[name] for _, lives, _ in outcomes[size]]
        used = [used for _, used in lives]
        batches = process_checks.joined(used)
        assert sum(batch is not None for batch in batches) >= 3
        assert all(batch.final.any() for batch in batches if batch is not None)
        expected, own = process_checks.LIVES[name](SOLO, batches)
        for lived, _ in lives:
            assert_near(lived, expected)
        assert not torch.equal(used[0][1].observations, used[1][1].observations)  # Each its own.
        assert own[1].actions.shape == batches[1].actions.shape


def test_a_differentiable_step_is_not_shared(outcomes):
    assert all("plain step" in refused[0] for _, _, refused in outcomes[2])


def test_what_a_process_draws_does_not_depend_on_how_many_there_are():
    def seeds(size):
        groups = [ProcessGroup(rank, size) for rank in range(size)]
        return [group.seed(7) for group in groups]

    assert seeds(2) == seeds(5)[:2]
    assert seeds(5)[0] == SOLO.seed(7) == 7
    assert len({*seeds(5)}) == 5


def test_processes_that_do_not_meet_say_so(monkeypatch):
    """One of two is never started."""
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(DiscorlError, match="the 2 processes did not meet within 1 sec"):
        join_group(timeout=1).__enter__()
