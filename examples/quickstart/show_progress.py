#!/usr/bin/env python3
"""Turns fairseq-train's JSON log on stdin into one progress bar over the whole training and a line a validation.

Every line goes to the log file as it is; the bar is drawn on a terminal only.
"""

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import IO, Dict, Iterable, Optional, Sequence, Tuple

from tqdm import tqdm

STEPS, VALIDATION = "train_inner", "valid"
BAR = "      {percentage:3.0f}% |{bar:30}| {n_fmt}/{total_fmt} updates, {remaining} left{postfix}"


def parse(line: str) -> Tuple[str, Dict[str, str]]:
    """Splits "time | level | logger | {...}" into the logger's name and its values; ("", {}) for any other line."""
    fields = line.rstrip("\n").split(" | ", 3)
    if len(fields) != 4 or fields[2] not in (STEPS, VALIDATION) or not fields[3].startswith("{"):
        return "", {}
    return fields[2], json.loads(fields[3])


def follow(lines: Iterable[str], log: IO[str], updates: int) -> None:
    """Copies the lines to the log and shows where the training stands.

    Args:
        lines: fairseq-train's output with ``--log-format json``.
        log: where every line is kept.
        updates: the length of the whole training; the bar is full there.
    """
    training = ""  # fairseq gives no loss before its first --log-interval
    bar: Optional[tqdm] = None
    for line in lines:
        log.write(line)
        log.flush()
        name, values = parse(line)
        if name == STEPS:
            done, training = int(values["num_updates"]), f"training loss {values['loss']}, "
            # What an earlier run did says nothing about the speed of this one: the bar starts where this one does.
            if bar is None:
                bar = tqdm(total=updates, initial=done, disable=None, bar_format=BAR, mininterval=0, leave=False)
            bar.set_postfix_str(f"loss {values['loss']}", refresh=False)
            bar.update(done - bar.n)
        elif name == VALIDATION:
            done, perplexity = int(values["valid_num_updates"]), float(values["valid_ppl"])
            with tqdm.external_write_mode(file=sys.stdout):
                print(f"      {done:>5}/{updates} updates: {training}valid perplexity {perplexity:.2f}")
                sys.stdout.flush()
    if bar:
        bar.close()


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line and follows stdin to its end."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--log", type=Path, required=True, help="file that every line is appended to")
    parser.add_argument("--updates", type=int, required=True, help="updates of the whole training")
    args = parser.parse_args(argv)
    # An interrupt is for the training: its last lines belong in the log, too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(args.log, "a", encoding="utf-8") as log:
        follow(sys.stdin, log, args.updates)


if __name__ == "__main__":
    main()
