#!/usr/bin/env bash
# Usage: make-llama.sh PYTHON WHAT FOLDER. Fetches the source named in llama.txt and installs into FOLDER
#   library  libllama: 2 to 3 minutes on two cores
#   cuda     libllama with its CUDA back-end: needs nvcc; 20 minutes and more
#   server   llama-server with libraries of its own, for tests and benches to compare with: 5 to 9 minutes
set -euo pipefail
python=$1 what=$2 into=$3
here=$(cd "$(dirname "$0")" && pwd)
case $what in
library) more=() parts=OFF ;;
cuda)
    command -v "${CUDACXX:-nvcc}" >/dev/null || { echo "PL_LLAMA_CUDA: no nvcc: install the CUDA toolkit, or set CUDACXX" >&2; exit 1; }
    more=(-DGGML_CUDA=ON) parts=OFF ;;
server) more=(-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON) parts=ON ;;
*) echo "what is '$what'? one of library, cuda, server" >&2; exit 2 ;;
esac

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
    "-DLLAMA_BUILD_COMMON=$parts" "-DLLAMA_BUILD_TOOLS=$parts" "-DLLAMA_BUILD_SERVER=$parts" -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF \
    -DGGML_NATIVE=OFF "-DGGML_AVX2=$([[ $(uname -m) == x86_64 ]] && echo ON || echo OFF)" -DGGML_OPENMP=ON -DGGML_CCACHE=OFF \
    -DLLAMA_BUILD_NUMBER=0 -DLLAMA_BUILD_COMMIT=0c1e57098 "-DCMAKE_INSTALL_PREFIX=$into" "${more[@]}"
if [[ $what == server ]]; then
    cmake --build "$work/build" -j "${JOBS:-$(nproc)}" --target llama-server
    mkdir -p "$into/bin"
    cp -P "$work"/build/bin/llama-server "$work"/build/bin/*.so* "$into/bin/"
else
    cmake --build "$work/build" -j "${JOBS:-$(nproc)}"
    cmake --install "$work/build"
fi
cp "$source"/LICENSE* "$into/"
