"""``informer_mt``: convolution attention with information organization."""

from argparse import Namespace

from fairseq.models import register_model_architecture

from informer_fairseq.config import set_default, set_tiny_sizes
from informer_fairseq.models._efficient import EfficientTransformerModel, register_with_tiny


@register_with_tiny("informer_mt")
class InformerMTModel(EfficientTransformerModel):
    """Informer encoder: convolutional self-attention, information organization in place of the feed-forward.

    Informer paper, section 4.4. Two mixtures that neither paper has are architectures of their own:
    ``informer_ni_mt`` composes the heads of all attentions and the decoder's layers by bilinear pooling (NI paper);
    ``informer_mt_deep`` has half as many encoder layers again and a decoder of a third of that, as a decoder's layers
    run once for each target token and an encoder's once for the whole source ("Deep Encoder, Shallow Decoder", Kasai
    et al. 2021).
    """

    token_mixer = "convolution"
    channel_mixer = "information-organization"


@register_model_architecture("informer_mt", "informer_ni_mt")
def informer_ni_mt(args: Namespace) -> None:
    """Bilinear composition of all heads and of the decoder's layers."""
    set_default(args, "decoder_layer_composition", "bilinear")
    set_default(args, "head_composition", "bilinear")
    InformerMTModel.set_defaults(args)


@register_model_architecture("informer_mt", "informer_ni_mt_tiny")
def informer_ni_mt_tiny(args: Namespace) -> None:
    """The same, of the tiny sizes."""
    set_tiny_sizes(args)
    informer_ni_mt(args)


@register_model_architecture("informer_mt", "informer_mt_deep")
def informer_mt_deep(args: Namespace) -> None:
    """9 encoder and 3 decoder layers."""
    _set_depth(args, 9, 3)
    InformerMTModel.set_defaults(args)


@register_model_architecture("informer_mt", "informer_mt_deep_tiny")
def informer_mt_deep_tiny(args: Namespace) -> None:
    """6 encoder and 2 decoder layers, of the tiny sizes."""
    _set_depth(args, 6, 2)
    set_tiny_sizes(args)
    InformerMTModel.set_defaults(args)


def _set_depth(args: Namespace, encoder_layers: int, decoder_layers: int) -> None:
    set_default(args, "encoder_layers", encoder_layers)
    set_default(args, "decoder_layers", decoder_layers)
