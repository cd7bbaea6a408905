"""Linear: the same map, gradients of any order, and PyTorch's own function wherever the faster one does not
fit.
"""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.nn import linear as module
from regard.nn.linear import Linear, linear


@pytest.fixture
def _always(monkeypatch):
    monkeypatch.setattr(module, "WORTH_IT", 0)


@pytest.fixture
def calls(monkeypatch):
    """How often oneDNN was asked."""
    made, original = [], module._product
    monkeypatch.setattr(module, "_product", lambda *given: made.append(1) or original(*given))
    return made


def tensors(bias: bool = True) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(0)
    x, weight, b = (torch.randn(*s, generator=generator).requires_grad_() for s in ((2, 5, 6), (4, 6), (4,)))
    return [x, weight, b if bias else None]


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_of_both_orders_are_torchs(bias, calls):
    given = tensors(bias)
    inputs = [t for t in given if t is not None]
    results = []
    for function in (linear, F.linear):
        y = function(*given)
        first = torch.autograd.grad(y.sin().sum(), inputs, create_graph=True)
        results.append([y, *first, *torch.autograd.grad(sum(g.square().sum() for g in first), inputs)])
    assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)
    if module._onednn is not None:
        assert len(calls) > 3


@pytest.mark.usefixtures("_always")
def test_strided_expanded_and_flat_inputs_are_the_same(calls):
    x, weight, bias = (t.detach() for t in tensors())
    for given in (
        x.transpose(0, 1),
        x[:1].expand(3, -1, -1),
        x[..., ::2].repeat(1, 1, 2),
        x[0],
        x[0, 0],
        x[:, :0],
    ):
        assert_close(linear(given, weight, bias), F.linear(given, weight, bias), rtol=1e-5, atol=1e-5)
    assert_close(
        linear(x, weight.t().contiguous().t(), bias), F.linear(x, weight, bias), rtol=1e-5, atol=1e-5
    )


@pytest.mark.usefixtures("_always")
def test_no_gradient_is_computed_that_nobody_needs():
    x, weight, bias = tensors()
    linear(x.detach(), weight, bias.detach()).sum().backward()
    assert (x.grad, bias.grad) == (None, None)
    assert weight.grad is not None


@pytest.mark.usefixtures("_always")
def test_other_dtypes_transforms_and_compilation_take_torchs_own(calls):
    x, weight, bias = (t.detach() for t in tensors())
    assert_close(linear(x.double(), weight.double()), F.linear(x.double(), weight.double()))
    assert_close(torch.vmap(lambda one: linear(one, weight, bias))(x), F.linear(x, weight, bias))
    assert_close(torch.func.grad(lambda w: linear(x, w).sum())(weight), x.sum((0, 1)).expand(4, 6))
    compiled = torch.compile(linear, backend="eager", fullgraph=True)
    assert_close(compiled(x, weight, bias), F.linear(x, weight, bias))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight, bias).dtype == torch.bfloat16
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a build without TF32, about a setting that is left as it was
        with torch.backends.mkldnn.flags(enabled=False):
            linear(x, weight, bias)
    assert linear(x.to("meta"), weight.to("meta")).shape == (2, 5, 4)
    assert not calls


def test_small_products_take_torchs_own(calls):
    linear(*tensors())
    assert not calls


@pytest.mark.usefixtures("_always")
def test_widths_that_do_not_fit_are_torchs_error():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        linear(torch.zeros(2, 3), torch.zeros(4, 5))


def test_the_module_is_torchs_with_its_state():
    torch.manual_seed(0)
    ours = Linear(512, 512)
    theirs = torch.nn.Linear(512, 512)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(128, 512)
    assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
    assert isinstance(ours, torch.nn.Linear)
