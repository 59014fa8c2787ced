"""``conv_linformer_mt``: convolution attention with feed-forward."""

from informer_fairseq.models._efficient import EfficientTransformerModel, register_with_tiny


@register_with_tiny("conv_linformer_mt")
class ConvLinformerMTModel(EfficientTransformerModel):
    """Convolutional encoder: keys and values compressed by convolution and max-pooling, Leaky-ReLU feed-forward.

    Informer paper, section 4.3.
    """

    token_mixer = "convolution"
    channel_mixer = "feed-forward"
