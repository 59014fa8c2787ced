"""Tokenising and detokenising: one line in, one line out; ordinary text survives the way there and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.clean import normalise_spaces
from preprocess.detokenize_text import line_detokenizer
from preprocess.tokenize_text import line_tokenizer

ORDINARY = [
    ("en", "It's a dog's life, isn't it?"),
    ("en", 'He said: "Nothing to envy." (1,234.5 km)'),
    ("en", "We don't know -- not yet."),
    ("vi", "Tôi đã rất tự hào về đất nước tôi."),
    ("vi", "Anh ấy nói: “Xin chào!”"),
    ("vi", "Câu chuyện này chưa kết thúc, phải không?"),
    ("de", "Das ist, wie gesagt, z.B. nicht schön!"),
]


@pytest.mark.parametrize(("language", "text"), ORDINARY)
@pytest.mark.parametrize("escape", [True, False])
def test_ordinary_text_comes_back(language, text, escape):
    tokens = line_tokenizer(language, escape)(text)
    assert len(tokens.split(" ")) > len(text.split(" "))
    if "“" not in text:  # detokenising sets these close to their words only at one side
        assert line_detokenizer(language, escape)(tokens) == text


def test_escapes():
    assert line_tokenizer("en")("it's R&D") == "it &apos;s R &amp; D"
    assert line_tokenizer("en", escape=False)("it's R&D") == "it 's R & D"
    assert line_detokenizer("en")("it &apos;s &quot; so &quot; &#91; 1 &#93;") == 'it\'s "so" [1]'
    assert line_detokenizer("en", unescape=False)("it &apos;s") == "it &apos;s"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), max_size=4))
def test_no_line_is_added_or_lost(lines):
    for function in (line_tokenizer("vi"), line_detokenizer("vi")):
        for line in lines:
            result = function(line)
            assert "\n" not in result
            assert result == normalise_spaces(result)


def test_tools_keep_the_number_of_lines(run, tmp_path):
    text = "a\rb.\n\nc\x85d\u2028e\x0bf.\n\u00a0\nlast, without an end".encode()
    tokens = run("tokenize_text.py", "--language", "en", stdin=text)
    assert tokens.stdout == b"a b .\n\nc d e f .\n\nlast , without an end\n"
    (tmp_path / "tokens").write_bytes(tokens.stdout)
    files = ("--input", tmp_path / "tokens", "--output", tmp_path / "text")
    assert run("detokenize_text.py", "--language", "en", *files).returncode == 0
    assert (tmp_path / "text").read_bytes() == b"a b.\n\nc d e f.\n\nlast, without an end\n"
