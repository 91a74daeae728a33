#!/bin/sh
# The main job, step by step: what `make demo` runs once the environment and the data are there.
#
#     sh recipes/demo.sh RECIPE
#
# It starts from a cold store, so that there is something to see; CACHEKIT_HOME says where that store is.
set -eu
recipe=$1
home=${CACHEKIT_HOME:?set CACHEKIT_HOME to a folder that may be emptied}
work=$(dirname "$home")

say() { printf '\n\033[1m$ %s\033[0m\n' "$*" >&2; "$@"; }

rm -rf "$home"
say cachekit plan "$recipe"
say cachekit warm "$recipe"
say cachekit plan "$recipe" --require-warm
say cachekit train "$recipe" --require-warm --output-dir "$work/run"

# Nothing of the first run is left but the store: the compiler cache dir is emptied, and the second run gets another one.
rm -rf "$home/v1/cache_dirs"
CACHEKIT_COMPILER_CACHE_DIR="$work/elsewhere" say cachekit train "$recipe" --require-warm --output-dir "$work/run-again"

for run in run run-again; do
    python3 - "$work/$run/cachekit-result.json" <<'PYTHON'
import json, sys
result = json.load(open(sys.argv[1]))
test = result["metrics"]["test"]
print(f"{sys.argv[1]}: compiled {result['compiled']} graphs, built {result['built']} binaries, "
      f"test accuracy {test['accuracy']:.3f}, saved {result['saved_seconds']:.0f} s")
sys.exit(1 if result["compiled"] or result["built"] else 0)
PYTHON
done
