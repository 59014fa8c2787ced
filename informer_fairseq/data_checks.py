"""Checks of the data that fairseq makes late, or not at all."""

import functools
from typing import Any

import numpy as np

from informer_fairseq.errors import InputError


def refuse_long_sources_when_loaded(task: Any, limit: int, train_split: str = "train") -> None:
    """Lets ``task`` refuse a validation or test set with sources over n positions as soon as it is loaded.

    fairseq meets such a sentence in its first validation, after an epoch of training and before the first checkpoint is
    written. (Training sentences over the limit it skips at the start, with a warning that counts them.)

    Args:
        task: fairseq's task; its ``load_dataset`` is wrapped once.
        limit: the encoder's largest source length, ``</s>`` included.
        train_split: the split that is left to fairseq.
    """
    if hasattr(task.load_dataset, "limit"):
        return
    load = task.load_dataset

    @functools.wraps(load)
    def load_dataset(split: str, *args: Any, **kwargs: Any) -> None:
        load(split, *args, **kwargs)
        refuse_other_dictionaries(task.datasets.get(split), split)
        sizes = getattr(task.datasets.get(split), "src_sizes", None)
        if split == train_split or sizes is None or len(sizes) == 0:
            return
        longest = int(np.argmax(sizes))
        if sizes[longest] > limit:
            raise InputError(
                f"{split}: {int((np.asarray(sizes) > limit).sum())} of {len(sizes)} sources exceed "
                f"the encoder's limit of {limit}, the longest (line {longest + 1}) has {int(sizes[longest])} "
                "positions with </s>: split them, raise n, or leave them out with "
                "--skip-invalid-size-inputs-valid-test"
            )

    load_dataset.limit = limit  # type: ignore[attr-defined]
    task.load_dataset = load_dataset


def refuse_other_dictionaries(dataset: Any, split: str) -> None:
    """Refuses binarized text whose indices go beyond the dictionary beside it, before the embedding meets them.

    Args:
        dataset: fairseq's ``LanguagePairDataset``; other kinds, and text that is not memory-mapped, pass.
        split: its name, for the message.

    Raises:
        InputError: an index is not in the dictionary.
    """
    for side, words in (("src", getattr(dataset, "src_dict", None)), ("tgt", getattr(dataset, "tgt_dict", None))):
        indexed = getattr(dataset, side, None)
        buffer, index = getattr(indexed, "_bin_buffer", None), getattr(indexed, "_index", None)
        if words is None or buffer is None or index is None or len(buffer) == 0:
            continue
        largest = int(np.frombuffer(buffer, dtype=index.dtype).max())
        if largest >= len(words):
            raise InputError(
                f"{split}: the {'source' if side == 'src' else 'target'} text holds index {largest}, but its "
                f"dictionary has {len(words)} types: use the dict file that the .bin was made with, or binarize again"
            )
