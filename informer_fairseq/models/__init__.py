"""The models and their named architectures; fairseq imports every file here that has no leading underscore."""
