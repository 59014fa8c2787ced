"""fairseq-generate on all cores: one process a core, each with a share of the batches, the output in the set's order.

    python -m informer_fairseq.parallel_generate data-bin --path checkpoint_best.pt --beam 5 > generate.out

Every option but the two of this tool goes to fairseq-generate as it is; its lines come out as it would print them, but
sentence by sentence in the order of the set. Small models gain most: their matrix products are too small for threads.

(fairseq's own --num-shards has no effect in fairseq-generate: it shards by the rank of a process among several GPUs.)
"""

import argparse
import multiprocessing
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import torch

from informer_fairseq.errors import InputError, one_line_message
from informer_fairseq.tools.files import write_file

_LINE = re.compile(r"[A-Z]-(\d+)\t")


def merge(outputs: Sequence[str]) -> List[str]:
    """Brings the lines of several shards into the order of the set.

    Args:
        outputs: what fairseq-generate printed, one text a shard.

    Returns:
        The lines that belong to sentences (``S-0``, ``H-0`` and so on), by sentence.

    Raises:
        InputError: two shards translated the same sentence, or there are gaps in the ids.
    """
    sentences: Dict[int, List[str]] = {}
    for text in outputs:
        own: Dict[int, List[str]] = {}
        for line in text.split("\n"):  # not splitlines(): a sentence may hold other line separators
            found = _LINE.match(line)
            if found:
                own.setdefault(int(found.group(1)), []).append(line)
        twice = sorted(own.keys() & sentences.keys())
        if twice:
            raise InputError(f"sentence {twice[0]} was translated by two shards")
        sentences.update(own)
    missing = sorted(set(range(max(sentences, default=-1) + 1)) - sentences.keys())
    if missing:
        raise InputError(
            f"{len(missing)} sentences have no translation, the first is {missing[0]}: pass "
            "--required-batch-size-multiple 1, and do not skip over-long lines"
        )
    return [line for number in sorted(sentences) for line in sentences[number]]


def translate(options: Sequence[str], processes: int) -> List[str]:
    """Runs fairseq-generate in ``processes`` shards of one thread each and returns the merged lines.

    Raises:
        InputError: a shard failed; its own last line is the message.
    """
    # A fork has torch and fairseq loaded already, half the time of a small set; it is safe as long as the shards use no
    # threads, and CUDA does not outlive it.
    forks = sys.platform == "linux" and ("--cpu" in options or not torch.cuda.is_available())
    if forks:
        from fairseq_cli import generate  # noqa: F401  (before the forks)
    context: Any = multiprocessing.get_context("fork" if forks else "spawn")
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder) / f"{number}.out" for number in range(processes)]
        logs = [Path(folder) / f"{number}.log" for number in range(processes)]
        shards = [
            context.Process(target=_run_child, args=(list(options), number, processes, outputs[number], logs[number]))
            for number in range(processes)
        ]
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            for shard in shards:
                shard.start()
            for number, shard in enumerate(shards):
                shard.join()
                if shard.exitcode != 0:
                    lines = logs[number].read_text(encoding="utf-8", errors="replace").split("\n")
                    last = next((line for line in reversed(lines) if line.strip()), f"exit status {shard.exitcode}")
                    raise InputError(f"shard {number} of {processes} failed: {last.strip()}")
        finally:
            for shard in shards:  # one failed, or the user pressed Ctrl-C: the others must not go on alone
                if shard.is_alive():
                    shard.kill()
                    shard.join()
        return merge([output.read_text(encoding="utf-8") for output in outputs])


def _run_child(options: List[str], number: int, processes: int, output: Path, log: Path) -> None:
    """One shard in a process of its own, its standard output and error in files."""
    for name, path, descriptor in (("stdout", output, 1), ("stderr", log, 2)):
        handle = open(path, "w", encoding="utf-8")  # noqa: SIM115  (until the process ends)
        os.dup2(handle.fileno(), descriptor)
        setattr(sys, name, handle)
    torch.set_num_threads(1)
    sys.exit(main(["--shard", str(number), "--processes", str(processes), *options]))


def run_shard(options: Sequence[str], number: int, processes: int) -> None:
    """Translates one shard in this process: every ``processes``-th batch, from batch ``number`` on."""
    from fairseq import options as fairseq_options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq_cli import generate

    args = fairseq_options.parse_args_and_arch(fairseq_options.get_generation_parser(), list(options))
    cfg = convert_namespace_to_omegaconf(args)
    # What fairseq-generate takes its share of the batches by; no process group is joined.
    cfg.distributed_training.distributed_world_size = processes
    cfg.distributed_training.distributed_rank = number
    try:
        generate.main(cfg)
    except ZeroDivisionError as error:
        # A set of fewer batches than processes: fairseq divides by the time that no sentence took.
        last = traceback.extract_tb(error.__traceback__)[-1]
        if Path(last.filename) != Path(str(generate.__file__)):
            raise


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The command-line tool; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--processes", type=int, default=cores, metavar="N", help=f"processes (the cores: {cores})")
    parser.add_argument("--shard", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--output", metavar="FILE", help="write here, whole or not at all (stdout)")
    args, options = parser.parse_known_args(argv)
    try:
        if args.processes < 1:
            raise InputError(f"--processes {args.processes} is below 1: give 1 or more")
        if not options:
            raise InputError("no options for fairseq-generate: give at least the data-bin and --path")
        if any(option.split("=")[0] == "--results-path" for option in options):
            raise InputError("--results-path is one file for all shards: use --output FILE")
        if args.shard is not None:
            run_shard(options, args.shard, args.processes)
            return 0
        text = "".join(line + "\n" for line in translate(options, args.processes))
        if args.output:
            write_file(args.output, text)
        else:
            sys.stdout.write(text)
    except Exception as error:
        message = one_line_message(error)
        if message is None:
            raise
        print(message if args.shard is not None else f"parallel_generate: error: {message}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
