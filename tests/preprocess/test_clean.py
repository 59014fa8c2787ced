"""Cleaning: one kind of space, NFC, dropped pairs counted by reason."""

import gzip
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.clean import clean_pairs, main, normalise, normalise_spaces, parse_limits
from preprocess.files import InputError

ODD = [*range(0x20), *range(0x7F, 0xA1), 0x1680, *range(0x2000, 0x200C), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF]


@pytest.mark.parametrize("code", ODD, ids=lambda code: f"U+{code:04X}")
def test_odd_character_becomes_one_space(code):
    odd = chr(code)
    assert normalise_spaces(f"{odd} a{odd}{odd}b {odd}") == "a b"


def test_everything_that_python_or_fairseq_splits_at_is_a_space():
    # fairseq splits words at Python's \s, and str.splitlines at a subset of the same characters.
    left = [
        f"U+{code:04X}"
        for code in range(sys.maxunicode + 1)
        if chr(code).isspace() and normalise_spaces(f"a{chr(code)}b") != "a b"
    ]
    assert left == []


@pytest.mark.parametrize("kept", ["\u200c", "\u200d", "\u00ad"])
def test_joiners_and_soft_hyphen_stay(kept):
    assert normalise_spaces(f"a{kept}b") == f"a{kept}b"


def test_decomposed_vietnamese_is_composed():
    composed = "Tiếng Việt nghiêng ngả"
    decomposed = unicodedata.normalize("NFD", composed)
    assert decomposed != composed
    assert normalise(decomposed) == composed
    assert normalise(decomposed, "none") == decomposed


@given(st.text())
def test_normalising_twice_changes_nothing_more(text):
    once = normalise(text)
    assert normalise(once) == once
    assert once.split() == [word for word in once.split(" ") if word]


def corpus(write, name="x", source="a b c\n", target="x y z\n"):
    write(f"{name}.en", source)
    return str(write(f"{name}.vi", target))[: -len(".vi")]


SOURCE = "one two\r\n\u00a0\nfine\nof four words here\nshort\nCRLF end\r\n"
TARGET = "một\nhai\n\ufeff\nba\na b c d e\nhết\n"


def test_dropped_pairs_are_counted_by_reason(write, tmp_path, capsys):
    prefix = corpus(write, source=SOURCE, target=TARGET)
    main(["--input", prefix, "--output", str(tmp_path / "out/y"), "--languages", "en", "vi", "--max-words", "3", "4"])
    assert (tmp_path / "out/y.en").read_bytes() == b"one two\nCRLF end\n"
    assert (tmp_path / "out/y.vi").read_text(encoding="utf-8") == "một\nhết\n"
    assert capsys.readouterr().out == (
        "y: 6 pairs read, 2 kept, 2 with an empty side, 2 too long (over 3 source / 4 target words), "
        "4 lines normalised\n"
    )


def test_test_sets_keep_every_pair(write, tmp_path, capsys):
    prefix = corpus(write, source=SOURCE, target=TARGET)
    options = ["--languages", "en", "vi", "--max-words", "3", "--keep-all"]
    main(["--input", prefix, "--output", str(tmp_path / "y"), *options])
    assert (tmp_path / "y.en").read_text() == "one two\n\nfine\nof four words here\nshort\nCRLF end\n"
    assert (tmp_path / "y.vi").read_text(encoding="utf-8") == "một\nhai\n\nba\na b c d e\nhết\n"
    assert "6 pairs read, all kept, 2 with an empty side, 2 too long" in capsys.readouterr().out


def test_a_line_at_the_limit_stays_and_zero_is_no_limit():
    words = "w " * 5
    assert clean_pairs([words], [words], (5, 5)).too_long == 0
    assert clean_pairs([words], [words], (4, 5)).too_long == 1
    assert clean_pairs([words], [words], (5, 4)).too_long == 1
    assert clean_pairs([words * 1000], [words], (0, 0)).source == [" ".join(["w"] * 5000)]
    assert parse_limits([7], "--max-words") == (7, 7)
    with pytest.raises(ValueError, match="2 source lines but 1 target lines"):
        clean_pairs(["a", "b"], ["x"])
    for wrong in ([-1], [1, 2, 3]):
        with pytest.raises(InputError, match="--max-words takes one limit"):
            parse_limits(wrong, "--max-words")


def test_stray_line_ends_add_no_line(write, tmp_path):
    source = "a\rb\nc\x85d\ne\u2028f\n"
    prefix = corpus(write, source=source, target="1\n2\n3\n")
    main(["--input", prefix, "--output", str(tmp_path / "y"), "--languages", "en", "vi"])
    assert (tmp_path / "y.en").read_bytes() == b"a b\nc d\ne f\n"
    assert (tmp_path / "y.vi").read_bytes() == b"1\n2\n3\n"


def test_gz_input(tmp_path):
    for language in ("en", "vi"):
        (tmp_path / f"x.{language}.gz").write_bytes(gzip.compress(f"{language}\u3000word\n".encode()))
    main(["--input", str(tmp_path / "x"), "--output", str(tmp_path / "y"), "--languages", "en", "vi"])
    assert (tmp_path / "y.en").read_text() == "en word\n"


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\n", "x\n", "has 2 lines but .* has 1: a parallel corpus needs one line on each side"),
        ("", "x\n", "is empty"),
        ("\n\n", "x\ny\n", "is empty"),
        ("a b c d\n", "x\n", r"no pair of .* is left: 0 have an empty side, 1 are over 3 source / 3 target words"),
    ],
)
def test_what_does_not_fit_leaves_no_output(write, tmp_path, source, target, message):
    prefix = corpus(write, source=source, target=target)
    with pytest.raises(InputError, match=message):
        main(["--input", prefix, "--output", str(tmp_path / "y"), "--languages", "en", "vi", "--max-words", "3"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.en", "x.vi"]


def test_command_line_error_is_one_line(run, tmp_path):
    done = run("clean.py", "--input", tmp_path / "x", "--output", tmp_path / "y", "--languages", "en", "vi")
    assert done.returncode == 2
    assert done.stderr.decode() == (
        f"clean.py: error: no such file: {tmp_path}/x.en (nor x.en.gz); check the prefix and the language\n"
    )
