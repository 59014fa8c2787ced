"""What all models of the plugin have in common."""

import sys
from argparse import Namespace
from typing import Any, ClassVar, Dict, Optional, cast

import torch
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import ARCH_MODEL_REGISTRY, register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerModel, base_architecture
from omegaconf import DictConfig, OmegaConf, open_dict

from informer_fairseq.checkpoints import check_state_dict, dictionary_fingerprints
from informer_fairseq.composition_config import CompositionConfig, check_composition_flags, set_composition_defaults
from informer_fairseq.config import EfficientEncoderConfig, check_encoder_flags, set_encoder_defaults, set_tiny_sizes
from informer_fairseq.data_checks import refuse_long_sources
from informer_fairseq.decoder import ComposedDecoder
from informer_fairseq.dropout import use_fast_dropout
from informer_fairseq.encoder import EfficientEncoder
from informer_fairseq.warm_start import start_from_transformer


class EfficientTransformerModel(TransformerModel):
    """fairseq's Transformer with exchangeable mixers and compositions; subclasses are presets of these choices.

    Attributes:
        token_mixer: the preset for ``--encoder-token-mixer``.
        channel_mixer: the preset for ``--encoder-channel-mixer``.
        encoder_activation: the preset for ``--encoder-activation-fn``; None to follow ``--activation-fn``.
        layer_composition: the preset for ``--encoder-layer-composition`` and ``--decoder-layer-composition``.
        head_composition: the preset for ``--head-composition``.
    """

    token_mixer: ClassVar[str] = "full"
    channel_mixer: ClassVar[str] = "feed-forward"
    encoder_activation: ClassVar[Optional[str]] = "leaky_relu"
    layer_composition: ClassVar[str] = "top"
    head_composition: ClassVar[str] = "linear"

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Adds fairseq's Transformer flags and ours."""
        super().add_args(parser)
        for flags in (EfficientEncoderConfig(), CompositionConfig()):
            gen_parser_from_dataclass(parser, flags, delete_default=True)

    @classmethod
    def set_defaults(cls, args: Namespace) -> None:
        """Fills in the architecture's defaults and checks the flags; Raises InputError."""
        set_encoder_defaults(
            args, token_mixer=cls.token_mixer, channel_mixer=cls.channel_mixer, activation=cls.encoder_activation
        )
        base_architecture(args)
        set_composition_defaults(args, layers=cls.layer_composition, heads=cls.head_composition)
        check_encoder_flags(args)
        check_composition_flags(args)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "EfficientTransformerModel":
        """Builds the model from parsed flags, or from hydra's configuration (Raises InputError)."""
        given = args
        if isinstance(args, DictConfig):
            # TransformerConfig.from_namespace keeps a Namespace's further fields, but loses a DictConfig's.
            args = Namespace(**cast(Dict[str, Any], OmegaConf.to_container(args, resolve=True)))
        cls.set_defaults(args)
        model = super().build_model(args, task)
        if model.encoder.fixed_length > 0:  # else the random numbers stay those of stock
            use_fast_dropout(model)
        if args.init_from_transformer is not None:
            start_from_transformer(model, args, task)
            # The flags are saved with every checkpoint, and are done with: it must load without that file.
            done = {"init_from_transformer": None, "init_with_low_rank_approximation": False}
            for name, value in done.items():
                setattr(args, name, value)
                if isinstance(given, DictConfig):
                    with open_dict(given):
                        given[name] = value
        # Like the encoder's length_version, left alone by fairseq's moving average for its name.
        fingerprints = dictionary_fingerprints(model.encoder.dictionary, model.decoder.dictionary)
        model.register_buffer("dictionary_version", fingerprints)
        skips = getattr(args, "skip_invalid_size_inputs_valid_test", False)
        limit = model.encoder.max_positions() if model.encoder.fixed_length > 0 else sys.maxsize
        refuse_long_sources(task, limit, getattr(args, "train_subset", None) or "train", skips=skips)
        return model

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: Any) -> EfficientEncoder:
        """Builds the efficient encoder."""
        return EfficientEncoder(TransformerConfig.from_namespace(args), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: Any) -> ComposedDecoder:
        """Builds the decoder with its compositions."""
        cfg = TransformerConfig.from_namespace(args)
        return ComposedDecoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    def load_state_dict(
        self,
        state_dict: Dict[str, torch.Tensor],
        strict: bool = True,
        model_cfg: Optional[Any] = None,
        args: Optional[Namespace] = None,
    ) -> Any:
        """Loads weights, after telling in one line what does not fit (Raises InputError).

        A stock Transformer's weights fit where all choices are the stock ones; they come without fingerprints.
        """
        check_state_dict(self, state_dict)
        if "dictionary_version" not in state_dict:
            state_dict = {**state_dict, "dictionary_version": self.dictionary_version}
        return super().load_state_dict(state_dict, strict=strict, model_cfg=model_cfg, args=args)


def register_with_tiny(name: str) -> Any:
    """Registers a model class under ``name`` with two architectures: ``name`` and ``name_tiny``.

    fairseq silently returns the first class when a name is registered twice; that is an error here.
    """

    def register(model: Any) -> Any:
        if register_model(name)(model) is not model:
            raise ValueError(f"another model is already registered as {name}: fairseq would use that one")

        @register_model_architecture(name, name)
        def base(args: Namespace) -> None:
            model.set_defaults(args)

        @register_model_architecture(name, f"{name}_tiny")
        def tiny(args: Namespace) -> None:
            set_tiny_sizes(args)
            model.set_defaults(args)

        assert ARCH_MODEL_REGISTRY[name] is model
        return model

    return register
