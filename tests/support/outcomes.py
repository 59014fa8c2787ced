"""How a command ends: with its output, or in one line."""

import argparse
import functools
import os
import pickle
import re
import shutil
import signal
import sys
from pathlib import Path

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import generate, interactive, train, validate
from omegaconf import DictConfig, OmegaConf

from informer_fairseq import average_checkpoints, parallel_generate
from informer_fairseq.errors import one_line_message
from informer_fairseq.tools import main as tools

USER_DIR = str(Path(average_checkpoints.__file__).parent)
PARSERS = {
    train: options.get_training_parser,
    generate: options.get_generation_parser,
    interactive: options.get_interactive_generation_parser,
    validate: options.get_validation_parser,
}


def run_fairseq(command, words):
    """One of fairseq's commands (a module of fairseq_cli) in this process.

    Args:
        command: the module.
        words: its command line. Building a configuration takes fairseq most of a second, so it is built once for all
            command lines that differ in nothing but words that are ``Path``s.
    """
    paths = [str(word) for word in words if isinstance(word, Path)]
    numbers = iter(range(len(paths)))
    shape = tuple(f"@{next(numbers)}@" if isinstance(word, Path) else str(word) for word in words)
    cfg = pickle.loads(_configuration(command, shape))  # a copy of all of it: commands change what they are given
    OmegaConf.set_struct(cfg, False)
    _fill(cfg, paths)
    if command is validate:
        override = options.parse_args_and_arch(PARSERS[command](), list(map(str, words)), suppress_defaults=True)
        return command.main(cfg, override_args=override)
    return command.main(cfg)


@functools.cache
def _configuration(command, words):
    return pickle.dumps(convert_namespace_to_omegaconf(options.parse_args_and_arch(PARSERS[command](), list(words))))


def _fill(node, paths):
    values = vars(node) if isinstance(node, argparse.Namespace) else node
    for name in list(values):
        value = values[name]
        if isinstance(value, str) and "@" in value:
            values[name] = re.sub(r"@(\d+)@", lambda found: paths[int(found[1])], value)
        elif isinstance(value, (argparse.Namespace, DictConfig)):
            _fill(value, paths)


def told_by_fairseq(command, words):
    """The one line that ``command`` ends with; fails where it ends well, or in a traceback."""
    try:
        run_fairseq(command, words)
    except Exception as error:
        line = one_line_message(error)
        if line is None:
            raise
        return assert_one_line(line)
    raise AssertionError(f"{command.__name__} {words} ended well")


def told_by_tool(words, capsys):
    """The one line that a command of ``python -m informer_fairseq`` ends with."""
    capsys.readouterr()
    assert tools.main(list(map(str, words))) == 2
    return last_line(capsys)


def told_by_average(words, capsys):
    capsys.readouterr()
    try:
        average_checkpoints.main(list(map(str, words)))
    except SystemExit as error:
        assert error.code == 2
        return last_line(capsys)
    raise AssertionError(f"averaging {words} ended well")


def told_by_parallel_generate(words, capsys):
    capsys.readouterr()
    assert parallel_generate.main(list(map(str, words))) == 2
    return last_line(capsys)


def last_line(capsys):
    return assert_one_line(capsys.readouterr().err.strip().splitlines()[-1])


def assert_one_line(line):
    assert "\n" not in line and len(line) < 700, line
    return line


def in_child(work):
    """Runs ``work()`` in a forked process, which may be killed.

    Returns:
        Its exit status, negative for a signal; and the line it ended with, "" where it ended well.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            torch.set_num_threads(1)
            work()
            status = 0
        except Exception as error:
            os.write(writer, (one_line_message(error) or repr(error)).encode())
            status = 1
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        line = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return (-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)), line


def kill_this_process():
    os.kill(os.getpid(), signal.SIGKILL)


def checkpoint_readers(path, data_bin, folder, capsys, arch="transformer", sizes=()):
    """Every way into this software for a checkpoint: name -> function that returns the one line it ends with.

    Args:
        path: the checkpoint, ``NAME.pt``.
        data_bin: the data-bin it belongs to.
        folder: where the readers may write.
        capsys: pytest's.
        arch: whose checkpoint it is.
        sizes: its flags.
    """
    from fairseq.models import ARCH_MODEL_REGISTRY

    user_dir = ("--user-dir", USER_DIR)
    setting = ("--optimizer", "adam", "--criterion", "label_smoothed_cross_entropy", "--max-tokens", "400", "--cpu")
    data_bin = None if data_bin is None else Path(data_bin)
    training = [data_bin, *user_dir, "--arch", arch, *sizes, *setting, "--num-workers", "0", "--max-update", "1"]
    translation = [data_bin, *user_dir, "--path", path, "--cpu", "--num-workers", "0"]
    validation = [data_bin, *user_dir, "--path", path, "--task", "translation", "--max-tokens", "400", "--cpu"]

    def resume():
        (folder / "resumed").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / "resumed/checkpoint_last.pt")
        return told_by_fairseq(train, [*training, "--save-dir", folder / "resumed"])

    def hub():
        try:
            ARCH_MODEL_REGISTRY[arch].from_pretrained(str(path.parent), path.name, data_name_or_path=str(data_bin))
        except Exception as error:
            return assert_one_line(one_line_message(error) or repr(error))
        raise AssertionError("from_pretrained ended well")

    def probe():
        (folder / "tasks").mkdir(parents=True, exist_ok=True)
        lines = [f"{split}\t{label}\tw{n}\n" for split in ("tr", "va", "te") for n in range(4) for label in "ab"]
        (folder / "tasks/sentence_length.txt").write_text("".join(lines))
        words = ["probe", "--data", folder / "tasks", "--checkpoint", path, "--data-bin", data_bin, "--no-cache"]
        return told_by_tool(words, capsys)

    def report():
        (folder / "run").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / "run/averaged.pt")
        words = ["report", "--run", folder / "run", "--data-bin", data_bin, "--output", folder / "page.html"]
        return told_by_tool(words, capsys)

    def score():
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"T-{n}\tw1 w2\nH-{n}\t-1\tw1 w2\n" for n in range(3))
        (folder / "test.generate").write_text(text)
        run = f"run={folder / 'test.generate'}"
        return told_by_tool(["score", run, "--checkpoint", f"run={path}", "--data", data_bin], capsys)

    save_to = ("--save-dir", folder / "fresh")
    return {
        "resume": resume,
        "--restore-file": lambda: told_by_fairseq(train, [*training, *save_to, "--restore-file", path]),
        "--finetune-from-model": lambda: told_by_fairseq(train, [*training, *save_to, "--finetune-from-model", path]),
        "--init-from-transformer": lambda: told_by_fairseq(
            train, [*training, *save_to, "--arch", "ni_transformer", "--init-from-transformer", path]
        ),
        "generate": lambda: told_by_fairseq(generate, translation),
        "interactive": lambda: told_by_fairseq(interactive, translation),
        "validate": lambda: told_by_fairseq(validate, validation),
        "ensemble": lambda: told_by_fairseq(generate, [*translation, "--path", Path(f"{path}:{path}")]),
        "average": lambda: told_by_average(["--inputs", path, "--output", folder / "mean.pt"], capsys),
        "parallel_generate": lambda: told_by_parallel_generate(
            ["--shard", "0", "--processes", "1", *translation], capsys
        ),
        "from_pretrained": hub,
        "params": lambda: told_by_tool(["params", "--checkpoint", path], capsys),
        "score": score,
        "probe": probe,
        "report": report,
    }


READERS = tuple(checkpoint_readers(Path("x.pt"), None, Path("x"), None))
