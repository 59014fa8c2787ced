#!/usr/bin/env bash
# Quickstart: builds an English-Vietnamese corpus, trains a tiny model, translates a test set and scores it.
#
# usage: examples/quickstart/run.sh
#
# Settings, from the environment:
#   PYTHON      interpreter with the package installed     (default: .venv of this repository if there, else python3)
#   WORK        folder for everything that is written      (default: work/quickstart in this repository)
#   ARCH        architecture to train                      (default: informer_mt_tiny)
#   PAIRS       sentence pairs of the corpus, held-out ones included  (default: 20000)
#   MAX_UPDATE  length of the training, in updates         (default: 350)
#   SEED        of the corpus and of the training          (default: 1)
#   THREADS     CPU threads                                (default: 2)
#
# Run it again after an interruption: finished stages are skipped, training goes on from its last checkpoint. A stage
# whose settings changed is done again, with all after it.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
[[ -n ${PYTHON:-} ]] || { PYTHON=$ROOT/.venv/bin/python; [[ -x $PYTHON ]] || PYTHON=python3; }
WORK=${WORK:-$ROOT/work/quickstart}
ARCH=${ARCH:-informer_mt_tiny}
PAIRS=${PAIRS:-20000}
MAX_UPDATE=${MAX_UPDATE:-350}
SEED=${SEED:-1}
THREADS=${THREADS:-2}
USER_DIR=$ROOT/informer_fairseq
MODULES="fairseq torch babel num2words sacremoses sacrebleu tqdm"

die() {
    printf 'run.sh: error: %s\n' "$*" >&2
    exit 2
}

check_settings() {
    local name program missing
    for name in PAIRS MAX_UPDATE SEED THREADS; do
        [[ ${!name} =~ ^(0|[1-9][0-9]{0,8})$ ]] || die "$name=${!name} is not a whole number below a thousand million"
        [[ $name = SEED || ${!name} != 0 ]] || die "$name=0: give 1 or more"
    done
    program=$(command -v "$PYTHON") || die "PYTHON=$PYTHON is no program; run 'make setup', or set PYTHON to another"
    PYTHON=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")
    missing=$("$PYTHON" -c "import importlib.util as u; print(*(m for m in '$MODULES'.split() if not u.find_spec(m)))")
    [[ -z $missing ]] || die "$PYTHON lacks: $missing; run 'make setup', or set PYTHON to the environment it made"
    mkdir -p "$WORK/stamps" 2>/dev/null || die "WORK=$WORK cannot be written; set WORK to another folder"
    WORK=$(cd "$WORK" && pwd)
    # The lock is inherited, so that a training left behind by a killed shell still holds it.
    exec 9>>"$WORK/.lock"
    ! command -v flock >/dev/null || flock -n 9 || die "another run is at work in $WORK; wait for it, or set WORK"
}

# Whether a stage was finished with these settings and its output is still there: finished STAGE SETTINGS OUTPUT
finished() {
    [[ -f $WORK/stamps/$1 && $(<"$WORK/stamps/$1") = "$2" && -e $3 ]]
}

# Marks a stage as finished: finish STAGE SETTINGS
finish() {
    printf '%s\n' "$2" >"$WORK/stamps/.$1"
    mv "$WORK/stamps/.$1" "$WORK/stamps/$1"
}

# Stops with the last words of the program that just failed: stopped LOG WHAT
stopped() {
    local status=$? reason
    # A program that was killed says nothing about it.
    ((status <= 128)) ||
        die "$2 was ended by signal $((status - 128)) (by hand, or out of memory); the same command goes on from here"
    reason=$(grep -v '^[[:space:]]*$' "$1" | tail -n 1 | cut -c 1-300) || true
    die "$2 stopped: ${reason:-it said nothing} (all of it: $1)"
}

title() {
    printf '\n[%s] %s\n' "$1" "$2"
    SECONDS=0
}

build_corpus() {
    title 1/4 "Corpus: $PAIRS English-Vietnamese sentence pairs"
    CORPUS_SETTINGS="corpus $PAIRS $SEED $(cat "$HERE/build_corpus.py" "$HERE/cldr_parts.py" | cksum)"
    if finished corpus "$CORPUS_SETTINGS" "$WORK/corpus/corpus.json"; then
        echo "      already built"
        return
    fi
    rm -f "$WORK/stamps/corpus"
    "$PYTHON" "$HERE/build_corpus.py" --output "$WORK/corpus" --pairs "$PAIRS" --seed "$SEED" || exit 2
    finish corpus "$CORPUS_SETTINGS"
    echo "      took $SECONDS s"
}

binarize() {
    title 2/4 "fairseq-preprocess: dictionaries and binary data"
    BINARIZE_SETTINGS="binarize; $CORPUS_SETTINGS"
    if finished binarize "$BINARIZE_SETTINGS" "$WORK/data-bin/dict.vi.txt"; then
        echo "      already done"
        return
    fi
    # Into a folder of its own first: a half data-bin looks like a whole one.
    rm -rf "$WORK/stamps/binarize" "$WORK/data-bin" "$WORK/data-bin.partial"
    "$PYTHON" -m fairseq_cli.preprocess --source-lang en --target-lang vi --workers 1 \
        --destdir "$WORK/data-bin.partial" --trainpref "$WORK/corpus/train" \
        --validpref "$WORK/corpus/valid" --testpref "$WORK/corpus/test" \
        >"$WORK/preprocess.log" 2>&1 || stopped "$WORK/preprocess.log" fairseq-preprocess
    mv "$WORK/data-bin.partial" "$WORK/data-bin"
    finish binarize "$BINARIZE_SETTINGS"
    echo "      took $SECONDS s"
}

train() {
    title 3/4 "fairseq-train: $ARCH, $MAX_UPDATE updates"
    local warmup=$((MAX_UPDATE / 5 < 100 ? MAX_UPDATE / 5 : 100))
    local options=(
        --user-dir "$USER_DIR" --arch "$ARCH" --share-decoder-input-output-embed --dropout 0
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1
        --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --max-tokens 1500
        --lr 2e-3 --lr-scheduler polynomial_decay --warmup-updates "$warmup" --total-num-update "$MAX_UPDATE"
        --max-update "$MAX_UPDATE" --seed "$SEED" --source-lang en --target-lang vi
        --validate-interval-updates 100 --save-interval-updates 100 --keep-interval-updates 1 --no-epoch-checkpoints
        --required-batch-size-multiple 1 --num-workers 0 --log-format json --log-interval 5
    )
    TRAIN_SETTINGS="${options[*]}; $(cat "$USER_DIR"/*.py "$USER_DIR"/*/*.py | cksum); $BINARIZE_SETTINGS"
    if finished train "$TRAIN_SETTINGS" "$WORK/checkpoints/checkpoint_best.pt"; then
        echo "      already trained"
        return
    fi
    rm -f "$WORK/stamps/train"
    # What a training with other settings left is no start for this one.
    if ! finished train-started "$TRAIN_SETTINGS" "$WORK/checkpoints"; then
        rm -rf "$WORK/checkpoints" "$WORK/train.log"
        mkdir "$WORK/checkpoints"
        finish train-started "$TRAIN_SETTINGS"
    fi
    "$PYTHON" "$HERE/repair_checkpoints.py" "$WORK/checkpoints"
    "$PYTHON" -u -m fairseq_cli.train "$WORK/data-bin" --save-dir "$WORK/checkpoints" "${options[@]}" 2>&1 |
        "$PYTHON" "$HERE/show_progress.py" --log "$WORK/train.log" --updates "$MAX_UPDATE" ||
        stopped "$WORK/train.log" fairseq-train
    finish train "$TRAIN_SETTINGS"
    echo "      took $SECONDS s"
}

translate() {
    title 4/4 "fairseq-generate: the test set, sentences that training never saw"
    # The corpus is tokenised like this: fairseq takes plain text for interactive translation and gives plain text back.
    # The length limit ends a greedy translation that goes round in circles; no sentence here needs as much.
    COMMON=(
        --user-dir "$USER_DIR" --path "$WORK/checkpoints/checkpoint_best.pt" --source-lang en --target-lang vi
        --beam 1 --max-len-a 2 --max-len-b 10
        --tokenizer moses --moses-no-escape --moses-no-dash-splits
    )
    local settings="${COMMON[*]}; $TRAIN_SETTINGS"
    if finished translate "$settings" "$WORK/translations.txt"; then
        echo "      already translated"
        return
    fi
    rm -f "$WORK/stamps/translate"
    # Without the multiple, fairseq drops a last batch whose size is no multiple of 8.
    "$PYTHON" -m fairseq_cli.generate "$WORK/data-bin" "${COMMON[@]}" --gen-subset test --max-tokens 4000 \
        --required-batch-size-multiple 1 --num-workers 0 --log-format none \
        >"$WORK/translations.partial" 2>"$WORK/generate.log" || stopped "$WORK/generate.log" fairseq-generate
    mv "$WORK/translations.partial" "$WORK/translations.txt"
    finish translate "$settings"
    echo "      took $SECONDS s"
}

show_command() {
    printf '\nTranslate a line of your own, made of the words of this corpus (plain text in, plain text out):\n\n'
    printf "echo 'Vietnamese (Japan), twelve kilometers, or Friday' | %q -m fairseq_cli.interactive" "$PYTHON"
    printf ' %q' "$WORK/data-bin" "${COMMON[@]}"
    printf " 2>%q | grep '^D-' | cut -f 3\n" "$WORK/interactive.log"
}

check_settings
# Waiting threads that spin take the cores from other programs, and slow everybody down many times.
export OMP_NUM_THREADS=$THREADS OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} PYTHONUTF8=1
trap 'printf "\nrun.sh: interrupted; the same command goes on from here\n" >&2; exit 130' INT TERM
START=$(date +%s)
build_corpus
binarize
train
translate
"$PYTHON" "$HERE/show_results.py" --corpus "$WORK/corpus" --translations "$WORK/translations.txt" || exit 2
show_command
printf '\nDone in %s s. Everything is in %s\n' "$(($(date +%s) - START))" "$WORK"
