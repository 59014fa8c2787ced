"""Small models of every architecture, built as fairseq builds them."""

import argparse
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

import informer_fairseq  # noqa: F401  (registers the architectures)
from informer_fairseq.config import is_position_bound

PAPER_ARCHS = ("linformer_mt", "conv_linformer_mt", "informer_mt")
EFFICIENT_ARCHS = (*PAPER_ARCHS, "linformer_informer_mt")
ALL_ARCHS = (*EFFICIENT_ARCHS, "ni_transformer")
# Architectures without weights over positions, which know no n and no r.
POSITION_FREE = (
    "transformer",
    *(
        arch
        for arch in ALL_ARCHS
        if not is_position_bound(ARCH_MODEL_REGISTRY[arch].token_mixer, ARCH_MODEL_REGISTRY[arch].channel_mixer)
    ),
)
SHARING_MODES = ("none", "kv", "layer")
SMALL = {
    "encoder_embed_dim": 16,
    "decoder_embed_dim": 16,
    "encoder_ffn_embed_dim": 24,
    "decoder_ffn_embed_dim": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_fixed_length": 40,
    "encoder_reduced_length": 8,
}


def dictionary(size, letter="w"):
    words = Dictionary()
    for number in range(size - len(words)):
        words.add_symbol(f"{letter}{number}")
    return words


def flags(arch, **overrides):
    """The flags of ``arch`` with its defaults, as fairseq's command line would hand them over."""
    args = argparse.Namespace(arch=arch, **overrides)
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


def stand_in_task(source_size, target_size, joined=False):
    """What a model needs of fairseq's translation task; joined dictionaries are the source's."""
    source = dictionary(source_size)
    target = source if joined else dictionary(target_size, "v")
    return SimpleNamespace(
        source_dictionary=source, target_dictionary=target, datasets={}, load_dataset=lambda *_: None
    )


def build(arch, source_size=50, target_size=45, joined=False, **overrides):
    """Builds a model; without overrides at the architecture's own sizes."""
    task = stand_in_task(source_size, target_size, joined)
    return ARCH_MODEL_REGISTRY[arch].build_model(flags(arch, **overrides), task)


def build_small(arch, **overrides):
    """Builds a small model without dropout (width 16, 2+2 layers, n 40, r 8)."""
    sizes = dict(SMALL, dropout=0.0)
    if arch in POSITION_FREE:
        sizes = {name: value for name, value in sizes.items() if not name.endswith("_length")}
    return build(arch, **{**sizes, **overrides})


def count(model):
    """The number of the model's parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def batch(lengths, pad, side="right", size=50, seed=3):
    """B x T source tokens, each row its own sentence with </s> last, padded on the given side."""
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths)
    tokens = torch.full((len(lengths), width), pad)
    for row, length in enumerate(lengths):
        sentence = torch.randint(4, size, (length,), generator=generator)
        sentence[-1] = 2
        place = slice(0, length) if side == "right" else slice(width - length, width)
        tokens[row, place] = sentence
    return tokens
