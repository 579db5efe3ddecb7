#!/usr/bin/env bash
# Usage: make-llama.sh PYTHON FOLDER. Fetches the source named in llama.txt and installs libllama into FOLDER: 2 to 3 minutes on two cores.
set -euo pipefail
python=$1 into=$2
here=$(cd "$(dirname "$0")" && pwd)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" --quiet --disable-pip-version-check download --no-deps --no-binary :all: \
    --require-hashes --requirement "$here/llama.txt" --dest "$work"
tar -C "$work" -xf "$work"/llama_cpp_python-*.tar.gz
source=$(echo "$work"/llama_cpp_python-*/vendor/llama.cpp)
rm -f "$source/.git" # it points nowhere, and Ninja then configures for ever

# No RPATH, no finding of each other. AVX2 and not the builder's own CPU: the result may be used on another machine.
# Unless number and commit are given, those of our own repository are written into it.
cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
    "-DCMAKE_INSTALL_RPATH=\$ORIGIN" -DCMAKE_INSTALL_LIBDIR=lib \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF \
    -DGGML_NATIVE=OFF "-DGGML_AVX2=$([[ $(uname -m) == x86_64 ]] && echo ON || echo OFF)" -DGGML_OPENMP=ON -DGGML_CCACHE=OFF \
    -DLLAMA_BUILD_NUMBER=0 -DLLAMA_BUILD_COMMIT=0c1e57098 "-DCMAKE_INSTALL_PREFIX=$into"
cmake --build "$work/build" -j "${JOBS:-$(nproc)}"
cmake --install "$work/build"
cp "$source"/LICENSE* "$into/"
