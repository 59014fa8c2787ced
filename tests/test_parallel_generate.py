"""fairseq-generate in several processes: the same lines as one, in the order of the set."""

import re

import pytest

from informer_fairseq.parallel_generate import main, merge
from tests.test_command_line import USER_DIR, run_generate, run_train


def test_lines_come_in_the_order_of_the_set():
    first = "INFO\nS-2\ta\nH-2\t-1\tb\u2028c\nD-2\t-1\td\nS-0\te\nGenerate test with beam=1\n"
    assert merge([first, "S-1\tf\nH-1\t-0.5\tg\n"]) == [
        "S-0\te",
        "S-1\tf",
        "H-1\t-0.5\tg",
        "S-2\ta",
        "H-2\t-1\tb\u2028c",
        "D-2\t-1\td",
    ]


def test_a_sentence_twice_or_not_at_all_is_refused():
    with pytest.raises(ValueError, match="sentence 1 was translated by two shards"):
        merge(["S-0\ta\nS-1\tb\n", "S-1\tb\n"])
    with pytest.raises(ValueError, match="1 sentences have no translation, the first is 1: pass --required-batch"):
        merge(["S-0\ta\n", "S-2\tb\n"])


def test_two_processes_translate_as_one(data_bin, tmp_path, capsys):
    run_train(data_bin, tmp_path / "run", "informer_mt_tiny", "--max-epoch", "1")
    path = tmp_path / "run/checkpoint1.pt"
    alone = run_generate(data_bin, path, "--batch-size", "4", "--beam", "2", output=tmp_path / "alone")
    capsys.readouterr()
    options = [str(data_bin[0]), "--user-dir", USER_DIR, "--path", str(path), "--batch-size", "4", "--beam", "2"]
    options += ["--cpu", "--required-batch-size-multiple", "1"]
    assert main([*options, "--processes", "2", "--output", str(tmp_path / "both.out")]) == 0
    lines = (tmp_path / "both.out").read_text(encoding="utf-8").splitlines()
    found = [re.match(r"H-(\d+)\t\S+\t(.*)", line) for line in lines if line.startswith("H-")]
    assert [int(match[1]) for match in found] == list(range(23))
    assert {int(match[1]): match[2] for match in found} == {number: text for number, (text, _) in alone.items()}

    few = [*options, "--batch-size", "64", "--processes", "2"]  # one batch: nothing is left for the second process
    capsys.readouterr()
    assert main([*few, "--shard", "1"]) == 0
    assert capsys.readouterr().out == ""

    assert (
        main(["no-such-folder", "--path", str(path), "--processes", "2", "--output", str(tmp_path / "none.out")]) == 2
    )
    assert capsys.readouterr().err.startswith("parallel_generate: error: shard 0 of 2 failed: ")
    assert not (tmp_path / "none.out").exists()


def test_one_file_for_all_shards_is_refused(capsys):
    assert main(["data-bin", "--path", "x.pt", "--results-path", "out"]) == 2
    assert "--results-path is one file for all shards: use --output FILE" in capsys.readouterr().err


def test_numbers_of_processes_below_one_are_refused(capsys):
    assert main(["data-bin", "--path", "x.pt", "--processes", "0"]) == 2
    assert "--processes 0 is below 1" in capsys.readouterr().err
