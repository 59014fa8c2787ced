"""Token mixers: how the positions of a sentence exchange information."""
