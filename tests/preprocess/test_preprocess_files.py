"""Whole files or none, lines split at newlines alone, one-line errors."""

import gzip
import subprocess
import sys

import pytest

from preprocess.files import (
    InputError,
    assert_parallel,
    build_folder,
    decode_lines,
    find_side,
    map_lines,
    read_lines,
    run_tool,
    write_lines,
    write_whole,
)


def test_lines_end_at_newlines_alone():
    text = "a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h\ni\r\n\nlast"
    assert decode_lines(text.encode(), "x") == ["a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h", "i\r", "", "last"]


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_last_line_counts_with_and_without_its_end(write, end):
    assert read_lines(write("x", "one\ntwo" + end)) == ["one", "two"]


def test_gz_is_unpacked(tmp_path):
    path = tmp_path / "x.en.gz"
    path.write_bytes(gzip.compress("xin chào\n".encode()))
    assert read_lines(path) == ["xin chào"]
    assert find_side(tmp_path / "x", "en") == path


def test_cut_gz_is_one_line(tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"text " * 1000)[:-20])
    with pytest.raises(InputError, match="is damaged .*; fetch it again"):
        read_lines(path)


def test_missing_empty_and_other_encodings(tmp_path, write):
    with pytest.raises(InputError, match="no such file: .*nowhere; check the path"):
        read_lines(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"no such file: .*nowhere\.en \(nor nowhere\.en\.gz\)"):
        find_side(tmp_path / "nowhere", "en")
    for blank in ("", "\n \n"):
        with pytest.raises(InputError, match="is empty: expected one sentence a line"):
            read_lines(write("blank", blank))
    assert read_lines(write("blank", "\n\n"), blank_ok=True) == ["", ""]
    with pytest.raises(InputError, match="is empty"):
        read_lines(write("nothing", ""), blank_ok=True)
    path = tmp_path / "latin"
    path.write_bytes("fine\ncafé\n".encode("latin-1"))
    with pytest.raises(InputError, match="latin, line 2, is not UTF-8"):
        read_lines(path)


def test_write_whole_keeps_the_old_file_when_it_breaks(write, tmp_path):
    path = write("x", "old")
    with pytest.raises(KeyboardInterrupt), write_whole(path) as handle:
        handle.write("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["x"]


def test_write_lines_adds_no_line(tmp_path):
    with pytest.raises(ValueError, match="holds a newline"):
        write_lines(tmp_path / "x", ["a", "b\nc"])
    assert list(tmp_path.iterdir()) == []


def test_build_folder_replaces_the_old_one_or_leaves_it(tmp_path):
    target = tmp_path / "made"
    with build_folder(target) as folder:
        (folder / "a").write_text("1")
    with pytest.raises(RuntimeError), build_folder(target) as folder:
        (folder / "b").write_text("2")
        raise RuntimeError
    assert [path.name for path in target.iterdir()] == ["a"]
    (tmp_path / ".made.partial").mkdir()  # as a killed run leaves it
    (tmp_path / ".made.partial" / "rubbish").write_text("3")
    with build_folder(target) as folder:
        (folder / "c").write_text("4")
    assert [path.name for path in target.iterdir()] == ["c"]
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_map_lines_keeps_the_number_of_lines(write, tmp_path):
    source = write("x", "a\r b\n\nc\u2028d")
    map_lines(str.upper, str(source), str(tmp_path / "y"), "upper")
    assert (tmp_path / "y").read_bytes() == "A\r B\n\nC\u2028D\n".encode()


def test_assert_parallel_names_both_counts():
    assert_parallel("a", 3, "b", 3)
    with pytest.raises(InputError, match="a has 3 lines but b has 4: "):
        assert_parallel("a", 3, "b", 4)


def test_a_terminated_tool_clears_up(root, tmp_path):
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from preprocess.files import build_folder, run_tool\n"
        "def main(argv):\n"
        "    with build_folder('made') as folder:\n"
        "        (folder / 'half').write_text('x'); print('now', flush=True); time.sleep(60)\n"
        "run_tool(main)"
    )
    command = [sys.executable, "-c", code, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout.readline() == b"now\n"
        process.terminate()
    assert process.returncode == 143
    assert list(tmp_path.iterdir()) == []


def test_run_tool_prints_one_line_and_exits_2(capsys):
    def main(argv):
        raise InputError("value 3 is over the limit of 2; lower it")

    with pytest.raises(SystemExit) as stop:
        run_tool(main)
    assert stop.value.code == 2
    assert capsys.readouterr().err.endswith(": error: value 3 is over the limit of 2; lower it\n")
