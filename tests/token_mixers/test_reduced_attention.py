import math

import pytest
import torch

from informer_fairseq.token_mixers.reduced_attention import ReducedSelfAttention


def attention_and_input(length, slots, heads=4, width=32):
    attention = ReducedSelfAttention(embed_dim=width, num_heads=heads).double()
    x, keys, values = (
        torch.randn(3, n, width, dtype=torch.float64, requires_grad=True) for n in (length, slots, slots)
    )
    return attention, x, keys, values


@pytest.mark.parametrize("length", [1, 2, 40])
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_both_orders_of_multiplication_agree(length, slots):
    attention, *inputs = attention_and_input(length, slots)
    added = torch.randn(slots, dtype=torch.float64)
    weight = torch.randn(3, length, 32, dtype=torch.float64)
    results = []
    for attend in (attention.attend_queries_first, attention.attend_slots_first):
        attention.zero_grad()
        out = attend(*inputs, added)
        parameters = dict(attention.named_parameters())
        used = [parameters[f"{name}_proj.{kind}"] for name in ("q", "out") for kind in ("weight", "bias")]
        results.append([out, *torch.autograd.grad((out * weight).sum(), [*inputs, *used])])
    for one, other in zip(*results):
        torch.testing.assert_close(other, one, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", [1, 40])  # 1: queries first; 40: slots first
@pytest.mark.parametrize("count", [2, 3, 17])
def test_one_slot_stands_for_equal_ones(length, count):
    attention, x, keys, values = attention_and_input(length, 3, heads=1)
    assert attention.slots_first_is_cheaper(length, 3) == (length == 40)
    repeated = [torch.cat([rows, rows[:, -1:].expand(-1, count - 1, -1)], dim=1) for rows in (keys, values)]
    expected = attention.attend_queries_first(x, *repeated, None)
    scores = torch.tensor([0.0, 0.0, math.log(count)], dtype=torch.float64)
    torch.testing.assert_close(attention.attend(x, keys, values, scores), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", [1, 40])
def test_scores_may_differ_between_sentences_and_forbid_slots(length):
    attention, x, keys, values = attention_and_input(length, 3, heads=1)
    scores = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.5, -math.inf], [0.0, -math.inf, -math.inf]], dtype=torch.float64)
    out = attention.attend(x, keys, values, scores.view(3, 1, 1, 3))
    for number, slots in enumerate((3, 2, 1)):
        row = slice(number, number + 1)
        expected = attention.attend(x[row], keys[row, :slots], values[row, :slots], scores[number, :slots])
        torch.testing.assert_close(out[row], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", [1, 40])
def test_dropout_falls_on_the_attention_weights_in_training_only(length):
    attention, x, keys, values = attention_and_input(length, 3, heads=1)
    attention.dropout = 1.0
    constant = attention.out_proj.bias.expand(3, length, 32)
    assert torch.equal(attention.train().attend(x, keys, values), constant)
    assert not torch.allclose(attention.eval().attend(x, keys, values), constant)


@pytest.mark.parametrize("dropout", [-0.1, 1.5, float("inf"), float("nan")])
def test_dropout_that_is_no_probability_is_refused(dropout):
    with pytest.raises(ValueError, match=f"attention dropout {dropout} is not between 0 and 1"):
        ReducedSelfAttention(embed_dim=8, num_heads=2, dropout=dropout)


def test_parameters_are_named_and_started_like_fairseqs():
    from fairseq.modules import MultiheadAttention

    ours, stock = ReducedSelfAttention(embed_dim=512, num_heads=8), MultiheadAttention(512, 8)
    shapes = {name: parameter.shape for name, parameter in stock.named_parameters()}
    assert {name: parameter.shape for name, parameter in ours.named_parameters()} == shapes
    for name, parameter in stock.named_parameters():
        if parameter.dim() == 2:
            assert ours.get_parameter(name).std().item() == pytest.approx(parameter.std().item(), rel=0.01)
