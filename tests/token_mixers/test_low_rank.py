import pytest
import torch

from informer_fairseq.token_mixers.low_rank import LowRankProjection, LowRankSelfAttention
from tests.support import references

LENGTHS = (1, 2, 7, 8, 9, 25, 26, 199, 200)


def mixer(own_value_projection=False, width=12, heads=2, n=200, r=8):
    def projection():
        return LowRankProjection(fixed_length=n, reduced_length=r)

    value_projection = projection() if own_value_projection else None
    return LowRankSelfAttention(
        embed_dim=width, num_heads=heads, projection=projection(), value_projection=value_projection
    ).double()


@pytest.mark.parametrize("own_value_projection", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_equals_literal_padding_to_n(length, own_value_projection):
    x, lengths, mask = references.random_input(length, 3, 12)
    references.assert_equal_with_gradients(mixer(own_value_projection), references.low_rank, x, lengths, mask)


def test_no_mask_equals_a_mask_without_padding():
    attention, x = mixer(), torch.randn(9, 2, 12, dtype=torch.float64)
    assert torch.equal(attention(x, None), attention(x, torch.zeros(2, 9, dtype=torch.bool)))


def test_identity_projection_is_full_attention():
    """With r = n = T and E the identity, low-rank attention is plain attention."""
    attention = mixer(n=10, r=10)
    attention.projection.weight.data = torch.eye(10, dtype=torch.float64)
    x = torch.randn(10, 2, 12, dtype=torch.float64)
    full = torch.nn.functional.multi_head_attention_forward(
        *(x, x, x, 12, 2, torch.empty(0)),
        torch.cat([attention.q_proj.bias, attention.k_proj.bias, attention.v_proj.bias]),
        *(None, None, False, 0.0, attention.out_proj.weight, attention.out_proj.bias),
        use_separate_proj_weight=True,
        q_proj_weight=attention.q_proj.weight,
        k_proj_weight=attention.k_proj.weight,
        v_proj_weight=attention.v_proj.weight,
    )[0]
    torch.testing.assert_close(attention(x), full, rtol=1e-10, atol=1e-12)


def test_refuses_more_slots_than_positions():
    with pytest.raises(ValueError, match="reduced length 9 .* fixed length 8"):
        LowRankProjection(fixed_length=8, reduced_length=9)


def test_refuses_a_longer_source():
    with pytest.raises(ValueError, match="source of 201 positions .* fixed length 200"):
        mixer()(torch.zeros(201, 1, 12, dtype=torch.float64))


def test_refuses_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match="width 12 is not divisible by 5"):
        mixer(heads=5)
