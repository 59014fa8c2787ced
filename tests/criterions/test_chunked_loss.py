import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from informer_fairseq.criterions.chunked_loss import chunked_smoothed_loss


def fairseqs(x, weight, bias, target, epsilon):
    lprobs = F.log_softmax(F.linear(x, weight, bias), dim=-1, dtype=torch.promote_types(x.dtype, torch.float32))
    return label_smoothed_nll_loss(lprobs, target, epsilon, reduce=True)


def inputs(rows=13, width=5, types=11, dtype=torch.float64, with_bias=True):
    made = [torch.randn(rows, width), torch.randn(types, width), torch.randn(types) if with_bias else None]
    return [None if given is None else given.to(dtype).requires_grad_() for given in made], torch.randint(
        0, types, (rows,)
    )


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("rows", [1, 4, 13, 100])
def test_loss_and_gradients_are_fairseqs(with_bias, epsilon, rows):
    given, target = inputs(with_bias=with_bias)
    expected, expected_nll = fairseqs(*given, target, epsilon)
    leaves = [leaf for leaf in given if leaf is not None]
    expected_gradients = torch.autograd.grad(3 * expected, leaves)
    loss, nll, _ = chunked_smoothed_loss(*given, target, epsilon=epsilon, rows=rows)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nll, expected_nll, rtol=1e-12, atol=1e-12)
    for gradient, other in zip(torch.autograd.grad(3 * loss, leaves), expected_gradients):
        torch.testing.assert_close(gradient, other, rtol=1e-10, atol=1e-12)


def test_gradcheck():
    (x, weight, bias), target = inputs(rows=4)
    assert torch.autograd.gradcheck(
        lambda *given: chunked_smoothed_loss(*given, target, epsilon=0.1, rows=3)[0], (x, weight, bias)
    )


def test_single_precision():
    given, target = inputs(rows=200, width=32, types=500, dtype=torch.float32)
    expected, _ = fairseqs(*(leaf.double() for leaf in given), target, 0.1)
    loss, _, _ = chunked_smoothed_loss(*given, target, epsilon=0.1, rows=64)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)
    exact = torch.autograd.grad(expected, given)
    for gradient, other in zip(torch.autograd.grad(loss, given), exact):
        error = (gradient - other).norm() / other.norm()
        assert error < 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 128.0])
def test_half_precision(dtype, scale):
    """About as close to the exact gradients as fairseq's own loss in that type, with loss scaling or without."""
    given, target = inputs(rows=60, width=32, types=3000, dtype=dtype, with_bias=False)
    given = [leaf if leaf is None else (leaf.detach() * 0.3).requires_grad_() for leaf in given]
    leaves = given[:2]
    exact = torch.autograd.grad(fairseqs(*(leaf.double() for leaf in leaves), None, target, 0.1)[0], leaves)
    own = torch.autograd.grad(scale * chunked_smoothed_loss(*given, target, epsilon=0.1, rows=16)[0], leaves)
    stock = torch.autograd.grad(scale * fairseqs(*given, target, 0.1)[0], leaves)
    for gradient, other, reference in zip(own, stock, exact):
        assert gradient.dtype == dtype and gradient.isfinite().all()
        error, stock_error = ((given.double() / scale - reference).norm() for given in (gradient, other))
        assert error <= 1.5 * stock_error  # each chunk rounds its share of a weight once


def test_right_rows_are_counted():
    weight = torch.eye(4, dtype=torch.float64)
    x = 5 * weight[[0, 1, 2, 3, 0]]
    right = chunked_smoothed_loss(
        x, weight, None, torch.tensor([0, 1, 3, 3, 2]), epsilon=0.1, rows=2, count_right=True
    )[2]
    assert right.item() == 3


def test_nothing_is_kept_for_backward_without_gradients():
    given, target = inputs()
    with torch.no_grad():
        loss, _, _ = chunked_smoothed_loss(*given, target, epsilon=0.1, rows=4)
    assert not loss.requires_grad


def test_no_rows_at_all():
    """A batch whose targets are all padding, or all prefix."""
    given, _ = inputs(rows=0)
    loss, nll, right = chunked_smoothed_loss(
        *given, torch.zeros(0, dtype=torch.long), epsilon=0.1, rows=4, count_right=True
    )
    assert (loss.item(), nll.item(), right.item()) == (0, 0, 0)
    assert all(gradient.abs().sum() == 0 for gradient in torch.autograd.grad(loss, given))


def test_autocast_runs_the_products_in_its_type():
    given, target = inputs(rows=30, width=16, types=50, dtype=torch.float32)
    expected = chunked_smoothed_loss(*given, target, epsilon=0.1, rows=8)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = chunked_smoothed_loss(*given, target, epsilon=0.1, rows=8)[0]
    assert loss.dtype == torch.float32
    assert 0 < (loss - expected).abs() < 0.01 * expected
    assert all(gradient.dtype == torch.float32 for gradient in torch.autograd.grad(loss, given))


def test_chunks_below_one_row_are_refused():
    given, target = inputs()
    with pytest.raises(ValueError, match="chunks of 0 rows"):
        chunked_smoothed_loss(*given, target, epsilon=0.1, rows=0)
