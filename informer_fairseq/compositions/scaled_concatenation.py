"""N vectors side by side, scaled so that Adam's step on what reads them fits their number."""

from abc import abstractmethod
from typing import Any, Dict, List

import torch
import torch.nn as nn
from torch import Tensor


def scale_of(num_inputs: int) -> float:
    """The largest power of two that is at most 1 / N: it rounds nothing, so maps may be divided by it."""
    return 0.5 ** (num_inputs - 1).bit_length()


class ScaledConcatenation(nn.Module):
    """``s [r_1; ...; r_N]``.

    Why a scale: Adam moves every weight by about the learning rate, whatever its gradient. The layers' outputs of a
    Transformer resemble one another, so the N d weights that meet them move a result N times as far as the d weights
    of a plain linear map would, and a learning rate that suits the rest of the model is too high here. With s = 1 / N,
    and weights N times as large, the functions and the start are the same, and the step is that of the other maps;
    with the next smaller power of two it is more than half as long.

    The scale is kept with the weights (see :class:`ScaledComposition`).

    Args:
        scale: s, a power of two, so that dividing weights by it is exact.
    """

    scale_version: Tensor

    def __init__(self, scale: float = 1.0):
        super().__init__()
        # fairseq's moving average leaves alone what has "version" in its name.
        self.register_buffer("scale_version", torch.tensor(scale))

    def forward(self, inputs: List[Tensor]) -> Tensor:
        """N tensors (..., d) -> (..., N d)."""
        return torch.cat(inputs, dim=-1).mul_(self.scale_version)


class ScaledComposition(nn.Module):
    """A composition whose weights read a :class:`ScaledConcatenation`, and start divided by its scale.

    A checkpoint that holds its weights but no scale is from before the scale: it was trained with s = 1, and keeps it.

    Args:
        scale: of the concatenation.
    """

    def __init__(self, scale: float):
        super().__init__()
        self.concatenation = ScaledConcatenation(scale)

    @abstractmethod
    def reader(self) -> nn.Linear:
        """The linear map whose weights (not its bias) meet the concatenation."""

    @torch.no_grad()
    def change_scale(self, scale: Tensor) -> None:
        """The same function with another s, a power of two (a scalar): weights are divided as inputs are multiplied."""
        self.reader().weight *= self.concatenation.scale_version / scale
        self.concatenation.scale_version.copy_(scale)

    def _load_from_state_dict(self, state_dict: Dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        if any(name.startswith(prefix) for name in state_dict):
            state_dict.setdefault(f"{prefix}concatenation.scale_version", torch.ones(()))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
