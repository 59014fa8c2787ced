import pytest
import torch
import torch.nn.functional as F

from benchmarks.encoder_speed import ARCHS, build_layers
from benchmarks.side_by_side import saved_bytes
from informer_fairseq.token_mixers.recomputed_attention import (
    AttentionWithDropout,
    FoldedAttention,
    folded_weights,
    product_with_folded,
)
from informer_fairseq.token_mixers.reduced_attention import ReducedSelfAttention

BATCH, LENGTH, SLOTS, HEADS, WIDTH = 3, 7, 4, 2, 10
COUNTS = torch.tensor([1.0, 1.0, 2.0]).log()  # the last of three slots stands for two


def doubles(*shapes):
    return [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def folded_inputs():
    head = WIDTH // HEADS
    return doubles(
        (BATCH, LENGTH, WIDTH),
        (BATCH, HEADS * SLOTS, WIDTH),
        (BATCH, 1, HEADS * SLOTS),
        (HEADS, BATCH * SLOTS, head),
        (HEADS, head, WIDTH + 2),
        (WIDTH + 2,),
    )


def assert_equal_with_gradients(expected, own, leaves):
    """With the same random numbers, to 1e-12."""
    results = []
    for run in (expected, own):
        torch.manual_seed(5)
        out = run()
        gradient = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
        results.append([out, *torch.autograd.grad(out, leaves, gradient)])
    for one, other in zip(*results):
        torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dropout", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("with_bias", [True, False])
def test_folded_attention_equals_its_plain_form(dropout, with_bias):
    given = folded_inputs()
    leaves = given if with_bias else given[:5]
    x, keys, offset, values, out_weight, bias = *leaves, *([None] if not with_bias else [])

    def plain():
        weights = F.dropout(folded_weights(x, keys, offset, HEADS), dropout)
        return product_with_folded(weights, values, out_weight, bias)

    assert_equal_with_gradients(
        plain, lambda: FoldedAttention.apply(x, keys, offset, values, out_weight, bias, dropout), leaves
    )


@pytest.mark.parametrize("dropout", [0.3, 1.0])
def test_attention_with_dropout_equals_torchs(dropout):
    head = WIDTH // HEADS
    leaves = doubles((BATCH, HEADS, LENGTH, head), (BATCH, HEADS, SLOTS, head), (BATCH, HEADS, SLOTS, head))
    scores = torch.randn(SLOTS, dtype=torch.float64)

    def torchs():
        return F.scaled_dot_product_attention(
            *leaves, attn_mask=scores.expand(BATCH, HEADS, LENGTH, SLOTS), dropout_p=dropout
        )

    assert_equal_with_gradients(torchs, lambda: AttentionWithDropout.apply(*leaves, scores, dropout), leaves)


@pytest.mark.parametrize("length", [1, 40])  # 1: queries first; 40: slots first
def test_autocast_is_the_same_in_the_backward_pass(length):
    attention = ReducedSelfAttention(embed_dim=32, num_heads=1, dropout=0.2).train()
    assert attention.slots_first_is_cheaper(length, 3) == (length == 40)
    given = [torch.randn(2, n, 32, requires_grad=True) for n in (length, 3, 3)]

    def run():
        torch.manual_seed(5)
        out = attention.attend(*given, COUNTS)
        return out, torch.autograd.grad(out.float().sum(), [*given, *attention.q_proj.parameters()])

    exact, exact_gradients = run()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, gradients = run()
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), exact, rtol=0.05, atol=0.02)
    for gradient, expected in zip(gradients, exact_gradients):
        assert gradient.dtype == torch.float32
        assert (gradient - expected).norm() <= 0.02 * expected.norm().clamp(min=1.0)


@pytest.mark.parametrize("length", [1, 40])
def test_with_dropout_no_attention_weights_are_kept(length):
    slots, heads = 3, 1
    attention = ReducedSelfAttention(embed_dim=32, num_heads=heads, dropout=0.1).train()
    assert attention.slots_first_is_cheaper(length, slots) == (length == 40)
    given = [torch.randn(2, n, 32, requires_grad=True) for n in (length, slots, slots)]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        attention.attend(*given, COUNTS)
    weights = 2 * length * heads * slots
    numbers = [tensor.untyped_storage().nbytes() // 4 for tensor in kept if tensor.is_floating_point()]
    assert len(numbers) > 3 and weights not in numbers


# What a layer keeps for the backward pass, against stock fairseq's, at the sizes of the paper's Table 3.
LIMITS = {"linformer_mt": 1.0, "conv_linformer_mt": 1.05, "informer_mt": 0.70, "linformer_informer_mt": 0.55}


@pytest.mark.parametrize("length,batch", [(50, 40), (200, 10)])
def test_layers_keep_less_than_stocks(length, batch):
    x = torch.randn(length, batch, 512, requires_grad=True)

    def kept(arch):
        layer = build_layers(arch, 1).train()[0]
        return saved_bytes(lambda: layer(x, encoder_padding_mask=None), layer)

    stock = kept("transformer")
    assert set(LIMITS) == set(ARCHS)
    for arch, limit in LIMITS.items():
        assert kept(arch) <= limit * stock, arch
