#!/usr/bin/env python3
"""Builds the quickstart's English-Vietnamese corpus from installed packages: no download, no data files.

Sentences are put together from parts that CLDR and num2words give in both languages (names of places and languages,
quantities, amounts of money, dates), so that an unseen sentence is made of seen words. Written tokenised as fairseq's
``--tokenizer moses --moses-no-escape --moses-no-dash-splits`` does it, so that fairseq-interactive takes plain text.
"""

import argparse
import json
import random
import sys
from collections import Counter
from datetime import date, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import cldr_parts as parts
from cldr_parts import LANGUAGES, Pair
from sacremoses import MosesDetokenizer, MosesTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from preprocess.files import InputError, run_tool, write_whole  # noqa: E402

PACKAGES = ("babel", "num2words", "sacremoses")
SPLITS = ("train", "valid", "test")
MIN_PAIRS, MAX_PAIRS = 500, 100_000
HELD_OUT = 500
# A word must stay at least this often in training for a sentence that holds it to be held out.
MIN_TRAIN_COUNT = 3
# Enough for any corpus of MAX_PAIRS; a bound, so that a table that shrinks ends in an error and not in a loop.
TRIES_PER_PAIR = 20
FIRST_DAY, LAST_DAY = date(1950, 1, 1), date(2049, 12, 31)


class SentenceMaker:
    """Makes random sentence pairs of several kinds from CLDR's parts.

    Args:
        rng: the source of every choice.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.territories = parts.territories()
        self.languages = parts.languages()
        self.units = parts.units()
        self.currencies = parts.currencies()
        self.weekdays = parts.weekdays()
        # Weights follow how many sentences a kind has, and how many of them its words need to be learned.
        self.kinds: Dict[str, Tuple[int, Callable[[], Pair]]] = {
            "places": (14, lambda: self.listed(self.place, 2, 5)),
            "languages": (14, lambda: self.listed(self.language, 2, 4)),
            "quantities": (14, lambda: self.same_style(self.quantity, 4)),
            "money": (9, lambda: self.same_style(self.amount, 3)),
            "large amounts": (5, lambda: self.amount(True, 999_999)),
            "numbers": (6, lambda: parts.spelled(self.number(9_999_999))),
            "dates": (10, self.dates),
            "place and date": (10, lambda: parts.joined([self.place(), self.date()], "unit")),
            "relative times": (6, lambda: self.listed(self.relative, 1, 3)),
            "mixed": (14, lambda: self.listed(self.item, 2, 4)),
        }

    def sentence(self) -> Tuple[str, Pair]:
        """A random kind and a random sentence of it."""
        weights = [weight for weight, _ in self.kinds.values()]
        kind = self.rng.choices(list(self.kinds), weights)[0]
        return kind, self.kinds[kind][1]()

    def listed(self, make: Callable[[], Pair], least: int, most: int) -> Pair:
        """A list of ``least`` to ``most`` items, the last after "and" or "or"; an item drawn twice is named once."""
        items: List[Pair] = []
        for _ in range(self.rng.randint(least, most)):
            item = make()
            if item not in items:
                items.append(item)
        return parts.joined(items, self.rng.choice(("standard", "or")))

    def number(self, limit: int) -> int:
        """A positive number that both languages can say; small ones are as frequent as large ones."""
        while True:
            number = self.rng.randint(1, 10 ** self.rng.randint(1, len(str(limit))))
            if number <= limit and parts.sayable(number):
                return number

    def day(self) -> date:
        """A day of the hundred years around 2000."""
        return FIRST_DAY + timedelta(days=self.rng.randrange((LAST_DAY - FIRST_DAY).days + 1))

    def place(self) -> Pair:
        """The name of a place."""
        return self.rng.choice(self.territories)

    def date(self) -> Pair:
        """A day, with or without its weekday."""
        return parts.day(self.day(), self.rng.choice(("full", "long")))

    def language(self) -> Pair:
        """A language, more often than not with the place where it is spoken."""
        name = self.rng.choice(self.languages)
        return parts.in_region(name, self.place()) if self.rng.random() < 0.6 else name

    def quantity(self, in_words: bool, limit: int) -> Pair:
        """A number with a unit."""
        return parts.quantity(self.number(limit), self.rng.choice(self.units), in_words)

    def amount(self, in_words: bool, limit: int) -> Pair:
        """A number with a currency."""
        return parts.amount(self.number(limit), self.rng.choice(self.currencies), in_words)

    def counted(self, make: Callable[[bool, int], Pair], in_words: bool) -> Pair:
        """A number of things, below a thousand in words (no comma within the number) or below a hundred in digits."""
        return make(in_words, 999 if in_words else 99)

    def same_style(self, make: Callable[[bool, int], Pair], most: int) -> Pair:
        """A list of numbers of things, all in words or all in digits."""
        in_words = self.rng.random() < 0.6
        return self.listed(lambda: self.counted(make, in_words), 1, most)

    def relative(self) -> Pair:
        """A time before or after now."""
        unit = self.rng.choice(sorted(parts.RELATIVE_LIMITS))
        number = self.rng.randint(2, parts.RELATIVE_LIMITS[unit])
        return parts.relative(number, unit, self.rng.choice((-1, 1)))

    def weekday(self) -> Pair:
        """A day of the week."""
        return self.rng.choice(self.weekdays)

    def item(self) -> Pair:
        """A part of any kind that has no comma."""
        in_words = self.rng.random() < 0.5
        makers: List[Callable[[], Pair]] = [
            self.place,
            self.language,
            self.relative,
            self.weekday,
            lambda: self.counted(self.quantity, in_words),
            lambda: self.counted(self.amount, in_words),
            lambda: parts.day(self.day(), self.rng.choice(("yMMMM", "yQQQQ", "MMMMd"))),
        ]
        return self.rng.choice(makers)()

    def dates(self) -> Pair:
        """A day, a period within a month, a month, a quarter, or a list of weekdays."""
        first = self.day()
        last = first + timedelta(days=self.rng.randint(1, 20))
        if first.month == last.month and self.rng.random() < 0.5:
            return parts.period(first, last)
        style = self.rng.choice(("full", "long", "yMMMM", "yQQQQ", "MMMMd", "weekdays"))
        if style == "weekdays":
            return self.listed(self.weekday, 2, 4)
        return parts.day(first, style)


class Moses:
    """fairseq's Moses tokenizer with the two switches of this corpus, and back."""

    def __init__(self) -> None:
        self.tokenizers = Pair(*map(MosesTokenizer, LANGUAGES))
        self.detokenizers = Pair(*map(MosesDetokenizer, LANGUAGES))

    def tokenize(self, pair: Pair) -> Pair:
        """Both texts as tokens with single spaces between."""
        both = zip(self.tokenizers, pair)
        return Pair(*(moses.tokenize(text, return_str=True, escape=False) for moses, text in both))

    def detokenize(self, pair: Pair) -> Pair:
        """Both texts as they were before ``tokenize``."""
        return Pair(*(moses.detokenize(text.split()) for moses, text in zip(self.detokenizers, pair)))


def make_pairs(count: int, rng: random.Random) -> Tuple[List[Pair], Counter]:
    """Makes ``count`` tokenised pairs, no line of either side twice, and counts their kinds.

    Raises:
        InputError: the parts do not give so many.
    """
    maker, moses = SentenceMaker(rng), Moses()
    seen = Pair(set(), set())
    pairs: List[Pair] = []
    kinds: Counter = Counter()
    for _ in range(count * TRIES_PER_PAIR):
        kind, text = maker.sentence()
        if text.en in seen.en or text.vi in seen.vi:
            continue
        tokens = moses.tokenize(text)
        if moses.detokenize(tokens) != text:  # scores are taken on detokenised text: it has to be the text itself
            continue
        seen.en.add(text.en)
        seen.vi.add(text.vi)
        pairs.append(tokens)
        kinds[kind] += 1
        if len(pairs) == count:
            return pairs, kinds
    raise InputError(f"--pairs {count}: only {len(pairs)} distinct pairs found; ask for fewer")


def split_pairs(pairs: Sequence[Pair], rng: random.Random) -> Dict[str, List[Pair]]:
    """Holds out random valid and test pairs whose every word stays in training, on both sides.

    Raises:
        InputError: too few such pairs.
    """
    size = min(HELD_OUT, len(pairs) // 20)
    counts = Pair(*(Counter(word for pair in pairs for word in set(pair[side].split())) for side in (0, 1)))
    held_out: List[Pair] = []
    train: List[Pair] = []
    for pair in rng.sample(pairs, len(pairs)):
        words = [(count, word) for count, text in zip(counts, pair) for word in set(text.split())]
        if len(held_out) < 2 * size and all(count[word] > MIN_TRAIN_COUNT for count, word in words):
            held_out.append(pair)
            for count, word in words:
                count[word] -= 1
        else:
            train.append(pair)
    if len(held_out) < 2 * size:
        raise InputError(
            f"--pairs {len(pairs)}: only {len(held_out)} pairs can be held out, not {2 * size}; ask for more"
        )
    return {"train": train, "valid": held_out[:size], "test": held_out[size:]}


def describe(splits: Dict[str, List[Pair]], kinds: Counter, seed: int) -> Dict[str, object]:
    """What the corpus is made of, for people and for the next run."""

    def words(side: int) -> List[str]:
        return [word for pair in splits["train"] for word in pair[side].split()]

    return {
        "seed": seed,
        "packages": {name: version(name) for name in PACKAGES},
        "pairs": {name: len(split) for name, split in splits.items()},
        "kinds": dict(sorted(kinds.items())),
        "train_word_types": {language: len(set(words(side))) for side, language in enumerate(LANGUAGES)},
        "train_words_per_line": {
            language: round(len(words(side)) / len(splits["train"]), 1) for side, language in enumerate(LANGUAGES)
        },
    }


def write_corpus(folder: Path, pairs: int, seed: int) -> Dict[str, object]:
    """Builds the corpus and writes ``train``, ``valid`` and ``test`` in both languages, then ``corpus.json``."""
    rng = random.Random(seed)
    made, kinds = make_pairs(pairs, rng)
    splits = split_pairs(made, rng)
    for name in SPLITS:
        for side, language in enumerate(LANGUAGES):
            with write_whole(folder / f"{name}.{language}") as handle:
                handle.writelines(f"{pair[side]}\n" for pair in splits[name])
    facts = describe(splits, kinds, seed)
    with write_whole(folder / "corpus.json") as handle:
        json.dump(facts, handle, indent=2)
        handle.write("\n")
    return facts


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line, builds the corpus and says what it holds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="folder for the six text files")
    parser.add_argument("--pairs", type=int, default=20_000, help="sentence pairs in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all random choices (default: %(default)s)")
    args = parser.parse_args(argv)
    if not MIN_PAIRS <= args.pairs <= MAX_PAIRS:
        raise InputError(f"--pairs {args.pairs} is out of range: give {MIN_PAIRS} to {MAX_PAIRS}")
    facts = write_corpus(args.output, args.pairs, args.seed)
    sizes = ", ".join(f"{count} {name}" for name, count in facts["pairs"].items())
    types = ", ".join(f"{count} {language}" for language, count in facts["train_word_types"].items())
    print(f"{args.output}: {sizes} pairs; word types: {types}")


if __name__ == "__main__":
    run_tool(main)
