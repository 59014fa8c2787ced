"""The embedded corpus: the same every time, held-out lines unseen, their words seen, text clean."""

import json
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

import build_corpus
import pytest
from cldr_parts import Pair, languages, sayable, spelled, territories, without_ambiguity

from preprocess.files import InputError

SPLITS, SIDES = ("train", "valid", "test"), ("en", "vi")
PAIRS = 2000


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The folder of a corpus and its lines by (split, language)."""
    folder = tmp_path_factory.mktemp("corpus")
    build_corpus.main(["--output", str(folder), "--pairs", str(PAIRS), "--seed", "5"])
    lines = {
        (split, side): (folder / f"{split}.{side}").read_text(encoding="utf-8").split("\n")[:-1]
        for split in SPLITS
        for side in SIDES
    }
    return folder, lines


def test_same_settings_give_the_same_bytes_and_another_seed_does_not(corpus, tmp_path):
    folder, _ = corpus
    script = str(Path(build_corpus.__file__))
    for name, seed in (("same", "5"), ("other", "6")):
        command = [sys.executable, script, "--output", str(tmp_path / name), "--pairs", str(PAIRS), "--seed", seed]
        subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    files = sorted(path.name for path in folder.iterdir())
    assert files == sorted([f"{split}.{side}" for split in SPLITS for side in SIDES] + ["corpus.json"])
    assert all((folder / name).read_bytes() == (tmp_path / "same" / name).read_bytes() for name in files)
    assert (folder / "train.en").read_bytes() != (tmp_path / "other" / "train.en").read_bytes()


def test_sizes_are_as_asked_and_recorded(corpus):
    folder, lines = corpus
    facts = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    assert facts["pairs"] == {"train": PAIRS - 200, "valid": 100, "test": 100}
    assert all(len(lines[split, side]) == facts["pairs"][split] for split in SPLITS for side in SIDES)
    assert sum(facts["kinds"].values()) == PAIRS and all(count > 0 for count in facts["kinds"].values())
    assert set(facts["packages"]) == {"babel", "num2words", "sacremoses"} and all(facts["packages"].values())


@pytest.mark.parametrize("side", SIDES)
def test_no_line_occurs_twice_in_the_whole_corpus(corpus, side):
    _, lines = corpus
    every = [line for split in SPLITS for line in lines[split, side]]
    assert len(set(every)) == len(every) == PAIRS


@pytest.mark.parametrize("side", SIDES)
def test_every_held_out_word_occurs_in_training(corpus, side):
    _, lines = corpus
    known = {word for line in lines["train", side] for word in line.split(" ")}
    for split in ("valid", "test"):
        assert {word for line in lines[split, side] for word in line.split(" ")} <= known


def test_text_is_normal_form_c_with_single_plain_spaces(corpus):
    _, lines = corpus
    for line in (line for some in lines.values() for line in some):
        assert line and unicodedata.is_normalized("NFC", line)
        assert line.split(" ") == line.split(), f"odd spaces in {line!r}"
        assert line.isprintable()


def test_punctuation_is_apart_and_comes_back(corpus):
    _, lines = corpus
    moses = build_corpus.Moses()
    for pair in map(Pair, lines["test", "en"], lines["test", "vi"]):
        assert not any(mark in word for text in pair for word in text.split() for mark in ",()" if len(word) > 1)
        plain = moses.detokenize(pair)
        assert moses.tokenize(plain) == pair
        assert not any(odd in text for text in plain for odd in (" ,", "( ", " )"))


def test_names_have_one_translation_each():
    for table in (territories(), languages()):
        assert len({name.en for name in table}) == len(table) > 150
    pairs = [Pair("a b", "c"), Pair("a b", "d"), Pair("e", "f"), Pair("g, h", "i")]
    assert without_ambiguity(pairs) == [Pair("e", "f")]


DIGITS = {word: value for value, word in enumerate("không một hai ba bốn năm sáu bảy tám chín".split())}


def read_below_hundred(words):
    """Reads "mười lăm", "hai mươi mốt" or one digit, with the sound changes that Vietnamese demands."""
    if len(words) == 1 and words[0] in DIGITS:
        return DIGITS[words[0]]
    if words[0] == "mười":
        tens, rest = 1, words[1:]
        ones = {word: value for word, value in DIGITS.items() if value not in (0, 5)}
    else:
        assert words[1] == "mươi" and DIGITS[words[0]] >= 2, words
        tens, rest = DIGITS[words[0]], words[2:]
        ones = {**{word: value for word, value in DIGITS.items() if value not in (0, 1, 5)}, "mốt": 1}
    ones["lăm"] = 5
    assert len(rest) <= 1, words
    return 10 * tens + (ones[rest[0]] if rest else 0)


def read_group(words, first):
    """Reads up to three digits; only the first group of a number may leave out its hundreds."""
    if "trăm" not in words:
        assert first, words
        return read_below_hundred(words)
    assert words[1] == "trăm" and DIGITS[words[0]] > 0, words
    rest = words[2:]
    if rest and rest[0] == "lẻ":
        assert len(rest) == 2 and DIGITS[rest[1]] > 0, words
        return 100 * DIGITS[words[0]] + DIGITS[rest[1]]
    assert len(rest) != 1 or rest == ["mười"], words
    return 100 * DIGITS[words[0]] + (read_below_hundred(rest) if rest else 0)


def read_vietnamese(text):
    """Reads a Vietnamese number name strictly: whole groups of three digits, none of them left out in the middle."""
    words, value, scales = text.split(), 0, {"triệu": 1_000_000, "nghìn": 1_000}
    group, first = [], True
    for word in words:
        if word in scales:
            value += read_group(group, first) * scales[word]
            group, first = [], False
        else:
            group.append(word)
    return value + (read_group(group, first) if group else 0)


def test_vietnamese_number_names_read_back():
    numbers = [*range(1000), *random.Random(3).sample(range(1000, 100_000), 4000)]
    numbers += random.Random(4).sample(range(100_000, 10_000_000), 2000)
    names = {number: spelled(number).vi for number in numbers if sayable(number)}
    assert len(names) > 5000
    assert all(read_vietnamese(name) == number for number, name in names.items())


def test_numbers_that_num2words_says_wrongly_are_not_used():
    for number in (1001, 1010, 2024, 100_050, 1_000_100, 1_050_000, 1_100_005):
        assert not sayable(number)
    for number in (0, 7, 105, 1000, 1100, 12_345, 101_000, 2_000_000, 1_100_000, 9_999_999):
        assert sayable(number) and read_vietnamese(spelled(number).vi) == number
    with pytest.raises((AssertionError, KeyError)):  # what "two thousand and twenty-four" would be
        read_vietnamese("hai nghìn lẻ hai mươi bốn")


def test_wrong_sizes_are_refused_in_one_line(tmp_path, capsys):
    for pairs in ("10", "100001"):
        with pytest.raises(InputError, match=f"--pairs {pairs} is out of range: give 500 to 100000"):
            build_corpus.main(["--output", str(tmp_path), "--pairs", pairs])
    assert not any(tmp_path.iterdir())


def test_an_interrupted_build_leaves_no_file_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "train.en").write_text("before\n", encoding="utf-8")

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(build_corpus, "split_pairs", fail)
    with pytest.raises(KeyboardInterrupt):
        build_corpus.main(["--output", str(tmp_path), "--pairs", "500"])
    assert [path.name for path in tmp_path.iterdir()] == ["train.en"]
    assert (tmp_path / "train.en").read_text(encoding="utf-8") == "before\n"
