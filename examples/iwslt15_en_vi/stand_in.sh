#!/usr/bin/env bash
# Makes a CORPUS folder for run.sh from training text of your own, for when the official training set cannot be had.
#
# usage: [PYTHON=...] bash examples/iwslt15_en_vi/stand_in.sh OUTPUT TEST_FOLDER PREFIX ...
#
#   OUTPUT       the folder to make
#   TEST_FOLDER  has tst2012 and tst2013, each .en and .vi, as the Stanford page serves them
#   PREFIX ...   training text: PREFIX.en and PREFIX.vi, or those with .gz, in this order one after the other
#   PYTHON=      the Python with sacremoses (that of .venv under the repository, else python)
#
# The official files are Moses-tokenised with escapes (&apos;). A text without any escape is brought into that form; one
# that has some is in it already and goes in as it is. Scores of such a run compare with others on the same text alone.
set -euo pipefail

if [[ $# -lt 3 ]]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=examples/recipe.sh
source "$HERE/../recipe.sh"
choose_python
output="$1"
tests="$2"
shift 2

# side PREFIX LANGUAGE: that file, packed or not.
side() {
    local path
    for path in "$1.$2" "$1.$2.gz"; do
        if [[ -f "$path" ]]; then
            echo "$path"
            return
        fi
    done
    fail "no such file: $1.$2 (nor with .gz); check the prefix"
}

content() { if [[ "$1" == *.gz ]]; then gzip -dc "$1"; else cat "$1"; fi; }

mkdir -p "$output"
for language in en vi; do
    for set in tst2012 tst2013; do
        path="$(side "$tests/$set" "$language")"
        content "$path" >"$output/.$set.$language.partial"
    done
    : >"$output/.train.$language.partial"
    for prefix in "$@"; do
        path="$(side "$prefix" "$language")"
        escapes="$(content "$path" | grep -cE '&(apos|quot|amp|lt|gt|#91|#93|#124);' || true)"
        if [[ "$escapes" -gt 0 ]]; then
            echo "$path: taken as it is ($escapes lines with escapes)"
            # awk ends the last line where the file does not.
            content "$path" | awk 1 >>"$output/.train.$language.partial"
        else
            echo "$path: tokenised with escapes"
            "$PYTHON" "$ROOT/preprocess/tokenize_text.py" --language "$language" --input "$path" \
                >>"$output/.train.$language.partial"
        fi
    done
done
# Only now that every part is there.
for language in en vi; do
    for set in train tst2012 tst2013; do
        mv "$output/.$set.$language.partial" "$output/$set.$language"
        echo "$output/$set.$language: $(wc -l <"$output/$set.$language" | tr -d ' ') lines"
    done
done
