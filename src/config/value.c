#include "config/value.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

char *pl_keep(struct pl_arena *a, const char *text, size_t len, struct pl_err *err) {
    char *copy = pl_arena_strndup(a, text, len);
    if (copy == NULL) PL_FAIL(err, PL_E_NOMEM, "the configuration is too large");
    return copy;
}

/* ---- numbers ---- */

/* A number as written: digits before and after the point, and what follows. */
struct figure {
    uint64_t whole, part; /* part / scale is the fraction */
    uint64_t scale;
    const char *suffix;
};

static bool read_figure(const char *text, struct figure *f) {
    *f = (struct figure){ .scale = 1 };
    const char *s = text;
    for (; isdigit((unsigned char)*s); s++)
        if (__builtin_mul_overflow(f->whole, 10u, &f->whole) ||
            __builtin_add_overflow(f->whole, (uint64_t)(*s - '0'), &f->whole))
            return false;
    if (s == text) return false;
    if (*s == '.') {
        const char *point = s++;
        for (; isdigit((unsigned char)*s); s++) {
            if (f->scale >= 1000000000u) continue; /* digits nobody means */
            f->part = f->part * 10 + (uint64_t)(*s - '0');
            f->scale *= 10;
        }
        if (s == point + 1) return false;
    }
    f->suffix = s;
    return true;
}

/* figure * unit, cut to a whole number; false when it does not fit. */
static bool scaled(const struct figure *f, int64_t unit, int64_t *out) {
    unsigned __int128 value = (unsigned __int128)f->whole * (uint64_t)unit;
    value += (unsigned __int128)f->part * (uint64_t)unit / f->scale;
    if (value > INT64_MAX) return false;
    *out = (int64_t)value;
    return true;
}

struct suffix {
    const char *text;
    int64_t unit;
};
static const struct suffix byte_suffixes[] = {
    { "", 1 },
    { "B", 1 },
    { "KiB", INT64_C(1) << 10 },
    { "MiB", INT64_C(1) << 20 },
    { "GiB", INT64_C(1) << 30 },
    { "TiB", INT64_C(1) << 40 },
};
static const struct suffix time_suffixes[] = {
    { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 },
};
static const struct suffix count_suffixes[] = {
    { "", 1 },
    { "K", 1000 },
    { "M", 1000000 },
    { "G", 1000000000 },
};
enum { BYTE_SUFFIXES = 6, TIME_SUFFIXES = 5, COUNT_SUFFIXES = 4 };

static const struct suffix *find_suffix(const struct suffix *table, size_t count, const char *text) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].text, text) == 0) return &table[i];
    return NULL;
}

static bool unreadable(struct pl_err *err, const char *text, const char *as) {
    return PL_FAIL(err, PL_E_CONFIG, "cannot read '%s' as %s", pl_quote(text).text, as);
}
static bool too_big(struct pl_err *err, const char *text) {
    return PL_FAIL(err, PL_E_CONFIG, "'%s' is too large", pl_quote(text).text);
}

static bool parse_int(const struct pl_option *o, const char *text, int64_t *out, struct pl_err *err) {
    struct figure f;
    /* K M G for what comes in millions */
    bool large = strcmp(o->unit, "tokens") == 0 || strcmp(o->unit, "pixels") == 0;
    if (!read_figure(text, &f)) return unreadable(err, text, "a whole number");
    const struct suffix *s = find_suffix(count_suffixes, large ? COUNT_SUFFIXES : 1, f.suffix);
    if (s == NULL || f.part * (uint64_t)s->unit % f.scale != 0)
        return unreadable(err, text, "a whole number");
    return scaled(&f, s->unit, out) || too_big(err, text);
}

/* KB, MB ...: decimal to some and binary to others, so neither here. */
static bool two_readings(struct pl_err *err, const char *text, const struct figure *f) {
    static const char letters[] = "KMGT";
    const char *at = strchr(letters, toupper((unsigned char)f->suffix[0]));
    const char *rest = f->suffix + 1;
    if (f->suffix[0] == '\0' || at == NULL ||
        (*rest != '\0' && strcasecmp(rest, "b") != 0 && strcasecmp(rest, "ib") != 0))
        return false;
    int64_t decimal = 1, binary = 1, a = 0, b = 0;
    for (const char *l = letters; l <= at; l++) decimal *= 1000, binary *= 1024;
    if (!scaled(f, decimal, &a) || !scaled(f, binary, &b)) return false;
    PL_FAIL(err, PL_E_CONFIG, "'%s' may mean %" PRId64 " or %" PRId64 " bytes", pl_quote(text).text, a, b);
    pl_err_hint(err, "write %.*s%ciB, or the bytes", (int)(f->suffix - text), text, *at);
    return true;
}

static bool parse_bytes(const char *text, int64_t *out, struct pl_err *err) {
    struct figure f;
    if (!read_figure(text, &f)) return unreadable(err, text, "bytes");
    const struct suffix *s = find_suffix(byte_suffixes, BYTE_SUFFIXES, f.suffix);
    if (s != NULL) return scaled(&f, s->unit, out) || too_big(err, text);
    if (two_readings(err, text, &f)) return false;
    unreadable(err, text, "bytes");
    return pl_err_hint(err, "units are KiB, MiB, GiB and TiB");
}

static bool parse_duration(const char *text, int64_t *out, struct pl_err *err) {
    struct figure f;
    if (!read_figure(text, &f)) return unreadable(err, text, "a duration");
    const struct suffix *s = find_suffix(time_suffixes, TIME_SUFFIXES, f.suffix);
    if (s != NULL) return scaled(&f, s->unit, out) || too_big(err, text);
    if (f.suffix[0] == '\0') {
        PL_FAIL(err, PL_E_CONFIG, "'%s' is a duration without a unit", pl_quote(text).text);
        return pl_err_hint(err, "write %ss if seconds are meant", pl_quote(text).text);
    }
    unreadable(err, text, "a duration");
    return pl_err_hint(err, "units are ms, s, m, h and d");
}

bool pl_config_parse_duration(const char *text, int64_t *ms, struct pl_err *err) {
    return parse_duration(text, ms, err);
}

static bool parse_share(const char *text, int64_t *out, struct pl_err *err) {
    struct figure f;
    if (!read_figure(text, &f)) return unreadable(err, text, "a share");
    bool percent = strcmp(f.suffix, "%") == 0;
    if (!percent && f.suffix[0] != '\0') {
        unreadable(err, text, "a share");
        return pl_err_hint(err, "write 15%% or 0.15");
    }
    if (!scaled(&f, percent ? 100 : 10000, out)) return too_big(err, text);
    if (percent || *out <= 10000) return true;
    PL_FAIL(err, PL_E_CONFIG, "'%s' is more than the whole", pl_quote(text).text);
    return pl_err_hint(err, "write %s%% if percent are meant", pl_quote(text).text);
}

static bool parse_amount(const char *text, struct pl_amount *out, struct pl_err *err) {
    struct figure f;
    bool bytes = read_figure(text, &f) && f.suffix[0] != '%' && f.suffix[0] != '\0';
    *out = (struct pl_amount){ .share = !bytes };
    return bytes ? parse_bytes(text, &out->value, err) : parse_share(text, &out->value, err);
}

static void show_number(const struct pl_option *o, int64_t value, char *out, size_t room) {
    const struct suffix *table = o->type == PL_OPTION_BYTES ? byte_suffixes : time_suffixes;
    size_t at = o->type == PL_OPTION_BYTES ? BYTE_SUFFIXES - 1 : TIME_SUFFIXES - 1;
    if (o->type == PL_OPTION_SHARE) {
        snprintf(out, room, "%" PRId64 "%%", value / 100);
    } else if (o->type == PL_OPTION_BYTES || o->type == PL_OPTION_DURATION) {
        for (; at > 0 && (value == 0 || value % table[at].unit != 0); at--) continue;
        snprintf(out, room, "%" PRId64 "%s", value / table[at].unit, table[at].text);
    } else {
        snprintf(out, room, "%" PRId64, value);
    }
}

void pl_value_limits(const struct pl_option *o, char lo[32], char hi[32]) {
    lo[0] = hi[0] = '\0';
    bool number = o->type == PL_OPTION_INT || o->type == PL_OPTION_BYTES || o->type == PL_OPTION_DURATION ||
                  o->type == PL_OPTION_SHARE;
    if (!number) return;
    show_number(o, o->lo, lo, 32);
    show_number(o, o->hi, hi, 32);
}

static bool check_range(const struct pl_option *o, const char *text, int64_t value, struct pl_err *err) {
    char lo[32], hi[32];
    if (value >= o->lo && value <= o->hi) return true;
    show_number(o, o->lo, lo, sizeof lo);
    show_number(o, o->hi, hi, sizeof hi);
    return PL_FAIL(err, PL_E_CONFIG, "'%s' is outside %s to %s", pl_quote(text).text, lo, hi);
}

static bool parse_number(const struct pl_option *o, const char *text, int64_t *member, struct pl_err *err) {
    int64_t value = 0;
    bool ok = true;
    if (o->word[0] != '\0' && strcmp(text, o->word) == 0) {
        *member = pl_option_word_value(o->word);
        return true;
    }
    if (o->type == PL_OPTION_BYTES)
        ok = parse_bytes(text, &value, err);
    else if (o->type == PL_OPTION_DURATION)
        ok = parse_duration(text, &value, err);
    else if (o->type == PL_OPTION_SHARE)
        ok = parse_share(text, &value, err);
    else
        ok = parse_int(o, text, &value, err);
    if (!ok) {
        if (o->word[0] != '\0' && err->hint[0] == '\0') pl_err_hint(err, "or the word %s", o->word);
        return false;
    }
    if (!check_range(o, text, value, err)) return false;
    if (o->type == PL_OPTION_STATUS && value != 429 && value != 503 && value != 529)
        return PL_FAIL(err, PL_E_CONFIG, "'%s' is not 429, 503 or 529", pl_quote(text).text);
    *member = value;
    return true;
}

/* ---- words ---- */

bool pl_parse_switch(const char *text, bool *out) {
    bool yes = strcasecmp(text, "on") == 0 || strcasecmp(text, "true") == 0;
    if (!yes && strcasecmp(text, "off") != 0 && strcasecmp(text, "false") != 0) return false;
    *out = yes;
    return true;
}

static bool find_word(const struct pl_option *o, const char *text, unsigned *value) {
    for (unsigned i = 0; o->words[i] != NULL; i++)
        if (strcmp(o->words[i], text) == 0) return *value = i, true;
    return false;
}

/* Templating tools turn `off` into `false`; so either is read for the other. */
static bool find_word_or_twin(const struct pl_option *o, const char *text, unsigned *value) {
    bool yes = false;
    if (find_word(o, text, value)) return true;
    /* as Python counts them, and BentoML's ssl.cert_reqs with it */
    if (strcmp(o->key, "tls.cert_reqs") == 0 && text[0] >= '0' && text[0] <= '2' && text[1] == '\0')
        return *value = (unsigned)(text[0] - '0'), true;
    if (!pl_parse_switch(text, &yes)) return false;
    return find_word(o, yes ? "on" : "off", value) || find_word(o, yes ? "true" : "false", value);
}

static bool parse_enum(const struct pl_option *o, const char *text, void *member, struct pl_err *err) {
    unsigned value = 0;
    if (find_word_or_twin(o, text, &value)) {
        memcpy(member, &value, sizeof value); /* enums without negative constants are unsigned ints */
        return true;
    }
    char list[128] = "";
    for (size_t i = 0, used = 0; o->words[i] != NULL && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", o->words[i]);
    PL_FAIL(err, PL_E_CONFIG, "'%s' is none of %s", pl_quote(text).text, list);
    for (size_t i = 0; o->words[i] != NULL; i++)
        if (pl_edit_near(text, o->words[i])) return pl_err_hint(err, "did you mean '%s'?", o->words[i]);
    return false;
}

/* ---- texts ---- */

bool pl_is_id(const char *text) {
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n >= 1 && n <= 40 && text[n] == '\0';
}

static bool is_metric_name(const char *text) {
    if (isdigit((unsigned char)text[0]) || text[0] == '\0' || strlen(text) > 64) return false;
    for (; *text != '\0'; text++)
        if (!isalnum((unsigned char)*text) && *text != '_' && *text != ':') return false;
    return true;
}

static bool check_secret(const char *text, struct pl_err *err) {
    if ((strncmp(text, "file:", 5) == 0 || strncmp(text, "env:", 4) == 0) && strchr(text, ':')[1] != '\0')
        return true;
    PL_FAIL(err, PL_E_CONFIG, "a secret is never written here"); /* nor into the message */
    return pl_err_hint(err, "write file:PATH or env:NAME");
}

bool pl_parse_route(const char *text, struct pl_arena *a, const char **out, struct pl_err *err) {
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= 0x20 || text[i] == 0x7f || text[i] == '?' || text[i] == '#')
            return PL_FAIL(err, PL_E_CONFIG, "'%s' is not the path of a URL", pl_quote(text).text);
    if (text[0] != '/') {
        PL_FAIL(err, PL_E_CONFIG, "'%s' does not begin with '/'", pl_quote(text).text);
        return pl_err_hint(err, "write /%s", pl_quote(text).text);
    }
    while (n > 1 && text[n - 1] == '/') n--;
    return (*out = pl_keep(a, text, n, err)) != NULL;
}

static bool parse_text(const struct pl_option *o, const char *text, struct pl_arena *a, const char **member,
                       struct pl_err *err) {
    if (o->type == PL_OPTION_ROUTE) return pl_parse_route(text, a, member, err);
    if (text[0] == '\0') return PL_FAIL(err, PL_E_CONFIG, "is empty");
    if (o->type == PL_OPTION_ID && !pl_is_id(text))
        return PL_FAIL(err, PL_E_CONFIG, "'%s' is not a name of 1 to 40 letters a-z, digits and '-'",
                       pl_quote(text).text);
    if (o->type == PL_OPTION_METRIC && !is_metric_name(text))
        return PL_FAIL(err, PL_E_CONFIG, "'%s' cannot begin the name of a metric", pl_quote(text).text);
    if (o->type == PL_OPTION_SECRET && !check_secret(text, err)) return false;
    if (o->hi > 0 && strlen(text) > (size_t)o->hi)
        return PL_FAIL(err, PL_E_CONFIG, "'%s' is longer than %" PRId64 " bytes", pl_quote(text).text, o->hi);
    return (*member = pl_keep(a, text, strlen(text), err)) != NULL;
}

bool pl_value_parse(const struct pl_option *o, const char *text, struct pl_arena *a, void *member,
                    struct pl_err *err) {
    bool yes = false;
    switch (o->type) {
    case PL_OPTION_INT:
    case PL_OPTION_STATUS:
    case PL_OPTION_BYTES:
    case PL_OPTION_DURATION:
    case PL_OPTION_SHARE:
        return parse_number(o, text, member, err);
    case PL_OPTION_AMOUNT: {
        struct pl_amount amount;
        if (!parse_amount(text, &amount, err)) return false;
        if (amount.share && amount.value > 10000) return unreadable(err, text, "a share");
        *(struct pl_amount *)member = amount;
        return true;
    }
    case PL_OPTION_SWITCH:
        if (!pl_parse_switch(text, &yes))
            return PL_FAIL(err, PL_E_CONFIG, "'%s' is neither on nor off", pl_quote(text).text);
        *(bool *)member = yes;
        return true;
    case PL_OPTION_ENUM:
        return parse_enum(o, text, member, err);
    case PL_OPTION_ADDRESS:
        if (strcmp(text, "none") == 0) {
            *(struct pl_address *)member = (struct pl_address){ .text = "none" };
            return true;
        }
        return pl_parse_address(text, a, member, err);
    case PL_OPTION_ADDRESSES:
        return pl_parse_addresses(text, a, member, err);
    case PL_OPTION_LIST:
        return pl_parse_list(text, a, member, err);
    case PL_OPTION_MAP:
    case PL_OPTION_ENV:
        return pl_parse_map(text, o->type == PL_OPTION_ENV, a, member, err);
    case PL_OPTION_GPUS:
        return pl_parse_gpus(text, a, member, err);
    case PL_OPTION_WARMUP:
        return pl_parse_warmup(text, a, member, err);
    case PL_OPTION_STRING:
    case PL_OPTION_PATH:
    case PL_OPTION_ROUTE:
    case PL_OPTION_ID:
    case PL_OPTION_METRIC:
    case PL_OPTION_SECRET:
    case PL_OPTION_TYPE_COUNT:
        break;
    }
    return parse_text(o, text, a, member, err);
}
