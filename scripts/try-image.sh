#!/usr/bin/env bash
# Usage: try-image.sh. Builds deploy/Containerfile with buildah on a debian:12-slim that debootstrap makes, then serves the digits example in a
# container with a read-only root, asks it once, and asks its health check. Needs root, buildah and debootstrap; everything is in a temporary folder.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/bare.sh
command -v buildah >/dev/null || bare_die "needs buildah: apt-get install --no-install-recommends buildah crun"

work=$(mktemp -d /tmp/bare-XXXXXX)
trap 'chroot_end; rm -rf "$work"' EXIT
chroot_end() { findmnt -rno TARGET | grep "^$work" | sort -r | xargs -r -n1 umount -l; }
buildah() { command buildah --root "$work/storage" --runroot "$work/runroot" --storage-driver vfs "$@"; }
step() { printf '== %s\n' "$*"; }

step "debian:12-slim (debootstrap --variant=minbase)"
bare_make "$work/base"
base=$(buildah from scratch)
buildah copy --quiet "$base" "$work/base" / >/dev/null
buildah commit --quiet "$base" debian:12-slim >/dev/null
buildah rm "$base" >/dev/null
rm -rf "$work/base"

for target in plimsoll digits; do
    step "buildah build --target $target"
    buildah build --isolation chroot --pull-never --layers --network host --target "$target" --tag "$target" -f deploy/Containerfile \
        ${PIP_INDEX_URL:+--env "PIP_INDEX_URL=$PIP_INDEX_URL"} . >"$work/log" 2>&1 || { tail -40 "$work/log" >&2; bare_die "it was not built"; }
done
buildah images
buildah inspect --type image --format '{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}' digits
