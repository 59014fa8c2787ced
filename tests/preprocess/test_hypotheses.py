"""Hypotheses: exactly one for each source line, in its order."""

import pytest

from preprocess.files import InputError
from preprocess.hypotheses import main, read_hypotheses

GENERATED = """S-1\ta b
T-1\tx
H-1\t-0.5\txin ch@@ ào
D-1\t-0.5\txin chào
P-1\t-0.1 -0.2
H-0\t-0.25\t&quot; một &quot; , hai .
H-2\t-1.0\t
Generate test with beam=1: BLEU4 = 0.00
"""


def test_sorted_by_id_with_empty_ones_kept():
    assert read_hypotheses(GENERATED.split("\n"), 3, "x") == ["&quot; một &quot; , hai .", "xin ch@@ ào", ""]


@pytest.mark.parametrize("line", ["H-2\t-1.0\t", "H-2\t-1.0"])
def test_an_empty_hypothesis_is_a_hypothesis(line):
    assert read_hypotheses(["H-1\t0\ta", "H-0\t0\tb", line], 3, "x") == ["b", "a", ""]


def test_tabs_in_a_hypothesis_stay():
    assert read_hypotheses(["H-0\t0\ta\tb"], 1, "x") == ["a\tb"]


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (4, r"x has 3 hypotheses for 4 source lines: none for 3 \(without --required-batch-size-multiple 1"),
        (2, r"x has 3 hypotheses for 2 source lines: some for 2, which the source does not have"),
        (20, r"none for 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 7 more"),
    ],
)
def test_missing_and_extra_ids_are_named(count, message):
    with pytest.raises(InputError, match=message):
        read_hypotheses(GENERATED.split("\n"), count, "x")


def test_two_for_one_line_and_garbage():
    with pytest.raises(InputError, match=r"more than one for 1 \(use --nbest 1"):
        read_hypotheses((GENERATED + "H-1\t-2\tb\n").split("\n"), 3, "x")
    with pytest.raises(InputError, match="x, line 1, is no hypothesis of fairseq-generate: 'H-no'"):
        read_hypotheses(["H-no"], 1, "x")


def test_file_is_restored_and_detokenised(write, tmp_path):
    source, generated, output = write("s", "1\n2\n3\n"), write("g", GENERATED), tmp_path / "out"
    files = ["--input", str(generated), "--source", str(source), "--output", str(output)]
    main([*files, "--method", "bpe"])
    assert output.read_text(encoding="utf-8") == "&quot; một &quot; , hai .\nxin chào\n\n"
    main([*files, "--method", "bpe", "--detokenize", "vi"])
    assert output.read_text(encoding="utf-8") == '"một", hai.\nxin chào\n\n'


def test_wrong_method_or_count_leaves_no_file(write, tmp_path):
    generated = str(write("g", GENERATED))
    for options in (("--method", "sentencepiece", "--lines", "3"), ("--method", "bpe", "--lines", "4")):
        with pytest.raises(InputError):
            main(["--input", generated, "--output", str(tmp_path / "out"), *options])
    assert not (tmp_path / "out").exists()
