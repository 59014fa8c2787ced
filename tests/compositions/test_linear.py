import pytest
import torch

from informer_fairseq.compositions.linear import LinearCombination


def build(**sizes):
    return LinearCombination(**{"num_inputs": 3, "input_dim": 4, "output_dim": 5, **sizes}).double()


def test_it_is_the_sum_of_one_map_a_vector():
    combination = build()
    inputs = [torch.randn(2, 6, 4, dtype=torch.float64) for _ in range(3)]
    maps = combination.combine.weight.split(4, dim=1)  # d_out x d each
    expected = sum(vector @ weight.t() for vector, weight in zip(inputs, maps))
    torch.testing.assert_close(combination(inputs), expected, rtol=1e-12, atol=1e-12)


def test_gradients():
    combination = build()
    inputs = [torch.randn(2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(lambda *vectors: combination(list(vectors)), inputs)


def test_it_can_start_as_its_last_vector():
    combination = build(output_dim=4)
    combination.select_last()
    inputs = [torch.randn(2, 4, dtype=torch.float64) for _ in range(3)]
    assert torch.equal(combination(inputs), inputs[2])


def test_parameters():
    assert sum(parameter.numel() for parameter in build().parameters()) == 3 * 4 * 5


@pytest.mark.parametrize("size", ["num_inputs", "input_dim", "output_dim"])
def test_sizes_below_one_are_refused(size):
    with pytest.raises(ValueError, match="cannot combine"):
        build(**{size: 0})
