"""Compositions: N tensors (..., d) become one of (..., d_out); plain modules that know nothing of fairseq."""
