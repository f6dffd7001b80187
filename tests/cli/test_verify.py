"""`discorl verify` on good, tampered, damaged and foreign files."""

import io
import json
import math
import pickle
import zipfile

import goldens
import numpy as np
import pytest
import torch

from discorl.cli.__main__ import main
from discorl.verify import KINDS, verify_files
from discorl.verify.report import Check, compare

RULE = goldens.DATA / "rule_T6_B3_A4.npz"
SHORTEST = goldens.DATA / "rule_T1_B2_A2.npz"
LARGE_RULES = sorted(goldens.LARGE.glob("rule/*.npz"))
LARGE_VALUES = goldens.LARGE / "values.npz"


def verify(*arguments):
    return main(["verify", *map(str, arguments)])


def verify_json(capsys, *arguments):
    code = verify("--json", *arguments)
    return code, json.loads(capsys.readouterr().out)


def arrays_of(path):
    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def copy_with(path, target, **changes):
    """A copy of a golden file with other arrays; None leaves one out."""
    arrays = arrays_of(path) | changes
    np.savez(target, **{key: array for key, array in arrays.items() if array is not None})
    return target


def own_params():
    return {k: v for k, v in arrays_of(RULE).items() if k.startswith("meta_params/")}


@pytest.fixture
def values_file(tmp_path):
    """A values file with numbers worked by hand."""
    path = tmp_path / "values.npz"
    x = np.array([0.0, 3.0, -8.0])
    quarter = 0.75 / 1.00001
    np.savez(
        path,
        **{
            "transform/x": x,
            "transform/signed_hyperbolic": np.array([0.0, 1.003, -2.008]),
            "transform/signed_logp1": np.sign(x) * np.log([1.0, 4.0, 9.0]),
            "two_hot/3/x": np.array([0.25, 2.0]),
            "two_hot/3/logits": np.log([[0.25, 0.25, 0.5]]),
            "two_hot/3/probs": np.array([[0, quarter, 1 - quarter], [0, 0, 1]]),
            "two_hot/3/expected": np.array([0.25]),
            "importance/pi_logits": np.log([[[0.2, 0.8]]]),
            "importance/mu_logits": np.log([[[0.4, 0.6]]]),
            "importance/actions": np.array([[0]]),
            "importance/rho": np.array([[0.5]]),
            "moving_average/0/x": np.array([[1.0, 3.0]]),
            "moving_average/0/state": np.array([0.02, 0.05, 0.99]),
            "value_loss/cat0_nl0/net_out": np.array([[[2.0]]]),
            "value_loss/cat0_nl0/td": np.array([[3.0]]),
            "value_loss/cat0_nl0/loss": np.array([[4.5]]),
            "policy_gradient/logits": np.zeros((2, 1, 2)),
            "policy_gradient/actions": np.zeros((2, 1), dtype=np.int64),
            "policy_gradient/normalized_adv": np.array([[3.0]]),
            "policy_gradient/loss_per_step": np.array([[2.99 * math.log(2)]]),
            "policy_gradient/entropy": np.array(math.log(2)),
        },
    )
    return path


# --- files that pass


@pytest.mark.parametrize("path", [RULE, SHORTEST], ids=lambda path: path.name)
def test_small_rules_pass(path, capsys):
    assert verify(path) == 0
    shown = capsys.readouterr().out
    assert path.name in shown
    assert "grad/aux_pi" in shown
    assert "1 file, 42 quantities, all within tolerance" in shown


def test_values_pass(values_file, capsys):
    code, report = verify_json(capsys, values_file)
    assert code == 0
    assert report["files"][0]["kind"] == "values"
    assert len(report["files"][0]["quantities"]) == 9


def test_large_values_pass(capsys):
    if not LARGE_VALUES.exists():
        pytest.skip(f"the published values golden is not beside the project: {LARGE_VALUES}")
    code, report = verify_json(capsys, LARGE_VALUES)
    assert code == 0
    assert len(report["files"][0]["quantities"]) == 32


@pytest.mark.parametrize("path", LARGE_RULES, ids=lambda path: path.stem)
def test_large_rules_pass(path, capsys, disco103_path):
    code, report = verify_json(capsys, path, "--weights", disco103_path)
    assert code == 0
    quantities = report["files"][0]["quantities"]
    assert len(quantities) == 43
    assert [q["name"] for q in quantities if not q["compared"]] == ["new/target_w"]


def test_large_rules_are_there():
    if not LARGE_RULES:
        pytest.skip(f"the full-size goldens are not beside the project: {goldens.LARGE}")
    assert len(LARGE_RULES) == 5


def test_several_files_are_summed_up(values_file, capsys):
    assert verify(RULE, SHORTEST, values_file) == 0
    assert "3 files, 93 quantities, all within tolerance" in capsys.readouterr().out


def test_json_report_holds_errors_and_tolerances(capsys):
    code, report = verify_json(capsys, RULE)
    assert code == 0
    assert report["passed"]
    (file,) = report["files"]
    assert file["tolerances"] == {"float64": 1e-9, "float32": 1e-3}
    errors = {q["name"]: q["errors"] for q in file["quantities"]}
    assert max(e["float64"] for e in errors.values()) < 1e-11
    # Single precision is really used: it cannot be this good otherwise.
    assert 1e-9 < max(e["float32"] for e in errors.values()) < 1e-4


# --- files that fail


@pytest.mark.parametrize(
    "key", ["out/pi", "new/h", "new/td", "loss/value_per_step", "log/y_entropy", "grad/q"]
)
def test_tampered_rule_fails_and_is_named(key, tmp_path, capsys):
    golden = arrays_of(RULE)[key]
    golden = golden + 1e-6 * np.abs(golden).max()
    path = copy_with(RULE, tmp_path / "tampered.npz", **{key: golden})
    assert verify(path) == 1
    shown = capsys.readouterr().out
    assert f"above tolerance: {key}\n" in shown
    assert "1 file, 42 quantities: 1 above tolerance" in shown


def test_one_tampered_number_is_enough(tmp_path, capsys):
    golden = arrays_of(RULE)["grad/q"]
    golden.flat[np.abs(golden).argmax()] += 1e-6
    path = copy_with(RULE, tmp_path / "tampered.npz", **{"grad/q": golden})
    code, report = verify_json(capsys, path)
    assert code == 1
    assert not report["passed"]
    failed = [q["name"] for q in report["files"][0]["quantities"] if not q["passed"]]
    assert failed == ["grad/q"]


def test_tampered_values_fail(values_file, tmp_path, capsys):
    changes = {"importance/rho": np.array([[0.5 + 1e-6]])}
    path = copy_with(values_file, tmp_path / "tampered.npz", **changes)
    assert verify(path) == 1
    assert "above tolerance: importance/rho\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("golden", "note"),
    [
        (np.zeros((6, 3, 5)), "expected shape [6, 3, 5], ours is [6, 3, 4]"),
        (np.full((6, 3, 4), np.nan), "the golden array is not finite"),
        (np.zeros((0,)), "expected shape [0]"),
    ],
)
def test_wrong_shape_or_nan_fails(golden, note, tmp_path, capsys):
    path = copy_with(RULE, tmp_path / "wrong.npz", **{"out/pi": golden})
    code, report = verify_json(capsys, path)
    assert code == 1
    (failed,) = [q for q in report["files"][0]["quantities"] if not q["passed"]]
    assert failed["name"] == "out/pi"
    assert failed["errors"] == {"float64": None, "float32": None}
    assert failed["note"].startswith(note)


# --- files that cannot be verified


def damaged(kind, path):
    whole = RULE.read_bytes()
    if kind == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "garbage":
        path.write_bytes(bytes(range(256)) * 8)
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"out/pi": 1}))
    elif kind == "pickled array":
        np.savez(path, **{"in/agent_out/logits": np.array([{"a": 1}], dtype=object)})
    elif kind == "no arrays":
        np.savez(path)
    elif kind == "bare array":
        with path.open("wb") as stream:
            np.save(stream, np.zeros(3))
    elif kind == "words":
        np.savez(path, **{"in/agent_out/logits": np.array(["a"])})
    elif kind == "bad checksum":
        path.write_bytes(_with_flipped_byte(whole))
    elif kind == "folder":
        path.mkdir()
    return path


def _with_flipped_byte(archive):
    """Damage the contents of the first array, leaving the archive's directory whole."""
    first = zipfile.ZipFile(io.BytesIO(archive)).infolist()[0]
    middle = first.header_offset + 100 + first.compress_size // 2
    return archive[:middle] + bytes([archive[middle] ^ 255]) + archive[middle + 1 :]


@pytest.mark.parametrize(
    "kind",
    [
        "missing",
        "truncated",
        "garbage",
        "empty",
        "pickle",
        "pickled array",
        "no arrays",
        "bare array",
        "words",
        "bad checksum",
        "folder",
    ],
)
def test_damaged_files_are_errors_and_do_not_stop_the_rest(kind, tmp_path, capsys):
    path = damaged(kind, tmp_path / "damaged.npz")
    assert verify(path, RULE) == 2
    printed = capsys.readouterr()
    assert f"error: {path}: " in printed.err
    assert "grad/aux_pi" in printed.out
    assert "2 files, 42 quantities: 1 file not verified" in printed.out


def test_pickles_are_never_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was run",))

    bare, boxed = tmp_path / "bare.npz", tmp_path / "boxed.npz"
    bare.write_bytes(pickle.dumps(Trap()))
    np.savez(boxed, **{"out/pi": np.array([Trap()], dtype=object)})
    assert verify(bare, boxed) == 2


def test_unknown_output_is_an_error(tmp_path, capsys):
    for key in ("out/extra", "log/extra", "extra", "grad/extra"):
        path = copy_with(RULE, tmp_path / "extra.npz", **{key: np.zeros(2)})
        assert verify(path) == 2
        assert f"no check is known for the array {key}" in capsys.readouterr().err


def test_unknown_value_is_an_error(values_file, tmp_path, capsys):
    changes = {"value_loss/cat2_nl0/loss": np.zeros(2)}
    assert verify(copy_with(values_file, tmp_path / "extra.npz", **changes)) == 2
    assert "value_loss/cat2_nl0/loss" in capsys.readouterr().err


def test_missing_input_is_an_error(values_file, tmp_path, capsys):
    path = copy_with(RULE, tmp_path / "short.npz", **{"in/rewards": None})
    assert verify(path) == 2
    assert "the array in/rewards is missing" in capsys.readouterr().err
    path = copy_with(values_file, tmp_path / "short.npz", **{"vtrace/out/adv": np.zeros((2, 1))})
    assert verify(path) == 2
    assert "the array 'rewards' is missing" in capsys.readouterr().err


def test_inputs_that_do_not_fit_are_an_error(tmp_path, capsys):
    path = copy_with(RULE, tmp_path / "wrong.npz", **{"in/rewards": np.zeros((5, 3))})
    assert verify(path) == 2
    assert "do not fit together" in capsys.readouterr().err


def test_nan_among_the_inputs_is_an_error(tmp_path, capsys):
    rewards = arrays_of(RULE)["in/rewards"]
    rewards[0, 0] = np.nan
    assert verify(copy_with(RULE, tmp_path / "nan.npz", **{"in/rewards": rewards})) == 2
    assert "the array in/rewards is not finite" in capsys.readouterr().err


def test_weights_must_be_a_discovered_rule(tmp_path, capsys):
    path = copy_with(RULE, tmp_path / "bare.npz", **dict.fromkeys(own_params()))
    assert verify(path, "--weights", tmp_path / "none.npz") == 2
    assert "none.npz" in capsys.readouterr().err
    assert verify(path, "--weights", "actor_critic") == 2
    assert (
        "'actor_critic' has no parameters: it is code, not a discovered rule"
        in capsys.readouterr().err
    )


def test_weights_are_read_from_a_file(tmp_path):
    """In float32, the type of rule files: the golden's own parameters, rounded."""
    path = copy_with(RULE, tmp_path / "bare.npz", **dict.fromkeys(own_params()))
    weights = tmp_path / "weights.npz"
    prefix = "meta_params/"
    np.savez(weights, **{k.removeprefix(prefix): v.astype("f4") for k, v in own_params().items()})
    report = verify_files([path], weights)
    assert report.files[0].precisions["float32"].failures() == []
    assert report.files[0].precisions["float64"].max_error() < 1e-4


def test_nothing_to_check_is_an_error(tmp_path, capsys):
    inputs = {k: v for k, v in arrays_of(RULE).items() if k.startswith(("in/", "state/", "meta_"))}
    path = tmp_path / "inputs.npz"
    np.savez(path, **inputs)
    assert verify(path) == 2
    assert "nothing in the file could be checked" in capsys.readouterr().err
    np.savez(path, **inputs, **{"new/target_w": np.zeros(3)})
    assert verify(path) == 2


def test_foreign_file_is_an_error(tmp_path, capsys):
    path = tmp_path / "foreign.npz"
    np.savez(path, weights=np.zeros(3))
    assert verify(path) == 2
    assert "not a golden file; its arrays, like weights" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["meta", "learner"])
def test_kinds_without_a_checker_are_refused(kind, capsys, monkeypatch):
    monkeypatch.delitem(KINDS, kind, raising=False)
    path = next(goldens.DATA.glob(f"{kind}_*.npz"))
    code, report = verify_json(capsys, path)
    assert code == 2
    assert report["files"][0]["problem"].endswith(f"{kind} files are not supported yet")


def test_no_files_is_an_error(capsys):
    assert verify() == 2
    assert "no files given" in capsys.readouterr().err


# --- the measure


def test_error_is_relative_to_the_largest_golden_number():
    check = compare("x", torch.tensor([1.0, -4.5]), np.array([1.0, -4.0]))
    assert check == Check("x", 0.125)
    assert check.passes(0.125)
    assert not check.passes(0.12)
    assert compare("x", torch.tensor([0.5, 0.0]), np.zeros(2)) == Check("x", 0.5)


@pytest.mark.parametrize(
    ("ours", "golden", "note"),
    [
        (torch.zeros(3), np.zeros(2), "expected shape [2], ours is [3]"),
        (torch.tensor([math.nan]), np.zeros(1), "ours is not finite"),
        (torch.tensor([math.inf]), np.array([math.inf]), "the golden array is not finite"),
        (torch.zeros(0), np.zeros(0), "the golden array is empty"),
    ],
)
def test_what_cannot_be_measured_never_passes(ours, golden, note):
    check = compare("x", ours, golden)
    assert check.note == note
    assert not check.passes(1e9)
