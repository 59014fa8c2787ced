import subprocess
import sys

import pytest

from informer_fairseq.errors import InputError, one_line_message, show_errors_in_one_line


def test_ours_is_found_behind_fairseqs_wrapping():
    try:
        try:
            raise InputError("n is 200, not 400")
        except InputError as error:
            raise Exception("please ensure that the architectures match") from error
    except Exception as error:
        assert one_line_message(error) == "n is 200, not 400"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("a"), "a"),
        (FileNotFoundError(2, "No such file", "data-bin/dict.en.txt"), "no such file: data-bin/dict.en.txt"),
        (
            Exception("Size of sample #3 is invalid (=(201, 5)) since max_positions=(200, 1024), skip this example"),
            "Size of sample #3 is invalid (=(201, 5)) since max_positions=(200, 1024), skip this example",
        ),
        (OSError("Model file not found: a.pt"), "Model file not found: a.pt"),
        (FileNotFoundError(2, "No such file", "vectors.txt"), "no such file: vectors.txt; check the path"),
        (IsADirectoryError(21, "Is a directory", "checkpoints"), "checkpoints is a folder: give a file"),
        (ValueError("Incorrect dictionary format,\n expected"), "Incorrect dictionary format, expected; use the dict"),
        (AssertionError("--path required for generation!"), "--path required for generation!"),
        (FileNotFoundError("Dataset not found: valid (data-bin)"), "Dataset not found: valid (data-bin)"),
        (Exception("Could not infer language pair, please provide it explicitly"), "Could not infer language pair"),
        (ValueError("--share-all-embeddings requires a joined dictionary"), "--share-all-embeddings requires a joined"),
    ],
)
def test_expected_failures_are_told_in_one_line(error, message):
    assert one_line_message(error).startswith(message)


@pytest.mark.parametrize("error", [ValueError("a defect"), RuntimeError("shape"), KeyError("x"), Exception("other")])
def test_defects_keep_their_traceback(error):
    assert one_line_message(error) is None


def test_other_programs_keep_their_hook():
    before = sys.excepthook
    show_errors_in_one_line()
    assert sys.excepthook is before


def test_a_fairseq_command_ends_with_one_line(tmp_path):
    command = [sys.executable, "-m", "fairseq_cli.train", str(tmp_path), "--arch", "informer_mt"]
    command += ["--user-dir", "informer_fairseq", "--encoder-reduced-length", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        done.stderr.strip().splitlines()[-1].startswith("fairseq-train: error: --encoder-fixed-length 200 is not div")
    )
    assert "Traceback" not in done.stderr
