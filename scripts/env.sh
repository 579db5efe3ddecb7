# Where everything lies that set-up makes. Sourced by the other scripts, from the root of the clone; makes nothing itself.
# A folder's name carries a hash of what it is made from: a changed requirement is a new folder, an old clone keeps its own.

PL_CACHE=${PLIMSOLL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll}
PL_PYTHON=${PYTHON:-/usr/bin/python3}

pl_hash() { cat "$@" 2>/dev/null | sha256sum | cut -c1-12; }

# Version and place of the interpreter: an environment made by another one is another environment.
pl_python_id() { "$PL_PYTHON" -c 'import os, sys; print(sys.version, os.path.realpath(sys.executable))' 2>/dev/null || echo none; }

pl_python=$(pl_python_id)
PL_SERVE_ENV=$PL_CACHE/serve-$(echo "$pl_python" | pl_hash examples/digits/requirements.txt -)
PL_TEST_ENV=$PL_CACHE/test-$(echo "$pl_python" | pl_hash examples/digits/requirements.txt tests/requirements.txt -)
# The model of the example, in a BentoML store of its own.
PL_DIGITS_HOME=$PL_CACHE/bentoml-home-$(echo "$pl_python" | pl_hash examples/digits/requirements.txt examples/digits/train.py -)
PL_TOOLS=$PL_CACHE/tools-1
# nginx and HAProxy, for the bench and for tests beside nginx (make test-full).
PL_PEERS=$PL_CACHE/peers-1
# Envoy and routers for LLM servers, for the bench when it is asked for them (make bench ARGS="--peers envoy").
PL_PEERS_ENV=$PL_CACHE/bench-peers-$(echo "$pl_python" | pl_hash bench/peers.txt -)

# PyTorch with its CUDA code and none of NVIDIA's packages, for tests over the dry dock. PLIMSOLL_NO_TORCH=1 leaves it out.
pl_torch_hash() { echo "$pl_python" | pl_hash examples/digits/requirements.txt tests/drydock/requirements.txt "$1" -; }
PL_TORCH_ENV=$PL_CACHE/torch-2.15-$(pl_torch_hash tests/drydock/torch-2.15.txt)
PL_TORCH28_ENV=$PL_CACHE/torch-2.8-$(pl_torch_hash tests/drydock/torch-2.8.txt)

# llhttp: the system's when it is new enough (older ones have known request smuggling holes), else one of our own.
if pkg-config --exists 'libllhttp >= 9.4' 2>/dev/null; then
    PL_LLHTTP_DIR=
else
    PL_LLHTTP_DIR=$PL_CACHE/llhttp-9.4.3-$(pl_hash scripts/llhttp.txt scripts/make-llhttp.sh)
fi
# libllama and a small model, for plimsoll-llama and its tests. PLIMSOLL_NO_LLAMA=1 leaves both out; PL_LLAMA_CUDA=1 builds it for
# NVIDIA's cards; a prefix of your own in PL_LLAMA_DIR is taken as it is. What `make run` serves needs neither.
# PL_LLAMA_PEER is llama-server out of the same sources, for `make test-full` and `make bench-llama`.
pl_llama_hash() { (c++ -dumpfullversion 2>/dev/null; uname -m) | pl_hash scripts/llama.txt scripts/make-llama.sh -; }
PL_LLAMA_MADE=$PL_CACHE/llama-0.3.36${PL_LLAMA_CUDA:+-cuda}-$(pl_llama_hash)
PL_LLAMA_PEER=$PL_CACHE/llama-server-0.3.36-$(pl_llama_hash)
PL_LLAMA_MODEL=$PL_CACHE/smollm2-$(pl_hash scripts/llama-model.txt)
PL_LLAMA_DIR=${PL_LLAMA_DIR:-}
if [[ -z $PL_LLAMA_DIR && -z ${PLIMSOLL_NO_LLAMA:-} && -e $PL_LLAMA_MADE/.made ]]; then PL_LLAMA_DIR=$PL_LLAMA_MADE; fi
export PL_LLAMA_DIR PL_LLAMA_MODEL PL_LLAMA_PEER

export PL_LLHTTP_DIR PL_SERVE_ENV PL_TEST_ENV PL_DIGITS_HOME PL_TOOLS PL_TORCH_ENV PL_TORCH28_ENV PL_PEERS PL_PEERS_ENV
