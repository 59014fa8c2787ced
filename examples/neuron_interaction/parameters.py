"""Counts the parameters of every flag set of this folder, at the paper's size: WMT14, base, 32,000 joint types.

    python examples/neuron_interaction/parameters.py

prints a table: all parameters, and what heads and layers add to the Transformer (row 1), counted on the built models.
"""

import argparse
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Sequence

import torch.nn as nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fairseq import options  # noqa: E402
from fairseq.data import Dictionary  # noqa: E402
from fairseq.models import ARCH_MODEL_REGISTRY  # noqa: E402

import informer_fairseq  # noqa: E402, F401  (registers the architectures)

FLAGS = Path(__file__).resolve().parent / "flags"
LAYERS = re.compile(r"(encoder|decoder)\.layer_composition\.")
HEADS = re.compile(r"\.(out_proj|head_composition)\.")


def build(system: str, arch: str, types: int) -> nn.Module:
    """Builds the model that ``fairseq-train`` would build from a system's flags, embeddings shared."""
    words = Dictionary()
    for number in range(types - len(words)):
        words.add_symbol(f"w{number}")
    flags = (FLAGS / f"{system}.txt").read_text(encoding="utf-8").split()
    args = options.parse_args_and_arch(
        options.get_training_parser(), ["no-data", "--arch", arch, "--share-all-embeddings", *flags]
    )
    task: Any = SimpleNamespace(
        source_dictionary=words, target_dictionary=words, datasets={}, load_dataset=lambda *_: None
    )
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def count_parts(model: nn.Module) -> Dict[str, int]:
    """Numbers in the whole model, in what composes its heads, and in what composes its layers."""
    counts = {"all": 0, "heads": 0, "layers": 0}
    for name, parameter in model.named_parameters():
        counts["all"] += parameter.numel()
        if LAYERS.match(name):
            counts["layers"] += parameter.numel()
        elif HEADS.search(name):
            counts["heads"] += parameter.numel()
    return counts


def table(systems: Sequence[str], arch: str, types: int) -> List[str]:
    """Markdown lines; differences are to row 1, the Transformer."""
    stock = count_parts(build("row1", arch, types))
    lines = ["| flag set | parameters | heads add | layers add | together |", "|---|---|---|---|---|"]
    for system in systems:
        counts = stock if system == "row1" else count_parts(build(system, arch, types))
        added = [counts[part] - stock[part] for part in ("heads", "layers", "all")]
        lines.append(f"| {system} | {counts['all']:,} | " + " | ".join(f"{number:+,}" for number in added) + " |")
    return lines


def main(argv: Optional[Sequence[str]] = None) -> None:
    """The command-line tool."""
    known = sorted(file.stem for file in FLAGS.glob("*.txt"))
    known.sort(key=lambda name: (not name.startswith("row"), [int(part) for part in re.findall(r"\d+", name)], name))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", default=known, choices=known, metavar="SYSTEM", help="of flags/ (all)")
    parser.add_argument("--arch", default="ni_transformer", help="ni_transformer, or ni_transformer_big")
    parser.add_argument("--types", type=int, default=32000, help="of the joint dictionary (32000)")
    args = parser.parse_args(argv)
    print("\n".join(table(args.systems, args.arch, args.types)))


if __name__ == "__main__":
    main()
