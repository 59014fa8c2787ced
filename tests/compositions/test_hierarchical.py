import pytest
import torch

from informer_fairseq.compositions.hierarchical import HierarchicalAggregation
from tests.support.composition_references import hierarchical_aggregation, randomize


def build(num_inputs, width=4, hidden_dim=6):
    return randomize(HierarchicalAggregation(num_inputs=num_inputs, width=width, hidden_dim=hidden_dim).double())


@pytest.mark.parametrize("num_inputs", [1, 2, 3, 4, 5, 6, 7])
def test_it_is_the_papers_recursion(num_inputs):
    """Odd numbers too: the last node takes the vector left over."""
    tree = build(num_inputs)
    inputs = [torch.randn(3, 4, dtype=torch.float64) for _ in range(num_inputs)]
    out = tree(inputs)
    for position in range(3):
        expected = hierarchical_aggregation(tree, [vector[position] for vector in inputs])
        torch.testing.assert_close(out[position], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("num_inputs", "merged"), [(1, [1]), (2, [2]), (3, [2, 2]), (5, [2, 3, 2]), (6, [2, 3, 3])])
def test_how_many_vectors_each_node_merges(num_inputs, merged):
    assert [node.inner.in_features // 4 for node in build(num_inputs).nodes] == merged


@pytest.mark.parametrize("num_inputs", [3, 4])
def test_gradients(num_inputs):
    tree = build(num_inputs)
    inputs = [torch.randn(2, 4, dtype=torch.float64, requires_grad=True) for _ in range(num_inputs)]
    assert torch.autograd.gradcheck(lambda *vectors: tree(list(vectors)), inputs)


def test_parameters():
    """Width 4, 6 hidden units: nodes of 2, 3 and 3 vectors."""
    node = sum(2 * 4 for _ in range(3))  # norms
    linears = sum(k * 4 * 6 + 6 + 6 * 4 + 4 for k in (2, 3, 3))
    assert sum(parameter.numel() for parameter in build(6).parameters()) == node + linears


@pytest.mark.parametrize("sizes", [(0, 4, 6), (2, 0, 6), (2, 4, 0)], ids=str)
def test_sizes_below_one_are_refused(sizes):
    with pytest.raises(ValueError, match="cannot merge"):
        build(*sizes)
