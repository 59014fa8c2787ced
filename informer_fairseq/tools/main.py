"""The console script ``informer-fairseq``, also ``python -m informer_fairseq``."""

import argparse
import importlib
import logging
import sys
from contextlib import contextmanager
from typing import Iterator, Optional, Sequence

from informer_fairseq.errors import one_line_message

COMMANDS = ("params", "score", "curves", "probe", "report")


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser, with the options of the subcommand that ``argv`` asks for.

    A subcommand is a module of this package with a docstring (its help), ``add_arguments(parser)`` and ``run(args)``.
    With ``PASSES_FLAGS_ON`` it takes flags that this parser does not know, as ``args.flags``.
    Only the one that runs is imported: plotting and probing libraries take seconds to load.
    """
    parser = argparse.ArgumentParser(prog="informer-fairseq", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked = next((word for word in argv if not word.startswith("-")), None)
    for name in COMMANDS:
        if asked is not None and name != asked:
            commands.add_parser(name)
            continue
        module = importlib.import_module(f"informer_fairseq.tools.{name}")
        text = module.__doc__ or ""
        command = commands.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == asked:
            module.add_arguments(command)
            passes_on = getattr(module, "PASSES_FLAGS_ON", False)
            command.allow_abbrev = not passes_on  # an abbreviation of ours may be a flag of fairseq's
            command.set_defaults(run=module.run, passes_flags_on=passes_on)
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs one subcommand; returns the exit status, 2 for an error that its user can mend."""
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser(argv)
    args, others = parser.parse_known_args(argv)
    if others and not args.passes_flags_on:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    args.flags = others
    try:
        with _without_progress_reports():
            args.run(args)
    except BrokenPipeError:
        return 1
    except Exception as error:
        message = one_line_message(error)
        if message is None:
            raise
        print(f"informer-fairseq {args.command}: error: {message}", file=sys.stderr)
        return 2
    return 0


@contextmanager
def _without_progress_reports() -> Iterator[None]:
    """Keeps what libraries report in passing out of the terminal; their warnings stay."""
    loggers = [logging.getLogger(name) for name in ("fairseq", "sacrebleu", "matplotlib")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


if __name__ == "__main__":
    sys.exit(main())
