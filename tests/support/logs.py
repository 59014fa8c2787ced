"""What a command does to Python's logging, undone."""

import logging
from contextlib import contextmanager


@contextmanager
def logging_as_before():
    """After the body, logging has the handlers, the level and the switch (``logging.disable``) that it had before it.

    ``fairseq-validate`` has the root logger write to the ``sys.stdout`` of the moment: in a test the captured one,
    which is closed at its end; every line logged later in the process then becomes a traceback on stderr.
    """
    root = logging.getLogger()
    handlers, level, disabled = list(root.handlers), root.level, root.manager.disable
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.disable(disabled)
