#!/bin/sh
# A team on one machine: a test Hub, two members with a home each. One warms; the other finds it and compiles nothing.
# Run by `make team`, after the demo's data was made. Usage: team.sh RECIPE FOLDER
set -eu
recipe=$1 folder=$2
rm -rf "$folder"
mkdir -p "$folder/hub" "$folder/ann" "$folder/bob"
here=$(cd "$(dirname "$0")/.." && pwd)

(cd "$here" && exec python -m tests.support.hubserver "$folder/hub" --port 0) >"$folder/hub.txt" 2>"$folder/hub.log" &
hub=$!
trap 'kill $hub 2>/dev/null' EXIT INT TERM
tries=0
until grep -q HF_ENDPOINT "$folder/hub.txt"; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { cat "$folder/hub.log"; exit 1; }
    sleep 0.1
done
eval "$(grep '^export' "$folder/hub.txt")"

as() {
    member=$1
    shift
    echo
    echo "$member \$ cachekit $*"
    (cd "$folder/$member" && CACHEKIT_HOME="$folder/$member/store" HF_HOME="$folder/$member/hf" cachekit "$@")
}

as ann hub create team/cache
cp "$folder/ann/cachekit.toml" "$folder/bob/" # as the project's repository would bring it
as bob plan "$recipe"
as ann warm "$recipe"
as bob plan "$recipe"
as bob pull "$recipe"
as bob warm "$recipe" --require-warm
as bob hub ls
