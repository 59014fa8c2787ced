#!/usr/bin/env python3
"""Readies a folder of checkpoints for a resume: removes files that were cut short, keeps one to go on from.

fairseq saves one checkpoint whole and then copies it to its other names in place: a kill in that moment leaves a copy
that is cut, but never without a whole checkpoint beside it.
"""

import argparse
import os
import shutil
import zipfile
from pathlib import Path
from typing import Optional, Sequence

LAST, BEST = "checkpoint_last.pt", "checkpoint_best.pt"


def repair(folder: Path) -> None:
    """Removes cut checkpoints; where that took the last or the best one, the newest whole one stands in."""
    for path in sorted(folder.glob("*.pt")):
        if not zipfile.is_zipfile(path):  # a file that is cut has lost its table of contents, which is at the end
            print(f"      {path.name} was cut short by an interruption: removed")
            path.unlink()
    whole = sorted(folder.glob("*.pt"), key=lambda path: path.stat().st_mtime)
    for name in (LAST, BEST):
        if whole and not (folder / name).exists():
            copy = folder / f"{name}.copy"
            shutil.copyfile(whole[-1], copy)
            os.replace(copy, folder / name)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line and repairs the folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="fairseq-train's --save-dir; one without checkpoints is left alone")
    repair(parser.parse_args(argv).folder)


if __name__ == "__main__":
    main()
