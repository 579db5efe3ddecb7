#!/usr/bin/env bash
# Usage: try-image.sh. Builds deploy/Containerfile with buildah on a debian:12-slim that debootstrap makes, then serves the digits example in a
# container with a read-only root, asks it once, and asks its health check. Needs root, buildah and debootstrap; everything is in a temporary folder.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/bare.sh
command -v buildah >/dev/null || bare_die "needs buildah: apt-get install --no-install-recommends buildah crun"

work=$(mktemp -d /tmp/bare-XXXXXX)
driver=overlay # vfs copies everything at every step, and is what works everywhere
buildah --root "$work/trial" --runroot "$work/trialrun" --storage-driver overlay info >/dev/null 2>&1 || driver=vfs
here() { buildah --root "$work/storage" --runroot "$work/runroot" --storage-driver "$driver" "$@"; }
end() {
    here umount --all >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT
step() { printf '== %s\n' "$*"; }

step "debian:12-slim (debootstrap --variant=minbase)"
bare_make "$work/base"
base=$(here from scratch)
here copy --quiet "$base" "$work/base" / >/dev/null
here commit --quiet "$base" debian:12-slim >/dev/null
here rm "$base" >/dev/null
rm -rf "$work/base"

step "buildah build --target digits (plimsoll is a stage of it)"
here build --isolation chroot --pull-never --network host --target digits --tag digits -f deploy/Containerfile . \
    >"$work/log" 2>&1 || { tail -40 "$work/log" >&2; bare_die "it was not built"; }
grep -E 'STEP ' "$work/log"
here images
here inspect --type image --format '{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}{{"\n"}}' digits

step "serve digits with a read-only root, as the image's user"
container=$(here from --pull-never digits)
root=$(here mount "$container")
variables=$(here inspect --type image --format '{{range .OCIv1.Config.Env}}{{.}}{{"\n"}}{{end}}' digits)
user=$(here inspect --type image --format '{{.OCIv1.Config.User}}' digits)
folder=$(here inspect --type image --format '{{.OCIv1.Config.WorkingDir}}' digits)
cat >"$work/script" <<'END'
cd "$1"
/usr/bin/plimsoll serve --host 127.0.0.1 --port 0 --admin none 2>/tmp/err >/tmp/out &
server=$!
# The health check, as a container engine asks it.
for _ in $(seq 600); do
    /usr/bin/plimsoll status --quiet >/dev/null 2>&1 && break
    kill -0 "$server" || { cat /tmp/err; exit 1; }
    sleep 0.1
done
/usr/bin/plimsoll status || { cat /tmp/err; exit 1; }
id; touch /nothing 2>/dev/null && exit 1
python3 - <<'PY'
import json, re, urllib.request
port = re.search(r"127\.0\.0\.1:(\d+)", open("/tmp/err").read())[1]
ask = urllib.request.Request(f"http://127.0.0.1:{port}/predict", open("samples/three.json", "rb").read(), {"content-type": "application/json"})
print("answer:", urllib.request.urlopen(ask, timeout=30).read().decode())
PY
kill "$server"; wait "$server"
END
mapfile -t variables <<<"$variables"
BARE_READ_ONLY=1 bare_run "$root" env "${variables[@]}" setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups \
    sh -ec "$(cat "$work/script")" sh "$folder"
echo "try-image: ok"
