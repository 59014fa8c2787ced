"""Tries thousands of flag sets and prints what became of them.

    python -m tests.fuzz.run --count 10000 --seed 1

Ends with status 1 if there is a fault; each is printed with the command line that gives it. One alone, with its
traceback: --only NUMBER.
"""

import argparse
import logging
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

import torch
from tqdm import tqdm

import informer_fairseq  # noqa: F401  (registers the architectures)
from tests.fuzz.flag_sets import draw
from tests.fuzz.trial import AS_STOCK, FAULT, KINDS, Outcome, try_out, write_dictionaries


def try_number(folder: Path, seed: int, number: int) -> Tuple[int, Outcome]:
    """Tries the flag set of that number."""
    return number, try_out(draw(seed, number), folder)


def be_quiet() -> None:
    """One thread, and no word of fairseq's about each model."""
    torch.set_num_threads(1)
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")


def try_all(seed: int, numbers: Sequence[int], processes: int) -> List[Tuple[int, Outcome]]:
    """Tries the flag sets of those numbers in several processes."""
    with tempfile.TemporaryDirectory() as folder:
        write_dictionaries(Path(folder))
        trial = partial(try_number, Path(folder), seed)
        if processes == 1:
            be_quiet()
            return [trial(number) for number in numbers]
        with multiprocessing.get_context("spawn").Pool(processes, be_quiet) as pool:
            results = pool.imap_unordered(trial, numbers, chunksize=20)
            return list(tqdm(results, total=len(numbers), unit=" sets", disable=not sys.stderr.isatty()))


def report(seed: int, results: List[Tuple[int, Outcome]], seconds: float) -> int:
    """Prints the counts and every fault; returns the exit status."""
    counts = Counter(outcome.kind for _, outcome in results)
    alike: Counter = Counter(outcome.detail.splitlines()[0][:90] for _, outcome in results if outcome.kind == AS_STOCK)
    for number, outcome in sorted(results):
        if outcome.kind == FAULT:
            print(f"fault: {outcome.detail}\n  {draw(seed, number)}")
    for text, count in alike.most_common(12):
        print(f"as stock {count:5d}  {text}")
    print(f"flag sets of seed {seed}: {len(results)} tried in {seconds:.0f} s")
    for kind in KINDS:
        print(f"{counts[kind]:7d}  {kind}")
    return int(counts[FAULT] > 0)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Reads the command line and tries flag sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10000, help="flag sets (10000)")
    parser.add_argument("--seed", type=int, default=1, help="of the flag sets (1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (0)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="try this one alone and show its traceback")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    args = parser.parse_args(argv)
    start = time.monotonic()
    numbers = range(args.first, args.first + args.count) if args.only is None else [args.only]
    results = try_all(args.seed, numbers, args.processes if len(numbers) > 1 else 1)
    if args.only is not None:
        print(f"{draw(args.seed, args.only)}\n{results[0][1].kind}: {results[0][1].detail}\n{results[0][1].trace}")
    return report(args.seed, results, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main())
