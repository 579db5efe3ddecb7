"""Manual pages and shell completions, made from what `plimsoll help --json` and `config reference` say of the tables. Called by docs.py.

pages(help, reference) is {path below the root: text}.
"""

import json
import re
from dataclasses import dataclass

GROUPS = ("Run", "Diagnose", "Prove", "Ship")
DATE = "2026-11-30"  # of the version that this describes
# Words that follow a verb and are no file.
WORDS = {"config": "show schema reference", "snapshot": "replay what-if", "enforce": "observe guard enforce"}
EXITS = (
    ("0", "yes, done, clean"),
    ("1", "the answer is no: a leak, does not fit, findings, not ready"),
    ("2", "usage: an unknown flag, a wrong number of arguments, more than one server found"),
    ("3", "configuration or input not understood; the message names file, line and column"),
    ("4", "could not judge: too few requests, no GPU for a question about one"),
    ("5", "system: cannot open, connect or start; no server found"),
    ("6", "serve: no worker became ready"),
    ("70", "serve: the gateway process crashed again and again"),
)
VARIABLES = (
    ("PLIMSOLL_CONFIG, PLIMSOLL_ADMIN, PLIMSOLL_TOKEN_FILE", "as the flags --config, --admin, --token-file"),
    ("PLIMSOLL__KEY__KEY", "a key of the configuration: PLIMSOLL__SERVICES__CHAT__TRAFFIC__TIMEOUT=30s"),
    ("PLIMSOLL_CACHE", "folder of what can be made again, unless cache_dir is set"),
    ("BENTOML_CONFIG, BENTOML_HOME, BENTOML_HOST, BENTOML_PORT ...", "as BentoML takes them"),
    ("NOTIFY_SOCKET", "the service manager that hears of readiness, reloads and the stop (sd_notify(3))"),
    ("NO_COLOR, XDG_RUNTIME_DIR, XDG_STATE_HOME, XDG_CACHE_HOME", "as usual"),
)
FILES = (
    ("./plimsoll.yaml, /etc/plimsoll/plimsoll.yaml", "the configuration, plimsoll.yaml(5)"),
    ("/run/plimsoll/NAME, $XDG_RUNTIME_DIR/plimsoll/NAME, /tmp/plimsoll-UID/NAME", "sockets and the lock of an instance"),
    ("/var/lib/plimsoll/NAME, $XDG_STATE_HOME/plimsoll/NAME", "flight record, samples, learnt values"),
    ("PREFIX/share/plimsoll/alerts.yaml", "alert rules for Prometheus"),
)
SIGNALS = (
    ("SIGTERM, SIGINT", "serve: stop in order; a second one ends it at once"),
    ("SIGHUP", "serve: read file, environment and flags again, as plimsoll reload"),
)
EXAMPLES = (
    ("plimsoll serve service:Classifier", "an unmodified BentoML service"),
    ("plimsoll serve -- vllm serve MODEL", "any HTTP server, started and kept"),
    ("plimsoll serve http://127.0.0.1:8000", "one that already runs"),
    ("plimsoll status --wait 60s", "what runs, how warm, what waits"),
)


@dataclass
class Key:
    path: str
    value: str
    default: str
    reload: str
    text: str

    def words(self):
        """What it may be, if that is a closed list of words."""
        found = re.findall(r"`([a-z0-9.-]+)`", self.value)
        rest = re.sub(r"`[a-z0-9.-]+`", "", self.value).strip()
        return found if found and not rest else (["on", "off"] if self.value == "on or off" else [])


def read_reference(text):
    """[(title, introduction, [Key])] of the sections of `config reference`."""
    out = []
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        title, _, rest = part.partition("\n")
        keys = []
        for line in re.findall(r"^\| `.*\|$", rest, re.M):
            cells = [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]
            keys.append(Key(cells[0].strip("`"), *cells[1:5]))
        out.append((title.strip(), " ".join(line for line in rest.split("\n") if line and line[0] != "|"), keys))
    return out


# ---- roff


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return re.sub(r"^([.'])", r"\\&\1", text)


def term(left, text):
    return f".TP\n{left}\n{roff(text)}\n"


def flag_term(flag):
    names = ([f"\\fB\\-{flag['letter']}\\fR"] if "letter" in flag else []) + [f"\\fB\\-\\-{roff(flag['name'])}\\fR"]
    value = f" \\fI{roff(flag['value'])}\\fR" if "value" in flag else ""
    if flag["kind"] == "optional":
        value = f"[={value.strip()}]"
    return term(", ".join(names) + value, flag["text"])


def rows(pairs):
    return "".join(term(f"\\fB{roff(a)}\\fR", b) for a, b in pairs)


def head(name, section, version, what):
    return (f'.\\" Made by scripts/docs.py; do not edit.\n.TH {name.upper()} {section} {DATE} "plimsoll {version}" "Plimsoll"\n'
            f".SH NAME\n{roff(name)} \\- {roff(what)}\n")


def plimsoll_1(doc):
    out = head("plimsoll", 1, doc["version"], "keep model servers warm, without leaks and out of memory")
    out += (".SH SYNOPSIS\n.B plimsoll\n.I VERB\n.RI [ arguments ]\n.SH DESCRIPTION\n"
            "A program in front of, and around, model servers that people already run: BentoML services, vLLM, any HTTP server.\n"
            "It starts them, warms them up before a request reaches them, admits what fits into memory, watches what each request leaves\n"
            "behind, and replaces or restarts workers without losing a request.\n")
    for group in GROUPS:
        out += f".SH {group.upper()}\n"
        for verb in doc["verbs"]:
            if verb["group"] != group:
                continue
            out += f".SS plimsoll {roff(verb['name'])} {roff(verb['arguments'])}".rstrip() + f"\n{roff(verb['text'])}.\n"
            out += "".join(flag_term(f) for f in verb["flags"])
            if verb["keys"]:
                out += ".PP\nAlso the options of\n.BR SERVING ,\nbelow.\n"
            if verb["server"]:
                out += ".PP\nAlso the options of\n.BR \"VERBS THAT TALK TO A SERVER\" ,\nbelow.\n"
    out += ".SH SERVING\nEvery key of plimsoll.yaml(5) is an option, with one service without its name: \\fB\\-\\-traffic.timeout\\fR 30s.\nBeside them:\n"
    out += "".join(flag_term(f) for f in doc["keys"])
    out += (".SH VERBS THAT TALK TO A SERVER\nThe server is found by these, by PLIMSOLL_ADMIN, by the configuration, or by the sockets in the "
            "run folders.\n" + "".join(flag_term(f) for f in doc["server"]))
    out += ".SH OPTIONS OF EVERY VERB\n" + "".join(flag_term(f) for f in doc["shared"])
    out += ".SH EXIT STATUS\n" + rows(EXITS) + ".SH ENVIRONMENT\n" + rows(VARIABLES)
    out += ".SH FILES\n" + rows(FILES) + ".SH SIGNALS\n" + rows(SIGNALS) + ".SH EXAMPLES\n" + rows(EXAMPLES)
    return out + ".SH SEE ALSO\n.BR plimsoll.yaml (5)\n"


def plimsoll_yaml_5(doc, sections):
    out = head("plimsoll.yaml", 5, doc["version"], "configuration of plimsoll")
    out += (".SH DESCRIPTION\nRead from ./plimsoll.yaml, then /etc/plimsoll/plimsoll.yaml, or from where --config says.\n"
            .replace("--", "\\-\\-") +
            "A value comes from the first of: flag, environment, this file, BentoML's configuration, the service's decorator, the default.\n"
            "Bytes are written with KiB, MiB, GiB or TiB; durations with ms, s, m, h or d; shares as 15% or 0.15.\n"
            "${NAME} and ${NAME:\\-default} are filled in from the environment; $$ is a dollar sign.\n.PP\n"
            "A reload applies a changed key\n.IR \"at once\" ,\nby a\n.I new generation\nof the service, or rejects it: it needs a\n.IR restart .\n"
            ".SH EXAMPLE\n.nf\nlisten: 0.0.0.0:3000\nservices:\n  classify:\n    run: service:Classifier\n    workers: 2\n"
            "    traffic: { timeout: 30s, max_concurrency: 64 }\n.fi\n")
    for title, _, keys in sections:
        out += f".SH {roff(title.upper())}\n"
        for key in keys:
            tail = "" if key.default in ("", "not set") else f" Default: {key.default}."
            out += term(f"\\fB{roff(key.path)}\\fR", f"{key.text} Value: {key.value}.{tail} Reload: {key.reload}.")
    return out + ".SH SEE ALSO\n.BR plimsoll (1)\n"


# ---- completions


@dataclass
class Option:
    names: list  # with their dashes
    text: str
    value: str  # "": takes none
    words: list  # that it may be
    files: bool
    optional: bool = False


def option(flag):
    value = flag.get("value", "")
    names = ["--" + flag["name"]] + (["-" + flag["letter"]] if "letter" in flag else [])
    words = value.split("|") if re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", value) else []
    files = bool(re.search(r"FILE|DIR|PATH|BODY|OLDER|SOCKET", value))
    words = words or {"MODE": ["auto", "overlap", "handover"], "CLASS": ["burstable", "guaranteed"],
                      "L": ["debug", "info", "warn", "error"]}.get(value, [])
    return Option(names, flag["text"], value, words, files, flag["kind"] == "optional")


def all_options(doc, sections):
    """{verb: [Option]}"""
    keys = []
    seen = set()
    for _, _, rows_ in sections:
        for key in rows_:
            path = re.sub(r"^services\.NAME\.", "", key.path)
            if "[" in path or path in seen:
                continue
            seen.add(path)
            keys.append(Option(["--" + path], key.text, "VALUE", key.words(), bool(re.search(r"a path|file:PATH", key.value))))
    out = {}
    for verb in doc["verbs"]:
        options = [option(f) for f in verb["flags"]]
        if verb["keys"]:
            options += [option(f) for f in doc["keys"]]
        if verb["server"]:
            options += [option(f) for f in doc["server"]]
        options += [option(f) for f in doc["shared"]]
        taken = {name for o in options for name in o.names}
        if verb["keys"]:
            options += [o for o in keys if o.names[0] not in taken]
        out[verb["name"]] = options
    return out


def special_mode(verb, o):
    """--mode means one thing for a restart, another for a manifest, and is a key of a service for serve."""
    if "--mode" in o.names and verb in ("explain", "manifest"):
        return {"explain": ["auto", "fork", "inline"], "manifest": ["entrypoint", "sidecar"]}[verb]
    return o.words


def bash(doc, options):
    verbs = " ".join(options)
    out = ("# bash completion of plimsoll. Made by scripts/docs.py; do not edit.\n"
           "_plimsoll() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= words= i\n"
           "    COMPREPLY=()\n"
           "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        if [[ ${COMP_WORDS[i]} == -- ]]; then\n"
           "            if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); else\n"
           "                COMPREPLY=($(compgen -c -f -- \"$cur\")); fi\n"
           "            return\n"
           "        fi\n"
           f"        case ${{COMP_WORDS[i]}} in {verbs.replace(' ', '|')}) [[ -n $verb ]] || verb=${{COMP_WORDS[i]}} ;; esac\n"
           "    done\n"
           "    case $verb:$prev in\n")
    files, free = {}, {}
    for verb, list_ in options.items():
        for o in list_:
            if not o.value or o.optional:
                continue
            words = special_mode(verb, o)
            if words:
                pattern = "|".join(f"{verb}:{n}" for n in o.names)
                out += f"    {pattern}) COMPREPLY=($(compgen -W \"{' '.join(words)}\" -- \"$cur\")); return ;;\n"
            else:
                (files if o.files else free).setdefault(verb, []).extend(o.names)
    for verb, names in files.items():
        out += f"    {'|'.join(f'{verb}:{n}' for n in names)}) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n"
    for verb, names in free.items():
        out += f"    {'|'.join(f'{verb}:{n}' for n in names)}) return ;; # a value that only its author knows\n"
    out += "    esac\n    case $verb in\n"
    shared = " ".join(n for f in doc["shared"] for n in option(f).names)
    out += f"    '') words=\"{verbs} {shared}\" ;;\n"
    for verb, list_ in options.items():
        flags = " ".join(n for o in list_ for n in o.names)
        more = "" if verb not in WORDS else WORDS[verb] + " "
        if verb == "help":
            more = verbs + " "
        out += f"    {verb}) words=\"{more}{flags}\" ;;\n"
    out += ("    esac\n"
            "    if [[ $cur == -* || -z $verb ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
            "    else COMPREPLY=($(compgen -W \"${words%% -*}\" -f -- \"$cur\")); fi\n"
            "}\n"
            "complete -o filenames -F _plimsoll plimsoll\n")
    return out


def zsh_text(text):
    return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh(doc, options):
    texts = {v["name"]: v["text"] for v in doc["verbs"]}
    out = ("#compdef plimsoll\n# zsh completion of plimsoll. Made by scripts/docs.py; do not edit.\n"
           "_plimsoll_verbs() {\n    local -a verbs=(\n")
    out += "".join(f"        '{verb}:{zsh_text(texts[verb])}'\n" for verb in options)
    out += ("    )\n    _describe verb verbs\n}\n"
            "_plimsoll() {\n    local curcontext=$curcontext state line\n"
            "    if (( CURRENT == 2 )); then _plimsoll_verbs; return; fi\n"
            "    local verb=$words[2]\n    shift words; (( CURRENT-- ))\n    case $verb in\n")
    for verb, list_ in options.items():
        out += f"    {verb}) _arguments -s -S \\\n"
        for o in list_:
            words = special_mode(verb, o)
            action = f":{zsh_text(o.value)}:" + (f"({' '.join(words)})" if words else "_files" if o.files else " ") if o.value else ""
            if o.value and o.optional:
                action = ":" + action
            text = zsh_text(o.text)
            for name in o.names:
                out += f"        '{name}[{text}]{action}' \\\n"
        rest = f"'*:word:({WORDS[verb]})'" if verb in WORDS and verb != "snapshot" else "'*:file:_files'"
        if verb == "help":
            rest = "'*:verb:_plimsoll_verbs'"
        out += f"        {rest} ;;\n"
    return out + "    esac\n}\n_plimsoll \"$@\"\n"


def fish_text(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish(doc, options):
    texts = {v["name"]: v["text"] for v in doc["verbs"]}
    out = "# fish completion of plimsoll. Made by scripts/docs.py; do not edit.\ncomplete -c plimsoll -e\n"
    for verb in options:
        out += f"complete -c plimsoll -n __fish_use_subcommand -f -a {verb} -d {fish_text(texts[verb])}\n"
    for verb, words in [*WORDS.items(), ("help", " ".join(options))]:
        out += f"complete -c plimsoll -n '__fish_seen_subcommand_from {verb}' -a '{words}'\n"
    for verb, list_ in options.items():
        for o in list_:
            out += f"complete -c plimsoll -n '__fish_seen_subcommand_from {verb}'"
            for name in o.names:
                out += f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}"
            words = special_mode(verb, o)
            if o.value and not o.optional:
                out += f" -x -a '{' '.join(words)}'" if words else " -r -F" if o.files else " -x"
            out += f" -d {fish_text(o.text)}\n"
    return out


def pages(help_json, reference):
    doc = json.loads(help_json)
    sections = read_reference(reference)
    options = all_options(doc, sections)
    return {
        "docs/man/plimsoll.1": plimsoll_1(doc),
        "docs/man/plimsoll.yaml.5": plimsoll_yaml_5(doc, sections),
        "deploy/completions/plimsoll.bash": bash(doc, options),
        "deploy/completions/_plimsoll": zsh(doc, options),
        "deploy/completions/plimsoll.fish": fish(doc, options),
    }
