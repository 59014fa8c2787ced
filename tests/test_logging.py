"""Logging across tests: a command that runs in one test writes nothing in the next."""

import logging

from fairseq.utils import reset_logging

from tests.support.logs import logging_as_before


def test_a_command_that_takes_the_logging_over_gives_it_back(capsys):
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with logging_as_before():
        reset_logging()  # what fairseq-validate begins with
        logging.getLogger("fairseq").info("on the captured stdout")
        assert root.handlers != handlers and root.level == logging.INFO
    assert (root.handlers, root.level) == (handlers, level)
    assert "on the captured stdout" in capsys.readouterr().out
    logging.getLogger("fairseq").warning("after it")
    assert capsys.readouterr() == ("", "")


def test_what_switches_the_logging_off_is_undone(caplog):
    with logging_as_before():
        logging.disable(logging.CRITICAL)
        logging.getLogger("fairseq").error("unheard")
    logging.getLogger("fairseq").error("heard")
    assert [record.getMessage() for record in caplog.records] == ["heard"]
