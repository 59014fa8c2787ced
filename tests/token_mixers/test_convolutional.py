import pytest
import torch

from informer_fairseq.token_mixers.convolutional import ConvolutionalProjection, ConvolutionalSelfAttention
from informer_fairseq.token_mixers.windows import convolve_windows
from tests.support import references

LENGTHS = (1, 2, 7, 8, 9, 25, 26, 199, 200)


def mixer(own_value_projection=False, width=12, heads=2, n=200, r=8, pool=2, **more):
    def projection():
        return ConvolutionalProjection(embed_dim=width, fixed_length=n, reduced_length=r, pool_size=pool)

    value_projection = projection() if own_value_projection else None
    return ConvolutionalSelfAttention(
        embed_dim=width, num_heads=heads, projection=projection(), value_projection=value_projection, **more
    ).double()


@pytest.mark.parametrize("own_value_projection", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_equals_literal_padding_to_n(length, own_value_projection):
    x, lengths, mask = references.random_input(length, 3, 12)
    references.assert_equal_with_gradients(mixer(own_value_projection), references.convolutional, x, lengths, mask)


@pytest.mark.parametrize("pool", [1, 2, 3, 6])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 13, 24])
def test_every_pool_size_and_partly_filled_slots(length, pool):
    x, lengths, mask = references.random_input(length, 3, 12)
    references.assert_equal_with_gradients(mixer(n=24, r=6, pool=pool), references.convolutional, x, lengths, mask)


@pytest.mark.parametrize("length", [1, 4, 8, 9, 17, 24])
def test_null_slots_can_be_dropped(length):
    """Sentence by sentence: a slot that a batch's longest sentence fills may be another one's null slot."""
    x, lengths, mask = references.random_input(length, 4, 12)
    dropping = mixer(n=24, r=6, pool=2, drop_null_slots=True)
    references.assert_equal_with_gradients(dropping, references.convolutional, x, lengths, mask)
    references.assert_equal_with_gradients(dropping, references.convolutional, x, [length] * 4, None)


def test_a_sentence_of_padding_alone_keeps_its_first_slot():
    dropping = mixer(n=24, r=6, pool=2, drop_null_slots=True)
    assert dropping(torch.randn(9, 1, 12, dtype=torch.float64), torch.ones(1, 9, dtype=torch.bool)).isfinite().all()


@pytest.mark.parametrize(("length", "empty"), [(1, 3), (25, 3), (50, 3), (51, 2), (100, 2), (151, 0), (200, 0)])
def test_empty_slots(length, empty):
    assert mixer().projection.empty_slots(length) == empty


def test_only_windows_with_tokens_are_computed():
    """One window's matrix product for a sentence of one window, whatever n is."""
    projection = ConvolutionalProjection(embed_dim=4, fixed_length=1000, reduced_length=100, pool_size=2)
    assert convolve_windows(torch.zeros(3, 7, 4), projection.weight).shape == (3, 1, 4)
    assert projection(torch.zeros(3, 7, 4)).shape == (3, 2, 4)  # its slot, and one for the 49 empty ones
    assert projection(torch.zeros(3, 1000, 4)).shape == (3, 50, 4)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((200, 7, 1), "fixed length 200 is not divisible by the reduced length 7"),
        ((200, 8, 3), "reduced length 8 is not divisible by the pool size 3"),
        ((8, 16, 2), "reduced length 16 .* fixed length 8"),
    ],
)
def test_refuses_sizes_that_do_not_divide(sizes, message):
    n, r, pool = sizes
    with pytest.raises(ValueError, match=message):
        mixer(n=n, r=r, pool=pool)


def test_refuses_a_longer_source():
    with pytest.raises(ValueError, match="source of 201 positions .* fixed length 200"):
        mixer()(torch.zeros(201, 1, 12, dtype=torch.float64))
