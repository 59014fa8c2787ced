"""A fixed encoder's states: one vector a sentence, computed once and kept on disk."""

import hashlib
import io
import os
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from informer_fairseq.errors import InputError
from informer_fairseq.tools.files import digest, write_file
from informer_fairseq.tools.models import TrainedModel
from informer_fairseq.tools.probe_text import TextPipeline, encode_pieces

_VERSION = "1"  # raise it when the states of the same input change


def default_cache() -> Path:
    """Where states are kept unless the user says otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "informer-fairseq" / "probe"


def mean_over_tokens(states: Tensor, tokens: Tensor, pad: int, eos: int) -> Tensor:
    """The mean of the states at a sentence's own tokens.

    The encoder reads ``</s>`` as it did in training, but its state is no token's and stays out of the mean.

    Args:
        states: T x B x C.
        tokens: B x T.
        pad: the padding's index.
        eos: the index of ``</s>``.

    Returns:
        B x C; zero for a sentence without tokens.
    """
    real = (tokens.ne(pad) & tokens.ne(eos)).t().unsqueeze(2).to(states.dtype)  # B x T -> T x B x 1
    return (states * real).sum(dim=0) / real.sum(dim=0).clamp(min=1)


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> List[List[int]]:
    """Indices of sentences in order of length, in batches of at most ``max_tokens`` with padding (or one sentence)."""
    batches: List[List[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        if not batches or lengths[index] * (len(batches[-1]) + 1) > max_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


@torch.no_grad()
def encode_sentences(
    trained: TrainedModel, tokens: Sequence[Tensor], max_tokens: int = 4096, title: str = "states"
) -> np.ndarray:
    """The states of sentences given as indices with ``</s>``: N x C, 32-bit floats, in the order given."""
    pad, eos = trained.source.pad(), trained.source.eos()
    encoder: Any = trained.model.encoder
    result: Optional[np.ndarray] = None
    with tqdm(total=len(tokens), desc=title, unit="sentence", disable=None, leave=False) as progress:
        for batch in batches_by_length([len(sentence) for sentence in tokens], max_tokens):
            padded = torch.nn.utils.rnn.pad_sequence([tokens[index] for index in batch], True, pad)  # B x T
            lengths = padded.ne(pad).sum(dim=1)
            states = encoder(padded, src_lengths=lengths)["encoder_out"][0]  # T x B x C
            means = mean_over_tokens(states, padded, pad, eos).numpy()
            if result is None:
                result = np.empty((len(tokens), means.shape[1]), dtype=np.float32)
            result[batch] = means
            progress.update(len(batch))
    if result is None:
        raise ValueError("no sentences to encode")
    return result


class StateStore:
    """States of one checkpoint, computed where the cache does not have them.

    Args:
        trained: the model.
        pipeline: how its text is cut.
        checkpoint: its file, whose content is part of the key.
        cache: the folder; None to keep nothing.
        untrained_seed: the seed of an untrained model, likewise part of the key.
        skip_long: leave out, and count, the sentences that are longer than the encoder takes.
    """

    def __init__(
        self,
        *,
        trained: TrainedModel,
        pipeline: TextPipeline,
        checkpoint: Path,
        cache: Optional[Path],
        untrained_seed: Optional[int] = None,
        skip_long: bool = False,
    ):
        self.trained, self.pipeline, self.cache, self.skip_long = trained, pipeline, cache, skip_long
        self.checkpoint = checkpoint
        words = hashlib.sha256("\n".join(trained.source.symbols).encode("utf-8")).hexdigest()
        seed = "trained" if untrained_seed is None else f"untrained {untrained_seed}"
        self.key = "\n".join([_VERSION, digest(checkpoint), seed, words, pipeline.key])
        self.unknown = self.pieces = 0  # of all sentences asked for so far

    def states(self, sentences: Sequence[str], title: str = "states") -> np.ndarray:
        """N x C in 32-bit floats for N sentences; a row of NaN for one that was left out as too long.

        Raises:
            InputError: a sentence is longer than the encoder takes and ``skip_long`` is off.
        """
        unique = sorted(set(sentences))
        text = hashlib.sha256("\n".join([self.key, *unique]).encode("utf-8")).hexdigest()
        path = None if self.cache is None else self.cache / f"{text}.npz"
        kept = None if path is None else _read(path, len(unique))
        if kept is None:
            kept = self._compute(unique, title)
            if path is not None:
                buffer = io.BytesIO()
                np.savez(buffer, rows=kept[0], counts=np.array(kept[1:]))
                write_file(path, buffer.getvalue())
        rows, pieces, unknown = kept
        self.pieces += pieces
        self.unknown += unknown
        place = {sentence: row for row, sentence in enumerate(unique)}
        return rows[[place[sentence] for sentence in sentences]]

    def _compute(self, sentences: List[str], title: str) -> Tuple[np.ndarray, int, int]:
        """The states, the number of pieces, and how many of them the dictionary lacks."""
        encoder: Any = self.trained.model.encoder
        limit = encoder.max_positions()
        kept: Dict[int, Tensor] = {}
        pieces = unknown = 0
        for row, sentence in enumerate(tqdm(sentences, desc="pieces", unit="sentence", disable=None, leave=False)):
            tokens = encode_pieces(self.pipeline.pieces(sentence), self.trained.source)
            if len(tokens) <= limit:
                kept[row] = tokens
                pieces += len(tokens) - 1
                unknown += int(tokens.eq(self.trained.source.unk()).sum())
            elif not self.skip_long:
                raise InputError(
                    f"a sentence has {len(tokens)} pieces with </s>, the encoder of {self.checkpoint} takes {limit}: "
                    f"remove it, or give --skip-long: {sentence[:60]!r}"
                )
        if not kept:
            raise InputError(f"every sentence is longer than the {limit} pieces that {self.checkpoint} takes")
        encoded = encode_sentences(self.trained, list(kept.values()), title=title)
        rows = np.full((len(sentences), encoded.shape[1]), np.nan, dtype=np.float32)
        rows[list(kept)] = encoded
        return rows, pieces, unknown


def _read(path: Path, count: int) -> Optional[Tuple[np.ndarray, int, int]]:
    """What the cache holds; None for nothing, or for a file that was damaged, which is then made again."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            rows, (pieces, unknown) = kept["rows"], kept["counts"].tolist()
    except (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile):
        return None
    return (rows, pieces, unknown) if rows.ndim == 2 and len(rows) == count else None
