"""What a command does to Python's logging, undone."""

import logging
from contextlib import contextmanager


@contextmanager
def root_logger_kept():
    """Gives the root logger the handlers and the level back that it has before the body.

    ``fairseq-validate`` has the root logger write to the ``sys.stdout`` of the moment: in a test the captured one,
    which is closed at its end; every line logged later in the process then becomes a traceback on stderr.
    """
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
