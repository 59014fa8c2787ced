"""Segmentation: the way there and back for each method, thresholds, dropout, and methods that are never mixed up."""

import argparse
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preprocess.clean import normalise
from preprocess.files import InputError
from preprocess.segment import build_parser, learn, main, resolve_method
from preprocess.segmenters import BPE_MARK, METHODS, RESTORE, load_segmenter, read_metadata

ENGLISH = (
    "the lower the newer , the wider the lowest\nnew words are newer words @@ here\na low road , a wide road\n" * 5
)
VIETNAMESE = "cái này mới hơn cái kia\nđường rộng và đường hẹp @@@@\nnhững từ mới , những từ cũ\n" * 5


def options(method: str, *more: str) -> argparse.Namespace:
    """The settings of ``segment.py learn``."""
    return build_parser().parse_args(
        ["learn", "--method", method, "--input", "x", "--languages", "en", "--model", "m", *more]
    )


def learn_model(folder, method, *more, english=ENGLISH, vietnamese=VIETNAMESE):
    """Learns a model of both languages under ``folder``."""
    (folder / "train.en").write_text(english, encoding="utf-8")
    (folder / "train.vi").write_text(vietnamese, encoding="utf-8")
    learn(folder / "model", str(folder / "train"), ["en", "vi"], options(method, *more))
    return folder / "model"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model of each method."""
    more = {"word": (), "bpe": ("--merges", "60"), "sentencepiece": ("--vocabulary-size", "52", "--joint")}
    return {method: learn_model(tmp_path_factory.mktemp(method), method, *more[method]) for method in METHODS}


lines = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581")),
    st.text("lowernewst @<>/", max_size=30),  # made of known pieces, marks and what looks like them
    st.lists(st.sampled_from(["the", "@@", "@", "lo@@", "@@@", "</w>", "low</w>er", "<s>", "mới"])).map(" ".join),
)


@pytest.mark.parametrize("language", ["en", "vi"])
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=lines)
def test_restoring_gives_the_normalised_line(models, method, language, line):
    segmenter = load_segmenter(models[method], language)
    line = normalise(line)
    assert segmenter.restore(segmenter.segment(line)) == line
    assert "\n" not in segmenter.segment(line)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=lines)
def test_dropout_changes_pieces_and_no_text(models, line):
    segmenter = load_segmenter(models["bpe"], "en", dropout=0.5)
    line = normalise(line)
    assert segmenter.restore(segmenter.segment(line)) == line


def test_a_merge_never_ends_a_word_in_the_mark(tmp_path):
    # Learned from naively, "x@@" would become one piece, and restoring would glue the next word to it.
    model = learn_model(tmp_path, "bpe", english="x@@ y\n" * 9 + "ab ab\n", vietnamese="ab ab\n")
    segmenter = load_segmenter(model, "en")
    assert segmenter.segment("x@@ y ab") == "x@@ @@@ @ y ab"
    assert segmenter.restore("x@@ @@@ @ y ab") == "x@@ y ab"


def test_odd_spaces_are_normalised_before_segmentation(models):
    for method in METHODS:
        segmenter = load_segmenter(models[method], "en")
        assert segmenter.segment("low\u00a0road\r") == segmenter.segment("low road")


def test_word_segmentation_cuts_nothing(models):
    assert load_segmenter(models["word"], "vi").segment("từ chưa-từng-thấy !") == "từ chưa-từng-thấy !"


def test_merges_joint_and_separate(tmp_path):
    joint = learn_model(tmp_path, "bpe", "--merges", "2", "--joint", english="ab ab ab\n", vietnamese="cd cd cd\n")
    assert (joint / "codes.joint").read_text() == "#version: 0.2\nc d</w>\na b</w>\n"
    for language in ("en", "vi"):
        assert load_segmenter(joint, language).segment("ab cd abcd") == "ab cd a@@ b@@ cd"
    separate = learn_model(tmp_path, "bpe", "--merges", "2", english="ab ab ab\n", vietnamese="cd cd cd\n")
    assert sorted(path.name for path in separate.iterdir()) == ["codes.en", "codes.vi", "segmentation.json"]
    assert load_segmenter(separate, "en").segment("ab cd") == "ab c@@ d"
    assert load_segmenter(separate, "vi").segment("ab cd") == "a@@ b cd"


def test_vocabulary_threshold_splits_what_is_rare_in_its_language(tmp_path):
    english, vietnamese = "ab ab ab cd\n", "cd cd cd\n"
    arguments = ("--merges", "2", "--joint", "--vocabulary-threshold", "2")
    model = learn_model(tmp_path, "bpe", *arguments, english=english, vietnamese=vietnamese)
    assert (model / "vocabulary.en").read_text() == "ab 3\ncd 1\n"
    assert (model / "vocabulary.vi").read_text() == "cd 3\n"
    assert load_segmenter(model, "en").segment("ab cd") == "ab c@@ d"
    assert load_segmenter(model, "vi").segment("ab cd") == "a@@ b cd"
    assert load_segmenter(model, "vi").restore("a@@ b cd") == "ab cd"


def test_dropout_repeats_with_its_seed(models):
    def cut(seed):
        segmenter = load_segmenter(models["bpe"], "en", dropout=0.3, seed=seed)
        return [segmenter.segment(line) for line in ENGLISH.splitlines()]

    assert cut(1) == cut(1)
    assert cut(1) != cut(2)
    assert [load_segmenter(models["bpe"], "en").segment(line) for line in ENGLISH.splitlines()] != cut(1)


@pytest.mark.parametrize("method", ["word", "sentencepiece"])
def test_dropout_of_another_method_is_refused(models, method):
    with pytest.raises(InputError, match="dropout 0.1 is for bpe, .* segments by " + method):
        load_segmenter(models[method], "en", dropout=0.1)
    with pytest.raises(InputError, match="dropout 1.5 is not a probability"):
        load_segmenter(models["bpe"], "en", dropout=1.5)


def test_metadata_records_what_was_done(models):
    metadata = read_metadata(models["bpe"])
    assert metadata["method"] == "bpe"
    assert metadata["languages"] == ["en", "vi"]
    assert metadata["joint"] is False
    learned = (models["bpe"] / "codes.en").read_text(encoding="utf-8").count("\n") - 1  # the first line is a version
    assert (metadata["merges"], metadata["merges_learned"]["codes.en"]) == (60, learned)
    assert learned < 60  # the text has no more pairs that occur twice
    assert list(metadata["versions"]) == ["subword-nmt"]
    assert read_metadata(models["sentencepiece"])["files"] == {"en": "joint.model", "vi": "joint.model"}


def test_sentencepiece_refuses_its_own_mark(models):
    with pytest.raises(InputError, match="holds U.2581, by which sentencepiece marks a space"):
        load_segmenter(models["sentencepiece"], "en").segment("a\u2581b")


def test_sentencepiece_learns_from_long_lines(tmp_path):
    # The library leaves lines over 4,192 bytes out unless told: z would be an unknown character.
    english = "ab ab cd " * 600 + "zzz\n"
    more = ("--joint", "--vocabulary-size", "10")
    model = learn_model(tmp_path, "sentencepiece", *more, english=english, vietnamese="ab cd\n" * 9)
    processor = load_segmenter(model, "en").processor
    assert processor.unk_id() not in processor.encode("zzz ab")


@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        ("bpe", ("--merges", "0"), "--merges is 0; it must be 1 or more"),
        ("bpe", ("--min-frequency", "1000"), "no pair of characters occurs 1000 times in 14 distinct words"),
        ("bpe", ("--vocabulary-threshold", "-1"), "--vocabulary-threshold is -1"),
        ("word", ("--vocabulary-threshold", "5"), "--vocabulary-threshold is for bpe, and the method is word"),
        ("sentencepiece", ("--vocabulary-size", "9000"), r"cannot learn 9000 pieces: .*too high.* <= \d+"),
        ("sentencepiece", ("--vocabulary-size", "5"), "cannot learn 5 pieces: .*smaller than required_chars"),
    ],
)
def test_settings_that_do_not_fit_leave_no_model(tmp_path, method, more, message):
    with pytest.raises(InputError, match=message):
        learn_model(tmp_path, method, *more)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.en", "train.vi"]


def test_models_that_do_not_fit(models, tmp_path):
    with pytest.raises(InputError, match="no segmentation model in .*segmentation.json is missing"):
        load_segmenter(tmp_path, "en")
    with pytest.raises(InputError, match="was learned for en and vi, not for 'de'"):
        load_segmenter(models["bpe"], "de")
    (tmp_path / "segmentation.json").write_text(json.dumps({"format": 2, "method": "bpe"}))
    with pytest.raises(InputError, match="has format 2 and method 'bpe', not 1"):
        load_segmenter(tmp_path, "en")
    (tmp_path / "segmentation.json").write_text("{")
    with pytest.raises(InputError, match="is damaged"):
        load_segmenter(tmp_path, "en")


def test_restore_rules():
    assert RESTORE["word"]("a b") == "a b"
    assert RESTORE["bpe"]("lo@@ w@@ er ro@@ ad") == "lower road"
    assert RESTORE["bpe"]("cut o@@") == "cut o"  # a translation may stop within a word
    assert RESTORE["sentencepiece"]("\u2581lo w er \u2581ro ad") == "lower road"


@pytest.mark.parametrize(
    ("text", "wrong", "message"),
    [
        ("lo@@ w ro@@ ad\n\nwi@@ de\n", "sentencepiece", "2 of 2 lines with '@@' .bpe.*all its words would be joined"),
        ("low road\n", "sentencepiece", "none with U.2581: all its words would be joined"),
        ("lo@@ w ro@@ ad\n", "word", "'@@' in 1 of 1 lines"),
        ("\u2581lo w\n\u2581ro ad\n", "bpe", "U.2581 at the start of every line"),
        ("\u2581lo w\n\u2581ro ad\n", "word", "U.2581 at the start of every line"),
    ],
)
def test_text_of_another_method_is_not_restored(write, tmp_path, text, wrong, message):
    source = write("x", text)
    with pytest.raises(InputError, match=message):
        main(["restore", "--method", wrong, "--input", str(source), "--output", str(tmp_path / "y")])
    assert not (tmp_path / "y").exists()


def test_the_method_comes_from_the_model(models):
    assert resolve_method(str(models["bpe"]), None) == resolve_method(str(models["bpe"]), "bpe") == "bpe"
    assert resolve_method(None, "word") == "word"
    with pytest.raises(InputError, match="segments by bpe, not by word"):
        resolve_method(str(models["bpe"]), "word")
    with pytest.raises(InputError, match="give --model FOLDER, .* or --method NAME"):
        resolve_method(None, None)


def test_tool_cuts_and_joins_through_pipes(run, models):
    text = b"the lowest road ,\n\nunseen @@ Words\n"
    cut = run("segment.py", "apply", "--model", models["bpe"], "--language", "en", stdin=text)
    assert BPE_MARK.encode() in cut.stdout
    assert run("segment.py", "restore", "--model", models["bpe"], stdin=cut.stdout).stdout == text
    wrong = run("segment.py", "restore", "--method", "sentencepiece", stdin=cut.stdout)
    assert wrong.returncode == 2
    assert wrong.stderr.count(b"\n") == 1
    assert wrong.stderr.startswith(b"segment.py: error: stdin is not segmented by sentencepiece")
