"""Checks that a module can be an agent; every way to fail has its own message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedParameter

from discorl.agents.module import (
    ModuleAgent,
    SequenceModuleAgent,
    as_heads,
)
from discorl.agents.network import Network
from discorl.errors import DiscorlError
from discorl.gradients import leaves
from discorl.layers import Params
from discorl.observations import Observation, observation_leaves
from discorl.rollout import Window
from discorl.tree import tree_map

_STEPS, _STREAMS = 3, 3
"""How much of the observations the checks look at."""


def require_module(agent: Any) -> nn.Module:
    """The agent, if it is a module."""
    if isinstance(agent, nn.Module):
        return agent
    if isinstance(agent, Network):
        raise DiscorlError(
            "agent: a Network holds no parameters itself. Use discorl.train or discorl.Learner "
            "with it, or nn.Sequential(torso, DiscoHeads(...)) here"
        )
    raise DiscorlError(f"agent: expected a torch.nn.Module, got {type(agent).__name__}")


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters to learn, by name; frozen ones are left out."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def check_parameters(module: nn.Module, device: torch.device | None = None) -> None:
    """Check what needs no observation; parameters must be on the device, or all on one."""
    for name, p in module.named_parameters():
        if isinstance(p, UninitializedParameter):
            raise DiscorlError(
                f"agent: parameter {name} has no shape yet; call the module once on an "
                "observation before you pass it on"
            )
        if not p.is_floating_point():
            raise DiscorlError(
                f"agent: parameter {name} holds {_word(p.dtype)}, which cannot be learned; "
                "make it a buffer (register_buffer)"
            )
    params = trainable(module)
    if not params:
        raise DiscorlError(
            "agent: the module has no parameters to learn; keep its layers as attributes or in "
            "nn.ModuleList, and let them require gradient"
        )
    device = device or next(iter(params.values())).device
    for name, p in module.named_parameters():
        if p.device != device:
            raise DiscorlError(
                f"agent: parameter {name} is on {p.device}, not on {device}; move the module "
                f'first: agent.to("{device}")'
            )
    types = sorted({_word(p.dtype) for p in params.values()})
    if types not in (["float32"], ["float64"]):
        raise DiscorlError(
            f"agent: its parameters are {' and '.join(types)}; keep all in float32 and compute "
            "in less with torch.autocast"
        )
    _check_modes(module)


def _check_modes(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm) and part.training:
            raise DiscorlError(
                f"agent: {name or type(part).__name__} is BatchNorm in training mode, so a step's "
                "outputs depend on the batch it is in, and acting and learning see different "
                "batches. Use LayerNorm or GroupNorm, or call .eval() on it"
            )


def check_outputs(agent: ModuleAgent, params: Params, observations: Observation) -> None:
    """Check that the heads are what the rule reads, and that each step's are its own.

    Args:
      observations: [T, B, ...].
    """
    params = leaves(params)
    probe = tree_map(_some, observations)
    heads = _run(lambda: agent.call(params, _inputs(agent, probe)), probe)
    _check_shapes(agent, heads, probe)
    _check_gradients(agent, params, probe, heads)
    with torch.no_grad():
        _check_repeatable(agent, params, probe, heads)
        _check_streams(agent, params, probe, heads)
        if isinstance(agent, SequenceModuleAgent):
            _check_steps(agent, probe, heads)
        else:
            _check_leading_dims(agent, params, probe, heads)


def _some(tensor: Tensor) -> Tensor:
    """A few steps of a few streams, plus a stream of zeros, so that there are at least two."""
    few = tensor[:_STEPS, :_STREAMS]
    return torch.cat([few, torch.zeros_like(few[:, :1])], dim=1)


def _inputs(agent: ModuleAgent, observations: Observation) -> Observation | Window:
    if not isinstance(agent, SequenceModuleAgent):
        return observations
    leaf = next(iter(observation_leaves(observations).values()))
    firsts = torch.zeros(leaf.shape[:2], dtype=torch.bool, device=leaf.device)
    return Window(observations, firsts, {})


def _run(call: Callable[[], dict[str, Tensor]], observations: Observation) -> dict[str, Tensor]:
    try:
        return call()
    except DiscorlError:
        raise
    except Exception as error:
        shapes = [
            f"{_word(x.dtype)} {list(x.shape)}" for x in observation_leaves(observations).values()
        ]
        raise DiscorlError(
            f"agent: its forward failed on observations {', '.join(shapes)}: "
            f"{type(error).__name__}: {error}. It must take any leading dimensions, [T, B, ...] "
            "and [B, ...], and the observations' type"
        ) from error


def _shapes(agent: ModuleAgent) -> dict[str, tuple[int, ...]]:
    """Head -> shape of one step's output."""
    num_actions = agent.heads.state["logits"]
    each = {name: (*num_actions, *shape) for name, shape in agent.heads.action.items()}
    return {**agent.heads.state, **each}


def _check_shapes(agent: ModuleAgent, heads: Params, probe: Observation) -> None:
    leaf = next(iter(observation_leaves(probe).values()))
    for name, shape in _shapes(agent).items():
        wanted = (*leaf.shape[:2], *shape)
        if name not in heads:
            raise DiscorlError(
                f"agent: the head '{name}' is missing, it gave {sorted(heads)}; the rule needs it "
                f"as [..., {_join(shape)}]. DiscoHeads has all heads"
            )
        if tuple(heads[name].shape) != wanted:
            raise DiscorlError(
                f"agent: the head '{name}' is {list(heads[name].shape)} for observations "
                f"[{_join(leaf.shape[:2])}, ...]; expected {list(wanted)}"
            )


def _check_gradients(agent: ModuleAgent, params: Params, probe: Observation, heads: Params) -> None:
    own = {id(p) for p in params.values()}
    for name in _shapes(agent):
        if not heads[name].requires_grad:
            with torch.no_grad():
                changed = {n: 1.5 * p + 0.1 for n, p in params.items()}
                others = agent.call(changed, _inputs(agent, probe))
            raise DiscorlError(_no_gradient(name, torch.equal(others[name], heads[name])))
        strange = [p for p in _leaves_of(heads[name]) if id(p) not in own]
        if strange:
            raise DiscorlError(
                f"agent: the head '{name}' reads a tensor {list(strange[0].shape)} that requires "
                "gradient but is not among the module's parameters; keep layers as attributes or "
                "in nn.ModuleList, not in a plain list"
            )


def _no_gradient(head: str, constant: bool) -> str:
    if constant:
        return f"agent: the head '{head}' ignores the parameters; compute it from layers that learn"
    return (
        f"agent: the head '{head}' is detached from the parameters; compute it without .detach() "
        "and torch.no_grad()"
    )


def _leaves_of(head: Tensor) -> list[Tensor]:
    """The tensors that gradients would accumulate in."""
    if head.grad_fn is None:
        return [head]
    nodes: set[Any] = set()
    todo: list[Any] = [head.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            todo.extend(following for following, _ in node.next_functions)
    return [node.variable for node in nodes if hasattr(node, "variable")]


def _check_repeatable(
    agent: ModuleAgent, params: Params, probe: Observation, heads: Params
) -> None:
    again = agent.call(params, _inputs(agent, probe))
    for name in _shapes(agent):
        if not _same(again[name], heads[name], heads[name]):
            raise DiscorlError(
                f"agent: the head '{name}' differs from call to call; switch dropout and noise "
                "off with agent.eval()"
            )


def _check_streams(agent: ModuleAgent, params: Params, probe: Observation, heads: Params) -> None:
    alone = tree_map(lambda x: x[:, :1], probe)
    outputs = _run(lambda: agent.call(params, _inputs(agent, alone)), alone)
    for name in _shapes(agent):
        if outputs[name].shape[1:2] != (1,) or not _same(
            outputs[name], heads[name][:, :1], heads[name]
        ):
            raise DiscorlError(
                f"agent: the head '{name}' of one trajectory depends on the others in its batch; "
                "never mix, reorder or normalise over the leading dimensions [T, B]"
            )


def _check_leading_dims(
    agent: ModuleAgent, params: Params, probe: Observation, heads: Params
) -> None:
    step = tree_map(lambda x: x[0], probe)
    outputs = _run(lambda: agent.call(params, step), step)
    for name in _shapes(agent):
        expected = heads[name][0]
        if outputs[name].shape != expected.shape or not _same(outputs[name], expected, heads[name]):
            raise DiscorlError(
                f"agent: the head '{name}' of a step differs between observations [B, ...] and "
                "[T, B, ...]; treat all leading dimensions alike, count dimensions from the end"
            )


def _check_steps(agent: SequenceModuleAgent, probe: Observation, heads: Params) -> None:
    """Acting goes through `forward_step`, learning through `forward`."""
    module: Any = agent.module
    start = getattr(module, "init_lstm_state", None)
    if not callable(start):
        return
    step = tree_map(lambda x: x[0], probe)
    leaf = next(iter(observation_leaves(step).values()))
    logits = heads["logits"]
    outputs = as_heads(module.forward_step(step, start(len(leaf), leaf.device))[0], logits.dtype)
    if not _same(outputs["logits"], logits[0], logits):
        raise DiscorlError(
            "agent: forward_step and forward give different logits for a first observation; the "
            "policy that acts must be the one that learns"
        )


def _same(found: Tensor, expected: Tensor, whole: Tensor) -> bool:
    """Equal up to rounding, relative to how the head [T, B, ...] varies between its steps."""
    spread = (whole - whole.mean(dim=(0, 1))).abs().max()
    # A head computed under autocast is rounded that coarsely.
    coarse = torch.equal(whole, whole.bfloat16().to(whole.dtype))
    rounding = torch.finfo(torch.bfloat16 if coarse else whole.dtype).eps * whole.abs().max()
    return bool(((found - expected).abs() <= 0.05 * spread + 64 * rounding).all())


def _join(shape: tuple[int, ...]) -> str:
    return ", ".join(str(size) for size in shape)


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
