"""Small checkpoints as fairseq saves them, without training."""

import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from tests.support.models import POSITION_FREE

SIZES = (
    "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 16 --decoder-embed-dim 16 --encoder-ffn-embed-dim 24"
    " --decoder-ffn-embed-dim 24 --encoder-attention-heads 2 --decoder-attention-heads 2"
).split()
LENGTHS = ["--encoder-fixed-length", "40", "--encoder-reduced-length", "8"]


def save_small(path, data_bin, arch="transformer", source="en", target="vi", seed=1, extra=()):
    """Writes a checkpoint of a small model with random weights; returns the model."""
    lengths = [] if arch in POSITION_FREE else LENGTHS
    rank = ["--composition-rank", "8"] if arch == "ni_transformer" else []
    words = ["--arch", arch, "--task", "translation", "-s", source, "-t", target, *SIZES, *lengths, *rank, *extra]
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, [str(data_bin), "--seed", str(seed), *words])
    cfg = convert_namespace_to_omegaconf(args)
    torch.manual_seed(seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    container = OmegaConf.to_container(cfg, resolve=True)
    state = {
        "args": None,
        "cfg": container,
        "model": model.state_dict(),
        "optimizer_history": [{"optimizer_name": "Adam", "lr_scheduler_state": {}, "num_updates": 0}],
        "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": 1.0},
    }
    checkpoint_utils.torch_persistent_save(state, str(path))
    return model.eval()
