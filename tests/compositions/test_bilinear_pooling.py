import pytest
import torch

from informer_fairseq.compositions.bilinear_pooling import (
    BilinearInteraction,
    LowRankBilinearPooling,
    start_from_linear,
)
from tests.support.composition_references import bilinear_tensor, full_bilinear_pooling, randomize

SIZES = {"num_inputs": 2, "input_dim": 3, "output_dim": 4, "rank": 5}


def build(first_order=True, **sizes):
    return LowRankBilinearPooling(first_order=first_order, **{**SIZES, **sizes}).double()


def vectors(count=2, width=3, positions=7, requires_grad=False):
    return [torch.randn(positions, width, dtype=torch.float64, requires_grad=requires_grad) for _ in range(count)]


@pytest.mark.parametrize("first_order", [True, False])
def test_it_is_the_full_bilinear_tensor_of_its_factors(first_order):
    pooling, inputs = randomize(build(first_order)), vectors()
    tensor = bilinear_tensor(pooling)
    for position, out in enumerate(pooling(inputs)):
        joined = torch.cat([vector[position] for vector in inputs])
        if first_order:
            joined = torch.cat([joined, joined.new_ones(1)])
        torch.testing.assert_close(out, full_bilinear_pooling(joined, tensor), rtol=1e-12, atol=1e-12)


def test_extended_pooling_appends_a_literal_one():
    extended, inputs = randomize(build()), vectors()
    literal = build(first_order=False, num_inputs=1, input_dim=7)
    with torch.no_grad():
        literal.factors.weight.copy_(torch.cat([extended.factors.weight, extended.factors.bias.unsqueeze(1)], dim=1))
        literal.interaction.pool.weight.copy_(extended.interaction.pool.weight)
    joined = torch.cat([*inputs, inputs[0].new_ones(7, 1)], dim=1)
    torch.testing.assert_close(extended(inputs), literal([joined]), rtol=1e-12, atol=1e-12)


def test_second_order_only_is_extended_pooling_with_zero_biases():
    extended, second_order, inputs = randomize(build()), build(first_order=False), vectors()
    with torch.no_grad():
        extended.factors.bias.zero_()
        second_order.factors.weight.copy_(extended.factors.weight)
        second_order.interaction.pool.weight.copy_(extended.interaction.pool.weight)
    assert torch.equal(extended(inputs), second_order(inputs))
    # and then it is homogeneous of degree two
    torch.testing.assert_close(
        second_order([3 * vector for vector in inputs]), 9 * second_order(inputs), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("first_order", [True, False])
def test_gradients(first_order):
    pooling = randomize(build(first_order))
    inputs = vectors(positions=2, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *given: pooling(list(given)), inputs)
    parameters = dict(pooling.named_parameters())
    fixed = [vector.detach() for vector in inputs]

    def run(*values):
        return torch.func.functional_call(pooling, dict(zip(parameters, values)), (fixed,))

    assert torch.autograd.gradcheck(
        run, [parameter.detach().clone().requires_grad_() for parameter in parameters.values()]
    )


@pytest.mark.parametrize("rank", [2, 4, 9])
def test_the_default_start_is_linear(rank):
    pooling, inputs = build(rank=rank), vectors()
    doubled = pooling([2 * vector for vector in inputs])
    torch.testing.assert_close(doubled, 2 * pooling(inputs), rtol=1e-12, atol=1e-12)
    first = pooling.factors.weight[:rank]
    expected = torch.cat(inputs, dim=1) @ first.t() @ pooling.interaction.pool.weight.t()
    torch.testing.assert_close(pooling(inputs), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rank", [32, 64, 128])
def test_the_default_start_has_the_scale_of_a_xavier_start(rank):
    torch.manual_seed(2)
    pooling = build(num_inputs=8, input_dim=8, output_dim=64, rank=rank)
    out = pooling(vectors(8, 8, positions=4000))
    assert out.var().item() == pytest.approx(64 * 2 / (64 + 64), rel=0.1)  # inputs of variance one


def test_the_start_without_first_order_is_small_in_its_second_factor():
    pooling = build(first_order=False, num_inputs=8, input_dim=8, output_dim=64, rank=64)
    first, second = pooling.factors.weight.chunk(2)
    assert second.abs().max().item() == pytest.approx(0.02 * first.abs().max().item(), rel=0.01)


def test_without_first_order_the_last_vector_is_picked_in_its_first_factor():
    pooling, inputs = build(first_order=False, output_dim=3, rank=3), vectors()
    pooling.select_last()
    second = torch.cat(inputs, dim=1) @ pooling.factors.weight[3:].t()
    torch.testing.assert_close(pooling(inputs), inputs[1] * second, rtol=1e-12, atol=1e-12)


def test_the_plain_start():
    pooling = build()
    pooling.reset_parameters_plainly()
    assert pooling.factors.bias.abs().max() == 0
    bound = (6 / (6 + 5)) ** 0.5  # Xavier for each factor by itself, not for both in one matrix
    assert 0.7 * bound < pooling.factors.weight.abs().max() <= bound


@pytest.mark.parametrize("rank", [3, 5])
def test_it_can_start_as_its_last_vector(rank):
    pooling, inputs = build(output_dim=3, rank=rank), vectors()
    pooling.select_last()
    assert torch.equal(pooling(inputs), inputs[1])


def test_below_the_width_it_starts_as_a_projection_of_its_last_vector():
    pooling, inputs = build(output_dim=3, rank=2), vectors()
    pooling.select_last()
    once = pooling(inputs)
    torch.testing.assert_close(pooling([inputs[0], once]), once, rtol=1e-10, atol=1e-10)
    assert torch.linalg.matrix_rank(once) == 2


@pytest.mark.parametrize("rank", [4, 6])
def test_it_becomes_a_linear_map_exactly(rank):
    pooling, inputs = build(rank=rank), vectors()
    weight, bias = torch.randn(4, 6, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    start_from_linear(pooling.factors, pooling.interaction.pool, weight, bias)
    expected = torch.nn.functional.linear(torch.cat(inputs, dim=1), weight, bias)
    torch.testing.assert_close(pooling(inputs), expected, rtol=1e-12, atol=1e-12)


def test_below_the_width_it_becomes_the_best_approximation():
    """Eckart and Young: what is lost are the singular values left out."""
    pooling = build(rank=2)
    weight, bias = torch.randn(4, 6, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    start_from_linear(pooling.factors, pooling.interaction.pool, weight, bias)
    columns = [*torch.eye(6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)]
    outputs = [pooling([column[:3].unsqueeze(0), column[3:].unsqueeze(0)]).squeeze(0) for column in columns]
    approximation = torch.stack([*(out - outputs[-1] for out in outputs[:-1]), outputs[-1]], dim=1)
    lost = torch.linalg.svdvals(torch.cat([weight, bias.unsqueeze(1)], dim=1))[2:].square().sum()
    error = (approximation - torch.cat([weight, bias.unsqueeze(1)], dim=1)).square().sum()
    torch.testing.assert_close(error, lost, rtol=1e-9, atol=1e-9)


def test_without_first_order_there_is_no_linear_map():
    pooling = build(first_order=False)
    with pytest.raises(ValueError, match="without first-order terms"):
        start_from_linear(pooling.factors, pooling.interaction.pool, torch.eye(4, 6))


def test_half_precision_survives_products_that_overflow_it():
    """300 x 300 is beyond float16; the pooled sum is not, nor are the gradients."""
    interaction = BilinearInteraction(rank=4, output_dim=2)
    with torch.no_grad():
        interaction.pool.weight.copy_(torch.tensor([[1.0, -1.0, 1.0, 0.0], [0.0, 0.25, -0.25, 0.125]]))
    factors = 300 * torch.tensor([[1.0, 1.1, 0.2, 1.0, 1.2, 1.0, 0.5, 1.5], [0.001, 2.0, 0.5, 0.1, 0.1, 0.9, 3.0, 0.1]])
    exact = factors.double().requires_grad_()
    expected = interaction.double()(exact)
    expected.sum().backward()
    half = factors.half().requires_grad_()
    assert (half[:, :4] * half[:, 4:]).isinf().any()
    out = interaction.half()(half)
    out.sum().backward()
    torch.testing.assert_close(out.double(), expected, rtol=4e-3, atol=4.0)
    torch.testing.assert_close(half.grad.double(), exact.grad, rtol=4e-3, atol=0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_other_precisions_take_the_product_as_it_stands(dtype):
    interaction = BilinearInteraction(rank=3, output_dim=2).to(dtype)
    factors = torch.randn(5, 6).to(dtype)
    assert torch.equal(interaction(factors), interaction.pool(factors[:, :3] * factors[:, 3:]))


@pytest.mark.parametrize("first_order", [True, False])
def test_parameters(first_order):
    pooling = build(first_order)
    assert sum(parameter.numel() for parameter in pooling.parameters()) == (
        2 * 6 * 5 + 5 * 4 + (2 * 5 if first_order else 0)
    )


def test_a_rank_below_one_is_refused():
    with pytest.raises(ValueError, match="rank 0 is below 1"):
        build(rank=0)
    with pytest.raises(ValueError, match="cannot pool"):
        build(num_inputs=0)
