"""Binarizing: right unknown rates, joined and given dictionaries, nothing left behind by a refusal."""

import pytest

from preprocess.binarize import binarize, split_names
from preprocess.files import InputError

TRAIN = {"en": "a b c\na b\n", "vi": "x y\nx z\n"}
VALID = {"en": "a b q q\n\n", "vi": "x\ny z\n"}
TEST = {"en": "a b c a\n", "vi": "x x w y z\n"}


@pytest.fixture
def corpus(write, tmp_path):
    """Writes the three sets and returns their prefixes."""
    for name, sides in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        for language, text in sides.items():
            write(f"text, plain/{name}.{language}", text)  # fairseq splits prefixes at commas
    return {name: str(tmp_path / "text, plain" / name) for name in ("train", "valid", "test")}


def entries(path):
    """The words of a dictionary file, without what fairseq fills it up with."""
    return sorted(
        line.split(" ")[0] for line in path.read_text(encoding="utf-8").splitlines() if "madeupword" not in line
    )


def test_unknown_rates_and_dictionaries(corpus, tmp_path, capsys):
    binarize(tmp_path / "bin", ["en", "vi"], corpus, {}, workers=2, max_unknown_rate=0.5)
    assert capsys.readouterr().out.splitlines() == [
        "dict.en.txt: 8 entries",
        "dict.vi.txt: 8 entries",
        "train.en: 2 lines, 5 words, 0 unknown (0.00%)",
        "train.vi: 2 lines, 4 words, 0 unknown (0.00%)",
        "valid.en: 2 lines, 4 words, 2 unknown (50.00%)",
        "valid.vi: 2 lines, 3 words, 0 unknown (0.00%)",
        "test.en: 1 lines, 4 words, 0 unknown (0.00%)",
        "test.vi: 1 lines, 5 words, 1 unknown (20.00%)",
    ]
    assert entries(tmp_path / "bin/dict.en.txt") == ["a", "b", "c"]
    assert entries(tmp_path / "bin/dict.vi.txt") == ["x", "y", "z"]
    assert (tmp_path / "bin/test.en-vi.vi.bin").exists()


def test_a_rate_above_the_limit_leaves_nothing(corpus, tmp_path):
    with pytest.raises(InputError) as stop:
        binarize(tmp_path / "bin", ["en", "vi"], corpus, {}, max_unknown_rate=0.49)
    assert str(stop.value) == (
        "too many unknown words, over the limit of 49.00%, in valid.en (50.00%: 2 of 4); segment every text with the "
        "model of the training text, or raise --max-unknown-rate"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["text, plain"]


def test_joined_dictionary_takes_further_text_and_serves_again(corpus, write, tmp_path):
    write("more.en", "q\n")
    more = str(write("more.vi", "w\n"))[: -len(".vi")]
    both = ["a", "b", "c", "q", "w", "x", "y", "z"]
    binarize(tmp_path / "bin", ["en", "vi"], corpus, {}, True, [more], max_unknown_rate=0.0)
    assert entries(tmp_path / "bin/dict.en.txt") == both
    assert (tmp_path / "bin/dict.en.txt").read_bytes() == (tmp_path / "bin/dict.vi.txt").read_bytes()
    # Without a training text: only the given dictionary. The old folder is replaced as a whole.
    given = {"en": str(write("kept.txt", (tmp_path / "bin/dict.en.txt").read_text()))}
    binarize(tmp_path / "bin", ["en", "vi"], {"test": corpus["test"]}, given, True, max_unknown_rate=0.0)
    assert entries(tmp_path / "bin/dict.vi.txt") == both
    assert not (tmp_path / "bin/train.en-vi.en.bin").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\rb\nc\n", r"line 1, holds U\+000D, where fairseq would split the line"),
        ("a\nb\u00a0c\n", r"line 2, holds U\+00A0, where fairseq would split"),
        ("a\nb </s> c\n", "line 2, holds the word </s>, which fairseq keeps for itself"),
        ("a\n<pad>\n", "holds the word <pad>"),
        ("a\n", "has 1 lines but .* has 2"),
    ],
)
def test_text_that_fairseq_would_read_otherwise_is_refused(corpus, write, tmp_path, text, message):
    write("text, plain/train.en", text)
    with pytest.raises(InputError, match=message):
        binarize(tmp_path / "bin", ["en", "vi"], corpus, {})
    assert not (tmp_path / "bin").exists()


def test_dictionaries_that_do_not_fit(corpus, write, tmp_path):
    def attempt(splits, given, joined=False, **more):
        binarize(tmp_path / "bin", ["en", "vi"], splits, given, joined, **more)

    test = {"test": corpus["test"]}
    first, second = str(write("one.txt", "a 1\n")), str(write("two.txt", "x 1\n"))
    with pytest.raises(InputError, match="no dictionary for en and vi: give --train"):
        attempt(test, {})
    with pytest.raises(InputError, match="no dictionary for vi: give --train"):
        attempt(test, {"en": first})
    with pytest.raises(InputError, match="no such dictionary: .*three.txt"):
        attempt(test, {"en": first, "vi": str(tmp_path / "three.txt")})
    with pytest.raises(InputError, match="differ, so they are not one joined dictionary"):
        attempt(test, {"en": first, "vi": second}, joined=True)
    with pytest.raises(InputError, match="--max-unknown-rate is 10.0; it is a share, from 0 to 1"):
        attempt(corpus, {}, max_unknown_rate=10.0)
    with pytest.raises(InputError, match="--workers is 0"):
        attempt(corpus, {}, workers=0)
    with pytest.raises(InputError, match="nothing to binarize"):
        attempt({}, {})
    assert not (tmp_path / "bin").exists()


def test_split_names():
    assert split_names(["a", "b"], "t", None) == {"train": "t", "test": "a", "test1": "b"}
