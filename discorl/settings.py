"""Settings as frozen dataclasses: declared once, checked alike from Python, files and flags.

A composed configuration is a dataclass whose fields are values or again dataclasses of settings.
Users see it flat: every name stands for one value, however deep it lies. So names are unique
within a configuration.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from discorl.errors import DiscorlError, UnknownNameError

Config = TypeVar("Config")


_LARGEST = 2**53
"""Numbers of anything are not larger: beyond it, tensors could not even be counted."""


@dataclass(frozen=True)
class Range:
    """What a number, or each of several, may be."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    """The number must be above `low`, not just at least that."""

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value, if anything."""
        values = value if isinstance(value, tuple) else (value,)
        if all(self.low <= v <= self.high and not (self.above and v == self.low) for v in values):
            return None
        if self.above:
            return "expected a positive number"
        if self.high == _LARGEST and any(v > self.high for v in values):
            return "expected a smaller number"
        if self.high == _LARGEST:
            return f"expected at least {self.low:g}"
        if self.high < math.inf:
            return f"expected a number from {self.low:g} to {self.high:g}"
        return f"expected at least {self.low:g}"


@dataclass(frozen=True)
class Search:
    """Where a search for good values of a setting looks, if nothing else is said."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    """Whether values are drawn evenly on a logarithmic scale."""
    choices: tuple[Any, ...] = ()
    """These values, instead of a range."""


Count = Annotated[int, Range(1, _LARGEST)]
Seed = Annotated[int, Range(-(2**63), 2**63 - 1)]
"""What every generator takes, with room for the seeds that are counted up from it."""
Natural = Annotated[int, Range(0, _LARGEST)]
Positive = Annotated[float, Range(0, above=True)]
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
Sizes = Annotated[tuple[int, ...], Range(1, _LARGEST)]


class FlatView:
    """Lets the values of a composed configuration be read by their flat names."""

    def __getattr__(self, name: str) -> Any:
        for part in vars(self).values():
            if is_dataclass(part) and not name.startswith("_") and hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(f"{type(self).__name__} has no setting '{name}'")


def flag(name: str) -> str:
    """A field as it is written on the command line."""
    return "--" + name.replace("_", "-")


def typed(name: str, value: Any) -> list[str]:
    """A setting as it is written on the command line, word by word."""
    if isinstance(value, bool):
        return [flag(name if value else f"no_{name}")]
    values = value if isinstance(value, tuple | list) else (value,)
    return [flag(name), *map(str, values)]


def check_fields(config: object) -> None:
    """Convert every field of a frozen dataclass to its declared type and check its range.

    To be called in `__post_init__`. Raises DiscorlError, naming the flag.
    """
    for name, hint in field_types(type(config)).items():
        value = getattr(config, name)
        try:
            object.__setattr__(config, name, _convert(hint, value))
        except (ValueError, OverflowError) as error:
            raise DiscorlError(f"{flag(name)}: {error}, got {value!r}") from error


def check_value(name: str, kind: Any, value: Any) -> Any:
    """One argument in its declared type, checked as a setting is; DiscorlError names it."""
    try:
        return _convert(kind, value)
    except (ValueError, OverflowError) as error:
        raise DiscorlError(f"{name}: {error}, got {value!r}") from error


def field_types(kind: Any) -> dict[str, Any]:
    """Field of a dataclass -> its declared type, annotations included."""
    return _field_types(kind)


@cache
def _field_types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {f.name: hints[f.name] for f in fields(kind)}


def declared_search(kind: Any) -> Search | None:
    """The range that a setting of this declared type is marked with, if it is."""
    marks = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Search)), None)


def search_range(kind: Any) -> Search | None:
    """Where to search for a setting of this declared type; types of few values are searched whole.
    None if nothing is declared."""
    base = _base(kind)
    if base is bool:
        return Search(choices=(False, True))
    if get_origin(base) is Literal:
        return Search(choices=get_args(base))
    return declared_search(kind)


def flat_settings(config: Any) -> dict[str, Any]:
    """Every value by its name, whatever part of the configuration it belongs to."""
    values: dict[str, Any] = {}
    for f in fields(config):
        value = getattr(config, f.name)
        values |= flat_settings(value) if is_dataclass(value) else {f.name: value}
    return values


def flat_types(config: Any) -> dict[str, Any]:
    """Every value's name and its declared type."""
    types: dict[str, Any] = {}
    for name, hint in field_types(type(config)).items():
        value = getattr(config, name)
        types |= flat_types(value) if is_dataclass(value) else {name: hint}
    return types


def change(config: Config, values: Mapping[str, Any], kind: str = "setting") -> Config:
    """The same configuration with some values changed, by their flat names.

    Parts may also be given whole, as a dataclass or a dictionary.

    Args:
      kind: what errors call a name.
    """
    known = {*flat_settings(config), *(f.name for f in fields(config))}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise UnknownNameError(kind, name, known)
    changed: Config = _change(config, dict(values), kind)
    return changed


def _change(config: Any, values: dict[str, Any], kind: str) -> Any:
    changes: dict[str, Any] = {}
    for f in fields(config):
        part = getattr(config, f.name)
        if not is_dataclass(part):
            if f.name in values:
                changes[f.name] = values[f.name]
            continue
        given = values.get(f.name, part)
        own = {name: values[name] for name in flat_settings(part) if name in values}
        if isinstance(given, Mapping):
            given = change(part, given, kind)
        elif not isinstance(given, type(part)):
            raise DiscorlError(f"{flag(f.name)}: expected several settings, got {given!r}")
        if f.name in values or own:
            changes[f.name] = _change(given, own, kind)
    return replace(config, **changes) if changes else config


def split_spec(text: str) -> tuple[str, dict[str, str]]:
    """`name:key=value,key=value` as its name and its settings.

    A name may hold colons, as paths do: settings follow the last one that `key=` comes after, and
    hold no slash. A comma without an equals sign belongs to the value: `torso=64,64`.
    """
    found = re.fullmatch(r"(.+):((?:[a-z_]\w*=|[^:/=]*,[a-z_]\w*=)[^/]*)", text)
    if found is None:
        return text, {}
    return found[1], split_settings(found[2].split(","), text)


def join_spec(name: str, settings: Mapping[str, str]) -> str:
    """What `split_spec` takes apart."""
    return f"{name}:{','.join(f'{k}={v}' for k, v in settings.items())}" if settings else name


def split_settings(items: Iterable[str], where: str) -> dict[str, str]:
    """`key=value` items; one without an equals sign continues the value before it."""
    pairs: dict[str, str] = {}
    key = ""
    for item in items:
        name, separator, value = item.partition("=")
        if separator:
            key, pairs[name] = name, value
        elif key and item:
            pairs[key] += f",{item}"
        elif item:
            raise DiscorlError(f"{where}: write name=value, got '{item}'")
    return pairs


def parse_values(
    types: Mapping[str, Any], texts: Mapping[str, str], where: str, hint: str = ""
) -> dict[str, Any]:
    """Values from their texts, by the types declared for their names.

    Args:
      where: what the settings belong to, for errors.
      hint: what errors add for an unknown name.
    """
    values = {}
    for name, text in texts.items():
        if name not in types:
            raise UnknownNameError(f"setting of {where}:", name, types, hint)
        try:
            values[name] = _convert(types[name], _read(types[name], text))
        except (ValueError, OverflowError) as error:
            raise DiscorlError(f"{where}: {name}={text or '?'}: {error}") from error
    return values


def guess_value(text: str) -> Any:
    """A number, true, false, none or text: for names whose types are not known."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _read(hint: Any, text: str) -> Any:
    """A text as the kind of value that is wanted, as far as the hint tells."""
    base = _base(hint)
    if get_origin(base) is tuple:
        return tuple(_read(get_args(base)[0], part) for part in text.split(",") if part)
    if base is str or (get_origin(base) is Literal):
        return text
    return guess_value(text)


def _base(hint: Any) -> Any:
    """The type without annotations and without None."""
    if get_origin(hint) is Annotated:
        return _base(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return _base(next(part for part in get_args(hint) if part is not type(None)))
    return hint


def _convert(hint: Any, value: Any) -> Any:
    """The value in its declared type; ValueError says what was expected."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        converted = _convert(arguments[0], value)
        for rule in arguments[1:]:
            problem = None
            if isinstance(rule, Range) and converted is not None:
                problem = rule.problem(converted)
            if problem:
                raise ValueError(problem)
        return converted
    if origin in (Union, UnionType):
        if value is None and type(None) in arguments:
            return None
        return _convert(next(part for part in arguments if part is not type(None)), value)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"expected one of {', '.join(map(str, arguments))}")
        return value
    if origin is tuple:
        return _convert_tuple(arguments, value)
    return _convert_plain(hint, value)


def _convert_tuple(arguments: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError("expected several values")
    parts = tuple(value)
    if arguments[-1] is Ellipsis:
        return tuple(_convert(arguments[0], part) for part in parts)
    if len(parts) != len(arguments):
        raise ValueError(f"expected {len(arguments)} values")
    return tuple(_convert(kind, part) for kind, part in zip(arguments, parts, strict=True))


def _convert_plain(kind: Any, value: Any) -> Any:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if kind is bool:
        return _as_bool(value)
    if kind is int:
        if not is_number or not float(value).is_integer():
            raise ValueError("expected a whole number")
        return int(value)
    if kind is float:
        if not is_number or math.isnan(value):
            raise ValueError("expected a number")
        return float(value)
    if kind is str and not isinstance(value, str):
        raise ValueError("expected text")
    if is_dataclass(kind) and not isinstance(value, kind):  # type: ignore[arg-type]
        raise ValueError("expected several settings")
    return value


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    import numpy as np  # Here, because every command reads settings, and few of them need it.

    if not isinstance(value, np.bool_):
        raise ValueError("expected true or false")
    return bool(value)
