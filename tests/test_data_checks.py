import argparse
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from fairseq import tasks

from informer_fairseq.data_checks import refuse_long_sources
from informer_fairseq.errors import InputError


def task_with(**sizes):
    task = SimpleNamespace(datasets={})

    def load_dataset(split, **_):
        task.datasets[split] = SimpleNamespace(src_sizes=np.array(sizes[split]))

    task.load_dataset = load_dataset
    return task


def test_a_validation_set_with_long_sources_is_refused_when_loaded():
    task = task_with(train=[99], valid=[3, 12, 11, 2], test=[10])
    refuse_long_sources(task, 10)
    task.load_dataset("test", combine=False)
    task.load_dataset("train", epoch=1)  # fairseq skips these with a warning of its own
    with pytest.raises(
        InputError, match=r"valid: 2 of 4 sources exceed .* limit of 10, .* \(line 2\) has 12 positions"
    ):
        task.load_dataset("valid")


def test_an_empty_set_and_other_kinds_of_data_pass():
    task = task_with(valid=[])
    refuse_long_sources(task, 10)
    task.load_dataset("valid")
    other = SimpleNamespace(datasets={"valid": object()}, load_dataset=lambda split: None)
    refuse_long_sources(other, 10)
    other.load_dataset("valid")


def test_indices_beyond_the_dictionary_are_refused_when_loaded(data_bin, tmp_path):
    folder = tmp_path / "bin"
    shutil.copytree(data_bin[0], folder)
    words = (folder / "dict.vi.txt").read_text().splitlines()
    (folder / "dict.vi.txt").write_text("\n".join(words[:9]) + "\n")
    flags = {"data": str(folder), "source_lang": "en", "target_lang": "vi", "dataset_impl": "mmap"}
    task = tasks.setup_task(argparse.Namespace(task="translation", **flags))
    refuse_long_sources(task, 1000)
    with pytest.raises(InputError, match="valid: the target text holds index .*, but its dictionary has 13 types"):
        task.load_dataset("valid")


def iterating_task(**sizes):
    """A task with data loaded as fairseq-generate loads it; its iterator is the flag that it was given."""
    task = task_with(**sizes)
    task.get_batch_iterator = lambda dataset, *args, ignore_invalid_inputs=False: ignore_invalid_inputs
    return task


def test_commands_that_read_a_checkpoint_choose_for_themselves():
    """Whether long sources are left out is not what the training, whose flags the checkpoint holds, chose."""
    task = iterating_task(test=[3, 12, 11, 2])
    refuse_long_sources(task, 10, skips=True)
    task.load_dataset("test", task_cfg=None)
    assert task.get_batch_iterator(task.datasets["test"], ignore_invalid_inputs=True) is True
    with pytest.raises(InputError, match="test: 2 of 4 sources exceed the encoder's limit of 10"):
        task.get_batch_iterator(task.datasets["test"])
    lines_of_interactive_input = SimpleNamespace(src_sizes=np.array([12]))
    assert task.get_batch_iterator(lines_of_interactive_input) is False  # fairseq's own message tells of these


def test_a_training_may_leave_long_sources_out():
    task = iterating_task(valid=[3, 12])
    refuse_long_sources(task, 10, skips=True)
    task.load_dataset("valid", combine=False, epoch=1)
    assert task.datasets["valid"].src_sizes.tolist() == [3, 12]


def test_of_several_models_the_smallest_limit_holds():
    task = iterating_task(test=[3, 12, 11, 2])
    for limit in (20, 11, 15):
        refuse_long_sources(task, limit)
    with pytest.raises(InputError, match="test: 1 of 4 sources exceed the encoder's limit of 11"):
        task.load_dataset("test")


def test_a_task_is_wrapped_once():
    task = task_with(valid=[1])
    refuse_long_sources(task, 10)
    wrapped = task.load_dataset
    refuse_long_sources(task, 10)
    assert task.load_dataset is wrapped
