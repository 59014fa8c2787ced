#!/usr/bin/env bash
# Makes a virtual environment and installs the project with everything that tests and quickstart need.
#
#   PYTHON=python3.11   the interpreter (3.10, 3.11 or 3.12)
#   VENV=.venv          where the environment goes; one that exists is completed, not replaced
#
# A torch that the environment or the interpreter already has is kept. Without one, a machine without an NVIDIA GPU gets
# a CPU build (0.2 GB) where one can be had, not the CUDA build (several GB) that PyPI serves by default.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

PYTHON="${PYTHON:-python3}"
VENV="${VENV:-.venv}"
TORCH_CPU_INDEX="${TORCH_CPU_INDEX:-https://download.pytorch.org/whl/cpu}"
TORCH="${TORCH:-torch==2.13.0}"

fail() { echo "install.sh: error: $*" >&2; exit 2; }

has_torch() { "$1" -c 'import torch; assert tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 6)' 2>/dev/null; }

"$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' || fail \
    "$("$PYTHON" --version 2>&1) is not supported: choose Python 3.10, 3.11 or 3.12 (PYTHON=python3.11 make setup)"

if [ ! -x "$VENV/bin/python" ]; then
    # An interpreter that has torch lends it to the environment: several GB need not be there twice.
    options=()
    if has_torch "$PYTHON"; then options=(--system-site-packages); fi
    "$PYTHON" -m venv "${options[@]}" "$VENV"
fi
BIN="$VENV/bin"

if ! has_torch "$BIN/python"; then
    if [ "$(uname -s)" = Linux ] && ! command -v nvidia-smi >/dev/null; then
        # PyTorch's own index has CPU builds. It is asked for torch alone, and once: where it cannot be reached, pip's
        # usual places serve what they have.
        "$BIN/python" -m pip install --retries 0 --no-deps --index-url "$TORCH_CPU_INDEX" "$TORCH" || true
    fi
    "$BIN/python" -m pip install "$TORCH"  # what it needs besides; all of it where the line above had no success
fi

# fairseq asks for torchaudio, whose newest release asks for a newer torch: hold on to the one that is there, by the
# version that pip knows it by. PyPI's CUDA builds call themselves 2.13.0+cu130 and are 2.13.0 to pip.
constraints="$(mktemp)"
trap 'rm -f "$constraints"' EXIT
"$BIN/python" -c 'from importlib.metadata import version; print("torch==" + version("torch"))' > "$constraints"

# Where there is no wheel of fairseq, it is built here, against the torch and numpy that it will run with.
"$BIN/python" -m pip install -c "$constraints" "numpy<2" cython setuptools wheel
"$BIN/python" -m pip install -c "$constraints" --no-build-isolation -e ".[dev]"
"$BIN/python" -c 'import informer_fairseq, fairseq, torch; print(f"fairseq {fairseq.__version__}, torch {torch.__version__}")'
