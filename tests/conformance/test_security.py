"""Loading runs no code: hostile checkpoints at every way in, hostile flags inside them, other hostile inputs."""

import builtins
import os
import re
import shutil
import sys
import tarfile
import types
import zipfile

import pytest
import torch
import yaml
from fairseq import hub_utils, utils
from fairseq.data import Dictionary
from fairseq_cli import generate, train, validate
from hydra import compose, initialize_config_dir

from informer_fairseq import flag_values
from informer_fairseq.errors import InputError, one_line_message
from informer_fairseq.tools.models import load_model
from tests.support.checkpoints import SIZES, save_small
from tests.support.outcomes import (
    READERS,
    USER_DIR,
    checkpoint_readers,
    run_fairseq,
    told_by_average,
    told_by_fairseq,
)


class Payload:
    """Unpickling it writes the marker."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def marker(tmp_path):
    return tmp_path / "code was run"


@pytest.fixture(scope="module")
def honest(data_bin, tmp_path_factory):
    path = tmp_path_factory.mktemp("honest") / "model.pt"
    save_small(path, data_bin[0])
    return path


@pytest.fixture
def readers(data_bin, tmp_path, capsys):
    return lambda path: checkpoint_readers(path, data_bin[0], tmp_path, capsys, sizes=SIZES)


SOME_READERS = ("resume", "generate", "average", "params", "from_pretrained")


@pytest.mark.parametrize(
    ("reader", "protection"),
    [*((reader, "as it is") for reader in READERS), *((reader, "switched off") for reader in SOME_READERS)],
)
def test_a_hostile_checkpoint_is_refused_at_every_way_in(
    reader, protection, honest, marker, readers, tmp_path, monkeypatch
):
    """Advice on the web switches torch's protection off for the whole process; it must not matter here."""
    state = torch.load(honest)
    state["extra_state"]["payload"] = Payload(marker)
    torch.save(state, tmp_path / "hostile.pt")
    if protection == "switched off":
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    line = readers(tmp_path / "hostile.pt")[reader]()
    assert "is refused: its pickle holds posix.mkdir, which no fairseq checkpoint needs" in line
    assert not marker.exists()


def test_the_payload_would_run_without_protection(honest, marker, tmp_path):
    """The marker is no stand-in: read as fairseq before torch 2.6 reads, the payload runs."""
    torch.save({"payload": Payload(marker)}, tmp_path / "hostile.pt")
    torch.load(tmp_path / "hostile.pt", weights_only=False)
    assert marker.exists()


class Opcodes:
    """Pickles by hand, for what ``pickle`` does not write."""

    def __init__(self, marker):
        name = str(marker).encode()
        call = b"cposix\nmkdir\n(S'" + name + b"'\ntR."
        self.kinds = {
            "reduce": call,
            "instance": b"(S'" + name + b"'\niposix\nmkdir\n.",
            "object": b"(cposix\nmkdir\nS'" + name + b"'\no.",
            "build": b"cargparse\nNamespace\n)R}S'x'\ncposix\nmkdir\n(S'" + name + b"'\ntRsb.",
            "getattr": b"cbuiltins\ngetattr\n(cos\n_exit\nS'__call__'\ntR.",
            "eval": b'cbuiltins\neval\n(S\'__import__("os").mkdir("' + name + b"\")'\ntR.",
            "tail": b"}." + call,
        }


@pytest.mark.parametrize("form", ["bare", "zip"])
@pytest.mark.parametrize("kind", Opcodes("x").kinds)
def test_no_form_of_pickle_runs(kind, form, marker, tmp_path, capsys):
    path = tmp_path / "hostile.pt"
    pickled = Opcodes(marker).kinds[kind]
    if form == "bare":
        path.write_bytes(pickled)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (("data.pkl", pickled), ("version", b"3\n"), ("byteorder", b"little")):
                archive.writestr(f"hostile/{name}", content)
    line = told_by_average(["--inputs", path, "--output", tmp_path / "mean.pt"], capsys)
    assert "hostile.pt" in line and re.search("refused|not a readable|damaged|no fairseq checkpoint", line)
    assert not marker.exists() and not (tmp_path / "mean.pt").exists()


HOSTILE_FLAGS = {
    "adaptive softmax": ("model", {"adaptive_softmax_cutoff": "{}", "criterion": "adaptive_loss"}),
    "xformers": ("model", {"encoder_xformers_att_config": "{}", "decoder_xformers_att_config": "{}"}),
    "another architecture": (
        "model",
        {"arch": "fconv", "_name": "fconv", "encoder_layers": "{}", "decoder_layers": "{}", "decoder_attention": "{}"},
    ),
}


@pytest.mark.parametrize(
    "reader", ["generate", "interactive", "validate", "from_pretrained", "params", "probe", "score"]
)
@pytest.mark.parametrize("name", HOSTILE_FLAGS)
def test_flags_in_a_checkpoint_run_nothing(name, reader, honest, marker, readers, tmp_path):
    """fairseq evaluates some flags as Python. A checkpoint of plain strings would run code wherever it is loaded."""
    part, flags = HOSTILE_FLAGS[name]
    state = torch.load(honest)
    for flag, value in flags.items():
        setattr(state["cfg"][part], flag, value.format(f"__import__('os').mkdir({str(marker)!r})"))
    torch.save(state, tmp_path / "hostile.pt")
    line = readers(tmp_path / "hostile.pt")[reader]()
    assert not marker.exists()
    assert "is refused as the value of a flag: only numbers, strings, lists" in line


def test_stock_fairseq_evaluates_flags(marker):
    """The defect behind the repair: its ``eval_str_list`` runs what it is given, outside of our repair."""
    stock = types.FunctionType(utils.eval_str_list.__code__, {"__builtins__": builtins})
    assert stock(f"__import__('os').mkdir({str(marker)!r}) or [1]", float) == [1.0] and marker.exists()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(0.9, 0.98)", (0.9, 0.98)),
        ("[(512, 3)] * 2 + [(1, 1)]", [(512, 3), (512, 3), (1, 1)]),
        ("1/4", 0.25),
        ("-2", -2),
        ("5e-4,1e-4", (5e-4, 1e-4)),
        ("True", True),
        ("{'a': [1]}", {"a": [1]}),
    ],
)
def test_what_flags_hold_is_read(text, value):
    assert flag_values.read_value(text) == value
    assert vars(utils)["eval"] is flag_values.read_value


@pytest.mark.parametrize(
    "text",
    [
        "print(1)",
        "[x for x in (1,)]",
        "lambda: 1",
        "().__class__",
        "2 ** 99",
        "[0] * 10000000",
        "'a' * 99 * 999999",
        "open",
        "1 if 2 else 3",
        "(1,)[0]",
        "f'{1}'",
        "",
        "(" * 300,
        "\0",
    ],
)
def test_nothing_else_is_read(text):
    with pytest.raises(InputError, match="is refused as the value of a flag"):
        flag_values.read_value(text)


# ------------------------------------------------------------------------------------------------- other inputs


@pytest.mark.parametrize("kind", ["above", "absolute", "link"])
def test_an_archive_of_a_model_stays_in_its_folder(kind, tmp_path):
    """``from_pretrained`` unpacks archives, as downloaded."""
    content, archive = tmp_path / "content", tmp_path / "model.tar.gz"
    content.write_text("x")
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(content, "model/dict.en.txt")
        member = tarfile.TarInfo(f"../../{tmp_path.name}-escaped" if kind == "above" else str(tmp_path / "escaped"))
        if kind == "link":
            member = tarfile.TarInfo("model/link")
            member.type, member.linkname = tarfile.SYMTYPE, str(tmp_path / "escaped")
        packed.addfile(member)
    # An absolute name is taken as one below the folder; fairseq then finds no common folder of all members.
    refused = FileNotFoundError if kind == "absolute" else InputError
    message = "No such file" if kind == "absolute" else r"model.tar.gz is refused \(.*\): get the archive from a source"
    with pytest.raises(refused, match=message):
        hub_utils.from_pretrained(str(archive), data_name_or_path=".")
    assert not (tmp_path / "escaped").exists() and not list(tmp_path.parent.glob("*-escaped"))


@pytest.mark.parametrize("file", ["valid.en-vi.en.idx", "valid.en-vi.en.bin", "dict.en.txt"])
def test_pickles_in_a_data_bin_run_nothing(file, honest, marker, data_bin, tmp_path):
    shutil.copytree(data_bin[0], tmp_path / "bin")
    (tmp_path / "bin" / file).write_bytes(Opcodes(marker).kinds["reduce"])
    words = [tmp_path / "bin", "--user-dir", USER_DIR, "--task", "translation", "--max-tokens", "400", "--cpu"]
    line = told_by_fairseq(validate, [*words, "--path", honest])
    assert re.search("idx is damaged or no index|bin is damaged or cut|Incorrect dictionary format", line)
    assert not marker.exists()


def test_words_of_a_dictionary_are_words(marker, tmp_path):
    hostile = f"__import__('os').mkdir({str(marker)!r})"
    (tmp_path / "dict.txt").write_text(f"{hostile.replace(' ', '_')} 3\n${{oc.env:HOME}} 2\n")
    words = Dictionary.load(str(tmp_path / "dict.txt"))
    assert len(words) == 6 and not (tmp_path / "code_was_run").exists() and not marker.exists()


HOSTILE_YAML = "common:\n  user_dir: !!python/object/apply:os.mkdir ['{}']\n"


def test_yaml_of_hydra_builds_no_objects(marker, tmp_path):
    """``--config-dir`` of fairseq-hydra-train: hydra reads it with OmegaConf's loader."""
    (tmp_path / "config.yaml").write_text(HOSTILE_YAML.format(marker))
    with pytest.raises(yaml.constructor.ConstructorError) as caught, initialize_config_dir(str(tmp_path)):
        compose("config")
    assert not marker.exists()
    assert re.search("could not determine a constructor for the tag .*os.mkdir", one_line_message(caught.value))


def test_yaml_of_quantization_builds_no_objects(marker, data_bin, tmp_path):
    (tmp_path / "q.yaml").write_text(HOSTILE_YAML.format(marker))
    words = [data_bin[0], "--user-dir", USER_DIR, "--arch", "transformer", *SIZES, "--optimizer", "adam", "--cpu"]
    words += ["--max-tokens", "400", "--max-update", "1", "--save-dir", tmp_path / "out"]
    line = told_by_fairseq(train, [*words, "--quantization-config-path", tmp_path / "q.yaml"])
    assert re.search("could not determine a constructor for the tag .*os.mkdir", line)
    assert not marker.exists()


def test_no_user_dir_is_taken_from_a_checkpoint(honest, marker, data_bin, tmp_path):
    (tmp_path / "hostile_user_dir").mkdir()
    (tmp_path / "hostile_user_dir/__init__.py").write_text(f"import os\nos.mkdir({str(marker)!r})\n")
    state = torch.load(honest)
    state["cfg"]["common"]["user_dir"] = str(tmp_path / "hostile_user_dir")
    torch.save(state, tmp_path / "model.pt")
    words = [data_bin[0], "--user-dir", USER_DIR, "--path", tmp_path / "model.pt", "--cpu", "--num-workers", "0"]
    run_fairseq(generate, [*words, "--beam", "1", "--max-len-b", "2"])
    load_model(tmp_path / "model.pt", data_bin[0])
    assert not marker.exists() and "hostile_user_dir" not in sys.modules
