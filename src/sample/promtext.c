#include "sample/promtext.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "sample/promline.h"

enum type { UNKNOWN, UNTYPED, COUNTER, GAUGE, HISTOGRAM, SUMMARY, INFO, TYPE_COUNT };
/* What we write for a type. OpenMetrics' info is a gauge that is 1. */
static const char *const type_words[TYPE_COUNT] = { "untyped",   "untyped", "counter", "gauge",
                                                    "histogram", "summary", "gauge" };

struct family {
    struct pl_promword name;
    struct pl_promword help; /* at NULL: none yet */
    enum type type;
    uint32_t refused_in; /* the text whose TYPE for it is another one: its samples are skipped */
    bool renamed; /* OpenMetrics: the samples stand under name_total or name_info; here is nothing to write */
    uint32_t hash;
    struct pl_buf samples; /* as they will be written */
};

enum { SLOTS = 2 * PL_PROMTEXT_FAMILIES };
struct pl_promtext {
    struct pl_arena arena; /* names and helps of this page */
    struct family *families[PL_PROMTEXT_FAMILIES];
    uint16_t slots[SLOTS]; /* number of a family + 1; open addressing */
    size_t family_count;
    size_t bytes, lines, skipped;
    uint32_t texts;
    /* families that were ours, for the life of this: told of in order */
    char **clashes;
    size_t clash_count, clash_told;
};

/* One text under way. */
struct reading {
    struct pl_promtext *page;
    struct family *current; /* of the last HELP or TYPE */
    const char *service;
    uint32_t worker;
    bool open_metrics; /* timestamps are seconds there, milliseconds in 0.0.4: left out */
};

struct pl_promtext *pl_promtext_create(void) {
    struct pl_promtext *p = calloc(1, sizeof *p);
    if (p != NULL) pl_arena_init(&p->arena, PL_PROMTEXT_BYTES);
    return p;
}

void pl_promtext_clear(struct pl_promtext *p) {
    for (size_t i = 0; i < p->family_count; i++) pl_buf_free(&p->families[i]->samples);
    pl_arena_free(&p->arena);
    memset(p->slots, 0, sizeof p->slots);
    p->family_count = p->bytes = p->lines = p->skipped = 0;
    p->texts = 0;
}

void pl_promtext_destroy(struct pl_promtext *p) {
    if (p == NULL) return;
    pl_promtext_clear(p);
    for (size_t i = 0; i < p->clash_count; i++) free(p->clashes[i]);
    free(p->clashes);
    free(p);
}

size_t pl_promtext_skipped(const struct pl_promtext *p) { return p->skipped; }

static bool same(struct pl_promword a, struct pl_promword b) {
    return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

/* FNV-1a */
static uint32_t hash_of(struct pl_promword w) {
    uint32_t h = 2166136261U;
    for (size_t i = 0; i < w.len; i++) h = (h ^ (unsigned char)w.at[i]) * 16777619U;
    return h;
}

/* The family, or NULL and the slot it would take. */
static struct family *look_up(const struct pl_promtext *p, struct pl_promword name, uint32_t hash,
                              size_t *slot) {
    for (*slot = hash % SLOTS; p->slots[*slot] != 0; *slot = (*slot + 1) % SLOTS) {
        struct family *f = p->families[p->slots[*slot] - 1];
        if (f->hash == hash && same(f->name, name)) return f;
    }
    return NULL;
}

static struct family *find(const struct pl_promtext *p, struct pl_promword name) {
    size_t slot;
    return look_up(p, name, hash_of(name), &slot);
}

/* NULL when the page is full. */
static struct family *find_or_add(struct pl_promtext *p, struct pl_promword name) {
    size_t slot;
    uint32_t hash = hash_of(name);
    struct family *f = look_up(p, name, hash, &slot);
    if (f != NULL || p->family_count == PL_PROMTEXT_FAMILIES) return f;
    f = pl_arena_alloc(&p->arena, sizeof *f);
    char *copy = pl_arena_strndup(&p->arena, name.at, name.len);
    if (f == NULL || copy == NULL) return NULL;
    f->name = (struct pl_promword){ copy, name.len };
    f->hash = hash;
    p->families[p->family_count++] = f;
    p->slots[slot] = (uint16_t)p->family_count;
    return f;
}

/* HELP knows two escapes, \\ and \n; any other backslash is made one, and what is not UTF-8 becomes '?'. */
static struct pl_promword clean_help(struct pl_promtext *p, const char *s, size_t len) {
    if (len > PL_PROMTEXT_HELP) len = PL_PROMTEXT_HELP;
    char *out = pl_arena_alloc(&p->arena, 2 * len + 1);
    if (out == NULL) return (struct pl_promword){ 0 };
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        unsigned char byte = (unsigned char)s[i];
        size_t step = byte < 0x80 ? 1 : pl_utf8_length((const unsigned char *)s + i, len - i);
        if (byte == '\\' && i + 1 < len && (s[i + 1] == '\\' || s[i + 1] == 'n')) step = 2;
        if (step == 0) {
            out[n++] = '?';
            i++;
            continue;
        }
        if (byte == '\\' && step == 1) out[n++] = '\\';
        memcpy(out + n, s + i, step);
        n += step;
        i += step;
    }
    return (struct pl_promword){ out, n };
}

static enum type type_of(struct pl_promword w) {
    if (pl_promword_is(w, "counter")) return COUNTER;
    if (pl_promword_is(w, "gauge") || pl_promword_is(w, "stateset")) return GAUGE;
    if (pl_promword_is(w, "histogram")) return HISTOGRAM;
    if (pl_promword_is(w, "summary")) return SUMMARY;
    if (pl_promword_is(w, "info")) return INFO;
    /* gaugehistogram has no form in 0.0.4: its samples stand by themselves */
    bool known =
        pl_promword_is(w, "untyped") || pl_promword_is(w, "unknown") || pl_promword_is(w, "gaugehistogram");
    return known ? UNTYPED : UNKNOWN;
}

static struct pl_promword trim(const char *s, const char *end) {
    while (s < end && (*s == ' ' || *s == '\t')) s++;
    while (s < end && (end[-1] == ' ' || end[-1] == '\t')) end--;
    return (struct pl_promword){ s, (size_t)(end - s) };
}

static bool set_type(struct reading *r, enum type type) {
    struct family *f = r->current;
    if (type == UNKNOWN) return false;
    /* samples before their TYPE made it an untyped family: so it stays */
    if (f->type == UNKNOWN && f->samples.len == 0) f->type = type;
    if (f->type != type) f->refused_in = r->page->texts;
    return f->type == type;
}

/* "HELP name text" or "TYPE name word"; other comments mean nothing. False: garbage. */
static bool read_meta(struct reading *r, struct pl_promword line) {
    const char *end = line.at + line.len;
    bool help = line.len > 5 && memcmp(line.at, "HELP ", 5) == 0;
    if (!help && !(line.len > 5 && memcmp(line.at, "TYPE ", 5) == 0)) return true;
    struct pl_promword rest = trim(line.at + 5, end);
    struct pl_promword name = { rest.at, pl_prom_name_length(rest.at, rest.len) };
    if (name.len == 0 || (name.len < rest.len && name.at[name.len] != ' ' && name.at[name.len] != '\t'))
        return false;
    struct family *f = find_or_add(r->page, name);
    if (f == NULL) return false;
    r->current = f;
    struct pl_promword text = trim(name.at + name.len, end);
    if (!help) return set_type(r, type_of(text));
    if (f->help.at == NULL) f->help = clean_help(r->page, text.at, text.len);
    return true;
}

static bool ends_with(struct pl_promword name, struct pl_promword base, const char *suffix) {
    size_t n = strlen(suffix);
    return name.len == base.len + n && memcmp(name.at, base.at, base.len) == 0 &&
           memcmp(name.at + base.len, suffix, n) == 0;
}

/* May a sample of this name stand in this family? */
static bool belongs(const struct family *f, const struct pl_promline *l) {
    struct pl_promword name = l->name;
    switch (f->type) {
    case HISTOGRAM:
        if (ends_with(name, f->name, "_bucket")) return pl_promline_label(l, "le", 2) != NULL;
        return ends_with(name, f->name, "_sum") || ends_with(name, f->name, "_count");
    case SUMMARY:
        return same(name, f->name) || ends_with(name, f->name, "_sum") || ends_with(name, f->name, "_count");
    default:
        return same(name, f->name);
    }
}

/* The family of that name, made with this type and the other's help if it is new. */
static struct family *sibling(struct pl_promtext *p, const struct family *of, struct pl_promword name,
                              enum type type) {
    struct family *f = find_or_add(p, name);
    if (f == NULL) return NULL;
    if (f->type == UNKNOWN && f->samples.len == 0) f->type = type;
    if (f->help.at == NULL) f->help = of->help;
    return f;
}

/* OpenMetrics declares a counter as `x` and calls its samples x_total and x_created. In 0.0.4 these are two
 * families. */
static struct family *open_metrics_family(struct pl_promtext *p, struct family *f, struct pl_promword name) {
    bool total = f->type == COUNTER && ends_with(name, f->name, "_total");
    if (total || (f->type == INFO && ends_with(name, f->name, "_info"))) {
        f->renamed = true;
        return sibling(p, f, name, total ? COUNTER : GAUGE);
    }
    bool counts = f->type == COUNTER || f->type == HISTOGRAM || f->type == SUMMARY;
    return counts && ends_with(name, f->name, "_created") ? sibling(p, f, name, GAUGE) : NULL;
}

/* A sample far from its family's TYPE line: found by its name without the suffix. */
static struct family *find_parent(const struct pl_promtext *p, const struct pl_promline *l) {
    static const char *const suffixes[] = { "_bucket", "_sum", "_count" };
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(suffixes[i]);
        if (l->name.len <= n) continue;
        struct family *f = find(p, (struct pl_promword){ l->name.at, l->name.len - n });
        if (f != NULL && !same(f->name, l->name) && belongs(f, l)) return f;
    }
    return NULL;
}

static struct family *family_of(struct reading *r, const struct pl_promline *l) {
    struct family *f = r->current;
    if (f != NULL && belongs(f, l)) return f;
    struct family *moved = f != NULL ? open_metrics_family(r->page, f, l->name) : NULL;
    if (moved != NULL) return moved;
    f = find(r->page, l->name);
    if (f == NULL) f = find_parent(r->page, l);
    if (f == NULL) f = find_or_add(r->page, l->name);
    return f != NULL && belongs(f, l) ? f : NULL;
}

static bool is_ours_to_add(const struct reading *r, struct pl_promword label) {
    return (r->worker != 0 && pl_promword_is(label, "worker")) ||
           (r->service != NULL && pl_promword_is(label, "service"));
}

/* A worker's own `worker` becomes exported_worker; if it has that one too, exported_exported_worker, and so
 * on. */
static void write_label(struct pl_buf *out, const struct reading *r, const struct pl_promline *l,
                        const struct pl_promlabel *label) {
    char name[PL_PROMTEXT_LABELS * 9 + 16];
    size_t n = label->name.len;
    if (is_ours_to_add(r, label->name)) {
        memcpy(name, label->name.at, n);
        do {
            memmove(name + 9, name, n);
            memcpy(name, "exported_", 9);
            n += 9;
        } while (pl_promline_label(l, name, n) != NULL);
        pl_buf_add(out, name, n);
    } else {
        pl_buf_add(out, label->name.at, n);
    }
    pl_buf_add(out, "=\"", 2);
    pl_buf_add(out, label->value.at, label->value.len);
    pl_buf_add(out, "\",", 2);
}

static bool write_sample(struct reading *r, struct family *f, const struct pl_promline *l) {
    struct pl_buf *out = &f->samples;
    size_t start = out->len, before = r->page->bytes;
    if (before > PL_PROMTEXT_BYTES - PL_PROMTEXT_LINE) return false;
    pl_buf_add(out, l->name.at, l->name.len);
    pl_buf_add(out, "{", 1);
    for (size_t i = 0; i < l->label_count; i++) write_label(out, r, l, &l->labels[i]);
    if (r->service != NULL) pl_buf_addf(out, "service=\"%s\",", r->service);
    if (r->worker != 0) pl_buf_addf(out, "worker=\"%u\"", (unsigned)r->worker);
    pl_buf_add(out, "} ", 2);
    pl_buf_add(out, l->value.at, l->value.len);
    if (l->timestamp.len > 0) pl_buf_add(out, " ", 1);
    pl_buf_add(out, l->timestamp.at, l->timestamp.len);
    if (!pl_buf_add(out, "\n", 1)) {
        out->len = start;
        return false;
    }
    r->page->bytes = before + (out->len - start);
    return true;
}

static bool read_sample(struct reading *r, struct pl_promword line) {
    struct pl_promline l;
    if (!pl_promline_parse(&l, line.at, line.len)) return false;
    if (r->open_metrics) l.timestamp.len = 0;
    struct family *f = family_of(r, &l);
    return f != NULL && f->refused_in != r->page->texts && write_sample(r, f, &l);
}

/* False at the end mark of OpenMetrics. */
static bool read_line(struct reading *r, const char *s, size_t len) {
    struct pl_promtext *p = r->page;
    if (len > 0 && s[len - 1] == '\r') len--;
    struct pl_promword line = trim(s, s + len);
    if (line.len == 0) return true;
    if (pl_promword_is(line, "# EOF")) return false;
    bool ok = line.len <= PL_PROMTEXT_LINE && p->lines < PL_PROMTEXT_LINES;
    p->lines++;
    if (ok && line.at[0] == '#') {
        ok = read_meta(r, trim(line.at + 1, line.at + line.len));
    } else if (ok) {
        ok = read_sample(r, line);
    }
    if (!ok) p->skipped++;
    return true;
}

static bool ends_as_open_metrics(const char *text, size_t len) {
    static const char mark[] = "# EOF";
    size_t n = sizeof mark - 1;
    if (len > 0 && text[len - 1] == '\n') len--;
    return len >= n && memcmp(text + len - n, mark, n) == 0;
}

void pl_promtext_add(struct pl_promtext *p, const char *service, uint32_t worker, const char *text,
                     size_t len) {
    struct reading r = { .page = p, .service = service, .worker = worker };
    if (len == 0) return;
    r.open_metrics = ends_as_open_metrics(text, len);
    p->texts++;
    for (const char *end = text + len; text < end;) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t n = stop != NULL ? (size_t)(stop - text) : (size_t)(end - text);
        if (!read_line(&r, text, n)) return;
        text += stop != NULL ? n + 1 : n;
    }
}

static void remember_clash(struct pl_promtext *p, struct pl_promword name) {
    for (size_t i = 0; i < p->clash_count; i++)
        if (pl_promword_is(name, p->clashes[i])) return;
    char **grown = realloc(p->clashes, (p->clash_count + 1) * sizeof *grown);
    if (grown == NULL) return;
    p->clashes = grown;
    grown[p->clash_count] = strndup(name.at, name.len);
    if (grown[p->clash_count] != NULL) p->clash_count++;
}

const char *pl_promtext_clash(struct pl_promtext *p) {
    return p->clash_told < p->clash_count ? p->clashes[p->clash_told++] : NULL;
}

static bool write_family(struct pl_buf *out, const struct family *f) {
    bool ok = true;
    if (f->help.at != NULL)
        ok = pl_buf_addf(out, "# HELP %.*s %.*s\n", (int)f->name.len, f->name.at, (int)f->help.len,
                         f->help.at);
    return ok && pl_buf_addf(out, "# TYPE %.*s %s\n", (int)f->name.len, f->name.at, type_words[f->type]) &&
           pl_buf_add(out, f->samples.data, f->samples.len);
}

bool pl_promtext_render(struct pl_promtext *p, struct pl_buf *out, pl_promtext_is_ours *is_ours) {
    size_t start = out->len;
    for (size_t i = 0; i < p->family_count; i++) {
        const struct family *f = p->families[i];
        if (f->renamed && f->samples.len == 0) continue;
        if (is_ours(f->name.at, f->name.len)) {
            remember_clash(p, f->name);
        } else if (!write_family(out, f)) {
            out->len = start;
            return false;
        }
    }
    return true;
}
