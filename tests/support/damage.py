"""What the tests of interruption and damage share: a training of a small model, and half of a file."""

from fairseq import checkpoint_utils
from fairseq_cli import train

from tests.support.checkpoints import SIZES
from tests.support.outcomes import USER_DIR, run_fairseq

TRAINING = (
    "--optimizer adam --lr 1e-3 --max-tokens 2500 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 "
    "--num-workers 0 --seed 3 --cpu --no-progress-bar --update-epoch-batch-itr True --dropout 0.1"
).split()


def training(data_bin, save_dir, arch, *more):
    """A command line of ``fairseq-train`` for a small model."""
    return [data_bin[0], "--user-dir", USER_DIR, "--arch", arch, "--save-dir", save_dir, *SIZES, *TRAINING, *more]


def run_train(data_bin, save_dir, arch="informer_mt_tiny", *more):
    """``fairseq-train`` with it, as a new process would run it."""
    checkpoint_utils.save_checkpoint.__dict__.pop("best", None)  # fairseq keeps it from run to run
    run_fairseq(train, training(data_bin, save_dir, arch, *more))


def cut(content):
    """The first half of a file's bytes."""
    return content[: len(content) // 2]
