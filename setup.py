"""Packaging of informer-fairseq; tool settings live in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "informer_fairseq/__init__.py").read_text("utf-8"), re.M).group(
    1
)

# fairseq is no longer released; these two are its last state, made installable. The first is a binary wheel (no
# compiler needed) for these Pythons only, the second is the same code as source and builds everywhere else.
HAS_WHEEL = (
    "sys_platform == 'linux' and platform_machine == 'x86_64' and python_version >= '3.11' and python_version < '3.13'"
)
NO_WHEEL = "sys_platform != 'linux' or platform_machine != 'x86_64' or python_version < '3.11'"

setup(
    name="informer-fairseq",
    version=VERSION,
    description="Efficient encoders for machine translation (Informer, ICAART 2021) as a fairseq plugin",
    long_description=(ROOT / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.10,<3.13",  # numpy 1.26, the last before 2, has no wheels for Python 3.13
    packages=find_packages(include=["informer_fairseq", "informer_fairseq.*"]),
    package_data={"informer_fairseq.tools": ["report_assets/*"]},
    install_requires=[
        f"ve-fairseq==0.12.3; {HAS_WHEEL}",
        f"fairseq-fixed==0.12.3.1; {NO_WHEEL}",
        # Older releases run whatever code a checkpoint's pickle names unless asked not to; fairseq does not ask.
        "torch>=2.6",
        # numpy 2 took away names that fairseq's --num-batch-buckets and token-block datasets use.
        "numpy<2",
        # The versions the forks were made for: before 2.1 omegaconf returns None for a missing key whatever default
        # getattr was given, and pip 24.1 refuses its metadata; hydra 1.3 needs omegaconf 2.2 or newer.
        "omegaconf>=2.3,<2.4",
        "hydra-core>=1.3,<1.4",
        "matplotlib>=3.8",
        "sacrebleu>=2.4",
        "sacremoses>=0.1.1",
        "scikit-learn>=1.3",
        "sentencepiece>=0.2",
        "subword-nmt>=0.3.8",
        "tqdm",
    ],
    entry_points={"console_scripts": ["informer-fairseq = informer_fairseq.tools.main:main"]},
    extras_require={
        "quickstart": ["babel>=2.12", "num2words>=0.5.13"],
        "dev": [
            "babel>=2.12",
            "num2words>=0.5.13",
            "hypothesis>=6.100",
            "linformer>=0.2.3",  # a peer in benchmarks/
            "mypy>=1.8",
            "pytest>=8",
            "pytest-xdist>=3.5",
            "ruff>=0.6",
            "selenium>=4.10",
        ],
    },
    classifiers=[
        "License :: OSI Approved :: MIT License",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
