#!/usr/bin/env bash
# One prepared run on one GPU: a training of ten minutes with its checks and scores, or checks and speed in three.
#
# usage: [NAME=VALUE ...] bash examples/iwslt15_en_vi/gpu.sh train ARCH DATA_BIN OUT
#        [NAME=VALUE ...] bash examples/iwslt15_en_vi/gpu.sh check OUT
#
# train  trains ARCH on DATA_BIN, a data-bin or the folder that preprocess/prepare.sh made, until RESERVE seconds are left
#        of the MINUTES; loads the checkpoint again, translates the test and the validation set, and scores them.
#        OUT gets train.log, the translations, summary.json and summary.txt.
# check  compares every architecture on the GPU with float64 (fp32, fp16, bf16), runs it twice (deterministic), in padded
#        batches and in a beam search; then speed and memory against stock. OUT gets checks.json and checks.txt.
#
# Exit status: 0 if every check held, 1 if one failed, 2 for what must be mended first. Nothing is fetched.
#
#   ARCH= DATA= OUT=      in place of the arguments
#   MINUTES=10            for all of it, the start included; check: 3
#   RESERVE=120           train: seconds kept for what follows the training
#   PRECISION=auto        train: auto (bf16 where the GPU has it, else fp16; fp32 on a CPU), bf16, fp16 or fp32
#   SIZE=base             base: 6+6 layers, width 512; tiny: 4+4 layers, width 128, and small shapes in check
#   MAX_TOKENS=16384      target or source tokens a batch, with padding (4096 on a CPU)
#   LR= WARMUP= DROPOUT=  7e-4, 2000, 0.3; tiny: 2e-3, 1000, 0.1
#   SAVE_EVERY=5          epochs from one checkpoint to the next; the last is saved in any case
#   BEAM=5 GENERATE_BATCH=256    of the translation (64 sentences a batch on a CPU)
#   FIXED_LENGTH=200      n of the efficient encoders: source positions, with the end of the sentence
#   CHECKPOINTS=          a folder for the checkpoints, which are large (OUT/checkpoints)
#   SEED=1
#   EXTRA_ARGS=           further options of fairseq-train, or of benchmarks/gpu_checks.py
#   CPU=auto              auto: a GPU if there is one; 1: no GPU; 0: a GPU or an error
#   PYTHON=               the Python with fairseq (that of .venv under the repository, else python)
set -euo pipefail

STARTED="$(date +%s)"
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=examples/recipe.sh
source "$HERE/../recipe.sh"
show_help_if_asked "$@"

# ---------------------------------------------------------------------------------------------------------- settings
MODE="${1:-}"
case "$MODE" in
    train) arguments=3 ARCH="${2:-${ARCH:-}}" DATA="${3:-${DATA:-}}" OUT="${4:-${OUT:-}}" ;;
    check) arguments=1 OUT="${2:-${OUT:-}}" ;;
    *) fail "the mode is '$MODE'; it is train (ARCH DATA_BIN OUT) or check (OUT); --help lists the settings" ;;
esac
[[ $# -le $((arguments + 1)) ]] || fail "$MODE takes $arguments arguments, not $(($# - 1)); --help shows which"
[[ -n "$OUT" ]] || fail "no folder for the results: give OUT as the last argument"
SIZE="${SIZE:-base}"
SEED="${SEED:-1}"
FIXED_LENGTH="${FIXED_LENGTH:-200}"
read -r -a extra <<<"${EXTRA_ARGS:-}"
if [[ -e "$OUT" ]]; then
    [[ -d "$OUT" && -z "$(ls -A "$OUT")" ]] || fail "$OUT is not an empty folder: give a new one, or remove it"
fi
if [[ "$MODE" == train ]]; then
    [[ -n "$ARCH" && -n "$DATA" ]] || fail "no ARCH or no DATA_BIN: gpu.sh train ARCH DATA_BIN OUT"
    [[ -d "$DATA" ]] || fail "no data-bin at $DATA: run preprocess/prepare.sh, or examples/iwslt15_en_vi/run.sh prepare"
    choose_architecture
else
    case "$SIZE" in base | tiny) ;; *) fail "SIZE is '$SIZE'; it is base or tiny" ;; esac
fi
choose_python
choose_device
kind=cuda
if [[ "${#device[@]}" -gt 0 ]]; then
    kind=cpu
elif ! "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    fail "CPU=0, but torch finds no GPU: use CPU=1, or a torch built for this machine's driver"
fi
if [[ "$kind" == cpu ]]; then echo "no GPU is used: its figures say nothing about one"; fi

# -------------------------------------------------------------------------------------------------------------- modes
run_train() {
    local lr=7e-4 warmup=2000 dropout=0.3 tokens=16384 batch=256
    if [[ "$SIZE" == tiny ]]; then lr=2e-3 warmup=1000 dropout=0.1; fi
    if [[ "$kind" == cpu ]]; then tokens=4096 batch=64; fi
    "$PYTHON" "$HERE/gpu_train.py" --data "$DATA" --output "$OUT" --device "$kind" --started "$STARTED" \
        --precision "${PRECISION:-auto}" --minutes "${MINUTES:-10}" --reserve "${RESERVE:-120}" \
        --checkpoints "${CHECKPOINTS:-$OUT/checkpoints}" --beam "${BEAM:-5}" --batch-size "${GENERATE_BATCH:-$batch}" \
        "${architecture[@]:0:2}" -- "${architecture[@]:2}" --dropout "${DROPOUT:-$dropout}" --lr "${LR:-$lr}" \
        --warmup-updates "${WARMUP:-$warmup}" --max-tokens "${MAX_TOKENS:-$tokens}" --seed "$SEED" \
        --save-interval "${SAVE_EVERY:-5}" ${extra[@]+"${extra[@]}"}
}

run_check() {
    local small=()
    if [[ "$SIZE" == tiny ]]; then small=(--small --rounds 1); fi
    mkdir -p "$OUT"
    "$PYTHON" "$ROOT/benchmarks/gpu_checks.py" --device "$kind" --started "$STARTED" --minutes "${MINUTES:-3}" \
        --json "$OUT/checks.json" --text "$OUT/checks.txt" ${small[@]+"${small[@]}"} ${extra[@]+"${extra[@]}"}
}

# --------------------------------------------------------------------------------------------------------------- main
"run_$MODE"
