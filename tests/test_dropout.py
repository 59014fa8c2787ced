import pytest
import torch
import torch.nn.functional as F

from informer_fairseq.dropout import DropoutByMask


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_numbers_and_gradients_are_torchs_bit_for_bit(dtype, p):
    x, gradient = (torch.randn(7, 33).to(dtype) for _ in range(2))
    results = []
    for drop in (lambda x: F.dropout(x, p), DropoutByMask(p).train()):
        torch.manual_seed(5)
        given = x.clone().requires_grad_()
        out = drop(given)
        results.append((out, *torch.autograd.grad(out, given, gradient)))
    for own, stock in zip(results[1], results[0]):
        assert torch.equal(own, stock)


def test_a_byte_an_element_is_kept():
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        DropoutByMask(0.1).train()(torch.randn(7, 33, requires_grad=True))
    assert [(tensor.dtype, tensor.numel()) for tensor in kept] == [(torch.bool, 7 * 33)]


def test_in_place_and_at_inference_as_fairseq():
    drop = DropoutByMask(0.5).train()
    x = torch.ones(100)
    assert drop(x, inplace=True) is x and set(x.tolist()) == {0.0, 2.0}
    drop.eval()
    assert drop(x) is x
    drop.make_generation_fast_("", retain_dropout=True)
    assert (drop(torch.ones(100)) == 0).any()
