"""Writing a policy as ONNX or as a program of torch.export, and checking what was written."""

from __future__ import annotations

import importlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discorl.envs.registry import is_external, make_game
from discorl.errors import DiscorlError
from discorl.exporting.graph import PolicyGraph, Port
from discorl.exporting.names import name_ports
from discorl.exporting.samples import nested, random_arrays
from discorl.extras import install_line
from discorl.files import write_atomically, write_json
from discorl.training.agent import TrainedAgent

SUFFIXES = (".onnx", ".pt2")
TOLERANCE = 1e-5
"""Of outputs, relative to the largest of them if that is above one."""
_PROPERTY, _EXTRA_FILE = "discorl", "description.json"
"""Under these names an ONNX file and a `.pt2` hold their own description."""
_TRACED_BATCH = 5
_CHECKED_BATCHES = (1, 7)
_CHECKED_STEPS = 6
_START_SHARE = 0.3

Run = Callable[[list[Tensor]], list[Tensor]]
"""What a written file computes."""


@dataclass(frozen=True)
class Exported:
    """A policy that was written and checked."""

    path: Path
    description: dict[str, Any]
    """What is in the JSON file beside it: inputs, outputs, actions, where the agent comes from."""

    @property
    def largest_difference(self) -> float:
        """Between the file's outputs and the agent's, on random observations."""
        return float(self.description["largest_difference"])


def export_policy(agent: TrainedAgent, path: str | Path) -> Exported:
    """Write an agent's policy to a file that runs without this package, and check it.

    The graph reads observations as the environment shows them; normalisation and memory are inside
    it. What was written is run on random observations: if it differs from the agent by more than
    1e-5, an error is raised and no file is left.

    Args:
      path: a name ending in `.onnx`, which needs the extra `onnx`, or in `.pt2`, for
        `torch.export.load`. A description goes to the same name with `.json` behind it.
    """
    path = Path(path)
    check_export(path)
    agent = agent.to("cpu")
    graph = PolicyGraph(agent).eval()
    program, dynamic = _trace(graph)
    kind = path.suffix.lower().removeprefix(".")
    about = {"format": kind, **_describe(agent, graph, dynamic)}
    if kind == "onnx":
        program = _to_onnx(program, graph)
    write, load = (_write_onnx, _load_onnx) if kind == "onnx" else (_write_pt2, _load_pt2)
    batches = _CHECKED_BATCHES if dynamic else (_TRACED_BATCH,)
    # Once without the result of the check, which the file is to hold too.
    run = load(write(program, about))
    about["largest_difference"] = max(_difference(agent, graph, run, batch) for batch in batches)
    if not about["largest_difference"] <= TOLERANCE:
        raise DiscorlError(
            f"{path}: not written: what was exported differs from the agent by "
            f"{about['largest_difference']:.1e}, more than {TOLERANCE:g}"
        )
    data = write(program, about)
    write_atomically(path, lambda p: p.write_bytes(data))
    write_json(description_path(path), about)
    return Exported(path, about)


def description_path(path: Path) -> Path:
    """Where the description of an exported file is."""
    return path.with_name(f"{path.name}.json")


def check_export(path: Path) -> None:
    """Raise DiscorlError if a file of this name cannot be written here, and say why."""
    if path.suffix.lower() not in SUFFIXES:
        raise DiscorlError(f"{path}: expected a name ending in {' or '.join(SUFFIXES)}")
    if path.suffix.lower() == ".onnx":
        try:
            for package in ("onnx", "onnxruntime", "onnxscript"):
                importlib.import_module(package)
        except ImportError as error:
            raise DiscorlError(
                f"ONNX needs the extra: {install_line('onnx')}; a .pt2 needs nothing"
            ) from error


def _trace(graph: PolicyGraph) -> tuple[Any, bool]:
    """The graph's program, and whether it takes any number of observations at once."""
    args = tuple(_example(port) for port in graph.inputs)
    batch = torch.export.Dim("batch")
    shapes = (tuple({0: batch} for _ in args),)
    problem: Exception | None = None
    for dynamic in (True, False):
        try:
            with torch.no_grad(), _quiet():
                program = torch.export.export(
                    graph, args, dynamic_shapes=shapes if dynamic else None
                )
            return program, dynamic
        except Exception as error:  # Whatever a network of the user's own may raise.
            problem = error
    line = str(problem).partition("\n")[0]
    raise DiscorlError(
        f"this agent's network cannot be exported: {type(problem).__name__}: {line}"
    ) from problem


def _example(port: Port) -> Tensor:
    return torch.zeros(_TRACED_BATCH, *port.shape, dtype=getattr(torch, port.dtype))


def _describe(agent: TrainedAgent, graph: PolicyGraph, dynamic: bool) -> dict[str, Any]:
    batch = "batch" if dynamic else _TRACED_BATCH
    return {
        "agent": agent.info,
        "inputs": [port.to_json(batch) for port in graph.inputs],
        "outputs": [port.to_json(batch) for port in graph.outputs],
        "actions": {
            "count": agent.num_actions,
            "names": _action_names(agent),
            "values": agent.action_values.tolist(),
        },
    }


def _action_names(agent: TrainedAgent) -> list[str] | None:
    """What the actions are called, in games of ours."""
    env = agent.info.get("env", "")
    if not env or is_external(env):
        return None
    try:
        names = getattr(make_game(env), "action_names", None)
    except DiscorlError:  # It was passed as an object.
        return None
    return None if names is None else list(names)


def _write_pt2(program: Any, about: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    with _quiet():
        torch.export.save(program, out, extra_files={_EXTRA_FILE: json.dumps(about)})
    return out.getvalue()


def _load_pt2(data: bytes) -> Run:
    with _quiet():
        module = torch.export.load(io.BytesIO(data)).module()
    return lambda tensors: list(module(*tensors))


def _to_onnx(program: Any, graph: PolicyGraph) -> Any:
    """The program as an ONNX model."""
    inputs = {f"input.{i}": port.name for i, port in enumerate(graph.inputs)}
    outputs = {f"output.{i}": port.name for i, port in enumerate(graph.outputs)}
    with _quiet():
        made = torch.onnx.export(
            program,
            dynamo=True,
            external_data=False,
            verbose=False,
            input_names=list(inputs),
            output_names=list(outputs),
        )
    assert made is not None
    model = made.model_proto
    _name_batch(model.graph)
    name_ports(model.graph, inputs | outputs)
    return model


def _write_onnx(model: Any, about: dict[str, Any]) -> bytes:
    onnx: Any = importlib.import_module("onnx")
    onnx.helper.set_model_props(model, {_PROPERTY: json.dumps(about)})
    data: bytes = model.SerializeToString()
    return data


def _name_batch(graph: Any) -> None:
    """Call the batch dimension so, rather than by the number that tracing gave it."""
    own = {d.dim_param for v in graph.input for d in v.type.tensor_type.shape.dim if d.dim_param}
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in own:
                dim.dim_param = "batch"


def _load_onnx(data: bytes) -> Run:
    onnxruntime: Any = importlib.import_module("onnxruntime")
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]

    def run(tensors: list[Tensor]) -> list[Tensor]:
        feed = dict(zip(names, (t.numpy() for t in tensors), strict=True))
        return [torch.from_numpy(np.asarray(out)) for out in session.run(None, feed)]

    return run


@torch.no_grad()
def _difference(agent: TrainedAgent, graph: PolicyGraph, run: Run, batch: int) -> float:
    """The largest over a few steps of random observations, each with its own memory fed back."""
    rng = np.random.default_rng(batch)
    memory, state, worst = graph.start(batch), None, 0.0
    for step in range(_CHECKED_STEPS):
        arrays = random_arrays(graph.entries, graph.inputs, agent.moments, batch, rng)
        starts = rng.random(batch) < (_START_SHARE if step else 1)
        given = [torch.from_numpy(array) for array in arrays]
        given += [torch.from_numpy(starts), *memory] if memory else []
        found, *memory = run(given)
        logits, state = agent.logits(nested(graph.entries, arrays), state, starts)
        expected = [logits, *(state or {}).values()]
        for ours, theirs in zip([found, *memory], expected, strict=True):
            scale = max(float(theirs.abs().max()), 1.0)
            worst = max(worst, float((ours - theirs).abs().max()) / scale)
    return worst


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporters say of themselves."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
