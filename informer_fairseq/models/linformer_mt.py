"""``linformer_mt``: low-rank attention with feed-forward."""

from informer_fairseq.models._efficient import EfficientTransformerModel, register_with_tiny


@register_with_tiny("linformer_mt")
class LinformerMTModel(EfficientTransformerModel):
    """Linear-projection encoder: low-rank self-attention (Linformer) and a Leaky-ReLU feed-forward.

    Informer paper, section 4.2.
    """

    token_mixer = "low-rank"
    channel_mixer = "feed-forward"
