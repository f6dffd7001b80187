"""Rule files: what goes in comes out, and nothing hostile gets through."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discorl.errors import DiscorlError
from discorl.library.formats import RuleFileError, read_rule, write_rule
from discorl.library.published import from_published, to_published
from discorl.rules.disco import DiscoRule
from discorl.settings import flag

GATE = "lstm/linear/w"
fuzz = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def published_arrays(rule: DiscoRule) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in to_published(rule.params).items()}


def same_params(a: DiscoRule, b: DiscoRule) -> bool:
    return a.params.keys() == b.params.keys() and all(
        torch.equal(a.params[name], b.params[name]) for name in a.params
    )


def save_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def save_members(
    path: Path, members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.fixture(params=[".npz", ".safetensors"])
def rule_file(request: pytest.FixtureRequest, tmp_path: Path, tiny_rule: DiscoRule) -> Path:
    path = tmp_path / f"rule{request.param}"
    write_rule(tiny_rule, path)
    return path


class TestRoundTrip:
    def test_parameters_return(self, rule_file: Path, tiny_rule: DiscoRule) -> None:
        assert same_params(read_rule(rule_file), tiny_rule)

    def test_same_rule_same_bytes(self, rule_file: Path, tiny_rule: DiscoRule) -> None:
        again = rule_file.with_name(f"again{rule_file.suffix}")
        write_rule(tiny_rule, again)
        assert again.read_bytes() == rule_file.read_bytes()
        write_rule(read_rule(again), rule_file)
        assert again.read_bytes() == rule_file.read_bytes()

    def test_safetensors_keeps_everything(self, tmp_path: Path, tiny_rule: DiscoRule) -> None:
        rule = replace(tiny_rule, name="my-rule.1", provenance={"origin": "a test", "ü": "ß"})
        write_rule(rule, tmp_path / "rule.safetensors")
        back = read_rule(tmp_path / "rule.safetensors")
        assert (back.name, back.config, back.provenance) == (
            rule.name,
            rule.config,
            rule.provenance,
        )

    def test_safetensors_library_reads_ours(self, tmp_path: Path, tiny_rule: DiscoRule) -> None:
        write_rule(tiny_rule, tmp_path / "rule.safetensors")
        tensors = safetensors.torch.load_file(tmp_path / "rule.safetensors")
        assert all(torch.equal(tensors[name], t) for name, t in tiny_rule.params.items())
        with safetensors.safe_open(tmp_path / "rule.safetensors", "pt") as file:
            assert file.metadata()["format"] == "discorl-rule"

    def test_npz_takes_the_files_name_and_default_settings(
        self, tmp_path: Path, tiny_rule: DiscoRule
    ) -> None:
        write_rule(tiny_rule, tmp_path / "..my rule.npz")
        rule = read_rule(tmp_path / "..my rule.npz")
        assert rule.name == "my_rule"
        assert rule.config.sizes == tiny_rule.config.sizes
        assert (rule.config.num_bins, rule.config.max_abs_value) == (601, 300.0)

    def test_npz_is_what_numpy_and_the_published_code_expect(
        self, tmp_path: Path, tiny_rule: DiscoRule
    ) -> None:
        write_rule(tiny_rule, tmp_path / "rule.npz")
        with np.load(tmp_path / "rule.npz", allow_pickle=False) as file:
            arrays = dict(file)
        assert len(arrays) == 42
        assert {array.dtype for array in arrays.values()} == {np.dtype("float32")}
        assert arrays["lstm/sequential/conv1_d/w"].shape == (1, 18, 5)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        assert same_params(replace(tiny_rule, params=from_published(tensors)), tiny_rule)

    def test_published_file_returns_byte_for_byte(
        self, tmp_path: Path, disco103_path: Path
    ) -> None:
        write_rule(read_rule(disco103_path), tmp_path / "rule.npz")
        with np.load(disco103_path) as theirs, np.load(tmp_path / "rule.npz") as ours:
            assert set(theirs) == set(ours)
            for name in theirs:
                assert theirs[name].dtype == ours[name].dtype
                assert theirs[name].shape == ours[name].shape
                assert theirs[name].tobytes() == ours[name].tobytes()

    @pytest.mark.parametrize("dtype", ["<f2", "<f8", ">f4", ">f8"])
    def test_other_floats_become_float32(
        self, tmp_path: Path, tiny_rule: DiscoRule, dtype: str
    ) -> None:
        arrays = {k: np.asfortranarray(v, dtype) for k, v in published_arrays(tiny_rule).items()}
        rule = read_rule(save_npz(tmp_path / "rule.npz", arrays))
        for name, tensor in rule.params.items():
            assert tensor.dtype == torch.float32
            torch.testing.assert_close(tensor, tiny_rule.params[name], rtol=1e-3, atol=1e-4)

    def test_other_types_and_gradients_are_saved_as_float32(
        self, rule_file: Path, tiny_rule: DiscoRule
    ) -> None:
        params = {k: v.double().t().requires_grad_().t() for k, v in tiny_rule.params.items()}
        write_rule(tiny_rule.with_params(params), rule_file)
        assert same_params(read_rule(rule_file), tiny_rule)


class TestWriting:
    def test_folder_that_is_not_there(self, tmp_path: Path, tiny_rule: DiscoRule) -> None:
        write_rule(tiny_rule, tmp_path / "new" / "rule.npz")
        assert same_params(read_rule(tmp_path / "new" / "rule.npz"), tiny_rule)

    def test_file_in_place_of_a_folder(self, tmp_path: Path, tiny_rule: DiscoRule) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(DiscorlError, match=r"file/rule.npz: cannot be written"):
            write_rule(tiny_rule, tmp_path / "file" / "rule.npz")

    def test_full_disk_leaves_the_old_file(
        self, rule_file: Path, tiny_rule: DiscoRule, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        before = rule_file.read_bytes()
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(DiscorlError, match=rf"{rule_file.name}: .*No space left"):
            write_rule(replace(tiny_rule, name="other"), rule_file)
        assert rule_file.read_bytes() == before
        assert list(rule_file.parent.iterdir()) == [rule_file]

    def test_folder_in_the_way(self, tmp_path: Path, tiny_rule: DiscoRule) -> None:
        (tmp_path / "rule.npz").mkdir()
        with pytest.raises(DiscorlError, match=r"rule.npz: cannot be written: Is a directory"):
            write_rule(tiny_rule, tmp_path / "rule.npz")
        assert list(tmp_path.iterdir()) == [tmp_path / "rule.npz"]

    def test_non_finite_is_not_saved(self, tmp_path: Path, tiny_rule: DiscoRule) -> None:
        params = tiny_rule.params | {
            "gate.b": torch.full_like(tiny_rule.params["gate.b"], torch.inf)
        }
        with pytest.raises(DiscorlError, match=r"gate.b: expected finite .* found 16"):
            write_rule(tiny_rule.with_params(params), tmp_path / "rule.safetensors")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["", "../up", "a/b", "a b"])
    def test_name_that_is_no_folder_name(
        self, tmp_path: Path, tiny_rule: DiscoRule, name: str
    ) -> None:
        with pytest.raises(DiscorlError, match="name: expected letters"):
            write_rule(replace(tiny_rule, name=name), tmp_path / "rule.safetensors")


class TestDamage:
    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(RuleFileError, match=r"gone.npz: no such file"):
            read_rule(tmp_path / "gone.npz")

    def test_folder(self, tmp_path: Path) -> None:
        (tmp_path / "folder.npz").mkdir()
        with pytest.raises(RuleFileError, match="folder"):
            read_rule(tmp_path / "folder.npz")

    def test_truncation(self, rule_file: Path) -> None:
        whole = rule_file.read_bytes()
        for keep in [*range(40), *range(40, len(whole), len(whole) // 150), len(whole) - 1]:
            rule_file.write_bytes(whole[:keep])
            with pytest.raises(RuleFileError, match=rule_file.name):
                read_rule(rule_file)

    @fuzz
    @given(data=st.data())
    def test_flipped_bits(self, rule_file: Path, tiny_rule: DiscoRule, data: st.DataObject) -> None:
        whole = rule_file.read_bytes()
        damaged = bytearray(whole)
        position = data.draw(st.integers(0, len(whole) - 1))
        damaged[position] ^= data.draw(st.integers(1, 255))
        damaged_file = rule_file.with_stem("damaged")
        damaged_file.write_bytes(damaged)
        self.reads_the_same_or_complains(damaged_file, tiny_rule)

    @fuzz
    @given(noise=st.binary(max_size=400), where=st.floats(0, 1))
    def test_inserted_bytes(
        self, rule_file: Path, tiny_rule: DiscoRule, noise: bytes, where: float
    ) -> None:
        whole = rule_file.read_bytes()
        cut = int(where * len(whole))
        damaged_file = rule_file.with_stem("damaged")
        damaged_file.write_bytes(whole[:cut] + noise + whole[cut:])
        self.reads_the_same_or_complains(damaged_file, tiny_rule)

    @staticmethod
    def reads_the_same_or_complains(path: Path, rule: DiscoRule) -> None:
        """A byte that means nothing, like a date in a zip, may change without harm."""
        try:
            read = read_rule(path)
        except RuleFileError:
            return
        assert same_params(read, rule)
        assert path.suffix == ".npz" or read.config == rule.config

    @fuzz
    @given(noise=st.binary(max_size=2000))
    def test_noise(self, rule_file: Path, noise: bytes) -> None:
        noise_file = rule_file.with_stem("noise")
        noise_file.write_bytes(noise)
        with pytest.raises(RuleFileError):
            read_rule(noise_file)

    @fuzz
    @given(header=st.binary(max_size=300))
    def test_noise_for_an_array_header(
        self, tmp_path: Path, tiny_rule: DiscoRule, header: bytes
    ) -> None:
        size = len(header).to_bytes(2, "little")
        members = {f"{k}.npy": npy(v) for k, v in published_arrays(tiny_rule).items()}
        members[f"{GATE}.npy"] = b"\x93NUMPY\x01\x00" + size + header
        path = save_members(tmp_path / "rule.npz", members)
        with pytest.raises(RuleFileError, match=GATE):
            read_rule(path)

    @pytest.mark.parametrize("opening", ["(" * 9000, "{'a':" * 1500, "-" * 9000, "  x\n y", "'''"])
    def test_array_header_that_breaks_parsers(
        self, tmp_path: Path, tiny_rule: DiscoRule, opening: str
    ) -> None:
        header = opening.encode()
        members = {f"{k}.npy": npy(v) for k, v in published_arrays(tiny_rule).items()}
        size = len(header).to_bytes(2, "little")
        members[f"{GATE}.npy"] = b"\x93NUMPY\x01\x00" + size + header
        path = save_members(tmp_path / "rule.npz", members)
        with pytest.raises(RuleFileError, match=GATE):
            read_rule(path)


class Payload:
    """Unpickled, this would leave a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (str(self.mark), "w")


class TestHostileNpz:
    def check(self, path: Path, arrays: Mapping[str, np.ndarray], message: str) -> None:
        with pytest.raises(RuleFileError, match=message) as caught:
            read_rule(save_npz(path, arrays))
        assert str(path) in str(caught.value)

    @pytest.fixture
    def arrays(self, tiny_rule: DiscoRule) -> dict[str, np.ndarray]:
        return published_arrays(tiny_rule)

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "rule.npz"

    def test_pickle_is_not_run(
        self, path: Path, arrays: dict[str, np.ndarray], tmp_path: Path
    ) -> None:
        mark = tmp_path / "pwned"
        arrays[GATE] = np.array([Payload(mark)], dtype=object)
        self.check(path, arrays, f"{GATE}: expected float32, found object")
        path.write_bytes(npy(arrays[GATE]))
        with pytest.raises(RuleFileError):
            read_rule(path)
        assert not mark.exists()

    @pytest.mark.parametrize("dtype", ["int32", "int64", "bool", "complex64", "U4", "longdouble"])
    def test_wrong_dtype(self, path: Path, arrays: dict[str, np.ndarray], dtype: str) -> None:
        arrays[GATE] = arrays[GATE].astype(dtype)
        self.check(path, arrays, f"{GATE}: expected float32, found ")

    def test_missing(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        del arrays[GATE]
        self.check(path, arrays, f"{GATE}: expected a tensor of this name, found none")

    def test_renamed(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        arrays["lstm/linear/v"] = arrays.pop(GATE)
        self.check(path, arrays, f"{GATE}: expected .* found none, but 'lstm/linear/v'")

    def test_extra(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        arrays["more"] = np.zeros(1, "float32")
        self.check(path, arrays, "expected 42 tensors, found 43: also 'more'")

    @pytest.mark.parametrize("name", [GATE, "lstm/linear/b", "lstm/sequential/conv1_d/w"])
    def test_misshapen(self, path: Path, arrays: dict[str, np.ndarray], name: str) -> None:
        arrays[name] = np.zeros((3, 7, 2), "float32")
        self.check(path, arrays, rf"{name}: expected .*, found \[3, 7, 2\]")

    def test_convolution_without_its_leading_dimension(
        self, path: Path, arrays: dict[str, np.ndarray]
    ) -> None:
        name = "lstm/sequential/conv1_d/w"
        arrays[name] = arrays[name][0]
        self.check(path, arrays, rf"{name}: expected \[1, 18, 5\], found \[18, 5\]")

    def test_short_bias_is_named(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        arrays["lstm/linear/b"] = arrays["lstm/linear/b"][:-1]
        self.check(path, arrays, r"to fit lstm/linear/b \[15\], found \[8, 16\]")

    def test_odd_lstm(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        name = "lstm/~/meta_lstm/~unroll/lstm/linear/b"
        arrays[name] = arrays[name][:3]
        self.check(path, arrays, rf"{name[:-1]}w: expected a shape to fit {name} \[3\], found")

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_not_finite(self, path: Path, arrays: dict[str, np.ndarray], bad: float) -> None:
        arrays[GATE] = arrays[GATE].copy()
        arrays[GATE][1, 2] = bad
        self.check(path, arrays, f"{GATE}: expected finite float32 numbers, found 1")

    def test_too_large_for_float32(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        arrays[GATE] = np.full(arrays[GATE].shape, 1e300)
        self.check(path, arrays, f"{GATE}: expected finite float32")

    def test_zip_bomb(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        arrays[GATE] = np.zeros((20_000, 1_000), "float32")
        self.check(path, arrays, r"expected at most \d+ bytes unpacked, found")
        assert path.stat().st_size < 500_000

    def test_zip_bomb_that_lies_about_its_size(
        self, path: Path, arrays: dict[str, np.ndarray]
    ) -> None:
        members = {f"{name}.npy": npy(array) for name, array in arrays.items()}
        bomb = npy(np.zeros((5_000, 1_000), "float32"))
        members[f"{GATE}.npy"] = bomb
        save_members(path, members, zipfile.ZIP_DEFLATED)
        honest, lie = len(bomb).to_bytes(4, "little"), (640).to_bytes(4, "little")
        path.write_bytes(path.read_bytes().replace(honest, lie))
        tracemalloc.start()
        with pytest.raises(RuleFileError, match=GATE):
            read_rule(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < len(bomb) / 4

    def test_array_header_that_promises_more(
        self, path: Path, arrays: dict[str, np.ndarray]
    ) -> None:
        members = {f"{name}.npy": npy(array) for name, array in arrays.items()}
        honest, lie = b"(8, 16), }      ", b"(9999999, 16), }"
        members[f"{GATE}.npy"] = members[f"{GATE}.npy"].replace(honest, lie)
        with pytest.raises(
            RuleFileError, match=rf"{GATE}: expected 639999936 bytes for .*found 512"
        ):
            read_rule(save_members(path, members))

    def test_many_members(self, path: Path) -> None:
        members = {f"{i}.npy": b"" for i in range(300)}
        with pytest.raises(RuleFileError, match="expected 42 tensors, found over 256"):
            read_rule(save_members(path, members))

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_twice_the_same(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        save_npz(path, arrays)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(f"{GATE}.npy", npy(arrays[GATE] + 1))
        with pytest.raises(RuleFileError, match="found 43: some twice"):
            read_rule(path)

    @pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_other_compression(
        self, path: Path, arrays: dict[str, np.ndarray], method: int
    ) -> None:
        members = {f"{name}.npy": npy(array) for name, array in arrays.items()}
        with pytest.raises(RuleFileError, match="expected stored or deflated, found method"):
            read_rule(save_members(path, members, method))

    def test_huge_file(self, path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(65 * 2**20)
        with pytest.raises(RuleFileError, match="expected at most 67108864 bytes, found more"):
            read_rule(path)


def rewrite_header(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a safetensors header as an attacker or another program would."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    edit(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


class TestHostileSafetensors:
    @pytest.fixture
    def path(self, tmp_path: Path, tiny_rule: DiscoRule) -> Path:
        write_rule(tiny_rule, tmp_path / "rule.safetensors")
        return tmp_path / "rule.safetensors"

    def check(self, path: Path, message: str) -> None:
        with pytest.raises(RuleFileError, match=message) as caught:
            read_rule(path)
        assert str(path) in str(caught.value)

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("format", "other", "expected metadata with format discorl-rule"),
            ("version", "99", "version: expected 1, found '99'"),
            ("name", "../../etc", "name: expected letters"),
            ("name", "", "name: expected letters"),
            ("config", "{", "config: "),
            ("config", "[]", "config: expected an object, found list"),
            ("config", "{}", "config: expected 12 entries"),
            ("provenance", "[" * 100_000, "provenance: "),
            ("provenance", '{"a": 1}', "provenance: expected texts"),
            ("sha256", "0" * 64, "expected SHA-256"),
        ],
    )
    def test_metadata(self, path: Path, key: str, value: str, message: str) -> None:
        rewrite_header(path, lambda header: header["__metadata__"].update({key: value}))
        self.check(path, message)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("num_bins", "21"),
            ("num_bins", 21.0),
            ("num_bins", True),
            ("num_bins", 0),
            ("discount", None),
            ("discount", float("nan")),
            ("discount", float("inf")),
            ("discount", -0.5),
            ("discount", False),
            ("sizes", [1, 2]),
        ],
    )
    def test_config_values(self, path: Path, key: str, value: object) -> None:
        def edit(header: dict[str, Any]) -> None:
            config = json.loads(header["__metadata__"]["config"])
            header["__metadata__"]["config"] = json.dumps(config | {key: value})

        rewrite_header(path, edit)
        self.check(path, rf"config.{key}: expected something like")

    @pytest.mark.parametrize(
        ("key", "value"), [("discount", 1.5), ("num_bins", 1), ("max_abs_value", 0.0)]
    )
    def test_config_values_out_of_range(self, path: Path, key: str, value: float) -> None:
        def edit(header: dict[str, Any]) -> None:
            config = json.loads(header["__metadata__"]["config"])
            header["__metadata__"]["config"] = json.dumps(config | {key: value})

        rewrite_header(path, edit)
        self.check(path, rf"{flag(key)}: expected .*, got {value}")

    def test_config_sizes_that_do_not_fit(self, path: Path) -> None:
        def edit(header: dict[str, Any]) -> None:
            config = json.loads(header["__metadata__"]["config"])
            config["sizes"]["hidden"] = 10**15
            header["__metadata__"]["config"] = json.dumps(config)

        rewrite_header(path, edit)
        self.check(path, r"lstm.w: expected \[\d+, 4000000000000000\], found")

    def test_metadata_entry_missing(self, path: Path) -> None:
        rewrite_header(path, lambda header: header["__metadata__"].pop("config"))
        self.check(path, "config")

    @pytest.mark.parametrize("metadata", [None, [], "text", {}])
    def test_no_metadata(self, path: Path, metadata: object) -> None:
        rewrite_header(path, lambda header: header.update({"__metadata__": metadata}))
        self.check(path, "expected metadata with format")

    @pytest.mark.parametrize("entry", [None, [], {}, {"dtype": "F32"}, {"dtype": [], "shape": 3}])
    def test_malformed_entry(self, path: Path, entry: object) -> None:
        rewrite_header(path, lambda header: header.update({"gate.w": entry}))
        self.check(path, "rule.safetensors: ")

    def test_offsets_outside(self, path: Path) -> None:
        rewrite_header(path, lambda h: h["gate.w"].update(data_offsets=[10**12, 10**12 + 512]))
        self.check(path, "rule.safetensors: ")

    def rewrite(self, path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata()
        safetensors.torch.save_file(dict(tensors), path, metadata)

    def test_missing(self, path: Path, tiny_rule: DiscoRule) -> None:
        self.rewrite(path, {k: v for k, v in tiny_rule.params.items() if k != "gate.w"})
        self.check(path, "gate.w: expected a tensor of this name, found none")

    def test_extra(self, path: Path, tiny_rule: DiscoRule) -> None:
        self.rewrite(path, tiny_rule.params | {"more": torch.zeros(1)})
        self.check(path, "expected 42 tensors, found 43: also 'more'")

    def test_misshapen(self, path: Path, tiny_rule: DiscoRule) -> None:
        self.rewrite(path, tiny_rule.params | {"gate.w": torch.zeros(3, 2)})
        self.check(path, r"gate.w: expected \[8, 16\], found \[3, 2\]")

    @pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16, torch.bool])
    def test_wrong_dtype(self, path: Path, tiny_rule: DiscoRule, dtype: torch.dtype) -> None:
        self.rewrite(path, tiny_rule.params | {"gate.w": tiny_rule.params["gate.w"].to(dtype)})
        self.check(path, "gate.w: expected float32, found")

    def test_not_finite(self, path: Path, tiny_rule: DiscoRule) -> None:
        bad = tiny_rule.params["gate.w"].clone()
        bad[0, 0] = torch.nan
        self.rewrite(path, tiny_rule.params | {"gate.w": bad})
        self.check(path, "gate.w: expected finite float32 numbers, found 1")

    def test_changed_number(self, path: Path, tiny_rule: DiscoRule) -> None:
        self.rewrite(path, tiny_rule.params | {"gate.w": tiny_rule.params["gate.w"] + 1})
        self.check(path, "expected SHA-256")
