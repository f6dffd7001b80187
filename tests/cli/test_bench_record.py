"""Benchmarks: ratios within rounds, and a record of figures over commits."""

import json

import pytest

from discorl.bench.machine import Stopwatch
from discorl.bench.record import read_record, record
from discorl.cli.__main__ import main
from discorl.errors import DiscorlError


def test_a_ratio_compares_what_was_timed_in_the_same_round():
    watch = Stopwatch(
        {},
        seconds={"eager": [2.0, 20.0, 3.0], "matrix product": [1.0, 10.0, 1.0]},
        cpu_seconds={"eager": [1.0, 1.0, 1.0], "matrix product": [1.0, 1.0, 1.0]},
    )
    figures = watch.over("eager", "matrix product", share=0.5)
    assert figures["eager_over_limit"] == pytest.approx(4)  # 4, 4 and 6
    assert figures["eager_over_limit_from"] == pytest.approx(4)
    assert figures["eager_over_limit_to"] == pytest.approx(6)
    assert figures["eager_cpu_over_limit"] == pytest.approx(2)


def test_a_speedup_is_the_others_time_over_ones_own():
    watch = Stopwatch(
        {},
        seconds={"eager": [1.0, 2.0, 1.0], "peer": [3.0, 6.0, 5.0]},
        cpu_seconds={"eager": [1.0, 1.0, 1.0], "peer": [4.0, 4.0, 4.0]},
    )
    figures = watch.speedup("speedup_eager", "eager", "peer")
    assert figures["speedup_eager"] == pytest.approx(3)
    assert figures["speedup_eager_to"] == pytest.approx(5)
    assert figures["speedup_eager_cpu"] == pytest.approx(4)


def test_a_record_grows_and_says_what_was_measured(tmp_path):
    path = tmp_path / "benchmarks.json"
    record(path, "learner", "abc", {"eager_ms": 2.5})
    record(path, "discover", "abc+", {"reverse_ms": 7.5})
    first, second = read_record(path)
    assert (first["benchmark"], first["figures"]) == ("learner", {"eager_ms": 2.5})
    assert (second["benchmark"], second["commit"]) == ("discover", "abc+")
    assert set(first) == {"date", "commit", "processor", "torch", "benchmark", "figures"}


def test_another_file_is_refused_before_anything_is_timed(tmp_path, capsys):
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"no": "list"}))
    with pytest.raises(DiscorlError, match="not a record"):
        record(path, "learner", "abc", {})
    assert main(["bench", "discover", "--record", str(path)]) != 0
    assert "not a record" in capsys.readouterr().err
    assert json.loads(path.read_text()) == {"no": "list"}
