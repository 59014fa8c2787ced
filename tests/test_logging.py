"""Logging: our functions leave fairseq's as it was, and a command that runs in one test writes nothing in the next."""

import logging

import pytest
from fairseq.utils import reset_logging

from informer_fairseq.tools.models import load_model
from preprocess.binarize import binarize
from tests.support.checkpoints import save_small
from tests.support.logs import logging_as_before


def test_a_command_that_takes_the_logging_over_gives_it_back(capsys):
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with logging_as_before():
        reset_logging()  # what fairseq-validate begins with
        logging.getLogger("tests").info("on the captured stdout")
        assert root.handlers != handlers and root.level == logging.INFO
    assert (root.handlers, root.level) == (handlers, level)
    assert "on the captured stdout" in capsys.readouterr().out
    logging.getLogger("fairseq").warning("after it")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "switch_off", [logging.disable, logging.getLogger("fairseq").setLevel], ids=["everywhere", "one logger"]
)
def test_what_switches_the_logging_off_is_undone(caplog, switch_off):
    with logging_as_before():
        switch_off(logging.CRITICAL)
        logging.getLogger("fairseq").error("unheard")
    logging.getLogger("fairseq").error("heard")
    assert [record.getMessage() for record in caplog.records] == ["heard"]


def test_our_functions_leave_fairseqs_logging_as_it_was(data_bin, tmp_path):
    logger = logging.getLogger("fairseq")
    logger.setLevel(logging.DEBUG)
    save_small(tmp_path / "model.pt", data_bin[0], "informer_mt")
    load_model(tmp_path / "model.pt", data_bin[0])
    assert logger.level == logging.DEBUG
    binarize(tmp_path / "bin", ["en", "vi"], {"train": str(data_bin[1] / "valid")}, {})
    assert logger.level == logging.DEBUG
