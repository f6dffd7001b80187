"""Damaged files and nonsense flags: exit code 0 or 2, one clear line, and nothing changed."""

import contextlib
import json
import random
import shutil

import pytest

import discorl
from discorl.cli.__main__ import main
from discorl.cli.completion import known_flags
from discorl.errors import DiscorlError

WORDS = (
    *("", "0", "-1", "1e9", "nan", "inf", "null", "[]", "{}", '"x"', "true", "catch", "x" * 300),
    *(
        "a:b=c",
        "../..",
        "é",
        "--",
        "1.5",
        "None",
        "catch:rows=0",
        "family:",
        "sb3/ppo",
        "zoo/dqn",
        "a=b,c",
    ),
    *("%s", "🎲"),
)
VALUES = (None, [], {}, "x", -1, 0, 1.5, 1e400, True, [1, "a"], "é" * 9, 10**30)
SIZES = {
    "agents": 1,
    "num-envs": 2,
    "torso": 4,
    "model-size": 4,
    "head-hidden": 4,
    "num-bins": 5,
    "value-torso": 4,
    "predictions": 4,
    "hidden": 4,
    "meta-hidden": 4,
    "eval-steps": 2,
    "meta-steps": 1,
}
SMALL = [word for name, size in SIZES.items() for word in (f"--{name}", str(size))]
READERS = {
    "train": [
        ["evaluate", "FOLDER", "--episodes", "2"],
        ["plot", "FOLDER", "--out", "p.png"],
        ["train", "--resume", "FOLDER", "--help"],
        ["resume", "FOLDER"],
        ["evaluate", "FOLDER", "--episodes", "2", "--checkpoint", "best"],
        ["train", "--config", "FOLDER/config.json", "--help"],
    ],
    "discover": [
        ["plot", "FOLDER", "--out", "p.png"],
        ["discover", "--resume", "FOLDER", "--help"],
        ["rules", "show", "FOLDER/rule.safetensors"],
        ["resume", "FOLDER"],
    ],
    "compare": [
        ["plot", "FOLDER", "--out", "p.png"],
        ["compare", "--resume", "FOLDER", "--help"],
        ["evaluate", "FOLDER"],
    ],
}
"""Commands that read a run folder; on an error they leave it as it was."""
HEARD = ("--json",)
"""Flags with which progress goes to standard error."""
PARSED_ONLY = ("train", "discover", "compare")
COMMANDS = (*PARSED_ONLY, "evaluate", "plot", "resume", "verify", "completion", "rules", "envs")


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A small run of each kind, and an agent's file."""
    folder = tmp_path_factory.mktemp("sound")
    train = ["train", "catch:rows=3,columns=3", "--rule", "actor_critic", "--torso", "4"]
    few = ["--eval-episodes", "2", "--steps", "4", "--eval-every", "2", "--log-every", "1"]
    assert main([*train, *few, "--out", f"{folder}/train"]) == 0
    assert main(["discover", *SMALL, "--out", f"{folder}/discover"]) == 0
    compare = ["compare", "--rules", "actor_critic", "--envs", "catch:rows=3,columns=3"]
    few = ["--seeds", "1", "--steps", "3", "--set", "torso=4", "--jobs", "1"]
    assert main([*compare, *few, "--out", f"{folder}/compare"]) == 0
    discorl.load_agent(folder / "train").save(folder / "agent.safetensors")
    return folder


@pytest.fixture(scope="module")
def flags():
    return known_flags()


def damaged(data, rng):
    """Bytes with a few of them changed, cut off, put in or taken out."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) + 1)
        how = rng.randrange(5)
        if how == 0 and data:
            data[place % len(data)] = rng.randrange(256)
        elif how == 1:
            del data[place:]
        elif how == 2:
            data[place:place] = rng.choice(WORDS).encode()
        elif how == 3:
            del data[place : place + rng.randint(1, 40)]
        else:
            data[:] = rng.choice([b"", b"[]", b"{}", b"null", b"\xff\xfe", b"3", b'"x"', data])
    return bytes(data)


def damaged_json(data, rng):
    """JSON with an entry missing, new, or of another kind, at any depth."""
    values = json.loads(data)
    places = list(inner(values))
    if not places or rng.random() < 0.3:
        return damaged(data, rng)
    place = rng.choice(places)
    name = rng.choice(sorted(place) if isinstance(place, dict) else range(len(place)))
    if rng.random() < 0.25:
        del place[name]
    elif isinstance(place, dict) and rng.random() < 0.3:
        place[rng.choice(WORDS)] = rng.choice(VALUES)
    else:
        place[name] = rng.choice(VALUES)
    return json.dumps(values).encode()


def damaged_lines(data, rng):
    """Records of which one is damaged."""
    lines = data.splitlines()
    if not lines or rng.random() < 0.3:
        return damaged(data, rng)
    place = rng.randrange(len(lines))
    lines[place] = damaged_json(lines[place], rng)
    return b"\n".join(lines) + b"\n"


def inner(value):
    """Every object and list that holds something."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if parts:
        yield value
    for part in parts:
        yield from inner(part)


def contents(folder):
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != ".lock")
    return {p: p.read_bytes() for p in files}


def tried(args, capsys):
    """The exit code of a command that must end well, or in one clear line."""
    try:
        code = main(args)
    except SystemExit as stop:
        code = stop.code
    err = capsys.readouterr().err
    assert code in (0, 2), (args, err)
    assert "Traceback" not in err, args
    lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
    if code and args and args[0] != "verify":  # It tells of each of its files.
        assert len(lines) == 1, (args, err)
        assert lines[0].startswith("error: "), (args, err)
    elif not code and not any(word in HEARD for word in args):
        assert not lines, (args, err)
    return code


def try_folder(sound, folder, rng, capsys):
    kind = rng.choice(sorted(READERS))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound / kind, folder)
    files = [p for p in contents(folder) if p.suffix != ".png" and "tensorboard" not in p.parts]
    path = rng.choice(sorted(files))
    change = {".json": damaged_json, ".jsonl": damaged_lines}.get(path.suffix, damaged)
    path.write_bytes(change(path.read_bytes(), rng))
    before = contents(folder)
    args = [word.replace("FOLDER", str(folder)) for word in rng.choice(READERS[kind])]
    if tried(args, capsys):
        assert contents(folder) == before, args


def try_file(sound, folder, rng, capsys):
    folder.mkdir(exist_ok=True)
    path = folder / "x.safetensors"
    source = rng.choice(["discover/rule.safetensors", "agent.safetensors"])
    path.write_bytes(damaged((sound / source).read_bytes(), rng))
    tried(["rules", "show", str(path)], capsys)
    with contextlib.suppress(DiscorlError):
        discorl.load_agent(path)


def try_flags(flags, rng, capsys):
    command = rng.choice([*COMMANDS, rng.choice(WORDS)])
    args = [command]
    for _ in range(rng.randint(0, 4)):
        args.append(rng.choice(flags.get(command) or ["--x"]))
        args += [rng.choice(WORDS)] if rng.random() < 0.8 else []
    if command in (*PARSED_ONLY, "envs"):
        args.append("--help")  # Parsed, but not begun.
    if "fetch" not in args:
        tried(args, capsys)


def fuzz(sound, flags, folder, seed, count, capsys):
    rng = random.Random(seed)
    for _ in range(count):
        kind = rng.random()
        if kind < 0.45:
            try_folder(sound, folder / "run", rng, capsys)
        elif kind < 0.6:
            try_file(sound, folder / "files", rng, capsys)
        else:
            try_flags(flags, rng, capsys)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(2))
def test_nonsense_is_answered(sound, flags, seed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fuzz(sound, flags, tmp_path, seed, 30, capsys)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(100, 110))
def test_much_nonsense_is_answered(sound, flags, seed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fuzz(sound, flags, tmp_path, seed, 500, capsys)
