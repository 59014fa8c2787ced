import pytest
import torch
import torch.nn.functional as F
from fairseq.modules import FairseqDropout

from informer_fairseq.dropout import LEVELS, FastDropout, add_dropped, draw_mask
from tests.support.models import build_small


def kept_by(run):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        run()
    return [(tensor.dtype, tensor.numel()) for tensor in kept]


@pytest.mark.parametrize(
    "dtype,accuracy", [(torch.float64, 1e-15), (torch.float32, 3e-7), (torch.bfloat16, 0.02), (torch.float16, 2e-3)]
)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.75])
def test_numbers_and_gradients_are_those_of_the_mask(dtype, accuracy, p):
    """Against the sum written out, with the mask that the same seed draws."""
    residual, x, gradient = (torch.randn(7, 33).to(dtype) for _ in range(3))
    kept = round((1 - p) * LEVELS)
    torch.manual_seed(5)
    mask = draw_mask(x.shape, kept)
    torch.manual_seed(5)
    given = [residual.clone().requires_grad_(), x.clone().requires_grad_()]
    out = add_dropped(*given, FairseqDropout(p).train())
    expected = residual.double() + x.double() * mask * LEVELS / kept
    torch.testing.assert_close(out.double(), expected, rtol=accuracy, atol=accuracy)
    by_residual, by_x = torch.autograd.grad(out, given, gradient)
    assert torch.equal(by_residual, gradient)
    torch.testing.assert_close(by_x.double(), gradient.double() * mask * LEVELS / kept, rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_the_mask_is_even_and_independent(p):
    """The share kept, in each of the four parts of a word, and of neighbours together, within 5 standard errors."""
    count = 1_000_002  # not divisible by 4
    keep = round((1 - p) * LEVELS) / LEVELS
    mask = draw_mask(torch.Size([count // 3, 3]), round((1 - p) * LEVELS)).view(-1).double()
    for part in (mask, *(mask[start::4] for start in range(4))):
        assert abs(part.mean() - keep) < 5 * (keep * (1 - keep) / part.numel()) ** 0.5
    for distance in (1, 2, 3, 4, 64):
        both = (mask[:-distance] * mask[distance:]).mean()
        assert abs(both - keep**2) < 5 * (keep**2 * (1 - keep**2) / count) ** 0.5


def test_the_expectation_is_the_input():
    torch.manual_seed(2)
    drop = FairseqDropout(0.3).train()
    out = add_dropped(torch.zeros(1_000_000), torch.ones(1_000_000), drop)
    assert abs(out.double().mean() - 1) < 5 * (0.3 / 0.7 / 1e6) ** 0.5
    assert sorted(set(out.tolist())) == [0.0, pytest.approx(1 / 0.7, abs=2e-5)]


@pytest.mark.parametrize("dtype,accuracy", [(torch.float64, 1e-15), (torch.float32, 3e-7), (torch.bfloat16, 0.01)])
def test_dropout_alone_is_the_sum_without_a_residual(dtype, accuracy):
    x, gradient = (torch.randn(7, 33).to(dtype).requires_grad_() for _ in range(2))
    drop = FastDropout(0.3).train()
    results = []
    for run in (drop, lambda x: add_dropped(torch.zeros_like(x), x, drop)):
        torch.manual_seed(5)
        out = run(x)
        results.append((out, *torch.autograd.grad(out, x, gradient)))
    for alone, added in zip(*results):
        torch.testing.assert_close(alone, added, rtol=accuracy, atol=0)
    assert kept_by(lambda: drop(x)) == [(torch.bool, 7 * 33)]
    assert drop.eval()(x) is x


def test_efficient_models_have_fast_dropout_everywhere_and_others_keep_the_random_numbers_of_stock():
    for arch, expected in (("informer_mt", FastDropout), ("ni_transformer", FairseqDropout)):
        model = build_small(arch, dropout=0.1)
        kinds = [(type(module), module.p, module.module_name) for module in model.modules() if is_dropout(module)]
        assert {kind for kind, _, _ in kinds} == {expected}
        assert {p for _, p, _ in kinds} == {0.0, 0.1}  # attention's and activation's are off
        assert {name for _, _, name in kinds} >= {"ComposedDecoder", "ComposedDecoderLayer", "EfficientEncoder"}


def is_dropout(module):
    return isinstance(module, FairseqDropout)


def test_scripted_it_is_torchs():
    x = torch.randn(50)
    scripted = torch.jit.script(FastDropout(0.3).train())
    torch.manual_seed(5)
    own = scripted(x)
    torch.manual_seed(5)
    assert torch.equal(own, F.dropout(x, 0.3))
    assert torch.equal(scripted.eval()(x), x)


@pytest.mark.parametrize("p", [0.0, 1.0, 1e-6, 1 - 1e-6])
def test_where_nothing_is_left_to_draw_it_is_torchs(p):
    residual, x = torch.randn(2, 999)
    results = []
    for add in (lambda drop: add_dropped(residual, x, drop), lambda drop: residual + F.dropout(x, p)):
        torch.manual_seed(5)
        results.append(add(FairseqDropout(p).train()))
    assert torch.equal(*results)


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
