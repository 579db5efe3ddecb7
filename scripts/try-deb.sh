#!/usr/bin/env bash
# Usage: try-deb.sh DEB. Installs the package into a bare Debian 12 in a temporary folder, serves the digits example there as the
# unit does (same user, folders, arguments, and a socket that hears READY=1), and purges it. Needs root, debootstrap, and `make setup`'s environment.
set -euo pipefail
deb=$(realpath "${1:?the .deb}")
cd "$(dirname "$0")/.."
. scripts/bare.sh
. scripts/env.sh
[[ -e $PL_SERVE_ENV/.made && -e $PL_DIGITS_HOME/.made ]] || bare_die "scripts/setup.sh run has not been run: no environment with BentoML"

work=$(mktemp -d /tmp/bare-XXXXXX)
trap 'rm -rf "$work"' EXIT
root=$work/root
step() { printf '== %s\n' "$*"; }

step "a bare Debian 12 (debootstrap --variant=minbase)"
bare_make "$root"
mkdir -p "$root/deb"
cp "$deb" "$root/deb/"

step "apt install $(basename "$deb"): libraries come by its Depends"
bare_run "$root" sh -ec 'apt-get -qq update; apt-get -qq -y --no-install-recommends install /deb/*.deb >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; exit 1; }
    dpkg --status plimsoll | grep -E "^(Version|Depends|Status)"; plimsoll --version; id plimsoll
    apt-get -qq -y --no-install-recommends install python3 >/dev/null 2>&1; python3 --version'

# The environment and the model are copied in: what is tried is the package, not pip. Both have their own path inside.
mkdir -p "$root$PL_SERVE_ENV" "$root$PL_DIGITS_HOME" "$root/srv/digits" "$root/etc/plimsoll"
cp -a "$PL_SERVE_ENV/." "$root$PL_SERVE_ENV/"
cp -a "$PL_DIGITS_HOME/." "$root$PL_DIGITS_HOME/"
cp -r examples/digits/. "$root/srv/digits/"
cat >"$root/etc/plimsoll/plimsoll.yaml" <<END
listen: 127.0.0.1:3000
admin: none
services:
  digits:
    run: service:Digits
    working_dir: /srv/digits
    python: $PL_SERVE_ENV/bin/python
    warmup: { requests: [{ path: /predict, body: "@/srv/digits/samples/three.json" }] }
END
chmod -R a+rX "$root/srv" "$root/etc/plimsoll"
for folder in "$root$PL_SERVE_ENV" "$root$PL_DIGITS_HOME"; do # every folder above must let the user through
    while [[ $folder != "$root" ]]; do chmod a+rx "$folder"; folder=$(dirname "$folder"); done
done
chmod -R a+rX "$root$PL_SERVE_ENV" "$root$PL_DIGITS_HOME"

step "serve, as plimsoll.service says it"
cat >"$root/deb/serve.py" <<'END'
"""The unit's user, folders, arguments and Type=notify, without systemd."""
import glob, json, os, pwd, re, signal, socket, subprocess, sys, urllib.request
unit = open("/lib/systemd/system/plimsoll.service").read()
said = lambda key: re.findall(rf"^{key}=(.*)$", unit, re.M)  # noqa: E731
user = pwd.getpwnam(said("User")[0])
env = {"PATH": "/usr/bin:/bin", "HOME": user.pw_dir, "USER": user.pw_name, "BENTOML_HOME": sys.argv[1], "BENTOML_DO_NOT_TRACK": "True"}
for line in said("Environment"):
    env.update(word.split("=", 1) for word in line.split())
for key, below in (("RuntimeDirectory", "/run"), ("StateDirectory", "/var/lib"), ("CacheDirectory", "/var/cache")):
    for name in said(key)[0].split():
        path = f"{below}/{name}"
        os.makedirs(path, exist_ok=True)
        os.chmod(path, int(said(key + "Mode")[0], 8))
        os.chown(path, user.pw_uid, user.pw_gid)
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind("/run/notify")
os.chmod("/run/notify", 0o777)
notify.settimeout(120)
env["NOTIFY_SOCKET"] = "/run/notify"
server = subprocess.Popen(said("ExecStart")[0].split(), cwd=said("WorkingDirectory")[0], env=env, user=user.pw_uid, group=user.pw_gid, extra_groups=[],
                          umask=0o077, stdin=subprocess.DEVNULL, stdout=open("/deb/out", "w"), stderr=open("/deb/err", "w"))
def hear(line):
    while True:
        text = notify.recv(4096).decode()
        print("notify:", text.replace("\n", " | "))
        if line in text.split("\n"):
            return
try:
    hear("READY=1")
    ask = urllib.request.Request("http://127.0.0.1:3000/predict", open("/srv/digits/samples/three.json", "rb").read(), {"content-type": "application/json"})
    print("answer:", urllib.request.urlopen(ask, timeout=30).read().decode())
    print(subprocess.run(["plimsoll", "status"], capture_output=True, text=True).stdout)
    reload = subprocess.run(said("ExecReload")[0].split(), env=env, user=user.pw_uid, capture_output=True, text=True)
    print("reload:", reload.returncode, reload.stdout.strip(), reload.stderr.strip())
    assert reload.returncode == 0
    pids = lambda: json.loads(subprocess.run(["plimsoll", "status", "--json"], capture_output=True, text=True).stdout)["pid"]  # noqa: E731
    before = pids()
    again = subprocess.run(["dpkg", "--install", *glob.glob("/deb/*.deb")], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    print("compiled:", len(glob.glob("/usr/share/plimsoll/python-*/plimsoll/__pycache__/*.pyc")), "files of the Python side")
    print("the package once more:", again.stdout.strip().splitlines()[-1])
    hear("READY=1")
    after = pids()
    assert after["keeper"] == before["keeper"] == server.pid and after["main"] != before["main"], (before, after)
    print("answer:", urllib.request.urlopen(ask, timeout=30).status)
    server.send_signal(signal.SIGTERM)
    hear("STOPPING=1")
    assert server.wait(60) == 0
    assert os.path.exists("/var/lib/plimsoll/default/record.sqlite"), os.listdir("/var/lib/plimsoll")
except BaseException:
    print(open("/deb/err").read()[-4000:])
    server.kill()
    raise
END
bare_run "$root" python3 -W ignore /deb/serve.py "$PL_DIGITS_HOME"

step "systemd reads the units where they are"
bare_run "$root" sh -ec 'systemd-analyze verify --man=no /lib/systemd/system/plimsoll.service /lib/systemd/system/plimsoll@.service 2>&1 | grep plimsoll && exit 1 || true'

step "the pages and completions are where they are looked for"
bare_run "$root" sh -ec 'ls /usr/share/man/man1/plimsoll.1.gz /usr/share/man/man5/plimsoll.yaml.5.gz /usr/share/bash-completion/completions/plimsoll \
    /usr/share/zsh/vendor-completions/_plimsoll /usr/share/fish/vendor_completions.d/plimsoll.fish /usr/share/plimsoll/alerts.yaml \
    /lib/systemd/system/plimsoll.service /lib/systemd/system/plimsoll@.service; plimsoll drydock --list | head -2'

step "apt purge: nothing but the user and what was written into /etc/plimsoll is left"
rm -r "$root/etc/plimsoll/plimsoll.yaml" "$root/srv/digits"
bare_run "$root" sh -ec 'apt-get -qq -y purge plimsoll >/dev/null 2>&1; ! dpkg --status plimsoll >/dev/null 2>&1'
rm -rf "${root:?}/$PL_SERVE_ENV" "${root:?}/$PL_DIGITS_HOME"
left=$(bare_run "$root" find / -xdev -name '*plimsoll*' ! -path "$(dirname "$PL_SERVE_ENV")*" ! -path '/deb/*' ! -path '/var/lib/apt/*' ! -path '/var/cache/apt/*' ! -path '/proc/*')
[[ -z $left ]] || { echo "$left" >&2; bare_die "left after the purge"; }
echo "try-deb: ok"
