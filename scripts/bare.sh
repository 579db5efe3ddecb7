# A bare Debian 12 in a folder, for scripts that try packages. Sourced; needs root and debootstrap. Nothing of this machine is changed, and
# everything that runs in it runs in mount and process namespaces of its own, so that nothing is left.

bare_die() { echo "$(basename "$0"): $*" >&2; exit 1; }

# bare_make FOLDER: minbase, with the package sources of this machine.
bare_make() {
    [[ $(id -u) == 0 ]] || bare_die "needs root"
    command -v debootstrap >/dev/null || bare_die "needs debootstrap: apt-get install debootstrap"
    local mirror
    mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\?\(http[^ ]*\) bookworm main.*/\2/p' /etc/apt/sources.list | head -1)
    debootstrap --variant=minbase bookworm "$1" "${mirror:-http://deb.debian.org/debian}" >"$1.log" 2>&1 || { tail -20 "$1.log" >&2; bare_die "debootstrap failed"; }
    cp /etc/apt/apt.conf.d/*proxy* "$1/etc/apt/apt.conf.d/" 2>/dev/null || true
    # A network with authorities of its own: `ca-certificates` takes these in when it is installed, and pip is told to look there.
    mkdir -p "$1/usr/local/share/ca-certificates"
    cp /usr/local/share/ca-certificates/*.crt "$1/usr/local/share/ca-certificates/" 2>/dev/null || true
    cp /etc/pip.conf "$1/etc/" 2>/dev/null || true
    rm -f "$1.log"
}

# bare_run FOLDER COMMAND...: as root in it, with /proc, /dev and /run of its own. The network is this machine's. BARE_READ_ONLY=1: the rest
# cannot be written to, but for an empty /tmp.
bare_run() {
    local root=$1
    shift
    # shellcheck disable=SC2016
    BARE_READ_ONLY=${BARE_READ_ONLY:-} unshare --mount --pid --fork --kill-child sh -ec '
        root=$1; shift
        mount --make-rprivate /
        if [ -n "$BARE_READ_ONLY" ]; then
            mount --bind "$root" "$root"
            mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
            mount -o remount,bind,ro "$root"
        fi
        mount -t proc proc "$root/proc"
        mount -t tmpfs tmpfs "$root/dev"
        for name in null zero full random urandom tty; do
            : >"$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"
        done
        mkdir -p "$root/dev/shm" "$root/dev/pts"
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
        ln -s /proc/self/fd "$root/dev/fd"
        mount -t tmpfs -o mode=755 tmpfs "$root/run"
        mkdir -p "$root/run/lock"
        for file in /etc/resolv.conf /etc/hosts; do
            [ -e "$file" ] || continue
            [ -e "$root$file" ] || : >"$root$file"
            mount --bind "$file" "$root$file"
        done
        exec chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
            http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" PIP_INDEX_URL="${PIP_INDEX_URL:-}" "$@"
    ' sh "$root" "$@"
}
