"""Hostile text on its whole way: as many lines come out as go in, or one line says which one does not fit."""

import re

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import generate, interactive
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

from informer_fairseq.errors import one_line_message
from informer_fairseq.tools import scoring
from preprocess import prepare
from preprocess.clean import ODD_CHARACTER, normalise, normalise_spaces
from preprocess.files import InputError, map_lines, read_lines
from preprocess.segmenters import load_segmenter
from tests.support.checkpoints import save_small
from tests.support.models import EFFICIENT_ARCHS

ORDINARY = "the low road", "con đường thấp"
# What a line may hold beside words; none of these may add a line, lose one or join two.
HOSTILE = {
    "carriage return": "the low\rroad",
    "carriage return at the end": "the low road\r",
    "next line": "the low\u0085road",
    "line and paragraph separators": "the\u2028low\u2029road",
    "vertical tab, form feed, separators": "the\x0blow\x0croad\x1c\x1d\x1e\x1f",
    "no-break space": "the\u00a0low\u00a0road",
    "ideographic and other wide spaces": "\u3000the\u2003low\u1680road\u205f",
    "byte order mark": "\ufeffthe low road",
    "zero width": "the\u200blow \u200croad\u200d \u2060low",
    "control characters": "the\x01 low\x07 \x1b[31mroad\x7f",
    "NUL": "the\x00low road",
    "tabs": "\tthe\t\tlow\troad\t",
    "emoji": "the 👩‍👩‍👧‍👦 low 🇻🇳 road ❤️",
    "right to left": "the שָׁלוֹם low العربية road \u202eoverride\u202c",
    "decomposed Vietnamese": "con đu\u031bo\u031b\u0300ng tha\u0302\u0301p",
    "a long word": "the " + "o" * 10_000 + " road",
    "a pile of marks": "r\u0301\u0302\u0303\u0304\u0305\u0306oad low",
    "other planes": "\U0001f600\U00020000\U000e0001 low",
    "marks of segmenters": "low@@ @@ road @@low &amp; | < >",
    "numbers in fairseq's output": "H-0\t-0.5\tlow",
}
EMPTY = {"empty": "", "spaces": "   ", "odd spaces alone": "\u00a0\u2028\r\ufeff\u200b"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A training set of ordinary text and every hostile line, and test sets with the empty ones; no final newline."""
    folder = tmp_path_factory.mktemp("hostile")
    plain = [ORDINARY] * 4
    odd = [(line, ORDINARY[1]) for line in HOSTILE.values()] + [(ORDINARY[0], line) for line in HOSTILE.values()]
    empty = [(line, ORDINARY[1]) for line in EMPTY.values()]
    for name, pairs in (("train", plain + 2 * odd + empty), ("valid", plain + odd), ("test", empty + plain + odd)):
        for side, language in enumerate(("en", "vi")):
            (folder / f"{name}.{language}").write_bytes("\n".join(pair[side] for pair in pairs).encode())
    return folder, {"train": len(plain + 2 * odd), "valid": len(plain + odd), "test": len(empty + plain + odd)}


@pytest.fixture(scope="module")
def prepared(corpus, tmp_path_factory):
    """The data-bin's folder, made by several workers from text cut by BPE."""
    output = tmp_path_factory.mktemp("prepared")
    words = ["--languages", "en", "vi", "--output", str(output), "--workers", "2", "--merges", "60", "--joint"]
    for name in ("train", "valid", "test"):
        words += [f"--{name}", str(corpus[0] / name)]
    prepare.main([*words, "--max-words", "0"])
    return output


def lines_of(path):
    """The lines as ``wc -l`` and fairseq's several workers count them."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def test_preparation_keeps_every_pair_together(prepared, corpus):
    """fairseq #3571 and #2294: stray line ends made 4 sentences of 3 lines, and 7 with four workers."""
    from fairseq.data import data_utils

    for name, count in corpus[1].items():
        for language in ("en", "vi"):
            for stage in ("clean", "segmented"):
                assert len(lines_of(prepared / stage / f"{name}.{language}")) == count, (stage, name, language)
            assert not ODD_CHARACTER.search("".join(lines_of(prepared / "segmented" / f"{name}.{language}")))
            data = data_utils.load_indexed_dataset(str(prepared / "data-bin" / f"{name}.en-vi.{language}"), None)
            assert len(data) == count
    # Still the pairs they were: the ordinary side of each pair beside its hostile one.
    english, vietnamese = (lines_of(prepared / "clean" / f"valid.{language}") for language in ("en", "vi"))
    assert vietnamese[4 : 4 + len(HOSTILE)] == [ORDINARY[1]] * len(HOSTILE)
    assert english[4 : 4 + len(HOSTILE)] == [normalise(line) for line in HOSTILE.values()]
    assert english[4:8] == ["the low road"] * 4


def test_pieces_give_back_the_text(prepared):
    for language in ("en", "vi"):
        segmenter = load_segmenter(prepared / "segmented" / "model", language)
        for line in HOSTILE.values():
            assert segmenter.restore(segmenter.segment(line)) == normalise_spaces(line)


def words_for(data, path, *more):
    return [str(data), "--path", str(path), "--cpu", "--beam", "2", "--max-len-b", "5", "--max-len-a", "0", *more]


@pytest.mark.parametrize("arch", ["linformer_mt", "informer_mt", "ni_transformer"])
def test_generation_gives_as_many_hypotheses_as_lines(arch, prepared, corpus, tmp_path):
    data = prepared / "data-bin"
    extra = ["--encoder-fixed-length", "200"] if arch in EFFICIENT_ARCHS else []
    save_small(tmp_path / "a.pt", data, arch, extra=extra)
    more = ["--results-path", str(tmp_path), "--required-batch-size-multiple", "1", "--max-tokens", "2000"]
    generate.main(
        options.parse_args_and_arch(options.get_generation_parser(), words_for(data, tmp_path / "a.pt", *more))
    )
    found = re.findall(r"^H-(\d+)\t(\S+)\t", (tmp_path / "generate-test.txt").read_text("utf-8"), re.M)
    assert sorted(int(number) for number, _ in found) == list(range(corpus[1]["test"]))
    assert all(-1e4 < float(score) <= 0 for _, score in found)


def run_interactive(data, path, text, tmp_path, capsys):
    """The hypotheses of fairseq-interactive for a file of that text."""
    (tmp_path / "input").write_bytes(text)
    words = words_for(data, path, "--input", str(tmp_path / "input"), "--buffer-size", "7")
    parser = options.get_interactive_generation_parser()
    capsys.readouterr()
    interactive.main(convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, words)))
    return re.findall(r"^H-(\d+)\t", capsys.readouterr().out, re.M)


@pytest.mark.parametrize("arch", ["transformer", "informer_mt"])
def test_interactive_gives_as_many_hypotheses_as_lines(arch, data_bin, tmp_path, capsys):
    """Text as it is, not cleaned: fairseq splits words at every odd space, and lines at CR too, with any model."""
    save_small(tmp_path / "a.pt", data_bin[0], arch)
    lines = [line for line in {**HOSTILE, **EMPTY}.values() if "\r" not in line]
    found = run_interactive(data_bin[0], tmp_path / "a.pt", "\n".join(lines).encode(), tmp_path, capsys)
    assert [int(number) for number in found] == list(range(len(lines)))
    assert len(run_interactive(data_bin[0], tmp_path / "a.pt", b"the low\rroad\n", tmp_path, capsys)) == 2


@pytest.mark.parametrize(
    "data",
    [b"low \xed\xa0\x80 road", b"low \xff road", b"low \xc0\xaf", b"low \xf0\x9f\x98", "low road".encode("utf-16")],
    ids=["lone surrogate", "no byte of UTF-8", "overlong", "cut short", "UTF-16"],
)
def test_what_is_not_utf_8_is_told_in_one_line(data, data_bin, tmp_path, capsys):
    path = tmp_path / "text"
    path.write_bytes(b"the low road\n" + data + b"\nlow\n")
    with pytest.raises(InputError, match="text, line 2, is not UTF-8 .*iconv") as caught:
        read_lines(path)
    assert "\n" not in str(caught.value)
    save_small(tmp_path / "a.pt", data_bin[0], "informer_mt")
    with pytest.raises(UnicodeDecodeError) as undecoded:
        run_interactive(data_bin[0], tmp_path / "a.pt", path.read_bytes(), tmp_path, capsys)
    assert re.fullmatch(
        r"the input is not UTF-8 \(byte 0x\w\w, .+\): convert it with iconv", one_line_message(undecoded.value)
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=60) | st.text(st.characters(), max_size=40).map(lambda text: text.encode("utf-8", "ignore"))
)
def test_any_bytes_keep_their_lines_or_are_refused(data, tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(data)
    target.unlink(missing_ok=True)
    try:
        map_lines(normalise, str(source), str(target), "clean")
    except InputError as error:
        assert "\n" not in str(error) and not target.exists()
        assert not data or not is_utf_8(data)
        return
    made = target.read_bytes()
    assert made.count(b"\n") == data.count(b"\n") + (not data.endswith(b"\n"))
    assert made.decode().splitlines() == made.decode().split("\n")[:-1]  # nobody will split it otherwise


def is_utf_8(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_identical_lines_of_two_words_score_as_in_sacrebleu():
    """sacrebleu #114: without a 4-gram BLEU is 0 for perfect lines too; BLEU-1 beside it tells them from wrong ones."""
    lines = ["good morning", "low road"]
    found = scoring.score(scoring.build_measures([lines], True), lines)
    assert found["BLEU"]["score"] == BLEU().corpus_score(lines, [lines]).score == 0.0
    assert found["BLEU-1"]["score"] == pytest.approx(100.0)
    wrong = scoring.score(scoring.build_measures([lines], True), ["good road", "low morning"])
    assert wrong["BLEU-1"]["score"] == pytest.approx(50.0)
