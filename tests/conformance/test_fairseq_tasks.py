"""fairseq's other tasks that train translation models: ours do what the stock model does, or are refused alike."""

import math

import pytest

from tests.support.commands import train_small
from tests.support.models import ALL_ARCHS

PAIR = ["-s", "en", "-t", "vi"]
LANGUAGES = ["--lang-pairs", "en-vi", "--langs", "en,vi"]
# The flags of a task, and how fairseq ends with its own transformer: None if it trains.
TASKS = {
    "translation_lev": (PAIR, None),
    "translation_multi_simple_epoch": (LANGUAGES, "shard_epoch"),
    "multilingual_translation": (LANGUAGES[:2], "requires a FairseqMultiModel architecture"),
    "semisupervised_translation": (LANGUAGES[:2], "requires a FairseqMultiModel architecture"),
    "translation_from_pretrained_bart": ([*PAIR, "--langs", "en,vi"], "has no attribute 'args'"),
    "translation_from_pretrained_xlm": (PAIR, "add_special_symbols"),
}


# What a task refuses, it refuses before it looks at the model's layers.
CASES = [
    (task, arch)
    for task, (_, refusal) in TASKS.items()
    for arch in [*(ALL_ARCHS if refusal is None else ALL_ARCHS[-1:]), "transformer"]
]


@pytest.mark.parametrize(("task", "arch"), CASES)
def test_a_task_ends_as_with_the_stock_model(task, arch, data_bin, tmp_path):
    flags, refusal = TASKS[task]
    words = ["--task", task.split()[0], *flags, "--train-subset", "valid", "--batch-size", "13", "--max-update", "1"]
    if refusal is not None:
        with pytest.raises((TypeError, ValueError, AttributeError, UnboundLocalError), match=refusal):
            train_small(data_bin[0], tmp_path, arch, *words)
    else:
        state = train_small(data_bin[0], tmp_path, arch, *words)
        assert 0 < state["extra_state"]["val_loss"] < 2 * math.log2(70)
