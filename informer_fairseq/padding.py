"""Padding: which column holds which token, and what a padded position may not do.

fairseq pads sources on the left by default, so a token's column depends on the longest sentence of its batch. A
projection over positions must meet token i in column i whatever the batch; sentences are therefore moved to the left
edge before the encoder and moved back after it.
"""

from typing import Optional

import torch
from torch import Tensor


def left_aligning_columns(padding_mask: Tensor) -> Optional[Tensor]:
    """The columns in the order that moves every sentence to the left edge, its tokens in their order.

    Args:
        padding_mask: B x T, True for padding positions.

    Returns:
        B x T column indices for :func:`torch.gather`, or None if no padding precedes a token in any row.
    """
    pad_before_token = padding_mask[:, :-1] & ~padding_mask[:, 1:]
    if not bool(pad_before_token.any()):
        return None
    return padding_mask.to(torch.uint8).argsort(dim=1, stable=True)


def inverse_columns(columns: Tensor) -> Tensor:
    """The column order that undoes ``columns`` (B x T, a permutation in every row)."""
    return columns.argsort(dim=1)


def reorder_columns(x: Tensor, columns: Tensor) -> Tensor:
    """Reorders the columns of a batch-first tensor, each row in its own order.

    One ``index_select`` over all B T rows: unlike ``gather``, whose backward pass scatters, it is fast and runs under
    ``torch.use_deterministic_algorithms(True)`` on every device.

    Args:
        x: B x T x C.
        columns: B x T, a permutation in every row.

    Returns:
        B x T x C.
    """
    batch, length = columns.shape[0], columns.shape[1]
    first = torch.arange(batch, device=columns.device).unsqueeze(1) * length
    rows = (first + columns).reshape(-1)
    return x.reshape(batch * length, -1).index_select(0, rows).view(batch, length, -1)  # B T x C -> B x T x C


def unmask_empty_rows(padding_mask: Tensor) -> Tensor:
    """The mask of padding for an attention's keys: a row of padding alone becomes a row without any.

    A softmax over no key at all is not a number, and one such row in a batch makes the whole gradient not a number.
    What the row attends to instead is of no meaning, but finite.

    Args:
        padding_mask: B x T, True for padding positions.

    Returns:
        B x T, the same for every row that holds a token.
    """
    return padding_mask & ~padding_mask.all(dim=1, keepdim=True)


def check_length(length: int, fixed_length: int) -> None:
    """Raises ValueError if a batch is longer than the fixed encoder length n: no weight exists for its last tokens."""
    if length > fixed_length:
        raise ValueError(
            f"source of {length} positions (with </s>) exceeds the encoder's fixed length {fixed_length}: shorten or "
            "split the sentence, or train a model with a larger --encoder-fixed-length"
        )
