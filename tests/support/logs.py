"""What a command does to Python's logging, undone."""

import logging
from contextlib import contextmanager


@contextmanager
def logging_as_before():
    """After the body, logging has the handlers, the levels and the switch (``logging.disable``) that it had before it.

    ``fairseq-validate`` has the root logger write to the ``sys.stdout`` of the moment: in a test the captured one,
    which is closed at its end; every line logged later in the process then becomes a traceback on stderr.
    """
    disabled = logging.root.manager.disable
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    state = [(logger, list(logger.handlers), logger.level) for logger in loggers if isinstance(logger, logging.Logger)]
    try:
        yield
    finally:
        logging.disable(disabled)
        for logger, handlers, level in state:
            if logger.handlers != handlers:
                logger.handlers[:] = handlers
            if logger.level != level:
                logger.setLevel(level)
