"""Counts parameters, whole and by part, and multiply-adds of the encoder, for architectures or checkpoints.

    informer-fairseq params --arch conv_linformer_mt informer_mt
    informer-fairseq params --arch transformer 'informer_mt --encoder-fixed-length 400' --encoder-layers 3
    informer-fairseq params --checkpoint checkpoint_best.pt

Every other flag goes to fairseq's model as fairseq-train would take it, for all architectures; flags of one are quoted
together with its name. Shared weights count once, where the model holds them first (a target embedding that is also the
output projection is an embedding). Composition holds what composes heads and layers, the successor of W_O included.
The last column is the forward pass of the encoder, per source token, over sentences of --length tokens.
"""

import argparse
import shlex
from typing import Any, Dict, List, Sequence

from informer_fairseq.errors import InputError
from informer_fairseq.tools import model_costs
from informer_fairseq.tools.files import check_outputs, table, write_json

PASSES_FLAGS_ON = True
MULTIPLY_ADDS = "multiply-adds per source token"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommand's flags."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--arch", nargs="+", metavar="NAME", help="architectures, or quoted: 'NAME --flag value ...'")
    what.add_argument("--checkpoint", nargs="+", metavar="FILE", help="fairseq checkpoints, at their own sizes")
    parser.add_argument("--source-types", type=int, metavar="N", help="source dictionary (17191: the Informer paper's)")
    parser.add_argument("--target-types", type=int, metavar="N", help="target dictionary (7709: the Informer paper's)")
    parser.add_argument("--length", type=int, default=20, metavar="T", help="source tokens of the counted pass (20)")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers here")


def run(args: argparse.Namespace) -> None:
    """Prints the table."""
    check_outputs(args.json)
    rows = collect(args)
    parts = [part for part in model_costs.PARTS if part != "encoder, other" or any(row[part] for row in rows)]
    columns = ["total", "trainable", *parts, MULTIPLY_ADDS]
    cells = [["model", *columns], *([row["model"], *(_number(row[name]) for name in columns)] for row in rows)]
    differences = []
    for row in rows[1:]:
        difference = {"model": f"{row['model']} - {rows[0]['model']}", **{n: row[n] - rows[0][n] for n in columns}}
        differences.append(difference)
        cells.append([difference["model"], *(_signed(difference[name]) for name in columns)])
    write_json(args.json, {"length": args.length, "models": rows, "differences": differences})
    print("\n".join(table(cells)))


def collect(args: argparse.Namespace) -> List[Dict[str, Any]]:
    """One row a model: its name, its counts by part, and the encoder's multiply-adds per source token.

    Raises:
        InputError: flags that do not fit together, or what building and counting refuse.
    """
    flags: Sequence[str] = args.flags
    if args.checkpoint:
        given = [name for name in ("source_types", "target_types") if getattr(args, name) is not None]
        if given or flags:
            word = flags[0] if flags else "--" + given[0].replace("_", "-")
            raise InputError(
                f"{word} has no use with --checkpoint: a checkpoint has its own flags and dictionary sizes"
            )
        return [_row(path, model_costs.build_from_checkpoint(path), args.length) for path in args.checkpoint]
    source_types = 17191 if args.source_types is None else args.source_types
    target_types = 7709 if args.target_types is None else args.target_types
    rows = []
    for entry in args.arch:
        words = shlex.split(entry)
        if not words:
            raise InputError("--arch has an empty name: give an architecture such as informer_mt")
        model = model_costs.build_from_flags(words[0], [*flags, *words[1:]], source_types, target_types)
        rows.append(_row(entry, model, args.length))
    return rows


def _row(name: str, model: Any, length: int) -> Dict[str, Any]:
    counts = model_costs.count_parameters(model)
    return {"model": name, **counts, MULTIPLY_ADDS: model_costs.encoder_multiply_adds(model, length)}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value else "-"


def _signed(value: float) -> str:
    return f"{value:+,.0f}" if value else "0"
