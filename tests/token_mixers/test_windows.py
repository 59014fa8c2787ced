"""The convolution over windows: values and gradients against torch's own convolution, in every precision."""

import pytest
import torch
import torch.nn.functional as F

from informer_fairseq.token_mixers.windows import convolve_windows, multiply_windows

SIZE, WIDTH, OUT = 4, 3, 5


def reference(x, weight):
    """torch's convolution over the sentence, padded with zeros to whole windows."""
    padded = F.pad(x, (0, 0, 0, -x.size(1) % SIZE))
    return F.conv1d(padded.transpose(1, 2), weight.permute(2, 1, 0), stride=SIZE).transpose(1, 2)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 11])
def test_values_and_gradients(length):
    x = torch.randn(2, length, WIDTH, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(SIZE, WIDTH, OUT, dtype=torch.float64, requires_grad=True)
    expected = reference(x, weight)
    gradient = torch.randn_like(expected)
    found = convolve_windows(x, weight)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    for own, torchs in zip(
        torch.autograd.grad(found, [x, weight], gradient), torch.autograd.grad(expected, [x, weight], gradient)
    ):
        torch.testing.assert_close(own, torchs, rtol=1e-13, atol=1e-13)
    torch.autograd.gradcheck(lambda a, b: convolve_windows(a, b), [x, weight])
    assert torch.equal(torch.jit.script(convolve_windows)(x, weight), found)


@pytest.mark.parametrize("needed", [(True, False), (False, True)])
def test_only_the_gradient_that_is_needed(needed):
    x, weight = torch.randn(2, 6, WIDTH), torch.randn(SIZE, WIDTH, OUT)
    x.requires_grad_(needed[0])
    weight.requires_grad_(needed[1])
    convolve_windows(x, weight).sum().backward()
    assert [x.grad is not None, weight.grad is not None] == list(needed)


def test_under_autocast_gradients_keep_the_type_of_the_weights():
    x = torch.randn(2, 6, WIDTH, requires_grad=True)
    weight = torch.randn(SIZE, WIDTH, OUT, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = convolve_windows(x, weight)
        expected = multiply_windows(x, weight)
    assert found.dtype == expected.dtype == torch.bfloat16
    assert torch.equal(found, expected)
    gradient = torch.randn_like(found)
    own = torch.autograd.grad(found, [x, weight], gradient)
    assert [by.dtype for by in own] == [torch.float32, torch.float32]
    exact = torch.autograd.grad(reference(x, weight), [x, weight], gradient.float())
    for one, other in zip(own, exact):
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)
