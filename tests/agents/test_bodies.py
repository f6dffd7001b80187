"""Network bodies: which one reads what, their shapes, weights and derivatives."""

from dataclasses import replace

import pytest
import torch
from derivatives import assert_second_derivatives_agree
from torch import nn
from torch.func import functional_call

from discorl.agents import MLPTorso, Network, NetworkConfig
from discorl.agents.bodies import choose_body, make_body
from discorl.agents.convolutions import ImageTorso
from discorl.envs import make_environment
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec
from discorl.rules.actor_critic import ActorCritic

f64 = torch.float64
SMALL = NetworkConfig(torso=(9, 7), model_size=5, head_hidden=4)
FRAME = ArraySpec((4, 84, 84), torch.uint8, 1 / 255)
BOARD = ArraySpec((10, 10, 4), torch.bool)
VECTOR = ArraySpec((6,))
CASES = [
    ("mlp", VECTOR),
    ("mlp", FRAME),
    ("mlp", ArraySpec((), torch.int64)),
    ("conv", BOARD),
    ("nature", FRAME),
    ("impala", FRAME),
    ("impala", BOARD),
]


def body(spec, seed=0, **options):
    made = make_body(spec, replace(SMALL, **options))
    made.init_(torch.Generator().manual_seed(seed))
    return made


def draw(spec, *prefix, seed=1):
    generator = torch.Generator().manual_seed(seed)
    shape = (*prefix, *spec.shape)
    if spec.dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(spec.dtype)
    high = 256 if spec.dtype == torch.uint8 else 2
    return torch.randint(0, high, shape, generator=generator).to(spec.dtype)


def convolutions(module):
    return [m for m in module.modules() if isinstance(m, nn.Conv2d)]


@pytest.mark.parametrize(("name", "spec"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_any_leading_dimensions_and_type(name, spec, dtype):
    module = body(spec, body=name).to(dtype)
    assert module.output_size == 7
    observations = draw(spec, 3, 2)
    whole = module(observations)
    assert whole.shape == (3, 2, 7)
    assert whole.dtype == dtype
    assert whole.abs().max() > 0
    torch.testing.assert_close(module(observations[1]), whole[1])
    torch.testing.assert_close(module(observations[2, 1]), whole[2, 1])
    assert module(observations[:0]).shape == (0, 2, 7)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (VECTOR, "mlp"),
        (ArraySpec((84, 84)), "mlp"),
        (ArraySpec((8, 8, 1), torch.uint8), "mlp"),
        (ArraySpec((5, 5, 7), torch.uint8), "mlp"),
        (ArraySpec((9, 40, 3)), "mlp"),
        (BOARD, "conv"),
        (ArraySpec((10, 10, 10), torch.bool), "conv"),
        (ArraySpec((3, 35, 64)), "conv"),
        (ArraySpec((36, 36, 3)), "nature"),
        (FRAME, "nature"),
    ],
)
def test_the_observation_chooses(spec, expected):
    assert choose_body(spec) == expected
    module = make_body(spec, SMALL)
    assert isinstance(module, ImageTorso) == (expected != "mlp")
    assert module(draw(spec, 2)).shape == (2, 7)


@pytest.mark.parametrize("name", ["catch", "grid", "cliff", "deep_sea", "cartpole"])
def test_the_small_games_keep_their_mlp(name):
    spec = make_environment(name, 1).observation_spec
    generator = torch.Generator()
    params = Network.for_observations(spec, ActorCritic().heads(3), SMALL).init(
        generator.manual_seed(5)
    )
    mlp = Network.mlp(spec.shape, ActorCritic().heads(3), SMALL).init(generator.manual_seed(5))
    assert list(params) == list(mlp)
    assert all(torch.equal(params[name], p) for name, p in mlp.items())


@pytest.mark.parametrize("name", ["mlp", "conv", "nature", "impala"])
def test_bytes_are_scaled(name):
    scaled = body(FRAME, body=name)
    plain = body(ArraySpec(FRAME.shape), body=name)
    frames = torch.full((2, *FRAME.shape), 255, dtype=torch.uint8)
    torch.testing.assert_close(scaled(frames), plain(torch.ones(2, *FRAME.shape)))
    assert not torch.allclose(plain(frames), scaled(frames))


@pytest.mark.parametrize("name", ["conv", "nature", "impala"])
def test_channels_are_found_first_or_last(name):
    first = body(ArraySpec((3, 40, 44)), body=name)
    last = body(ArraySpec((40, 44, 3)), body=name)
    images = torch.randn(2, 3, 40, 44)
    torch.testing.assert_close(first(images), last(images.permute(0, 2, 3, 1)))
    assert convolutions(first)[0].in_channels == 3
    cube = body(ArraySpec((40, 40, 40)), body=name)
    assert cube.channels_last


@pytest.mark.parametrize("name", ["conv", "nature", "impala"])
def test_convolutions_end_in_a_relu(name):
    for sizes in ((32,), (16, 32)):
        module = body(FRAME, body=name, torso=sizes, activate_torso=False)
        assert module(draw(FRAME, 3)).min() == 0


def test_convolutions_by_hand():
    module = body(BOARD, body="conv", channels=(5, 3), torso=(6,))
    boards = draw(BOARD, 2)
    first, second = convolutions(module)
    x = torch.relu(first(boards.float().permute(0, 3, 1, 2)))
    x = torch.relu(second(x))
    assert x.shape == (2, 3, 6, 6)
    layer = module.head.layers[0]
    expected = torch.relu(x.flatten(1) @ layer.weight.t() + layer.bias)
    torch.testing.assert_close(module(boards), expected)


def test_impala_by_hand():
    module = body(BOARD, body="impala", channels=(5, 8), blocks=1, torso=(6,))
    boards = draw(BOARD, 2)
    x = boards.float().permute(0, 3, 1, 2)
    layers = iter(convolutions(module))
    for entry, first, second in zip(layers, layers, layers, strict=True):
        x = torch.nn.functional.max_pool2d(entry(x), 3, stride=2, padding=1)
        x = x + second(torch.relu(first(torch.relu(x))))
    assert x.shape == (2, 8, 3, 3)
    assert x.min() < 0
    layer = module.head.layers[0]
    expected = torch.relu(torch.relu(x).flatten(1) @ layer.weight.t() + layer.bias)
    torch.testing.assert_close(module(boards), expected)


def test_layer_norm_by_hand():
    module = body(VECTOR, layer_norm=True, activate_torso=True)
    x = draw(VECTOR, 5)
    for layer in module.layers:
        x = x @ layer.weight.t() + layer.bias
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        x = torch.relu(x)
    torch.testing.assert_close(module(draw(VECTOR, 5)), x)


@pytest.mark.parametrize(("name", "spec"), [("conv", BOARD), ("nature", FRAME)])
def test_layer_norm_of_images_keeps_every_image_alive(name, spec):
    plain, normed = (body(spec, body=name, layer_norm=on) for on in (False, True))
    shapes = [[tuple(p.shape) for p in module.parameters()] for module in (plain, normed)]
    assert shapes[0] == shapes[1]
    with torch.no_grad():
        for module in (plain, normed):
            for layer in convolutions(module):
                layer.bias.fill_(-100)  # As after a few steps that were too large.
    images = draw(spec, 4)
    assert plain(images).std(0).max() == 0
    assert normed(images).std(0).max() > 0


def test_default_sizes():
    assert [c.out_channels for c in convolutions(body(BOARD, body="conv"))] == [16]
    nature = convolutions(body(FRAME, body="nature"))
    assert [(c.out_channels, c.kernel_size[0], c.stride[0]) for c in nature] == [
        (32, 8, 4),
        (64, 4, 2),
        (64, 3, 1),
    ]
    assert body(FRAME, body="nature").head.input_size == 64 * 7 * 7
    impala = body(FRAME, body="impala")
    assert [c.out_channels for c in convolutions(impala)] == [16] * 5 + [32] * 10
    assert impala.head.input_size == 32 * 11 * 11


def test_a_large_impala():
    config = NetworkConfig(
        torso=(768,), body="impala", channels=(256, 384, 384, 256), memory="lstm", memory_size=768
    )
    with torch.device("meta"):
        module = make_body(ArraySpec((4, 64, 64), torch.uint8, 1 / 255), config)
    sections = 0
    for inputs, outputs in ((4, 256), (256, 384), (384, 384), (384, 256)):
        sections += 9 * inputs * outputs + outputs + 4 * (9 * outputs * outputs + outputs)
    head = 256 * 4 * 4 * 768 + 768
    lstm = 4 * 768 * (768 + 768 + 1)
    assert sum(p.numel() for p in module.parameters()) == sections + head + lstm


@pytest.mark.parametrize("blocks", [0, 1])
def test_residual_blocks_can_be_counted(blocks):
    module = body(BOARD, body="impala", channels=(4, 5), blocks=blocks)
    assert len(convolutions(module)) == 2 * (1 + 2 * blocks)
    assert module(draw(BOARD, 2)).shape == (2, 7)


MIXED = {"zoom": FRAME, "map": BOARD, "body": VECTOR, "age": ArraySpec((), torch.int64)}


@pytest.mark.parametrize(("name", "kinds"), [("auto", 2), ("impala", 2), ("mlp", 0)])
def test_each_entry_of_a_dictionary_has_its_own_torso(name, kinds):
    module = body(MIXED, body=name)
    assert module.output_size == 4 * 7
    assert sum(isinstance(m, ImageTorso) for m in module.modules()) == kinds
    observations = {key: draw(spec, 3, 2) for key, spec in MIXED.items()}
    whole = module(observations)
    assert whole.shape == (3, 2, 28)
    # Sorted: age, body, map, zoom.
    changed = module(observations | {"body": observations["body"] + 1}) != whole
    assert changed[..., 7:14].any()
    assert not changed[..., :7].any()
    assert not changed[..., 14:].any()
    backwards = dict(reversed(observations.items()))
    assert torch.equal(module(backwards), whole)
    alone = {key: value[2, 1] for key, value in observations.items()}
    torch.testing.assert_close(module(alone), whole[2, 1])


def test_entries_may_have_any_name():
    spec = {"keys": VECTOR, "a.b": VECTOR, "": VECTOR}
    module = body(spec)
    assert module({name: draw(VECTOR, 2) for name in spec}).shape == (2, 21)


@pytest.mark.parametrize(
    ("name", "spec"),
    [*CASES, ("auto", MIXED)],
)
@pytest.mark.parametrize("memory", ["none", "lstm", "gru", "transformer"])
def test_the_generator_fixes_all_weights(name, spec, memory):
    options = {"body": name, "memory": memory, "memory_size": 8, "memory_window": 3}
    one, same, other = (dict(body(spec, s, **options).named_parameters()) for s in (3, 3, 4))
    for key, p in one.items():
        assert torch.equal(p, same[key])
        if key.endswith("bias"):
            assert not p.any(), key
        elif "norm" in key:
            assert torch.equal(p, torch.ones_like(p))
        else:
            assert not torch.equal(p, other[key]), key


@pytest.mark.parametrize(("name", "gain"), [("nature", 2**0.5), ("impala", 1)])
def test_weights_are_drawn_by_fan_in(name, gain):
    module = body(FRAME, body=name, torso=(100,))
    for layer in (*convolutions(module), module.head.layers[0]):
        std = gain * layer.weight[0].numel() ** -0.5
        assert layer.weight.abs().max() <= 2 * std
        assert layer.weight.std().item() == pytest.approx(0.88 * std, rel=0.05)


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("conv", VECTOR, r"--body conv reads images.*\[6\]"),
        ("impala", {"a": VECTOR, "b": ArraySpec((2, 3))}, r"--body impala.*\[6\], \[2, 3\]"),
        ("nature", ArraySpec((35, 40, 3)), r"--body nature cannot read.*\[35, 40, 3\]"),
        ("conv", ArraySpec((5, 2, 1)), r"--body conv cannot read.*\[5, 2, 1\]"),
        ("cnn", FRAME, r"--body: expected one of .*nature.*, got 'cnn'"),
    ],
)
def test_a_body_that_cannot_read_the_observation(name, spec, message):
    with pytest.raises(DiscorlError, match=message):
        make_body(spec, replace(SMALL, body=name))


def test_nature_has_three_convolutions():
    with pytest.raises(DiscorlError, match="--channels"):
        make_body(FRAME, replace(SMALL, body="nature", channels=(16, 32)))


@pytest.mark.parametrize("name", ["conv", "nature", "impala"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_second_derivatives_in_reverse_and_forward_mode(name, layer_norm):
    spec = ArraySpec((37, 36, 1), torch.uint8, 1 / 255)
    options = {"body": name, "channels": (2, 2, 2), "torso": (16,), "layer_norm": layer_norm}
    module = body(spec, **options).to(f64)
    names = [key for key, _ in module.named_parameters()]
    params = [p.detach().requires_grad_() for p in module.parameters()]
    images = draw(spec, 2)

    def gradients(values, **options):
        features = functional_call(module, dict(zip(names, values, strict=True)), (images,))
        return torch.autograd.grad((features.square() + features).sum(), values, **options)

    assert_second_derivatives_agree(gradients, params)


def test_the_mlp_without_a_scale_is_as_it_was():
    torso = MLPTorso((3, 2), (5,))
    torso.init_(torch.Generator().manual_seed(0))
    x = torch.randn(4, 3, 2)
    layer = torso.layers[0]
    torch.testing.assert_close(torso(x), x.reshape(4, 6) @ layer.weight.t() + layer.bias)


@pytest.mark.parametrize("name", ["mlp", "conv", "nature", "impala"])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_other_parameters_are_used_and_the_own_ones_are_left_alone(name, layer_norm, bfloat16):
    config = NetworkConfig(body=name, torso=(8,), layer_norm=layer_norm, bfloat16=bfloat16)
    spec = ArraySpec((4, 40, 40), torch.uint8, 1 / 255)
    module, other = make_body(spec, config), make_body(spec, config)
    observations = torch.randint(256, (3, 4, 40, 40), dtype=torch.uint8)
    own = {name: p.clone() for name, p in module.named_parameters()}
    features = module.functional(dict(other.named_parameters()), observations)
    assert torch.equal(features, other(observations))
    assert torch.equal(
        features, functional_call(module, dict(other.named_parameters()), observations)
    )
    assert all(torch.equal(p, own[name]) for name, p in module.named_parameters())
