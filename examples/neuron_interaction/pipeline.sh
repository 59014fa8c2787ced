# Stages that the recipes of the NI paper share; a recipe's run.sh sets the corpus and sources this file.
#
# Expects: HERE (the recipe's folder), CORPUS_NAME, SRC, TGT, VALID_SETS (array), TEST_SET, a function stage_download,
# and the defaults that differ: BIG_DROPOUT, DEFAULT_SIZE, DEFAULT_MERGES.

ROOT="$(cd "$HERE/../.." && pwd)"
FLAGS="$ROOT/examples/neuron_interaction/flags"

fail() {
    echo "run.sh: error: $*" >&2
    exit 2
}

# ---------------------------------------------------------------------------------------------------------- settings
SYSTEM="${SYSTEM:-baseline}"
SIZE="${SIZE:-$DEFAULT_SIZE}"
SEED="${SEED:-1}"
RANK="${RANK:-}"
WORK="${WORK:-$ROOT/work/$CORPUS_NAME}"
OWN_CORPUS="${CORPUS:-}"
CORPUS="${CORPUS:-$WORK/corpus}"
if [[ -z "${PYTHON:-}" ]]; then
    PYTHON=python
    if [[ -x "$ROOT/.venv/bin/python" ]]; then PYTHON="$ROOT/.venv/bin/python"; fi
fi
command -v "$PYTHON" >/dev/null || fail "no Python at '$PYTHON'; run make setup, or set PYTHON"

case "$SIZE" in
    # Updates of the base and the big size are of 8 x 4,096 tokens, as in the paper.
    base) layers=6 width=512 inner=2048 heads=8 lr=7e-4 warmup=4000 dropout=0.1 tokens=4096 freq=8 average=5 ;;
    big) layers=6 width=1024 inner=4096 heads=16 lr=5e-4 warmup=4000 dropout="$BIG_DROPOUT" tokens=4096 freq=8 average=10 ;;
    tiny) layers=4 width=128 inner=256 heads=4 lr=2e-3 warmup=1000 dropout=0.1 tokens=2048 freq=1 average=1 ;;
    *) fail "SIZE is '$SIZE'; it is base, big or tiny" ;;
esac
case "$SIZE-$SYSTEM" in
    base-baseline) updates=100000 epochs=0 save=2000 ;;
    big-baseline) updates=300000 epochs=0 save=2000 ;;
    tiny-baseline) updates=0 epochs=12 save=0 ;;
    base-* | big-*) updates=50000 epochs=0 save=2000 ;;
    tiny-*) updates=0 epochs=5 save=0 ;;
esac
if [[ "$SYSTEM" != baseline ]]; then
    # Training goes on from a trained model, with a fresh optimizer: a gentler start.
    [[ -f "$FLAGS/$SYSTEM.txt" ]] || fail "SYSTEM is '$SYSTEM'; it is baseline, or one of" \
        "$(cd "$FLAGS" && echo *.txt | sed 's/\.txt//g')"
    case "$SIZE" in base) lr=3e-4 ;; big) lr=2e-4 ;; tiny) lr=1e-3 warmup=400 ;; esac
fi
LR="${LR:-$lr}"
WARMUP="${WARMUP:-$warmup}"
DROPOUT="${DROPOUT:-$dropout}"
MAX_TOKENS="${MAX_TOKENS:-$tokens}"
UPDATE_FREQ="${UPDATE_FREQ:-$freq}"
UPDATES="${UPDATES:-$updates}"
EPOCHS="${EPOCHS:-$epochs}"
SAVE_INTERVAL="${SAVE_INTERVAL:-$save}"
AVERAGE="${AVERAGE:-$average}"
BEAM="${BEAM:-4}"
LENPEN="${LENPEN:-0.6}"
read -r -a extra <<<"${EXTRA_ARGS:-}"

sizes=()
for side in encoder decoder; do
    sizes+=("--$side-layers" "$layers" "--$side-embed-dim" "$width" "--$side-ffn-embed-dim" "$inner")
    sizes+=("--$side-attention-heads" "$heads")
done
device=()
case "${CPU:-auto}" in
    1) device=(--cpu) ;;
    0) device=(--fp16) ;;
    auto)
        device=(--fp16)
        if ! "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then device=(--cpu); fi
        ;;
    *) fail "CPU is '$CPU'; it is 1, 0 or auto" ;;
esac

PREPARED="$WORK/prepared"
DATA="$PREPARED/data-bin"
BASELINE="$WORK/$SIZE-baseline-seed$SEED"
FOLDER="$WORK/${RUN:-$SIZE-$SYSTEM${RANK:+-rank$RANK}-seed$SEED}"

# ------------------------------------------------------------------------------------------------------------ helpers
# finished FILE KEY INPUT ...: FILE was made with the settings KEY, and no INPUT is newer.
finished() {
    local file="$1" key="$2" input
    shift 2
    [[ -f "$file" && -f "$file.made" && "$(cat "$file.made")" == "$key" ]] || return 1
    for input in "$@"; do
        if [[ "$input" -nt "$file" ]]; then return 1; fi
    done
}

need() {
    local path
    for path in "$@"; do
        [[ -e "$path" ]] || fail "no such file: $path; run the stage before, or all of them"
    done
}

check_corpus() {
    local set language
    for set in train "${VALID_SETS[@]}" "$TEST_SET"; do
        for language in "$SRC" "$TGT"; do
            if [[ ! -f "$CORPUS/$set.$language" && ! -f "$CORPUS/$set.$language.gz" ]]; then
                fail "no such file: $CORPUS/$set.$language (or .gz); a corpus has train, ${VALID_SETS[*]} and" \
                    "$TEST_SET, each .$SRC and .$TGT: add it, or leave CORPUS unset and run the download stage"
            fi
        done
    done
}

# below_width OPTION ...: the last --composition-rank of the options, if any, is below the width.
below_width() {
    local rank="$width"
    while [[ $# -gt 0 ]]; do
        if [[ "$1" == --composition-rank ]]; then rank="$2"; fi
        shift
    done
    [[ "$rank" -lt "$width" ]]
}

# ------------------------------------------------------------------------------------------------------------- stages
stage_prepare() {
    check_corpus
    local valid="$CORPUS/${VALID_SETS[0]}" language set
    if [[ "${#VALID_SETS[@]}" -gt 1 ]]; then
        valid="$WORK/joined/valid"
        mkdir -p "$WORK/joined"
        for language in "$SRC" "$TGT"; do
            for set in "${VALID_SETS[@]}"; do
                if [[ -f "$CORPUS/$set.$language" ]]; then cat "$CORPUS/$set.$language"; else gzip -dc "$CORPUS/$set.$language.gz"; fi
            done >"$valid.$language.partial"
            # A file with the same text keeps its time, so that finished steps stay finished.
            if cmp -s "$valid.$language.partial" "$valid.$language"; then
                rm "$valid.$language.partial"
            else
                mv "$valid.$language.partial" "$valid.$language"
            fi
        done
    fi
    env PYTHON="$PYTHON" SRC="$SRC" TGT="$TGT" TRAIN="$CORPUS/train" VALID="$valid" TEST="$CORPUS/$TEST_SET" \
        OUT="$PREPARED" TOKENIZED="${TOKENIZED:-0}" SEGMENTATION=bpe JOINT=1 MERGES="${MERGES:-$DEFAULT_MERGES}" \
        MAX_WORDS="${MAX_WORDS:-250}" MAX_PIECES="${MAX_PIECES:-250}" STAGE="" FORCE=0 \
        bash "$ROOT/preprocess/prepare.sh"
}

stage_train() {
    need "$DATA/dict.$SRC.txt"
    local system=(--arch transformer "${sizes[@]}") flags
    if [[ "$SYSTEM" != baseline ]]; then
        need "$BASELINE/averaged.pt"
        read -r -a flags <"$FLAGS/$SYSTEM.txt"
        system=(--arch ni_transformer "${sizes[@]}" "${flags[@]}" --init-from-transformer "$BASELINE/averaged.pt")
        if [[ -n "$RANK" ]]; then system+=(--composition-rank "$RANK"); fi
        if below_width "${system[@]}"; then system+=(--init-with-low-rank-approximation); fi
    fi
    local options=(--task translation --source-lang "$SRC" --target-lang "$TGT" "${system[@]}" --share-all-embeddings
        --dropout "$DROPOUT" --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam
        --adam-betas "(0.9, 0.98)" --lr "$LR" --lr-scheduler inverse_sqrt --warmup-updates "$WARMUP"
        --max-tokens "$MAX_TOKENS" --update-freq "$UPDATE_FREQ" --required-batch-size-multiple 1 --seed "$SEED"
        ${extra[@]+"${extra[@]}"})
    # Whatever may not change between the parts of one training, the data included.
    local settings lengths="UPDATES=$UPDATES EPOCHS=$EPOCHS" last="$FOLDER/checkpoints/checkpoint_last.pt"
    settings="$(printf '%s ' "${options[@]}")data $(cat "$DATA"/dict.*.txt "$DATA"/train.*.bin | cksum)"
    if [[ -f "$last" && "$(cat "$FOLDER/train.settings")" != "$settings" ]]; then
        fail "$FOLDER was trained with other settings or data (train.settings there has them);" \
            "set RUN to a new name, or remove that folder"
    fi
    if [[ -f "$FOLDER/train.done" && "$(cat "$FOLDER/train.done")" == "$lengths" ]]; then
        echo "$FOLDER: trained before ($lengths)"
        return
    fi
    mkdir -p "$FOLDER"
    printf '%s\n' "$settings" >"$FOLDER/train.settings"
    local keep=(--keep-last-epochs "$AVERAGE")
    if [[ "$SAVE_INTERVAL" -gt 0 ]]; then
        keep=(--save-interval-updates "$SAVE_INTERVAL" --keep-interval-updates "$AVERAGE" --no-epoch-checkpoints)
    fi
    "$PYTHON" -m fairseq_cli.train "$DATA" --user-dir "$ROOT/informer_fairseq" "${options[@]}" \
        --max-update "$UPDATES" --max-epoch "$EPOCHS" --save-dir "$FOLDER/checkpoints" "${keep[@]}" \
        --log-interval 100 --log-file "$FOLDER/train.log" "${device[@]}"
    printf '%s\n' "$lengths" >"$FOLDER/train.done"
}

stage_average() {
    need "$FOLDER/checkpoints/checkpoint_last.pt"
    local inputs=() name
    # checkpoint_EPOCH_UPDATE.pt by updates, or checkpointEPOCH.pt by epochs; the last ones.
    while read -r name; do
        if [[ -n "$name" ]]; then inputs+=("$FOLDER/checkpoints/$name"); fi
    done < <(
        cd "$FOLDER/checkpoints"
        if [[ "$SAVE_INTERVAL" -gt 0 ]]; then
            find . -name 'checkpoint_[0-9]*_[0-9]*.pt' | sed 's,^\./,,' | sort -t _ -k 3n | tail -n "$AVERAGE"
        else
            find . -name 'checkpoint[0-9]*.pt' | sed 's,^\./checkpoint,,' | sort -n | tail -n "$AVERAGE" |
                sed 's,^,checkpoint,'
        fi
    )
    # A short training has no checkpoint but the last.
    if [[ "${#inputs[@]}" == 0 ]]; then inputs=("$FOLDER/checkpoints/checkpoint_last.pt"); fi
    if finished "$FOLDER/averaged.pt" "${inputs[*]}" "${inputs[@]}"; then
        echo "$FOLDER/averaged.pt: made before"
        return
    fi
    echo "averaging ${inputs[*]##*/}"
    PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}" "$PYTHON" -m informer_fairseq.average_checkpoints \
        --inputs "${inputs[@]}" --output "$FOLDER/averaged.pt"
    printf '%s\n' "${inputs[*]}" >"$FOLDER/averaged.pt.made"
}

stage_translate() {
    need "$DATA/dict.$SRC.txt" "$FOLDER/averaged.pt"
    local output="$FOLDER/$TEST_SET" key="beam $BEAM lenpen $LENPEN" source="$PREPARED/clean/test.$SRC"
    if finished "$output.$TGT" "$key" "$FOLDER/averaged.pt" "$source"; then
        echo "$output.$TGT: translated before"
        return
    fi
    # fairseq prints its whole configuration as a log line; LOGLEVEL=INFO brings it back.
    LOGLEVEL="${LOGLEVEL:-WARNING}" "$PYTHON" -m fairseq_cli.generate "$DATA" --user-dir "$ROOT/informer_fairseq" \
        --path "$FOLDER/averaged.pt" --source-lang "$SRC" --target-lang "$TGT" --gen-subset test --beam "$BEAM" \
        --lenpen "$LENPEN" --nbest 1 --batch-size "${GENERATE_BATCH:-64}" --required-batch-size-multiple 1 \
        "${device[@]}" >"$output.generate.partial"
    mv "$output.generate.partial" "$output.generate"
    "$PYTHON" "$ROOT/preprocess/hypotheses.py" --input "$output.generate" --source "$source" \
        --model "$PREPARED/segmented/model" --detokenize "$TGT" --output "$output.$TGT"
    printf '%s\n' "$key" >"$output.$TGT.made"
}

# The reference is the text of the corpus as it came, or detokenised by the tool that detokenises the translations.
reference() {
    if [[ "${TOKENIZED:-0}" == 0 ]]; then
        echo "$PREPARED/clean/test.$TGT"
        return
    fi
    "$PYTHON" "$ROOT/preprocess/detokenize_text.py" --language "$TGT" --input "$PREPARED/clean/test.$TGT" \
        --output "$WORK/reference.$TGT" >&2
    echo "$WORK/reference.$TGT"
}

stage_score() {
    need "$FOLDER/$TEST_SET.$TGT"
    local text
    text="$(reference)"
    "$PYTHON" -m sacrebleu "$text" --input "$FOLDER/$TEST_SET.$TGT" --metrics bleu chrf --width 2 --format text |
        tee "$FOLDER/scores.txt.partial"
    mv "$FOLDER/scores.txt.partial" "$FOLDER/scores.txt"
}

# Every system that has been translated, against row 1 (the baseline trained on for as long), else the baseline.
stage_compare() {
    local systems=() system text first
    for first in row1 baseline; do
        if [[ -f "$WORK/$SIZE-$first-seed$SEED/$TEST_SET.$TGT" ]]; then break; fi
    done
    need "$WORK/$SIZE-$first-seed$SEED/$TEST_SET.$TGT"
    systems=("$WORK/$SIZE-$first-seed$SEED/$TEST_SET.$TGT")
    for system in "$WORK/$SIZE"-*-seed"$SEED/$TEST_SET.$TGT"; do
        if [[ "$system" != "${systems[0]}" ]]; then systems+=("$system"); fi
    done
    [[ "${#systems[@]}" -gt 1 ]] || fail "$first is the only system translated so far; run others before compare"
    text="$(reference)"
    # Paired bootstrap resampling (Koehn 2004); the seed is sacrebleu's own default.
    "$PYTHON" -m sacrebleu "$text" --input "${systems[@]}" --metrics bleu --paired-bs --paired-bs-n 1000 --width 2 \
        --format text | tee "$WORK/$SIZE-compare-seed$SEED.txt.partial"
    mv "$WORK/$SIZE-compare-seed$SEED.txt.partial" "$WORK/$SIZE-compare-seed$SEED.txt"
}

# --------------------------------------------------------------------------------------------------------------- main
stages=("$@")
all=(download prepare train average translate score)
if [[ "${#stages[@]}" == 0 || "${stages[0]}" == all ]]; then stages=("${all[@]}"); fi
for stage in "${stages[@]}"; do
    [[ " ${all[*]} compare " == *" $stage "* ]] || fail "no stage '$stage'; the stages are ${all[*]} and compare, or all"
done
if [[ -n "$OWN_CORPUS" ]]; then check_corpus; fi
for stage in "${stages[@]}"; do
    echo "=== $stage${SYSTEM:+ ($SYSTEM)}"
    "stage_$stage"
done
