import pytest
import torch
import torch.nn.functional as F

from informer_fairseq.channel_mixers.information_organization import InformationOrganization, keep_larger_of_pairs
from tests.support import references

LENGTHS = (1, 2, 7, 8, 9, 25, 26, 199, 200)


def mixer(n=200, width=12, heads=3, groups=1):
    return InformationOrganization(fixed_length=n, embed_dim=width, num_heads=heads, groups=groups).double()


@pytest.mark.parametrize("length", LENGTHS)
def test_equals_torchs_modules_padded_to_n(length):
    x, lengths, mask = references.random_input(length, 3, 12)
    references.assert_equal_with_gradients(mixer(), references.information_organization, x, lengths, mask)


@pytest.mark.parametrize("groups", [2, 8, 25, 200])
@pytest.mark.parametrize("length", LENGTHS)
def test_groups_equal_torchs_grouped_modules_padded_to_n(length, groups):
    x, lengths, mask = references.random_input(length, 3, 12)
    organize = mixer(groups=groups)
    assert organize.compress.groups == organize.expand.groups == groups
    references.assert_equal_with_gradients(organize, references.information_organization, x, lengths, mask)


def test_positions_of_different_groups_do_not_meet():
    organize, x = mixer(n=12, groups=3), torch.randn(12, 1, 12, dtype=torch.float64)
    changed = x.clone()
    changed[4:8] += 1
    same = (organize(changed) == organize(x)).flatten(1).all(dim=1)
    assert same.tolist() == [True] * 4 + [False] * 4 + [True] * 4


@pytest.mark.parametrize("groups", [1, 2, 20])
def test_parameters_by_groups(groups):
    organize = InformationOrganization(fixed_length=200, embed_dim=512, num_heads=8, groups=groups)
    assert sum(parameter.numel() for parameter in organize.parameters()) == 2 * (200 * 200 * 8 // groups + 200)


@pytest.mark.parametrize("groups", [0, 3, 400])
def test_refuses_groups_that_do_not_divide_n(groups):
    with pytest.raises(ValueError, match=f"fixed length 200 is not divisible by {groups} groups"):
        mixer(groups=groups)


def test_time_first_and_batch_first_memory_give_the_same():
    organize, x = mixer(), torch.randn(9, 2, 12, dtype=torch.float64)
    batch_first = x.transpose(0, 1).contiguous().transpose(0, 1)
    assert not batch_first.is_contiguous()
    torch.testing.assert_close(organize(batch_first), organize(x), rtol=0, atol=1e-12)


def test_parameters_of_the_paper():
    """640,400 = 2 (200 x 200 x 8 + 200) at Table 3's sizes."""
    organize = InformationOrganization(fixed_length=200, embed_dim=512, num_heads=8)
    assert sum(parameter.numel() for parameter in organize.parameters()) == 640_400


def test_pairs_keep_the_larger_and_the_first_of_equals():
    x = torch.tensor([[1.0, 5.0, 2.0, -3.0], [4.0, 0.0, 2.0, -1.0]])
    expected = torch.tensor([[0.0, 5.0, 2.0, 0.0], [4.0, 0.0, 0.0, -0.01]])
    assert torch.equal(keep_larger_of_pairs(x), expected)
    assert torch.equal(torch.jit.script(keep_larger_of_pairs)(x), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_pairs_are_torchs_pooling_and_unpooling(dtype):
    """Values and gradients bit by bit, ties, zeros and numbers below zero among them."""
    x = torch.randn(60, 7).to(dtype)
    x[5] = x[4]
    x[8:10] = 0
    x[10], x[11] = -1, 0
    gradient = torch.randn(60, 7).to(dtype)
    results = []
    for run in (keep_larger_of_pairs, by_torch):
        given = x.clone().requires_grad_()
        out = run(given)
        results.append((out, *torch.autograd.grad(out, given, gradient)))
    for own, torchs in zip(*results):
        assert torch.equal(own, torchs)


def by_torch(x):
    """Pooling over the rows by torch, whose activation comes before it; unpooling as an index."""
    rows = F.leaky_relu(x).t().unsqueeze(0)  # 1 x N x 2 M
    pooled, indices = F.max_pool1d(rows.double(), 2, return_indices=True)
    return F.max_unpool1d(pooled, indices, 2).to(x.dtype)[0].t()


def test_refuses_an_odd_head_width():
    with pytest.raises(ValueError, match="head width 3 .*width 12 by 4 heads.* odd"):
        mixer(heads=4)


def test_refuses_a_longer_source():
    with pytest.raises(ValueError, match="source of 201 positions .* fixed length 200"):
        mixer()(torch.zeros(201, 1, 12, dtype=torch.float64))
