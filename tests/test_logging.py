"""Logging across tests: a command that runs in one test writes nothing in the next."""

import logging

from fairseq.utils import reset_logging

from tests.support.logs import root_logger_kept


def test_a_command_that_takes_the_logging_over_gives_it_back(capsys):
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with root_logger_kept():
        reset_logging()  # what fairseq-validate begins with
        logging.getLogger("fairseq").info("on the captured stdout")
        assert root.handlers != handlers and root.level == logging.INFO
    assert (root.handlers, root.level) == (handlers, level)
    assert "on the captured stdout" in capsys.readouterr().out
    logging.getLogger("fairseq").warning("after it")
    assert capsys.readouterr() == ("", "")
