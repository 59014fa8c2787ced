"""Slow, obvious versions of the compositions: loops, and the full bilinear tensor."""

import torch


def full_bilinear_pooling(vector, tensor):
    """Eq. 6 and 7: ``out_j = R^T W_j R`` for one concatenated vector R (D) and all W_j (d_out x D x D)."""
    width = vector.size(0)
    out = []
    for matrix in tensor:
        out.append(sum(vector[i] * matrix[i, j] * vector[j] for i in range(width) for j in range(width)))
    return torch.stack(out)


def bilinear_tensor(pooling):
    """The d_out x D x D tensor that low-rank pooling's factors stand for, one outer product a rank."""
    first, second = pooling.factors.weight.chunk(2)  # U^T and V^T: r x D
    if pooling.first_order:  # the appended one is one more input
        u, v = pooling.factors.bias.chunk(2)
        first, second = (torch.cat([weight, bias.unsqueeze(1)], 1) for weight, bias in ((first, u), (second, v)))
    pool = pooling.interaction.pool.weight  # P^T: d_out x r
    return torch.stack([sum(row[k] * torch.outer(first[k], second[k]) for k in range(pooling.rank)) for row in pool])


def aggregate(node, vectors):
    """``LayerNorm(FF([x; y; z]) + x + y + z)`` for one position."""
    joined = torch.cat(vectors)
    hidden = 1 / (1 + torch.exp(-(node.inner.weight @ joined + node.inner.bias)))
    out = node.outer.weight @ hidden + node.outer.bias + sum(vectors)
    norm = node.layer_norm
    return (out - out.mean()) / (out.var(unbiased=False) + norm.eps).sqrt() * norm.weight + norm.bias


def hierarchical_aggregation(tree, vectors):
    """The recursion of the paper for one position, two vectors at a time."""
    merged = []
    for number, node in enumerate(tree.nodes):
        merged = [aggregate(node, [*vectors[2 * number : 2 * number + 2], *merged])]
    return merged[0]


def randomize(module, scale=0.5):
    """Moves every parameter away from its start."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return module
