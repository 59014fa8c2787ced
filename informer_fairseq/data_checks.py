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
