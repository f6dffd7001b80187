"""Second derivatives of network bodies, which discovery takes in two ways."""

import torch
from torch.autograd import forward_ad


def assert_second_derivatives_agree(gradients, params):
    """Reverse over reverse is forward over reverse, and neither is zero.

    Args:
      gradients: (values, **options of torch.autograd.grad) -> first derivatives by the values.
      params: where to take them.
    """
    first = gradients(params, create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), params)
    assert all(g.isfinite().all() and g.abs().max() > 0 for g in second)
    with forward_ad.dual_level():
        pairs = zip(params, first, strict=True)
        dual = [forward_ad.make_dual(p, g.detach()) for p, g in pairs]
        along = [forward_ad.unpack_dual(g).tangent for g in gradients(dual)]
    for found, expected in zip(along, second, strict=True):
        torch.testing.assert_close(2 * found, expected)
