"""The console script's frame, and what all of its subcommands share."""

import json
import logging

import pytest

from informer_fairseq.errors import InputError
from informer_fairseq.tools.files import read_lines, split_label, table, write_json, write_whole
from informer_fairseq.tools.main import build_parser, main


@pytest.mark.parametrize("command", ["params", "score", "curves"])
def test_help_of_each_command_names_json_and_an_example(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert "--json" in text and f"informer-fairseq {command} " in text


@pytest.mark.parametrize("words", [["nothing"], ["score"], ["score", "a", "--refrence", "b"]])
def test_wrong_usage_ends_with_status_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_flags_are_passed_on_only_where_a_command_asks_for_them():
    args, others = build_parser(["params"]).parse_known_args(["params", "--arch", "a", "--encoder-layers", "3"])
    assert (args.arch, others, args.passes_flags_on) == (["a"], ["--encoder-layers", "3"], True)
    args = build_parser(["score"]).parse_args(["score", "a", "--refer", "b"])
    assert (args.reference, args.passes_flags_on) == (["b"], False)


def test_an_error_of_the_users_is_one_line_and_a_defect_is_not_hidden(monkeypatch, capsys):
    from informer_fairseq.tools import score

    def fail(args):
        raise args.error

    monkeypatch.setattr(score, "run", fail)
    monkeypatch.setattr(score, "add_arguments", lambda parser: parser.set_defaults(error=InputError("mend this")))
    assert main(["score"]) == 2
    assert capsys.readouterr().err == "informer-fairseq score: error: mend this\n"
    monkeypatch.setattr(score, "add_arguments", lambda parser: parser.set_defaults(error=KeyError("defect")))
    level = logging.getLogger("fairseq").level
    with pytest.raises(KeyError):
        main(["score"])
    assert logging.getLogger("fairseq").level == level


def test_files_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "a.json"
    write_json(path, {"é": 1})
    assert json.loads(path.read_text("utf-8")) == {"é": 1}
    with pytest.raises(KeyError), write_whole(path) as handle:
        handle.write("half")
        raise KeyError
    assert json.loads(path.read_text("utf-8")) == {"é": 1}
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(InputError, match="is a folder"), write_whole(tmp_path):
        pass


def test_lines_end_at_newlines_alone(tmp_path):
    (tmp_path / "a").write_bytes("a\u2028b\rc\n\nd".encode())
    assert read_lines(tmp_path / "a") == ["a\u2028b\rc", "", "d"]
    (tmp_path / "a").write_bytes(b"a\n\xff\n")
    with pytest.raises(InputError, match="line 2, is not UTF-8"):
        read_lines(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        read_lines(tmp_path / "a")


def test_labels_and_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=3").write_text("")
    assert split_label("lr=3") == ("lr=3", "lr=3")
    assert split_label("a=lr=3") == ("a", "lr=3")
    assert split_label("runs/lr=3/log") == ("runs/lr=3/log", "runs/lr=3/log")
    assert split_label("log") == ("log", "log")


def test_a_table_is_aligned():
    assert table([["a", "bb"], ["ccc", "1"]]) == ["| a   | bb |", "|-----|---:|", "| ccc |  1 |"]
