"""Text in, binarized data out: one small tool a job.

Every tool runs as ``python preprocess/NAME.py`` or ``python -m preprocess.NAME`` and explains itself with ``--help``.
"""
