"""Finding the plugin, building from other front ends, and going on from what was saved."""

import argparse
import os
import shutil
import sys
from pathlib import Path

import fairseq
import pytest
import torch
from fairseq import options, utils
from fairseq.dataclass.initialize import hydra_init
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq_cli import hydra_train
from hydra import compose, initialize_config_dir

from tests.conftest import ROOT
from tests.support.commands import train_small
from tests.support.models import ALL_ARCHS, POSITION_FREE

SIZES = {
    **{
        f"{side}_{size}": 16 if size == "embed_dim" else 24
        for side in ("encoder", "decoder")
        for size in ("embed_dim", "ffn_embed_dim")
    },
    **{f"{side}_{size}": 2 for side in ("encoder", "decoder") for size in ("layers", "attention_heads")},
}


@pytest.fixture
def import_once(monkeypatch):
    """``--user-dir`` as the first of a process that has the package from the repository."""
    monkeypatch.setattr(utils.import_user_module, "memo", set(), raising=False)
    return lambda path: utils.import_user_module(argparse.Namespace(user_dir=str(path)))


def test_the_users_folder_may_be_given_in_any_way(import_once, tmp_path, monkeypatch):
    """Absolute, relative to here and to there, with a slash behind it, twice."""
    before = sys.modules["informer_fairseq"]
    for folder in (ROOT, ROOT / "tests", tmp_path):
        monkeypatch.chdir(folder)
        relative = os.path.relpath(ROOT / "informer_fairseq")
        for path in (ROOT / "informer_fairseq", relative, f"{relative}/", relative):
            import_once(path)
    assert sys.modules["informer_fairseq"] is before
    assert all(ARCH_MODEL_REGISTRY[arch].__module__ == f"informer_fairseq.models.{arch}" for arch in ALL_ARCHS)


def test_another_copy_is_refused_as_fairseq_refuses_it(import_once, tmp_path):
    shutil.copytree(ROOT / "informer_fairseq", tmp_path / "informer_fairseq", ignore=shutil.ignore_patterns("*.pyc"))
    with pytest.raises(ImportError, match=r"module name \(informer_fairseq\) is not globally unique"):
        import_once(tmp_path / "informer_fairseq")
    assert "not globally unique" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("arch", ALL_ARCHS)
def test_the_readme_knows_the_message_of_a_forgotten_user_dir(arch, monkeypatch, capsys):
    monkeypatch.delitem(ARCH_MODEL_REGISTRY, arch)
    with pytest.raises(SystemExit):
        options.parse_args_and_arch(options.get_training_parser(), ["data-bin", "--arch", arch])
    message = capsys.readouterr().err.splitlines()[-1]
    shown = f"error: argument --arch/-a: invalid choice: '{arch}'"
    assert shown in message
    assert shown.replace(arch, "informer_mt") in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("arch", ALL_ARCHS)
def test_hydra_builds_the_model_of_the_command_line(arch, data_bin, tmp_path, monkeypatch):
    """The same flags, the same weights, and the same loss after an update."""
    folder = tmp_path / "hydra"
    flags = {**SIZES, "dropout": 0.0, "_name": arch}
    if arch not in POSITION_FREE:
        flags.update(encoder_fixed_length=40, encoder_reduced_length=8)
    overrides = [f"+model.{name}={value}" for name, value in flags.items()]
    overrides += ["task=translation", f"task.data={data_bin[0]}", "criterion=label_smoothed_cross_entropy"]
    overrides += ["criterion.label_smoothing=0.0", "optimizer=adam", "optimization.lr=[0.001]", "lr_scheduler=fixed"]
    overrides += ["dataset.train_subset=valid", "dataset.batch_size=13", "optimization.max_update=2", "common.cpu=true"]
    overrides += ["dataset.num_workers=0", "dataset.required_batch_size_multiple=1", "common.seed=3"]
    overrides += [f"checkpoint.save_dir={folder}", f"common.user_dir={ROOT / 'informer_fairseq'}"]
    monkeypatch.chdir(tmp_path)
    hydra_init("config")
    with initialize_config_dir(config_dir=str(Path(fairseq.__file__).parent / "config"), version_base="1.1"):
        hydra_train._hydra_main(compose("config", overrides=overrides))
    by_hydra = torch.load(folder / "checkpoint_last.pt")
    words = ["--train-subset", "valid", "--batch-size", "13", "--max-update", "2"]
    by_words = train_small(data_bin[0], tmp_path / "words", arch, *words)
    assert by_hydra["model"].keys() == by_words["model"].keys()
    for name, weight in by_words["model"].items():
        assert torch.equal(by_hydra["model"][name], weight), name
    assert by_hydra["extra_state"]["val_loss"] == by_words["extra_state"]["val_loss"]
