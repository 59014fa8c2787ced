"""Checks of the data that fairseq makes late, or not at all."""

import functools
import os
import struct
from typing import Any, Dict

import numpy as np

from informer_fairseq.errors import InputError


def refuse_long_sources(task: Any, limit: int, train_split: str = "train", *, skips: bool = False) -> None:
    """Lets ``task`` refuse a validation or test set with sources over n positions before time is spent on it.

    fairseq meets such a sentence in its first validation, after an epoch of training and before the first checkpoint is
    written; here training refuses the set as soon as it is loaded. Commands that read a checkpoint (generate, validate)
    refuse it when they form its batches: whether to leave such sources out is then the command's choice, not that of
    the training whose flags the checkpoint holds. (Training sentences over the limit fairseq skips at the start, with a
    warning that counts them.)

    Args:
        task: fairseq's task; its ``load_dataset`` and ``get_batch_iterator`` are wrapped once.
        limit: the encoder's largest source length, ``</s>`` included; of several models, the smallest holds.
        train_split: the split that is left to fairseq.
        skips: a training leaves such sources out of its validation, by ``--skip-invalid-size-inputs-valid-test``.
    """
    if hasattr(task.load_dataset, "limits"):
        task.load_dataset.limits.append(limit)
        return
    limits = [limit]
    load, iterate = task.load_dataset, getattr(task, "get_batch_iterator", None)

    @functools.wraps(load)
    def load_dataset(split: str, *args: Any, **kwargs: Any) -> None:
        load(split, *args, **kwargs)
        refuse_other_dictionaries(task.datasets.get(split), split)
        reads_checkpoint = "task_cfg" in kwargs  # what fairseq-generate and fairseq-validate hand over
        if split != train_split and not skips and not reads_checkpoint:
            check_source_sizes(task.datasets.get(split), split, min(limits))

    load_dataset.limits = limits  # type: ignore[attr-defined]
    task.load_dataset = load_dataset
    if iterate is None:
        return

    @functools.wraps(iterate)
    def get_batch_iterator(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        ignores = kwargs.get("ignore_invalid_inputs", len(args) > 3 and args[3])
        for split, loaded in task.datasets.items():
            if loaded is dataset and not ignores:
                check_source_sizes(dataset, split, min(limits))
        return iterate(dataset, *args, **kwargs)

    task.get_batch_iterator = get_batch_iterator


def check_source_sizes(dataset: Any, split: str, limit: int) -> None:
    """Refuses a set with sources over the limit; sets that do not tell their sources' sizes pass.

    Args:
        dataset: fairseq's ``LanguagePairDataset``.
        split: its name, for the message.
        limit: the largest source length, ``</s>`` included.

    Raises:
        InputError: a source is longer.
    """
    sizes = getattr(dataset, "src_sizes", None)
    if sizes is None or len(sizes) == 0:
        return
    longest = int(np.argmax(sizes))
    if sizes[longest] > limit:
        raise InputError(
            f"{split}: {int((np.asarray(sizes) > limit).sum())} of {len(sizes)} sources exceed "
            f"the encoder's limit of {limit}, the longest (line {longest + 1}) has {int(sizes[longest])} "
            "positions with </s>: split them, raise n, or leave them out with --skip-invalid-size-inputs-valid-test"
        )


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


_MMAP, _CACHED, _HUFFMAN = b"MMIDIDX\x00", b"TNTIDX\x00\x00", b"HUFFIDX\x00"


def check_indexed_text(prefix: str, types: Dict[int, Any]) -> None:
    """Refuses binarized text that is damaged or cut, by its index and the lengths of both files.

    Args:
        prefix: the files' path without .idx and .bin; others than fairseq's usual, memory-mapped kind pass.
        types: fairseq's numbers for the types of integers.

    Raises:
        InputError: the files do not belong together, or are not whole.
    """
    index = f"{prefix}.idx"
    with open(index, "rb") as handle:
        head = handle.read(26)
    if head[:8] in (_CACHED, _HUFFMAN):
        return
    again = "copy it again, or binarize again"
    if head[:8] != _MMAP or len(head) < 26:
        raise InputError(f"{index} is damaged or no index of binarized text: {again}")
    version, code, count = struct.unpack("<QBQ", head[9:])
    if version != 1 or code not in types:
        raise InputError(f"{index} is damaged: version {version} and type {code} do not exist; {again}")
    size, expected = os.path.getsize(index), 26 + 12 * count
    if size != expected:
        raise InputError(f"{index} is damaged: it has {size} bytes, its {count} sentences take {expected}; {again}")
    if count == 0:
        return
    lengths = np.memmap(index, np.int32, "r", 26, count).astype(np.int64)
    ends = np.memmap(index, np.int64, "r", 26 + 4 * count, count) + lengths * np.dtype(types[code]).itemsize
    starts = np.concatenate([[0], ends[:-1]])
    if lengths.min() < 0 or (np.memmap(index, np.int64, "r", 26 + 4 * count, count) != starts).any():
        raise InputError(f"{index} is damaged: its sentences do not follow one another; {again}")
    found = os.path.getsize(f"{prefix}.bin")
    if found != ends[-1]:
        raise InputError(f"{prefix}.bin is damaged or cut: it has {found} bytes, its index says {ends[-1]}; {again}")
