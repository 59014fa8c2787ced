"""Probing tasks made from raw text, after Conneau et al. (2018): sentence length, word content, bigram shift."""

import collections
import random
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

from informer_fairseq.errors import InputError
from informer_fairseq.tools.files import read_lines, write_file

# The published bins of sentence length, in words; the first is label 0.
LENGTH_BINS = ((5, 8), (9, 12), (13, 16), (17, 20), (21, 25), (26, 28))
Examples = Dict[str, List[str]]  # label -> sentences


def length_label(words: int) -> Optional[str]:
    """The bin of a sentence of so many words; None where none has it."""
    return next((str(label) for label, (low, high) in enumerate(LENGTH_BINS) if low <= words <= high), None)


def make_sentence_length(sentences: List[List[str]], generator: random.Random) -> Examples:
    """Six bins of length, as many sentences in each."""
    bins: Examples = {str(label): [] for label in range(len(LENGTH_BINS))}
    for words in sentences:
        label = length_label(len(words))
        if label is not None:
            bins[label].append(" ".join(words))
    return _balance(bins, generator, "sentences of a length in every bin")


def target_words(sentences: List[List[str]], count: int, first_rank: int) -> List[str]:
    """Words of middling frequency: lower-cased, of four letters or more, from ``first_rank`` in order of frequency.

    Raises:
        InputError: the text has fewer.
    """
    counts = collections.Counter(word.lower() for words in sentences for word in words)
    ranked = sorted((word for word in counts if len(word) >= 4 and word.isalpha()), key=lambda w: (-counts[w], w))
    chosen = ranked[first_rank - 1 : first_rank - 1 + count]
    if len(chosen) < count:
        raise InputError(
            f"the text has {len(ranked)} words of four letters or more, {count} from rank {first_rank} on are asked "
            "for: give more text, or lower --words and --first-rank"
        )
    return chosen


def make_word_content(sentences: List[List[str]], generator: random.Random, count: int, first_rank: int) -> Examples:
    """Sentences that hold exactly one of the target words, once; the label is that word."""
    targets = set(target_words(sentences, count, first_rank))
    found: Examples = {word: [] for word in sorted(targets)}
    for words in sentences:
        held = [word.lower() for word in words if word.lower() in targets]
        if len(held) == 1:
            found[held[0]].append(" ".join(words))
    return _balance(found, generator, "sentences with one target word each (a smaller --first-rank has more)")


def make_bigram_shift(sentences: List[List[str]], generator: random.Random) -> Examples:
    """Half of the sentences with two neighbouring words inverted (I), half as they are (O)."""
    usable = [words for words in sentences if 5 <= len(words) <= 28 and _swaps(words)]
    generator.shuffle(usable)
    half = len(usable) // 2
    inverted = []
    for words in usable[:half]:
        place = generator.choice(_swaps(words))
        swapped = [*words[:place], words[place + 1], words[place], *words[place + 2 :]]
        inverted.append(" ".join(swapped))
    return _balance(
        {"I": inverted, "O": [" ".join(words) for words in usable[half:]]}, generator, "sentences of 5 to 28 words"
    )


def _swaps(words: List[str]) -> List[int]:
    """Where two neighbours differ; the mark that ends the sentence stays in place, as it would give the swap away."""
    end = len(words) - 1 - (not words[-1].isalnum())
    return [place for place in range(end) if words[place].lower() != words[place + 1].lower()]


def _balance(examples: Examples, generator: random.Random, what: str) -> Examples:
    """As many examples of every label, chosen at random."""
    fewest = min(len(found) for found in examples.values())
    if fewest < 10:
        label = min(examples, key=lambda label: len(examples[label]))
        raise InputError(f"the text gives {fewest} examples of the label {label!r}, 10 are needed: give more {what}")
    for found in examples.values():
        generator.shuffle(found)
    return {label: found[:fewest] for label, found in examples.items()}


def make_task(
    name: str, text: Path, output: Path, *, seed: int, size: int, count: int, first_rank: int
) -> Tuple[Path, Dict[str, int]]:
    """Makes one task of a raw text with a sentence a line and writes it in the official form.

    Sentences that come twice count once. Labels are balanced in each split; of twelve examples ten are for training,
    one for validation, one for the test, as in the published sets.

    Args:
        name: sentence_length, word_content or bigram_shift.
        text: the raw text; words are what stands between spaces.
        output: the folder for ``NAME.txt``.
        seed: of every choice made at random.
        size: the most examples in all.
        count: target words of word_content.
        first_rank: the frequency rank of the first of them.

    Returns:
        The file, and the number of examples in each split.

    Raises:
        InputError: the text is too small.
    """
    generator = random.Random(seed)
    unique = dict.fromkeys(" ".join(line.split()) for line in read_lines(text))
    sentences = [line.split(" ") for line in unique if line]
    makers: Dict[str, Callable[[], Examples]] = {
        "sentence_length": lambda: make_sentence_length(sentences, generator),
        "word_content": lambda: make_word_content(sentences, generator, count, first_rank),
        "bigram_shift": lambda: make_bigram_shift(sentences, generator),
    }
    if not sentences:
        raise InputError(f"{text} is empty; give a text with a sentence a line")
    examples = makers[name]()
    each = min(len(next(iter(examples.values()))), max(10, size // len(examples)))
    held_out = max(1, each // 12)
    cuts = {"va": (0, held_out), "te": (held_out, 2 * held_out), "tr": (2 * held_out, each)}
    lines, counts = [], {}
    for split in ("tr", "va", "te"):
        start, end = cuts[split]
        part = [f"{split}\t{label}\t{line}" for label, found in examples.items() for line in found[start:end]]
        generator.shuffle(part)
        lines += part
        counts[split] = len(part)
    path = output / f"{name}.txt"
    write_file(path, "\n".join(lines) + "\n")
    return path, counts
