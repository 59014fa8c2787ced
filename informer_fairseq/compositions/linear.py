"""Linear combination of N vectors."""

from typing import List

import torch
import torch.nn as nn
from torch import Tensor

from informer_fairseq.compositions.scaled_concatenation import ScaledComposition


class LinearCombination(ScaledComposition):
    """``sum_i r_i W_i``: every vector through its own linear map, without bias (NI paper, Eq. 4).

    The N maps are one matrix over the concatenated vectors, so that one product does them all. Cost: N d d_out
    multiply-adds a position, and as many parameters.

    Args:
        num_inputs: number of vectors N.
        input_dim: width d of each.
        output_dim: width d_out of the result.
        input_scale: the vectors are multiplied by it, and the maps start divided by it; see
            :class:`ScaledConcatenation`.

    Raises:
        ValueError: a size is below 1.
    """

    def __init__(self, *, num_inputs: int, input_dim: int, output_dim: int, input_scale: float = 1.0):
        super().__init__(input_scale)
        if min(num_inputs, input_dim, output_dim) < 1:
            raise ValueError(f"cannot combine {num_inputs} vectors of width {input_dim} into width {output_dim}")
        self.input_dim = input_dim
        self.combine = nn.Linear(num_inputs * input_dim, output_dim, bias=False)
        self.reset_parameters()

    def reader(self) -> nn.Linear:
        """The linear map that meets the concatenation: all N maps side by side."""
        return self.combine

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Xavier initialisation."""
        nn.init.xavier_uniform_(self.combine.weight)
        self.combine.weight /= self.concatenation.scale_version

    @torch.no_grad()
    def select_last(self) -> None:
        """Starts as the identity on the last vector (where both widths agree)."""
        self.combine.weight.zero_()
        nn.init.eye_(self.combine.weight[:, -self.input_dim :])
        self.combine.weight /= self.concatenation.scale_version

    def forward(self, inputs: List[Tensor]) -> Tensor:
        """N tensors (..., d) -> (..., d_out)."""
        return self.combine(self.concatenation(inputs))
