#!/usr/bin/env bash
# Serves SmolLM2 with plimsoll-llama of this clone. Arguments go to `plimsoll serve`.
set -euo pipefail
cd "$(dirname "$0")/.."
began=$SECONDS
scripts/setup.sh chat
scripts/build.sh release -DBUILD_TESTING=OFF
. scripts/env.sh

echo "set up and built in $((SECONDS - began)) s; serving SmolLM2 on /v1/chat/completions, end with Ctrl-C"
exec build/release/bin/plimsoll serve "$(echo "$PL_LLAMA_MODEL"/*.gguf)" --name chat "$@"
