"""What a model attends to in one sentence: the decoder in the source, an efficient encoder in its slots."""

import math
from dataclasses import dataclass, field
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from informer_fairseq.token_mixers.convolutional import ConvolutionalSelfAttention
from informer_fairseq.token_mixers.low_rank import LowRankSelfAttention
from informer_fairseq.token_mixers.reduced_attention import ReducedSelfAttention
from informer_fairseq.tools.models import TrainedModel
from informer_fairseq.tools.probe_text import encode_pieces

Matrix = List[List[float]]


@dataclass
class AttentionMaps:
    """Weights for one sentence; rows sum to 1.

    Attributes:
        source: the source's pieces with ``</s>``.
        target: the translation's, likewise.
        decoder: target x source, the last decoder layer's mean over heads.
        slots: source x slots, the last encoder layer's mean over heads; empty for full attention.
        draws: slots x source, each slot's share of what every token adds to its key.
    """

    source: List[str]
    target: List[str]
    decoder: Matrix
    slots: Matrix = field(default_factory=list)
    draws: Matrix = field(default_factory=list)


@torch.no_grad()
def attention_maps(trained: TrainedModel, source: List[str], target: List[str]) -> AttentionMaps:
    """Runs a model over one sentence and its translation, which it is made to say.

    Args:
        trained: the model.
        source: the source's pieces, without ``</s>``.
        target: the translation's, likewise.
    """
    tokens = encode_pieces(source, trained.source).unsqueeze(0)  # 1 x S
    said = encode_pieces(target, trained.target)  # T
    before = torch.cat([said[-1:], said[:-1]]).unsqueeze(0)  # the decoder starts with </s>
    model: Any = trained.model
    layers = [module for module in model.encoder.modules() if isinstance(module, ReducedSelfAttention)]
    recorded = _Recorder(layers[-1]) if layers else None
    try:
        encoded = model.encoder(tokens, src_lengths=torch.tensor([tokens.size(1)]))
    finally:
        if recorded is not None:
            recorded.remove()
    _, extra = model.decoder(before, encoder_out=encoded, features_only=True)
    names, said_names = [*source, "</s>"], [*target, "</s>"]
    maps = AttentionMaps(names, said_names, extra["attn"][0][0].tolist())
    if recorded is not None and layers:
        maps.slots = recorded.weights[0].tolist()
        maps.draws = slot_draws(layers[-1], recorded.attended[0]).tolist()
    return maps


class _Recorder:
    """Keeps what one attention computes: TorchScript and the training never meet it."""

    def __init__(self, attention: ReducedSelfAttention):
        self.attention = attention
        self.weights = self.attended = torch.empty(0)
        original = attention.attend

        def attend(x: Tensor, keys: Tensor, values: Tensor, scores: Optional[Tensor] = None) -> Tensor:
            self.attended = x
            self.weights = slot_weights(attention, x, keys, scores)
            return original(x, keys, values, scores)

        self.attention.attend = attend  # type: ignore[method-assign]

    def remove(self) -> None:
        """Takes the record's hook out again."""
        del self.attention.attend


def slot_weights(attention: ReducedSelfAttention, x: Tensor, keys: Tensor, added: Optional[Tensor] = None) -> Tensor:
    """The mean over heads of the attention to the slots.

    Args:
        attention: the layer's attention.
        x: B x T x C, the input of the queries.
        keys: B x S x C.
        added: what is added to the scores, as for ``attend``.

    Returns:
        B x T x S.
    """
    queries = _by_head(attention.q_proj(x), attention.num_heads)
    scores = queries @ _by_head(keys, attention.num_heads).transpose(2, 3) / math.sqrt(attention.head_dim)
    if added is not None:
        scores = scores + added
    return scores.softmax(dim=3).mean(dim=1)


def _by_head(x: Tensor, heads: int) -> Tensor:
    """B x T x C -> B x h x T x d."""
    return x.view(x.size(0), x.size(1), heads, -1).transpose(1, 2)


def slot_draws(attention: ReducedSelfAttention, x: Tensor) -> Tensor:
    """How much of each slot's key comes from each token.

    A low-rank slot is a sum over tokens: the share is that of the weight's size times the token's. In a convolutional
    slot the windows compete in each channel; a token counts in the channels that its window wins.

    Args:
        attention: low-rank or convolutional.
        x: T x C, the layer's input for one sentence.

    Returns:
        S x T; rows sum to 1, or are zero for a slot that covers no token.
    """
    length = x.size(0)
    if isinstance(attention, LowRankSelfAttention):
        sizes = attention.k_proj(x).sub(attention.k_proj.bias).norm(dim=1)  # T
        shares = attention.projection.weight[:, :length].abs() * sizes  # S x T
    elif isinstance(attention, ConvolutionalSelfAttention):
        shares = _convolution_shares(attention, x)
    else:
        raise ValueError(f"no rule for the slots of {type(attention).__name__}")
    return shares / shares.sum(dim=1, keepdim=True).clamp(min=1e-9)


def _convolution_shares(attention: ConvolutionalSelfAttention, x: Tensor) -> Tensor:
    projection = attention.projection
    keys = attention.k_proj(x)  # T x C
    taps = torch.stack(  # T x C: what each token adds to its window
        [keys[place] @ projection.weight[place % projection.kernel_size] for place in range(keys.size(0))]
    )
    windows = torch.zeros(projection.num_slots * projection.pool_size, x.size(1))
    owner = torch.arange(keys.size(0)) // projection.kernel_size
    windows.index_add_(0, owner, taps)
    used = -(-keys.size(0) // (projection.kernel_size * projection.pool_size))
    slots = min(projection.num_slots, used + 1)  # the model keeps one for all that are empty
    pooled = windows.view(projection.num_slots, projection.pool_size, -1)[:slots].amax(dim=1)  # S x C
    shares = torch.zeros(slots, keys.size(0))
    for place in range(keys.size(0)):
        window = int(owner[place])
        slot = window // projection.pool_size
        won = windows[window] == pooled[slot]
        shares[slot, place] = taps[place][won].norm()
    return shares


def strongest(weights: Matrix, rows: List[str], columns: List[str]) -> List[Tuple[str, str]]:
    """For each row the columns with the largest weights, down to a tenth, three at most: the map in words."""
    lines = []
    for name, row in zip(rows, weights):
        order = sorted(range(len(row)), key=lambda column: -row[column])[:3]
        kept = [column for column in order if row[column] >= 0.1] or order[:1]
        lines.append((name, ", ".join(f"{columns[column]} {row[column]:.2f}" for column in kept)))
    return lines
