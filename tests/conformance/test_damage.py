"""Interruption and damage of checkpoints: writes that are killed or find no room, cut, flipped and other files."""

import io
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager, nullcontext, redirect_stderr
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils, file_io
from fairseq_cli import train

from informer_fairseq import average_checkpoints, checkpoint_files
from informer_fairseq.errors import InputError
from informer_fairseq.tools import main as tools
from tests.support import outcomes
from tests.support.checkpoints import SIZES
from tests.support.damage import cut, run_train, training
from tests.support.outcomes import READERS, checkpoint_readers, in_child, told_by_fairseq


def weights(path):
    return torch.load(path)["model"]


def assert_same_weights(path, other):
    mine, theirs = weights(path), weights(other)
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


class Interruption:
    """Ends this process in the middle of the write number ``at``: half of the file is there, nothing is tidied up."""

    def __init__(self, at, end):
        self.left, self.end = at, end

    def due(self):
        self.left -= 1
        return self.left == 0

    def __enter__(self):
        save, copy = torch.save, shutil.copyfile

        def cut_save(value, file, *args, **kwargs):
            if not self.due():
                return save(value, file, *args, **kwargs)
            content = io.BytesIO()
            save(value, content)
            file.write(content.getvalue()[: len(content.getvalue()) // 2])
            file.flush()
            self.end()

        def cut_copy(source, target, **kwargs):
            if not self.due():
                return copy(source, target, **kwargs)
            content = Path(source).read_bytes()
            Path(target).write_bytes(content[: len(content) // 2])
            self.end()

        torch.save, shutil.copyfile = cut_save, cut_copy

    def __exit__(self, *error):
        pass  # the process ends


def killed_while_writing(at, work):
    def interrupted():
        with Interruption(at, outcomes.kill_this_process):
            work()

    return in_child(interrupted)[0]


# The second epoch's writes: checkpoint2.pt is saved (4), then copied, to checkpoint_best.pt (5) and checkpoint_last.pt.
def assert_a_kill_loses_nothing(at, data_bin, whole, tmp_path):
    arch, expected = whole
    assert killed_while_writing(at, lambda: run_train(data_bin, tmp_path, arch, "--max-epoch", "2")) == -signal.SIGKILL
    found = sorted(path.name for path in tmp_path.glob("*.pt"))
    assert {"checkpoint1.pt", "checkpoint_best.pt", "checkpoint_last.pt"} <= set(found)
    for name in found:
        assert checkpoint_files.find_damage(tmp_path / name) is None
    run_train(data_bin, tmp_path, arch, "--max-epoch", "2")
    assert_same_weights(tmp_path / "checkpoint2.pt", expected / "checkpoint2.pt")
    losses = [torch.load(folder / "checkpoint2.pt")["extra_state"]["val_loss"] for folder in (tmp_path, expected)]
    assert losses[0] == losses[1]
    assert not list(tmp_path.glob("*.tmp"))


def test_a_kill_in_the_middle_of_a_write_loses_no_earlier_work(data_bin, whole, tmp_path):
    assert_a_kill_loses_nothing(6, data_bin, whole, tmp_path)


@pytest.mark.parametrize("at", [4, 5])
def test_nor_does_a_kill_in_the_middle_of_the_other_writes(at, data_bin, informer, tmp_path):
    assert_a_kill_loses_nothing(at, data_bin, informer, tmp_path)


def test_stock_fairseq_leaves_a_cut_checkpoint(model, tmp_path):
    """The defect behind the repair: its copy is made in place, over the whole file of the epoch before."""
    last = tmp_path / "checkpoint_last.pt"
    shutil.copyfile(model, last)

    def stock():
        with Interruption(1, outcomes.kill_this_process):
            file_io.PathManager.copy(str(model), str(last), overwrite=True)

    assert in_child(stock)[0] == -signal.SIGKILL
    assert checkpoint_files.find_damage(last) is not None
    with pytest.raises(InputError, match="checkpoint_last.pt is damaged or incomplete"):
        checkpoint_utils.load_checkpoint_to_cpu(str(last))


# ------------------------------------------------------------------------------------------------------ a full disk


def can_mount():
    """Whether this user may mount a small disk: then a truly full one is tried too."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]
        try:
            mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False
        if mounted:
            subprocess.run(["umount", folder], check=True)
        return mounted


@contextmanager
def limited(size):
    """No file may grow beyond ``size`` bytes in this process."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield


@contextmanager
def small_disk(folder, size):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("way", ["limit", *(["full disk"] if can_mount() else [])])
def test_a_disk_without_room_ends_training_in_one_line_and_loses_nothing(way, data_bin, informer, tmp_path):
    """The first epoch's three names fit, the second's do not."""
    folder, whole = tmp_path / "small", informer[1]
    folder.mkdir()
    size = (whole / "checkpoint1.pt").stat().st_size

    def second_epoch():
        if way == "limit":
            with limited(size // 2):
                run_train(data_bin, folder, "informer_mt_tiny", "--max-epoch", "2")
        else:
            run_train(data_bin, folder, "informer_mt_tiny", "--max-epoch", "2")

    with small_disk(folder, 4 * size) if way == "full disk" else nullcontext():
        run_train(data_bin, folder, "informer_mt_tiny", "--max-epoch", "1")
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        status, line = in_child(second_epoch)
        assert status == 1
        reason = "File too large" if way == "limit" else "No space left on device"
        assert re.fullmatch(
            rf"{folder}/checkpoint\w+.pt could not be written \({reason}\): make room, or choose another folder; "
            "nothing of it is kept, and the files written before it stay",
            line,
        )
        after = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert {name: after[name] for name in ("checkpoint1.pt", "checkpoint_last.pt")} == {
            name: before[name] for name in ("checkpoint1.pt", "checkpoint_last.pt")
        }
        for path in folder.iterdir():
            assert path.suffix == ".pt" and checkpoint_files.find_damage(path) is None
        shutil.copytree(folder, tmp_path / "moved")
    run_train(data_bin, tmp_path / "moved", "informer_mt_tiny", "--max-epoch", "2")
    assert_same_weights(tmp_path / "moved/checkpoint2.pt", whole / "checkpoint2.pt")


def in_child_without_room(work):
    def limited_work():
        with limited(16):
            line = io.StringIO()
            with redirect_stderr(line):
                status = work()
            raise InputError(f"{status}: {line.getvalue().strip().splitlines()[-1]}")

    return in_child(limited_work)[1]


def test_averaging_without_room_is_told_and_keeps_the_earlier_file(model, tmp_path):
    output = tmp_path / "mean.pt"
    output.write_text("earlier")

    def average():
        try:
            average_checkpoints.main(["--inputs", str(model), "--output", str(output)])
        except SystemExit as error:
            return error.code

    line = in_child_without_room(average)
    assert line.startswith("2: python -m informer_fairseq.average_checkpoints: error: ")
    assert f"{output} could not be written (File too large): make room" in line
    assert output.read_text() == "earlier" and len(list(tmp_path.iterdir())) == 1


def test_tools_without_room_are_told_and_keep_the_earlier_file(model, tmp_path):
    output = tmp_path / "params.json"
    output.write_text("earlier")
    words = ["params", "--checkpoint", str(model), "--json", str(output)]
    line = in_child_without_room(lambda: tools.main(words))
    assert line == (
        f"2: informer-fairseq params: error: {output} could not be written (File too large): make room, or choose "
        "another folder; nothing of it is kept"
    )
    assert output.read_text() == "earlier" and len(list(tmp_path.iterdir())) == 1


# ------------------------------------------------------------------------------------------------ damaged checkpoints


def flipped(content):
    """One bit of a weight: torch reads it without a word."""
    place = content.index(b"/data/0") + 200
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


def zeroed_end(content):
    """What some file systems leave after a power cut."""
    return content[: len(content) // 2] + bytes(len(content) - len(content) // 2)


DAMAGES = {"cut": cut, "flipped": flipped, "zeroed end": zeroed_end, "empty": lambda content: b""}


# Each damage at some ways in, and one that torch does not notice at all of them.
@pytest.mark.parametrize(
    ("damage", "reader"),
    [
        *(("flipped", reader) for reader in READERS),
        *((d, r) for d in DAMAGES for r in ("resume", "generate", "average")),
    ],
)
def test_a_damaged_checkpoint_is_told_at_every_way_in(damage, reader, model, data_bin, tmp_path, capsys):
    path = tmp_path / "bad/damaged.pt"
    path.parent.mkdir()
    path.write_bytes(DAMAGES[damage](model.read_bytes()))
    line = checkpoint_readers(path, data_bin[0], tmp_path / "out", capsys, sizes=SIZES)[reader]()
    assert re.search(r"\S+\.pt is (damaged or incomplete|not a readable checkpoint) \(.+\): use an earlier", line)
    assert not (tmp_path / "out/mean.pt").exists() and not (tmp_path / "out/page.html").exists()


def test_torch_alone_reads_a_flipped_bit_without_a_word(model, tmp_path):
    """The defect behind the check of the checksums."""
    (tmp_path / "a.pt").write_bytes(flipped(model.read_bytes()))
    mine, theirs = weights(tmp_path / "a.pt"), weights(model)
    assert sum(not torch.equal(mine[name], theirs[name]) for name in mine) == 1


def test_any_flipped_bit_is_told_or_harmless(model, tmp_path):
    expected = weights(model)
    content = model.read_bytes()
    path = tmp_path / "a.pt"
    told = 0
    for place in range(0, 8 * len(content), 8 * len(content) // 150):
        path.write_bytes(
            content[: place // 8] + bytes([content[place // 8] ^ (1 << place % 8)]) + content[place // 8 + 1 :]
        )
        try:
            found = checkpoint_utils.load_checkpoint_to_cpu(str(path))["model"]
        except InputError:
            told += 1
        else:
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[name], expected[name]) for name in found), place
    assert told > 75  # the rest fell into the gaps that align the parts


def test_a_damaged_last_checkpoint_names_the_newest_whole_one_and_training_goes_on_from_it(whole, data_bin, tmp_path):
    arch, expected = whole
    for name in ("checkpoint1.pt", "checkpoint_last.pt"):
        shutil.copyfile(expected / "checkpoint1.pt", tmp_path / name)
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(flipped(last.read_bytes()))
    line = told_by_fairseq(train, training(data_bin, tmp_path, arch, "--max-epoch", "2"))
    advice = re.search(r"checkpoint_last.pt is damaged .*: train on with --restore-file (\S+checkpoint1.pt),", line)
    assert advice, line
    run_train(data_bin, tmp_path, arch, "--max-epoch", "2", "--restore-file", Path(advice[1]))
    assert_same_weights(tmp_path / "checkpoint2.pt", expected / "checkpoint2.pt")


def test_damaged_newer_ones_are_passed_over(model, tmp_path):
    for number, name in enumerate(("checkpoint1.pt", "checkpoint2.pt", "checkpoint_best.pt", "checkpoint_last.pt")):
        content = model.read_bytes()
        (tmp_path / name).write_bytes(content if number < 1 else cut(content) if number == 1 else flipped(content))
        os.utime(tmp_path / name, (number, number))
    assert checkpoint_files.newest_whole(tmp_path / "checkpoint_last.pt") == tmp_path / "checkpoint1.pt"
    (tmp_path / "checkpoint1.pt").unlink()
    assert checkpoint_files.newest_whole(tmp_path / "checkpoint_last.pt") is None


def test_a_restore_file_that_is_not_there_is_told(data_bin, tmp_path):
    """fairseq logs it and trains anew, over the checkpoints of the run that should go on."""
    (tmp_path / "checkpoint3.pt").write_bytes(b"x")
    line = told_by_fairseq(train, training(data_bin, tmp_path, "informer_mt_tiny", "--restore-file", "checkpoint3.pt"))
    assert line == (
        f"no such checkpoint: --restore-file checkpoint3.pt; the one in --save-dir is {tmp_path / 'checkpoint3.pt'}"
    )
    line = told_by_fairseq(train, training(data_bin, tmp_path, "transformer", "--finetune-from-model", "none.pt"))
    assert line == "--finetune-from-model none.pt does not exist"


def test_a_save_dir_that_is_a_file_is_told(data_bin, write):
    path = write("taken", "text")
    line = told_by_fairseq(train, training(data_bin, path, "informer_mt_tiny", "--max-update", "1"))
    assert line == f"{path} is a file: give a folder"


@pytest.mark.parametrize("kind", ["weights", "list", "script", "text", "folder"])
@pytest.mark.parametrize("reader", ["generate", "average", "--init-from-transformer", "params"])
def test_other_files_are_told(kind, reader, data_bin, tmp_path, capsys):
    path = tmp_path / "in/other.pt"
    path.parent.mkdir()
    if kind == "script":
        torch.jit.script(torch.nn.Linear(1, 1)).save(str(path))
    elif kind == "text":
        path.write_text("not a checkpoint\n")
    elif kind == "folder":
        path.mkdir()
    else:
        torch.save({"w": torch.ones(2)} if kind == "weights" else [1], path)
    line = checkpoint_readers(path, data_bin[0], tmp_path / "out", capsys, sizes=SIZES)[reader]()
    assert re.search("no(t a)? (readable checkpoint|fairseq checkpoint)|is a folder|no such checkpoint", line), line
