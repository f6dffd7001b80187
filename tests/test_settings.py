"""Settings: brought to their types, checked, changed by flat names, read from text."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from discorl.comparison.config import CompareConfig
from discorl.discovery.config import DiscoverConfig
from discorl.errors import DiscorlError, UnknownNameError
from discorl.settings import (
    Count,
    FlatView,
    Natural,
    NotNegative,
    Positive,
    Range,
    Share,
    Sizes,
    change,
    check_fields,
    field_types,
    flat_settings,
    flat_types,
    guess_value,
    parse_values,
    split_settings,
    split_spec,
)
from discorl.training.config import TrainConfig


@dataclass(frozen=True)
class Engine:
    power: Positive = 1.0
    cylinders: Count = 4
    fuel: Literal["petrol", "wind"] = "petrol"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Body(FlatView):
    colour: str = "red"
    doors: Sizes = (2, 1)
    engine: Engine = field(default_factory=Engine)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Car(FlatView):
    owner: str | None = None
    year: int = 1900
    spare: Natural = 1
    rest: NotNegative = 0.0
    body: Body = field(default_factory=Body)
    worn: Share = 0.5
    seats: Count | None = None
    tilt: Annotated[float, Range(-1, 1)] = 0.0
    gears: tuple[int, float] = (5, 0.5)
    names: tuple[str, ...] = ()
    sporty: bool = False
    extra: Any = None

    def __post_init__(self) -> None:
        check_fields(self)


whole = st.integers(-(2**53), 2**53)
number = st.floats(allow_nan=False)
positive = st.floats(0, exclude_min=True)
share = st.floats(0, 1)
word = st.text("abc_xyz", min_size=1, max_size=5)
engines = st.builds(
    Engine,
    power=positive,
    cylinders=st.integers(1, 10**9),
    fuel=st.sampled_from(["petrol", "wind"]),
)
bodies = st.builds(
    Body, colour=word, doors=st.lists(st.integers(1, 9), max_size=4).map(tuple), engine=engines
)
cars = st.builds(
    Car,
    owner=word,
    year=whole,
    spare=st.integers(0, 10**9),
    rest=st.floats(0),
    body=bodies,
    worn=share,
    seats=st.none() | st.integers(1, 99),
    tilt=st.floats(-1, 1),
    gears=st.tuples(whole, number),
    names=st.lists(word, max_size=3).map(tuple),
    sporty=st.booleans(),
)


def same(first: Any, second: Any) -> bool:
    """Equal, and of equal types, all the way down."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and first == second


# --- types and ranges


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("year", 1e6, 1_000_000),
        ("year", np.int32(7), 7),
        ("year", np.uint8(7), 7),
        ("year", np.float64(-7), -7),
        ("year", 2**63 + 1, 2**63 + 1),
        ("spare", 0.0, 0),
        ("rest", 3, 3.0),
        ("rest", np.float32(0.5), 0.5),
        ("rest", math.inf, math.inf),
        ("worn", 1, 1.0),
        ("worn", 0, 0.0),
        ("tilt", -1, -1.0),
        ("seats", None, None),
        ("seats", 2.0, 2),
        ("owner", None, None),
        ("owner", "ann", "ann"),
        ("sporty", np.True_, True),
        ("gears", [4.0, 1], (4, 1.0)),
        ("gears", np.array([4, 1]), (4, 1.0)),
        ("names", ["a", "b"], ("a", "b")),
        ("names", [], ()),
    ],
)
def test_values_are_brought_to_their_types(name: str, given: Any, expected: Any) -> None:
    for car in (Car(**{name: given}), change(Car(), {name: given})):
        assert same(getattr(car, name), expected)
        json.dumps(getattr(car, name))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("year", 2.5, "--year: expected a whole number, got 2.5"),
        ("year", "7", "--year: expected a whole number, got '7'"),
        ("year", True, "--year: expected a whole number, got True"),
        ("year", None, "--year: expected a whole number, got None"),
        ("year", math.inf, "--year: expected a whole number, got inf"),
        ("year", math.nan, "--year: expected a whole number, got nan"),
        ("year", 1j, "--year: expected a whole number"),
        ("year", Decimal(7), "--year: expected a whole number"),
        ("year", np.array([7]), "--year: expected a whole number"),
        ("year", 10**400, "--year: .*too large"),
        ("spare", -1, "--spare: expected at least 0, got -1"),
        ("rest", -0.5, "--rest: expected at least 0, got -0.5"),
        ("rest", math.nan, "--rest: expected a number, got nan"),
        ("rest", "half", "--rest: expected a number, got 'half'"),
        ("rest", False, "--rest: expected a number, got False"),
        ("rest", 10**400, "--rest: .*too large"),
        ("worn", 1.1, "--worn: expected a number from 0 to 1, got 1.1"),
        ("worn", -0.1, "--worn: expected a number from 0 to 1, got -0.1"),
        ("tilt", -2, "--tilt: expected a number from -1 to 1, got -2"),
        ("power", 0, "--power: expected a positive number, got 0"),
        ("power", -1, "--power: expected a positive number, got -1"),
        ("cylinders", 0, "--cylinders: expected at least 1, got 0"),
        ("seats", 0, "--seats: expected at least 1, got 0"),
        ("seats", "two", "--seats: expected a whole number, got 'two'"),
        ("fuel", "coal", "--fuel: expected one of petrol, wind, got 'coal'"),
        ("fuel", None, "--fuel: expected one of petrol, wind, got None"),
        ("fuel", ["wind"], "--fuel: expected one of petrol, wind"),
        ("colour", 5, "--colour: expected text, got 5"),
        ("colour", None, "--colour: expected text, got None"),
        ("sporty", 1, "--sporty: expected true or false, got 1"),
        ("sporty", "true", "--sporty: expected true or false, got 'true'"),
        ("doors", 2, "--doors: expected several values, got 2"),
        ("doors", "2", "--doors: expected several values, got '2'"),
        ("doors", [2, 0], r"--doors: expected at least 1, got \[2, 0\]"),
        ("doors", [2, 1.5], r"--doors: expected a whole number, got \[2, 1.5\]"),
        ("gears", [1], r"--gears: expected 2 values, got \[1\]"),
        ("gears", [1, 2, 3], "--gears: expected 2 values"),
        ("names", ["a", 1], "--names: expected text"),
        ("body", 5, "--body: expected several settings, got 5"),
        ("body", None, "--body: expected several settings, got None"),
        ("body", Engine(), "--body: expected several settings, got Engine"),
    ],
)
def test_what_cannot_be_is_said_with_its_flag(name: str, given: Any, message: str) -> None:
    with pytest.raises(DiscorlError, match=f"^{message}"):
        change(Car(), {name: given})
    if name in field_types(Car):
        with pytest.raises(DiscorlError, match=f"^{message}"):
            Car(**{name: given})


@given(whole, st.sampled_from([int, float, np.int64, np.float64, Fraction]))
def test_whole_numbers_come_in_any_type(value: int, kind: Any) -> None:
    assert same(Car(year=kind(value)).year, value)


@given(number.filter(lambda x: not x.is_integer()), st.sampled_from([float, np.float64]))
def test_no_other_number_is_whole(value: float, kind: Any) -> None:
    with pytest.raises(DiscorlError, match=r"^--year: expected a whole number"):
        Car(year=kind(value))


@given(number)
def test_ranges_are_kept(value: float) -> None:
    def accepts(**settings: float) -> bool:
        try:
            return bool(change(Car(), settings))
        except DiscorlError:
            return False

    assert accepts(worn=value) == (0 <= value <= 1)
    assert accepts(tilt=value) == (-1 <= value <= 1)
    assert accepts(rest=value) == (value >= 0)
    assert accepts(power=value) == (value > 0)


def test_what_has_no_plain_type_is_left_alone() -> None:
    tensor = torch.zeros(2)
    assert Car(extra=tensor).extra is tensor


# --- flat names


def test_settings_are_read_by_flat_names_at_any_depth() -> None:
    car = Car(body=Body(engine=Engine(power=3)))
    assert (car.power, car.body.power, car.colour, car.doors) == (3.0, 3.0, "red", (2, 1))
    assert car.engine is car.body.engine
    with pytest.raises(AttributeError, match="Car has no setting 'horn'"):
        _ = car.horn
    assert not hasattr(car, "_power")


@given(cars)
def test_flat_settings_are_what_the_names_read(car: Car) -> None:
    settings = flat_settings(car)
    assert len(settings) == 16
    assert settings.keys() == flat_types(car).keys()
    assert all(same(getattr(car, name), value) for name, value in settings.items())


@given(cars)
def test_copies_are_equal(car: Car) -> None:
    assert copy.deepcopy(car) == car


@given(cars, cars)
def test_one_becomes_another_by_its_flat_settings(one: Car, other: Car) -> None:
    assert change(one, flat_settings(other)) == other
    assert change(one, {"body": other.body}) == replace(one, body=other.body)
    assert change(one, {"body": flat_settings(other.body)}).body == other.body


@given(cars, st.data())
def test_only_what_is_given_changes(car: Car, data: st.DataObject) -> None:
    before, other = flat_settings(car), flat_settings(data.draw(cars))
    names = data.draw(st.sets(st.sampled_from(sorted(before))))
    changed = change(car, {name: other[name] for name in names})
    assert flat_settings(changed) == before | {name: other[name] for name in names}
    assert flat_settings(car) == before


def test_nothing_changes_nothing() -> None:
    car = Car()
    assert change(car, {}) is car
    assert change(car, {"year": 1}).body is car.body


@pytest.mark.parametrize(
    "given",
    [
        Body("blue", engine=Engine(power=2)),
        {"colour": "blue", "power": 2},
        {"colour": "blue", "engine": Engine(power=2)},
        {"colour": "blue", "engine": {"power": 2}},
    ],
)
def test_a_part_may_be_given_whole(given: Any) -> None:
    expected = Car(body=Body("blue", engine=Engine(power=2)))
    assert change(Car(), {"body": given}) == expected
    # A name of its own counts more, in any order.
    for values in ({"body": given, "power": 3}, {"power": 3, "body": given}):
        assert change(Car(), values).engine == Engine(power=3)
        assert change(Car(), values).colour == "blue"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"powr": 1}, "unknown setting 'powr'. Did you mean power"),
        ({"Year": 1}, "unknown setting 'Year'. Did you mean year"),
        ({"body": {"year": 1}}, "unknown setting 'year'. Known: colour, cylinders, doors"),
        ({"body": {"engine": {"powre": 1}}}, "unknown setting 'powre'. Did you mean power?"),
        ({"engine": Engine()}, "unknown setting 'engine'"),
        ({"": 1}, "unknown setting ''"),
    ],
)
def test_unknown_names_get_suggestions(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        change(Car(), values)
    assert words in str(error.value)


def test_errors_say_whose_setting_it_is() -> None:
    with pytest.raises(UnknownNameError, match=r"^unknown car setting 'power_'"):
        change(Car(), {"power_": 1}, "car setting")
    with pytest.raises(UnknownNameError, match=r"^unknown car setting 'power_'"):
        change(Car(), {"body": {"power_": 1}}, "car setting")


# --- the package's own


def names_in(config: Any) -> list[str]:
    """The names of all values and of all parts."""
    names = []
    for f in fields(config):
        value = getattr(config, f.name)
        names += [f.name, *(names_in(value) if is_dataclass(value) else [])]
    return names


@pytest.mark.parametrize("kind", [TrainConfig, DiscoverConfig, CompareConfig])
def test_every_name_stands_for_one_thing(kind: Any) -> None:
    names = names_in(kind())
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", [TrainConfig, DiscoverConfig, CompareConfig])
def test_every_default_is_of_its_type(kind: Any) -> None:
    config = kind()
    assert change(config, flat_settings(config)) == config
    for name, value in flat_settings(change(config, flat_settings(config))).items():
        assert same(value, flat_settings(config)[name]), name


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "steps": st.integers(1, 10**9),
            "seed": st.integers(0, 2**63 - 1),
            "num_envs": st.integers(1, 999),
            "rollout_length": st.integers(2, 99),
            "learning_rate": st.floats(1e-9, 1),
            "torso": st.lists(st.integers(1, 99), min_size=1, max_size=3),
            "value_width": st.none() | st.floats(0.1, 9),
            "memory": st.sampled_from(["none", "lstm"]),
            "env_timeout": st.integers(1, 99),
            "checkpoint_every": st.integers(1, 99),
            "clip_rewards": st.booleans(),
        },
    )
)
def test_a_runs_file_gives_the_run_back(values: dict[str, Any]) -> None:
    config = TrainConfig.from_json(values)
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    for name, value in values.items():
        expected = tuple(value) if isinstance(value, list) else value
        assert getattr(config, name) == expected


# --- texts


@pytest.mark.parametrize(
    ("text", "name", "settings"),
    [
        ("catch", "catch", {}),
        ("catch:rows=5", "catch", {"rows": "5"}),
        ("catch:rows=5,columns=7", "catch", {"rows": "5", "columns": "7"}),
        ("a:torso=64,64,lr=1", "a", {"torso": "64,64", "lr": "1"}),
        ("a:x=", "a", {"x": ""}),
        ("a:x=1,,y=2,", "a", {"x": "1", "y": "2"}),
        ("a:x=b=c", "a", {"x": "b=c"}),
        ("module:function", "module:function", {}),
        ("folder:a/rule.npz", "folder:a/rule.npz", {}),
        ("folder:a/rule.npz:x=1", "folder:a/rule.npz", {"x": "1"}),
        ("a:", "a:", {}),
        (":x=1", ":x=1", {}),
        ("x=1", "x=1", {}),
        ("", "", {}),
    ],
)
def test_a_name_and_its_settings(text: str, name: str, settings: dict[str, str]) -> None:
    assert split_spec(text) == (name, settings)


@given(word, st.dictionaries(word, st.lists(word, min_size=1, max_size=3), min_size=1))
def test_settings_come_back_from_a_name(name: str, settings: dict[str, list[str]]) -> None:
    texts = {key: ",".join(parts) for key, parts in settings.items()}
    spec = f"{name}:{','.join(f'{key}={text}' for key, text in texts.items())}"
    assert split_spec(spec) == (name, texts)


def test_what_comes_first_must_be_a_setting() -> None:
    assert split_settings(["a=1", "2", "b=3"], "--set") == {"a": "1,2", "b": "3"}
    assert split_settings([], "--set") == {}
    with pytest.raises(DiscorlError, match=r"^--set: write name=value, got 'x'$"):
        split_settings(["x", "a=1"], "--set")
    with pytest.raises(DiscorlError, match=r"^a:x,y=1: write name=value, got 'x'$"):
        split_spec("a:x,y=1")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("1e6", 1e6),
        ("0.5", 0.5),
        ("true", True),
        ("False", False),
        ("None", None),
        ("relu", "relu"),
        ("", ""),
    ],
)
def test_values_of_unknown_type_are_guessed(text: str, value: Any) -> None:
    assert same(guess_value(text), value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("year", "1e6", 1_000_000),
        ("year", "1_000", 1000),
        ("rest", "3", 3.0),
        ("rest", "inf", math.inf),
        ("seats", "none", None),
        ("seats", "None", None),
        ("sporty", "True", True),
        ("fuel", "wind", "wind"),
        ("colour", "5", "5"),
        ("colour", "none", "none"),
        ("colour", "", ""),
        ("doors", "64,64", (64, 64)),
        ("doors", "64", (64,)),
        ("doors", "64,", (64,)),
        ("doors", "", ()),
        ("names", "5,true,x", ("5", "true", "x")),
    ],
)
def test_texts_are_read_by_the_declared_type(name: str, text: str, value: Any) -> None:
    values = parse_values(flat_types(Car()), {name: text}, "car")
    assert values.keys() == {name}
    assert same(values[name], value)


def written(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(written, value))
    return repr(value) if isinstance(value, float) else str(value)


@given(cars)
def test_what_is_written_is_read_back(car: Car) -> None:
    settings = flat_settings(car)
    texts = {name: written(value) for name, value in settings.items()}
    values = parse_values(flat_types(car), texts, "car")
    assert all(same(values[name], value) for name, value in settings.items())


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"year": "x"}, "my car: year=x: expected a whole number"),
        ({"year": "2.5"}, "my car: year=2.5: expected a whole number"),
        ({"year": ""}, r"my car: year=\?: expected a whole number"),
        ({"year": "none"}, "my car: year=none: expected a whole number"),
        ({"year": "true"}, "my car: year=true: expected a whole number"),
        ({"year": "1e400"}, "my car: year=1e400: expected a whole number"),
        ({"rest": "9" * 400}, "my car: rest=9+: .*too large"),
        ({"rest": "nan"}, "my car: rest=nan: expected a number"),
        ({"worn": "2"}, "my car: worn=2: expected a number from 0 to 1"),
        ({"sporty": "1"}, "my car: sporty=1: expected true or false"),
        ({"sporty": "yes"}, "my car: sporty=yes: expected true or false"),
        ({"fuel": "coal"}, "my car: fuel=coal: expected one of petrol, wind"),
        ({"doors": "2,x"}, "my car: doors=2,x: expected a whole number"),
        ({"gears": "1"}, "my car: gears=1: expected 2 values"),
        ({"yaer": "1"}, r"unknown setting of my car: 'yaer'\. Did you mean year\?.*Ask Ann\.$"),
    ],
)
def test_texts_that_cannot_be_read(texts: dict[str, str], message: str) -> None:
    with pytest.raises(DiscorlError, match=f"^{message}"):
        parse_values(flat_types(Car()), texts, "my car", "Ask Ann.")
