"""Two processes, hurt twenty times and resumed as often: nothing is lost, nobody is left over."""

from pathlib import Path

import process_faults
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("name", process_faults.RUNS)
def test_a_run_that_is_hurt_again_and_again_ends_the_same(name, tmp_path):
    if not Path("/proc/self/environ").exists():
        pytest.skip("the system does not tell of processes")
    assert len(process_faults.hurt_often(name, tmp_path, process_faults.FAULTS)) > 0
