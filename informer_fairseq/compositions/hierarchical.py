"""Hierarchical aggregation: a tree that merges two new vectors at a time with what it has merged before."""

from typing import List

import torch
import torch.nn as nn
from torch import Tensor


class AggregationNode(nn.Module):
    """``AGG(x, y, z) = LayerNorm(FF([x; y; z]) + x + y + z)``, FF with one hidden layer and a sigmoid.

    Dou et al. 2018 ("Exploiting Deep Representations for Neural Machine Translation"), as compared in the NI paper.

    Args:
        num_inputs: vectors that the node merges, 1 to 3.
        width: width d of each, and of the result.
        hidden_dim: width of the hidden layer.
    """

    def __init__(self, *, num_inputs: int, width: int, hidden_dim: int):
        super().__init__()
        self.inner = nn.Linear(num_inputs * width, hidden_dim)
        self.outer = nn.Linear(hidden_dim, width)
        self.layer_norm = nn.LayerNorm(width)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier initialisation, zero biases."""
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, inputs: List[Tensor]) -> Tensor:
        """One to three tensors (..., d) -> (..., d)."""
        out = self.outer(torch.sigmoid(self.inner(torch.cat(inputs, dim=-1))))
        for vector in inputs:
            out = out + vector
        return self.layer_norm(out)


class HierarchicalAggregation(nn.Module):
    """Merges N vectors of one width in a tree of ceil(N / 2) nodes.

    ``A_1 = AGG(r_1, r_2)``, ``A_i = AGG(r_{2i-1}, r_{2i}, A_{i-1})``; the last A is the result. With an odd N the last
    node takes the one vector left over. The nodes follow one another, which is what makes the tree slower than one
    product over all vectors.

    Args:
        num_inputs: number of vectors N.
        width: width d of each, and of the result (the nodes add their inputs).
        hidden_dim: width of the nodes' hidden layers.

    Raises:
        ValueError: a size is below 1.
    """

    def __init__(self, *, num_inputs: int, width: int, hidden_dim: int):
        super().__init__()
        if min(num_inputs, width, hidden_dim) < 1:
            raise ValueError(f"cannot merge {num_inputs} vectors of width {width} through {hidden_dim} hidden units")
        self.nodes = nn.ModuleList()
        for first in range(0, num_inputs, 2):
            merged = min(2, num_inputs - first) + (1 if first > 0 else 0)
            self.nodes.append(AggregationNode(num_inputs=merged, width=width, hidden_dim=hidden_dim))

    def forward(self, inputs: List[Tensor]) -> Tensor:
        """N tensors (..., d) -> (..., d)."""
        merged: List[Tensor] = []
        for number, node in enumerate(self.nodes):
            merged = [node(inputs[2 * number : 2 * number + 2] + merged)]
        return merged[0]
