"""The catalogue of named rules: find, verify, load, save, fetch.

`load_rule` never touches the network. A rule in the table is hand-written code, or a file known
by its SHA-256: one that can be fetched is looked for in the caches, any other ships with the
package.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

from discorl.errors import DiscorlError, UnknownNameError
from discorl.library.download import Patience, download, download_from_hub
from discorl.library.formats import (
    SUFFIXES,
    RuleFileError,
    check_suffix,
    parse_rule,
    read_bytes,
    write_rule,
)
from discorl.outputs import HeadSpec
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.base import UpdateRule
from discorl.rules.disco import DiscoConfig, DiscoRule, disco_heads
from discorl.rules.policy_gradient import PolicyGradient
from discorl.settings import field_types, parse_values, split_spec

DEFAULT_RULE = "sprout"
"""The rule if none is named; it ships with the package."""

SHARED_RULE = "rule.safetensors"
"""In a folder that `discorl pack` wrote, or a run's: the rule."""

Source = Literal["github", "hub"]

_ASSETS = Path(__file__).parent.parent / "assets"


@dataclass(frozen=True)
class Remote:
    """Where a file can be fetched from."""

    url: str
    hub_repository: str


@dataclass(frozen=True)
class StoredRule:
    """A rule that is a file."""

    file_name: str
    sha256: str
    provenance: dict[str, str]
    remote: Remote | None = None
    """None if the file ships with the package."""

    def places(self) -> list[Path]:
        """Where to look for the file, in order."""
        folders = cache_folders() if self.remote else [_ASSETS]
        return [folder / self.file_name for folder in folders]


RULES: dict[str, Callable[[], UpdateRule] | StoredRule] = {
    "disco103": StoredRule(
        file_name="disco_103.npz",
        sha256="dac840a15b81e8805326363458c33979626172618f620d9e6e170315388530aa",
        provenance={
            "origin": "Disco103, published by Google DeepMind in disco_rl",
            "paper": "Oh et al., Discovering state-of-the-art reinforcement learning algorithms, "
            "Nature 648 (2025)",
            "licence": "Apache License 2.0 (software), CC BY 4.0 (other materials)",
        },
        remote=Remote(
            url="https://raw.githubusercontent.com/google-deepmind/disco_rl/main/disco_rl/"
            "update_rules/weights/disco_103.npz",
            hub_repository="Asystemoffields/disco-103",
        ),
    ),
    "sprout": StoredRule(
        file_name="sprout.safetensors",
        sha256="f1f502afca6f45781c8f1b29faa9fa19a9a910afeb36f2dabcab9e252cd42ee6",
        provenance={"origin": "discovered with discorl; docs/sprout.md says how"},
    ),
    "sapling": StoredRule(
        file_name="sapling.safetensors",
        sha256="bd1392e7d4a308793d0c5e0378e57c9cdfd9b0cde4ebf81b06e2ea1bfd2af721",
        provenance={"origin": "distilled from Disco103 with discorl; docs/sapling.md says how"},
    ),
    "actor_critic": ActorCritic,
    "policy_gradient": PolicyGradient,
}
"""Name -> a file, or the class of a rule that is code."""


@dataclass(frozen=True)
class RuleStatus:
    """What the library knows about one of its names."""

    name: str
    kind: str
    where: str | None
    """A path, `in the package` for code, or None if it is nowhere."""
    parameters: int | None
    """None if unknown, because the rule is missing or damaged."""
    problem: str | None = None
    """Why it cannot be loaded, and what to do."""


def load_rule(name_or_path: str | Path) -> UpdateRule:
    """A rule by name, or from a file that ends in `.npz` or `.safetensors`, or from a folder that
    holds one such rule, as `discorl pack` writes it.

    A stored rule comes in float32 on the CPU, with its path and SHA-256 in `provenance`.

    Args:
      name_or_path: optionally with the rule's own settings after a colon:
        `actor_critic:entropy_cost=0.01`.
    """
    spec = str(name_or_path)
    # A folder's name in a path may look like settings.
    name, texts = (spec, {}) if spec.endswith(SUFFIXES) else split_spec(spec)
    rule = _load(name)
    if not texts:
        return rule
    values = parse_values(rule_settings(rule), texts, f"rule {name}")
    try:
        return rule.configured(**values)
    except ValueError as error:
        raise DiscorlError(f"rule '{spec}': {error}") from error


def rule_settings(rule: UpdateRule) -> dict[str, Any]:
    """The settings of a rule that can be given with its name: setting -> its type."""
    types = field_types(type(rule.config))
    return {name: kind for name, kind in types.items() if not is_dataclass(kind)}


def name_rule(rule: UpdateRule) -> str:
    """What `load_rule` reads as this rule, with its settings, if it is in the table."""
    for name, entry in RULES.items():
        if not isinstance(entry, StoredRule) and type(rule) is entry:
            known, default = rule_settings(rule), entry().config
            values = {key: getattr(rule.config, key) for key in known}
            texts = [f"{k}={v}".lower() for k, v in values.items() if v != getattr(default, k)]
            return f"{name}:{','.join(texts)}" if texts else name
    return rule.name


def as_rule(rule: str | Path | UpdateRule) -> UpdateRule:
    """A rule given by name, by file or as itself."""
    return load_rule(rule) if isinstance(rule, str | Path) else rule


def rule_heads(rule: str | Path | UpdateRule, num_actions: int) -> HeadSpec:
    """The heads of a rule given by name, by file or as itself."""
    if rule == "disco103":
        # Its sizes are the defaults: a network can be built without the weights.
        return disco_heads(DiscoConfig(), num_actions)
    return as_rule(rule).heads(num_actions)


def require_discovered(rule: UpdateRule) -> DiscoRule:
    """The rule, if it was discovered: others have no parameters."""
    if isinstance(rule, DiscoRule):
        return rule
    raise DiscorlError(f"rule '{rule.name}' has no parameters: it is code, not a discovered rule")


def _load(name: str) -> UpdateRule:
    entry = RULES.get(name)
    if entry is not None:
        return _load_stored(name, entry) if isinstance(entry, StoredRule) else entry()
    path = Path(os.path.expanduser(name))
    if os.path.isdir(path):
        path = _in_folder(path)
    if path.suffix in SUFFIXES:
        data = read_bytes(path)
        return _with_origin(parse_rule(data, path), path, _sha256(data))
    if os.path.exists(path) or len(path.parts) > 1:
        check_suffix(path)
    hint = f"Or give a file that ends in {' or '.join(SUFFIXES)}."
    raise UnknownNameError("rule", name, RULES, hint)


def _in_folder(folder: Path) -> Path:
    """The one rule in a folder."""
    found = sorted(path for path in folder.glob(f"*{SHARED_RULE}") if path.is_file())
    if len(found) == 1:
        return found[0]
    if not found:
        raise RuleFileError(f"{folder}: expected a rule file, or a folder with {SHARED_RULE}")
    names = " and ".join(path.name for path in found)
    raise RuleFileError(f"{folder} holds {names}: name one of them")


def is_discovered(name_or_path: str | Path) -> bool:
    """Whether a rule of this name has parameters, told without loading it."""
    name, _ = split_spec(str(name_or_path))
    return isinstance(RULES.get(name), StoredRule | None)


def save_rule(rule: UpdateRule, path: str | Path) -> None:
    """Write a discovered rule as float32, in the format the path's suffix asks for.

    `.safetensors` keeps everything. `.npz` is what the published code reads: parameters only, so
    a warning says which settings the file will not hold.
    """
    path = Path(os.path.expanduser(path))
    rule = require_discovered(rule)
    check_suffix(path)
    lost = _settings_lost_in_npz(rule.config) if path.suffix == ".npz" else []
    write_rule(replace(rule, provenance=_portable(rule.provenance)), path)
    if lost:
        warnings.warn(
            f"{path}: the published format holds no settings; {', '.join(lost)} will be the "
            "default when it is loaded. Save as .safetensors to keep them.",
            stacklevel=2,
        )


def fetch_rule(
    name: str,
    source: Source = "github",
    url: str | None = None,
    patience: Patience | None = None,
) -> Path:
    """Download a rule's file into the cache, unless an intact one is there; returns its path.

    Args:
      name: a name from the library.
      source: the publisher's repository, or the mirror on the Hugging Face hub.
      url: another place to get the same file from, instead of `source`.
      patience: how long to keep trying.
    """
    if name not in RULES:
        raise UnknownNameError("rule", name, RULES)
    entry = RULES[name]
    if not isinstance(entry, StoredRule) or entry.remote is None:
        raise DiscorlError(f"rule '{name}' comes with discorl: there is nothing to fetch")
    destination = entry.places()[0]
    if _is_sound(destination, entry.sha256):
        return destination
    if url is None and source == "hub":
        repository = entry.remote.hub_repository
        download_from_hub(repository, entry.file_name, entry.sha256, destination)
    else:
        download(url or entry.remote.url, entry.sha256, destination, patience)
    return destination


def rule_statuses() -> list[RuleStatus]:
    """All names in the library, whether they can be loaded or not."""
    return [_status(name, entry) for name, entry in RULES.items()]


def cache_folders() -> list[Path]:
    """Where fetched rules are looked for; new ones go into the first."""
    chosen = os.environ.get("DISCORL_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    user = Path(os.path.expanduser(base)) / "discorl"
    return [Path(os.path.expanduser(chosen)), user] if chosen else [user]


def parameter_count(rule: UpdateRule) -> int:
    """How many numbers the rule has learned: none, for hand-written ones."""
    return sum(t.numel() for t in rule.params.values())


def _load_stored(name: str, entry: StoredRule) -> DiscoRule:
    """A file from the table, if it is exactly the file that the table means."""
    path = _find(name, entry)
    data = read_bytes(path)
    found = _sha256(data)
    if found != entry.sha256:
        again = f"then run: discorl rules fetch {name}" if entry.remote else "reinstall discorl"
        raise RuleFileError(
            f"{path}: not the file it should be: expected SHA-256 {entry.sha256}, found {found}. "
            f"Delete it, {again}"
        )
    return _with_origin(parse_rule(data, path), path, found)


def _find(name: str, entry: StoredRule) -> Path:
    for place in entry.places():
        if os.path.exists(place):
            return place
    what_to_do = f"Get it with: discorl rules fetch {name}" if entry.remote else "Reinstall discorl"
    looked = ", ".join(str(place) for place in entry.places())
    raise DiscorlError(f"rule '{name}' is not here; looked at {looked}. {what_to_do}")


def _with_origin(rule: DiscoRule, path: Path, sha256: str) -> DiscoRule:
    """The rule with its origin; a file from the table is recognised wherever it lies."""
    provenance = rule.provenance | {"path": str(path.absolute()), "sha256": sha256}
    for name, entry in RULES.items():
        if isinstance(entry, StoredRule) and entry.sha256 == sha256:
            return replace(rule, name=name, provenance=entry.provenance | provenance)
    return replace(rule, provenance={"origin": f"file {path.name}"} | provenance)


def _is_sound(path: Path, sha256: str) -> bool:
    try:
        return _sha256(read_bytes(path)) == sha256
    except RuleFileError:
        return False


def _portable(provenance: dict[str, str]) -> dict[str, str]:
    """What stays true when the rule is saved elsewhere: not its path, nor its file's digest."""
    kept = {k: v for k, v in provenance.items() if k not in ("path", "sha256")}
    if "sha256" in provenance:
        kept["saved_from_sha256"] = provenance["sha256"]
    return kept


def _settings_lost_in_npz(config: DiscoConfig) -> list[str]:
    default = asdict(DiscoConfig(config.sizes))
    return [f"{k}={v}" for k, v in asdict(config).items() if v != default[k]]


def _status(name: str, entry: Callable[[], UpdateRule] | StoredRule) -> RuleStatus:
    if not isinstance(entry, StoredRule):
        return RuleStatus(name, "hand-written", "in the package", parameter_count(entry()))
    where = None
    try:
        where = str(_find(name, entry))
        rule = _load_stored(name, entry)
    except DiscorlError as error:
        return RuleStatus(name, "discovered", where, None, str(error))
    return RuleStatus(name, "discovered", where, parameter_count(rule))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
