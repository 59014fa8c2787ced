# What the recipes share: set HERE to the recipe's folder, then source this file. Functions read the recipe's variables:
# PYTHON, CPU, CORPUS, DATA (the data-bin) and FOLDER (where a run writes).

ROOT="$(cd "$HERE/../.." && pwd)"

fail() {
    echo "${0##*/}: error: $*" >&2
    exit 2
}

# The lines of comment at the top of the recipe are its help.
show_help_if_asked() {
    if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$HERE/${0##*/}"
        exit 0
    fi
}

choose_python() {
    if [[ -z "${PYTHON:-}" ]]; then
        PYTHON=python
        if [[ -x "$ROOT/.venv/bin/python" ]]; then PYTHON="$ROOT/.venv/bin/python"; fi
    fi
    command -v "$PYTHON" >/dev/null || fail "no Python at '$PYTHON'; run make setup, or set PYTHON"
}

# choose_threads [DEFAULT]: THREADS of the CPU; another number rounds otherwise.
choose_threads() {
    THREADS="${THREADS:-${1:-}}"
    if [[ -z "$THREADS" ]]; then return; fi
    [[ "$THREADS" =~ ^[1-9][0-9]*$ ]] || fail "THREADS is '$THREADS'; it is a whole number, 1 or more"
    export OMP_NUM_THREADS="$THREADS" MKL_NUM_THREADS="$THREADS"
}

# choose_work DEFAULT: WORK, where what is made goes; absolute, so that it is one name from wherever the recipe is called.
choose_work() {
    WORK="${WORK:-$1}"
    if [[ "$WORK" != /* ]]; then WORK="$PWD/$WORK"; fi
}

# check_whole_numbers LEAST NAME ...: each of these settings is one.
check_whole_numbers() {
    local least="$1" name
    shift
    for name in "$@"; do
        [[ "${!name}" =~ ^(0|[1-9][0-9]{0,8})$ && "${!name}" -ge "$least" ]] ||
            fail "$name is '${!name}'; it is a whole number, $least or more, of nine digits at most"
    done
}

# choose_device [OPTION ...]: the array device gets --cpu, or the given options where there is a GPU.
choose_device() {
    device=("$@")
    case "${CPU:-auto}" in
        1) device=(--cpu) ;;
        0) ;;
        auto)
            if ! "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then device=(--cpu); fi
            ;;
        *) fail "CPU is '$CPU'; it is 1, 0 or auto" ;;
    esac
}

# set_sizes LAYERS WIDTH INNER HEADS: the array sizes gets fairseq's flags for both sides.
set_sizes() {
    local side
    sizes=()
    for side in encoder decoder; do
        sizes+=("--$side-layers" "$1" "--$side-embed-dim" "$2" "--$side-ffn-embed-dim" "$3")
        sizes+=("--$side-attention-heads" "$4")
    done
}

# choose_architecture: the array architecture gets fairseq's flags for ARCH at SIZE, base or tiny, with n = FIXED_LENGTH
# where the encoder has one; full_name gets the architecture's name with its size.
choose_architecture() {
    case "$SIZE" in
        base) set_sizes 6 512 2048 8 ;;
        tiny) set_sizes 4 128 256 4 ;;
        *) fail "SIZE is '$SIZE'; it is base or tiny" ;;
    esac
    full_name="$ARCH"
    case "$ARCH" in
        transformer)
            if [[ "$SIZE" == tiny ]]; then full_name="transformer_tiny"; fi
            architecture=(--arch transformer "${sizes[@]}")
            return
            ;;
        *informer* | ni_transformer*)
            if [[ "$SIZE" == tiny && "$ARCH" != *_tiny ]]; then full_name="${ARCH}_tiny"; fi
            ;;
        *)
            [[ "$SIZE" == base ]] || fail "SIZE=$SIZE is for transformer and the plugin's architectures; leave it for $ARCH"
            ;;
    esac
    architecture=(--arch "$full_name")
    if [[ "$full_name" == *informer* ]]; then architecture+=(--encoder-fixed-length "$FIXED_LENGTH"); fi
}

# finished FILE KEY INPUT ...: FILE was made with the settings KEY, and no INPUT is newer.
finished() {
    local file="$1" key="$2" input
    shift 2
    [[ -f "$file" && -f "$file.made" && "$(cat "$file.made")" == "$key" ]] || return 1
    for input in "$@"; do
        if [[ "$input" -nt "$file" ]]; then return 1; fi
    done
}

# Checksums of official files, as "SHA256  URL" lines; a file that is not among them is held to its first download.
CHECKSUMS="${CHECKSUMS:-$ROOT/examples/checksums.sha256}"

# fetch_checked URL FILE: fetches a file, unless it is there, and checks it by SHA-256 in either case.
fetch_checked() {
    local url="$1" file="$2" sums expected found candidate="$2" what="not the pinned"
    sums="$(dirname "$file")/SHA256SUMS"
    if [[ ! -f "$file" ]]; then
        mkdir -p "$(dirname "$file")"
        echo "fetching $url"
        candidate="$file.partial"
        curl --fail --location --silent --show-error --retry 3 --output "$candidate" "$url" ||
            fail "could not fetch $url; fetch it by hand to $file, or set CORPUS to a folder of your own"
    fi
    found="$("$PYTHON" -c '
import hashlib, sys
digest = hashlib.sha256()
with open(sys.argv[1], "rb") as file:
    while block := file.read(1 << 20):
        digest.update(block)
print(digest.hexdigest())' "$candidate")"
    expected="$(awk -v url="$url" '$2 == url { print $1; exit }' "$CHECKSUMS")"
    if [[ -z "$expected" && -f "$sums" ]]; then
        expected="$(awk -v url="$url" '$2 == url { print $1; exit }' "$sums")"
        what="not, as when it was first fetched,"
    fi
    if [[ -n "$expected" && "$found" != "$expected" ]]; then
        fail "$candidate, from $url, has SHA-256 $found, $what $expected: cut, or changed; remove it and try again"
    fi
    if [[ -z "$expected" ]]; then
        case "$file" in
            *.tar | *.tgz) tar -tf "$candidate" >/dev/null || fail "$candidate is incomplete; remove it and try again" ;;
        esac
        echo "$found  $url" >>"$sums"
        echo "no checksum is known of ${file##*/}: its SHA-256 $found is kept in $sums"
    fi
    if [[ "$candidate" != "$file" ]]; then mv "$candidate" "$file"; fi
}

need() {
    local path
    for path in "$@"; do
        [[ -e "$path" ]] || fail "no such file: $path; run the stage before, or all of them"
    done
}

# check_pairs SOURCE TARGET SET ...: CORPUS has every set in both languages, packed or not.
check_pairs() {
    local languages=("$1" "$2") set language sets
    shift 2
    sets="$*"
    for set in "$@"; do
        for language in "${languages[@]}"; do
            if [[ ! -f "$CORPUS/$set.$language" && ! -f "$CORPUS/$set.$language.gz" ]]; then
                fail "no such file: $CORPUS/$set.$language; a corpus has ${sets// /, }, each .${languages[0]} and" \
                    ".${languages[1]}: add it, or leave CORPUS unset and run the download stage"
            fi
        done
    done
}

# prepare NAME=VALUE ...: preprocess/prepare.sh into PREPARED with these settings, of which PREPARATION has those to tell.
prepare() {
    local told="$PREPARED/recipe.settings"
    # Of other settings it tells nothing while they are replaced. With these it stays: other runs may be reading it.
    if [[ -f "$told" && "$(cat "$told")" != "$PREPARATION" ]]; then rm "$told"; fi
    # What a recipe has no setting for is not the environment's to change either.
    env PYTHON="$PYTHON" OUT="$PREPARED" STAGE="" FORCE=0 SEED=1 LOWERCASE=0 BPE_DROPOUT=0 BPE_DROPOUT_COPIES=4 \
        VOCABULARY_THRESHOLD=0 "$@" bash "$ROOT/preprocess/prepare.sh"
    if [[ ! -f "$told" ]]; then printf '%s\n' "$PREPARATION" >"$told"; fi
}

# need_prepared: PREPARED was made with the settings PREPARATION.
need_prepared() {
    need "$PREPARED/recipe.settings"
    local found
    found="$(cat "$PREPARED/recipe.settings")"
    [[ "$found" == "$PREPARATION" ]] ||
        fail "$PREPARED was prepared with $found, not $PREPARATION; give those settings, or run the stage prepare"
}

# training_settings OPTION ...: what decides a training beside its length, in one line: its options and its data. The
# folder of all work may be moved.
training_settings() {
    printf '%s ' "${@//"$WORK/"/}"
    echo "data $(cat "$DATA"/dict.*.txt "$DATA"/train.*.bin | cksum)"
}

# need_same_start OPTION ...: the model that the training starts from, if any, is no newer than the training.
need_same_start() {
    local start=""
    while [[ $# -gt 0 ]]; do
        if [[ "$1" == --init-from-transformer ]]; then start="$2"; fi
        shift
    done
    if [[ -n "$start" && "$start" -nt "$FOLDER/train.settings" ]]; then
        fail "$FOLDER started from $start as it was before it was trained anew; set RUN to a new name, or remove that folder"
    fi
}

# train_once LENGTHS OPTION ... [-- OPTION ...]: trains into FOLDER, goes on where a training stopped, skips a finished
# one. What stands before -- may not change between the parts of one training, nor may the data.
train_once() {
    local lengths="$1" options=() last="$FOLDER/checkpoints/checkpoint_last.pt" settings
    shift
    while [[ $# -gt 0 && "$1" != -- ]]; do
        options+=("$1")
        shift
    done
    if [[ $# -gt 0 ]]; then shift; fi
    need_prepared
    mkdir -p "$FOLDER"
    settings="$(training_settings "${options[@]}")"
    if [[ -f "$last" && "$(cat "$FOLDER/train.settings")" != "$settings" ]]; then
        fail "$FOLDER was trained with other settings or data (train.settings there has them);" \
            "set RUN to a new name, or remove that folder"
    fi
    if [[ -f "$last" ]]; then need_same_start "${options[@]}"; fi
    if [[ -f "$last" && -f "$FOLDER/train.done" && "$(cat "$FOLDER/train.done")" == "$lengths" ]]; then
        echo "$FOLDER: trained before ($lengths)"
        return
    fi
    rm -f "$FOLDER/train.done"
    # Without a checkpoint it begins anew: what is left of an earlier training tells nothing about this one.
    if [[ ! -f "$last" ]]; then rm -f "$FOLDER/train.log" "$FOLDER/train.environment"; fi
    printf '%s\n' "$settings" >"$FOLDER/train.settings"
    note_environment
    "$PYTHON" -m fairseq_cli.train "$DATA" --user-dir "$ROOT/informer_fairseq" "${options[@]}" "$@" \
        --save-dir "$FOLDER/checkpoints" --log-interval 100 --log-file "$FOLDER/train.log"
    printf '%s\n' "$lengths" >"$FOLDER/train.done"
}

# need_training LENGTHS OPTION ...: FOLDER was trained by train_once with just these, so that they may be told of it.
need_training() {
    local lengths="$1" way_out="give the settings that trained it, or another RUN" found
    shift
    need_prepared
    need "$FOLDER/train.settings"
    [[ "$(cat "$FOLDER/train.settings")" == "$(training_settings "$@")" ]] ||
        fail "$FOLDER was trained with other settings or data (train.settings there has them); $way_out"
    need_same_start "$@"
    [[ -f "$FOLDER/train.done" ]] || fail "$FOLDER is not trained to its end; run the stage train, or all of them"
    found="$(cat "$FOLDER/train.done")"
    [[ "$found" == "$lengths" ]] || fail "$FOLDER was trained with $found, not $lengths; $way_out"
}

# note_environment: FOLDER/train.environment gets a line of the code and machine that train now; it has more than one if
# they changed between the parts of a training.
note_environment() {
    local environment
    environment="commit $(git -C "$ROOT" describe --always --dirty 2>/dev/null || echo unknown), $(
        PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}" "$PYTHON" -m benchmarks.machine
    )"
    if ! grep -qxF -e "$environment" "$FOLDER/train.environment" 2>/dev/null; then
        printf '%s\n' "$environment" >>"$FOLDER/train.environment"
    fi
}

# choose_average COUNT epochs|updates: the array inputs gets the last checkpoints of whole epochs, or by updates.
choose_average() {
    local name pattern='checkpoint[0-9]*.pt' key=1n
    if [[ "$2" == updates ]]; then pattern='checkpoint_[0-9]*_[0-9]*.pt' key=3n; fi
    inputs=()
    while read -r name; do
        inputs+=("$FOLDER/checkpoints/$name")
    done < <(
        cd "$FOLDER/checkpoints"
        # The first number of checkpoint12.pt, the third field of checkpoint_1_2000.pt.
        find . -name "$pattern" | sed 's,^\./checkpoint,,' | sort -t _ -k "$key" | tail -n "$1" | sed 's,^,checkpoint,'
    )
    # A training stopped early has no checkpoint but the last.
    if [[ "${#inputs[@]}" == 0 ]]; then inputs=("$FOLDER/checkpoints/checkpoint_last.pt"); fi
}

# average_last COUNT epochs|updates: FOLDER/averaged.pt from the last checkpoints; averaged.pt.made has their names.
average_last() {
    need "$FOLDER/checkpoints/checkpoint_last.pt"
    local inputs
    choose_average "$@"
    if finished "$FOLDER/averaged.pt" "${inputs[*]##*/}" "${inputs[@]}"; then
        echo "$FOLDER/averaged.pt: made before"
        return
    fi
    echo "averaging ${inputs[*]##*/}"
    PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}" "$PYTHON" -m informer_fairseq.average_checkpoints \
        --inputs "${inputs[@]}" --output "$FOLDER/averaged.pt"
    printf '%s\n' "${inputs[*]##*/}" >"$FOLDER/averaged.pt.made"
}

# need_average COUNT epochs|updates: FOLDER/averaged.pt is what average_last makes now; where the checkpoints were
# removed since, it stays what it was.
need_average() {
    need "$FOLDER/averaged.pt"
    if [[ ! -f "$FOLDER/checkpoints/checkpoint_last.pt" ]]; then return; fi
    local inputs
    choose_average "$@"
    finished "$FOLDER/averaged.pt" "${inputs[*]##*/}" "${inputs[@]}" ||
        fail "$FOLDER/averaged.pt is not of the last checkpoints, as AVERAGE=$1 asks; run the stage average"
}

# count_averaged: how many checkpoints FOLDER/averaged.pt is of, which may be fewer than AVERAGE; 0 if none was asked for.
count_averaged() {
    if [[ "$AVERAGE" -gt 0 ]]; then wc -w <"$FOLDER/averaged.pt.made" | tr -d ' '; else echo 0; fi
}

# generate SOURCE TARGET SUBSET MODEL OUTPUT OPTION ...: fairseq-generate's output on one set, whole or not at all.
generate() {
    local source="$1" target="$2" subset="$3" model="$4" output="$5"
    shift 5
    # fairseq prints its whole configuration as a log line; LOGLEVEL=INFO brings it back.
    LOGLEVEL="${LOGLEVEL:-WARNING}" "$PYTHON" -m fairseq_cli.generate "$DATA" --user-dir "$ROOT/informer_fairseq" \
        --path "$model" --source-lang "$source" --target-lang "$target" --gen-subset "$subset" --nbest 1 \
        --batch-size "${GENERATE_BATCH:-64}" --required-batch-size-multiple 1 ${device[@]+"${device[@]}"} "$@" \
        >"$output.partial"
    mv "$output.partial" "$output"
}

# run_stages "STAGE ..." [STAGE ...]: the stages asked for, of those there are; all but those in brackets by default.
run_stages() {
    local known="$1" stage name all=() stages=()
    shift
    for name in $known; do
        if [[ "$name" != \(*\) ]]; then all+=("$name"); fi
    done
    stages=("$@")
    if [[ "${#stages[@]}" == 0 || "${stages[0]}" == all ]]; then stages=("${all[@]}"); fi
    known="${known//[()]/}"
    for stage in "${stages[@]}"; do
        [[ " $known " == *" $stage "* ]] || fail "no stage '$stage'; the stages are $known, or all"
    done
    for stage in "${stages[@]}"; do
        echo "=== $stage"
        "stage_$stage"
    done
}
