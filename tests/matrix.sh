#!/usr/bin/env bash
# Runs the test suite on every supported pair of fairseq and Python, and prints a table.
#
#   bash tests/matrix.sh                          makes what is missing under work/matrix, where its Python is there
#   bash tests/matrix.sh ENVIRONMENT ...          runs these virtual environments, as they are
#
#   PYTHONS="/opt/python3.12/bin/python3.12 ..."  interpreters beside those on the PATH
#   PYTEST_OPTIONS="-n 2 --dist loadfile"         further options of pytest
#   OUT=work/matrix                               environments, and what each run printed
#
# On upstream 0.12.2 a named subset runs: import, registration, forward, padding, checkpoints, evaluation after loading,
# warm start.
# Ends with status 1 where something failed. A pair without an environment is told as not run.
set -euo pipefail

case "${1:-}" in
    -h | --help)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
esac

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
OUT="${OUT:-$ROOT/work/matrix}"
mkdir -p "$OUT"
OUT="$(cd "$OUT" && pwd)"
PAIRS="ve-fairseq:3.11 ve-fairseq:3.12 fairseq-fixed:3.10 fairseq-fixed:3.11 fairseq-fixed:3.12 fairseq:3.10"
SUBSET="tests/conformance/test_versions.py tests/test_compat.py tests/test_encoder.py tests/test_warm_start.py"
# Its own transformer cannot translate a padded batch with today's torch ("Mask Type should be defined").
SUBSET+=" --deselect tests/test_warm_start.py::test_the_first_validation_is_the_checkpoints"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

# The interpreter of a version, from PYTHONS or the PATH.
interpreter() {
    local candidate
    for candidate in ${PYTHONS:-} "python$1"; do
        if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

# An environment with one of the three fairseqs.
make_environment() { # fairseq python folder
    local bin="$3/bin/python"
    case "$1:$2" in
        ve-fairseq:* | fairseq-fixed:3.10) PYTHON="$(interpreter "$2")" VENV="$3" bash "$ROOT/install.sh" ;;
        fairseq-fixed:*)
            PYTHON="$(interpreter "$2")" VENV="$3" bash "$ROOT/install.sh"
            "$bin" -m pip uninstall -y ve-fairseq
            "$bin" -m pip install --no-deps --no-build-isolation fairseq-fixed==0.12.3.1
            ;;
        fairseq:*)
            # Its omegaconf has metadata that pip 24.1 refuses; the plugin's own requirements name the forks.
            "$(interpreter "$2")" -m venv "$3"
            "$bin" -m pip install "pip<24.1" "setuptools<70" wheel "numpy<2" cython "${TORCH:-torch>=2.6}"
            "$bin" -c 'from importlib.metadata import version as v; print("torch==" + v("torch"))' > "$3/torch.txt"
            "$bin" -m pip install -c "$3/torch.txt" --no-build-isolation fairseq==0.12.2 "numpy<2"
            "$bin" -m pip install -c "$3/torch.txt" "numpy<2" matplotlib sacrebleu sacremoses scikit-learn \
                sentencepiece subword-nmt tqdm pytest pytest-xdist hypothesis
            ;;
    esac
}

# fairseq, its version, Python's and torch's, of an environment.
describe() {
    "$1/bin/python" - <<'PY'
import platform
from importlib.metadata import PackageNotFoundError, version

for name in ("ve-fairseq", "fairseq-fixed", "fairseq"):
    try:
        print(name, version(name), platform.python_version(), version("torch"))
        break
    except PackageNotFoundError:
        pass
PY
}

rows=() failed=0 seen=" "

# Runs one environment and notes its row.
run_environment() {
    local name version python torch what="whole suite" tests="" log status
    read -r name version python torch < <(describe "$1") || true
    if [ -z "${torch:-}" ]; then
        rows+=("| $1 | - | - | - | no fairseq or no torch in it: not run |")
        failed=1
        return
    fi
    seen+="$name:${python%.*} "
    if [ "$name" = fairseq ]; then what="subset" tests="$SUBSET"; fi
    log="$OUT/$name-${python%.*}.log"
    status=0
    # shellcheck disable=SC2086  # lists, split at spaces
    (cd "$ROOT" && "$1/bin/python" -m pytest -p no:cacheprovider ${PYTEST_OPTIONS:-} $tests) > "$log" 2>&1 || status=$?
    local counts
    counts="$(grep -oE '[0-9]+ (passed|failed|skipped|errors?)' "$log" | tail -4 | paste -sd, | sed 's/,/, /g')" || true
    if [ $status -ne 0 ]; then failed=1; fi
    rows+=("| $name $version | $python | $torch | $what | ${counts:-no count}$([ $status = 0 ] || echo ", FAILED: $log") |")
}

if [ $# -gt 0 ]; then
    for environment in "$@"; do
        if [ -x "$environment/bin/python" ]; then
            run_environment "$(cd "$environment" && pwd)"
        else
            rows+=("| $environment | - | - | - | no bin/python in it: not run |")
            failed=1
        fi
    done
else
    for pair in $PAIRS; do
        folder="$OUT/${pair/:/-}"
        if [ ! -e "$folder/.made" ] && interpreter "${pair#*:}" >/dev/null; then
            echo "making $folder"
            if make_environment "${pair%:*}" "${pair#*:}" "$folder" > "$folder.install.log" 2>&1; then
                touch "$folder/.made"
            else
                echo "matrix.sh: error: $pair cannot be made, see $folder.install.log" >&2
                failed=1
            fi
        fi
        if [ -e "$folder/.made" ]; then run_environment "$folder"; fi
    done
fi

echo "| fairseq | Python | torch | what | result |"
echo "|---|---|---|---|---|"
if [ ${#rows[@]} -gt 0 ]; then printf '%s\n' "${rows[@]}"; fi
for pair in $PAIRS; do
    if [[ "$seen" != *" $pair "* ]]; then
        reason="no environment"
        if [ $# -eq 0 ]; then reason="no Python ${pair#*:} here, or it could not be made"; fi
        echo "| ${pair%:*} | ${pair#*:} | - | - | not run: $reason |"
    fi
done
exit $failed
