import pytest
import torch
import torch.nn.functional as F
from fairseq.modules import FairseqDropout

from informer_fairseq.dropout import add_dropped


def kept_by(run):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        run()
    return [(tensor.dtype, tensor.numel()) for tensor in kept]


@pytest.mark.parametrize(
    "dtype,accuracy", [(torch.float64, 1e-15), (torch.float32, 3e-7), (torch.bfloat16, 0.02), (torch.float16, 2e-3)]
)
@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_numbers_and_gradients_are_those_of_torchs_dropout(dtype, accuracy, p):
    residual, x, gradient = (torch.randn(7, 33).to(dtype) for _ in range(3))
    results = []
    for add in (
        lambda residual, x: residual + F.dropout(x, p),
        lambda residual, x: add_dropped(residual, x, FairseqDropout(p).train()),
    ):
        torch.manual_seed(5)
        given = [residual.clone().requires_grad_(), x.clone().requires_grad_()]
        out = add(*given)
        results.append((out, *torch.autograd.grad(out, given, gradient)))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=accuracy, atol=accuracy)
    for own, torchs in zip(results[1][1:], results[0][1:]):
        assert torch.equal(own, torchs)


def test_a_byte_an_element_is_kept():
    residual, x = (torch.randn(7, 33, requires_grad=True) for _ in range(2))
    assert kept_by(lambda: add_dropped(residual, x, FairseqDropout(0.1).train())) == [(torch.bool, 7 * 33)]


def test_at_inference_nothing_is_dropped_unless_asked_for():
    drop = FairseqDropout(0.5).eval()
    residual, x = torch.ones(100), torch.ones(100)
    assert torch.equal(add_dropped(residual, x, drop), 2 * torch.ones(100))
    drop.make_generation_fast_("", retain_dropout=True)
    assert set(add_dropped(residual, x, drop).tolist()) == {1.0, 3.0}


def test_under_autocast_types_may_differ():
    residual, x = torch.ones(100, requires_grad=True), torch.ones(100, dtype=torch.bfloat16, requires_grad=True)
    out = add_dropped(residual, x, FairseqDropout(0.5).train())
    assert out.dtype == torch.float32 and set(out.tolist()) == {1.0, 3.0}
