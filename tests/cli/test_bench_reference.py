"""The published implementation as a subject: another process, with a clock of its own."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from discorl.bench import reference as module
from discorl.bench.machine import Stopwatch
from discorl.bench.reference import Reference
from discorl.errors import DiscorlError
from discorl.rollout import Rollout

STAND_IN = """
import sys
import numpy as np
batch, cores = np.load(sys.argv[1]), int(sys.argv[3])
assert batch["logits"].shape == (3, 2, 4) and cores >= 1
spent = 0.0
for line in sys.stdin:
    spent += 0.5 if line.strip() == "step" else 0.0
    print(spent, flush=True)
"""


def rollout():
    return Rollout(
        observations=torch.zeros(3, 2, 5),
        actions=torch.zeros(3, 2, dtype=torch.int64),
        rewards=torch.zeros(3, 2),
        discounts=torch.ones(3, 2),
        logits=torch.zeros(3, 2, 4),
    )


@pytest.fixture
def weights(tmp_path):
    np.savez(tmp_path / "rule.npz", w=np.zeros(1))
    return tmp_path / "rule.npz"


def test_another_process_is_timed_by_its_own_clock(tmp_path, weights, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text(STAND_IN)
    monkeypatch.setattr(module, "_WORKER", worker)
    subject = Reference(Path(sys.executable), rollout(), weights)
    watch = Stopwatch({"reference": subject})
    watch.run(rounds=3)
    subject.close()
    assert watch.cpu_seconds["reference"] == [0.5] * 3


def test_a_python_without_the_reference_is_told(weights):
    subject = Reference(Path(sys.executable), rollout(), weights)
    with pytest.raises(DiscorlError, match=r"--reference: the other Python failed: .*No module"):
        subject()


def test_no_such_python(weights):
    with pytest.raises(DiscorlError, match="--reference nowhere/python: No such file"):
        Reference(Path("nowhere/python"), rollout(), weights)
