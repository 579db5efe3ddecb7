#include "worker/flags.h"

#include <stdlib.h>
#include <string.h>

static bool same(char a, char b) { return a == b || ((a == '-' || a == '_') && (b == '-' || b == '_')); }

/* `word` begins with one of the names, up to its end or a '=': what stands behind it, else NULL. */
static const char *behind(const char *word, const char *names) {
    for (const char *name = names; *name != '\0';) {
        size_t n = strcspn(name, "|"), i = 0;
        while (i < n && word[i] != '\0' && same(word[i], name[i])) i++;
        if (i == n && (word[n] == '\0' || word[n] == '=')) return word + n;
        name += n + (name[n] == '|');
    }
    return NULL;
}

/* A key of engine_args is a flag without its dashes. */
static bool is_key(const char *key, const char *names) {
    for (const char *name = names; *name != '\0';) {
        size_t dashes = strspn(name, "-"), n = strcspn(name, "|");
        size_t i = 0;
        while (dashes + i < n && key[i] != '\0' && same(key[i], name[dashes + i])) i++;
        if (dashes + i == n && key[i] == '\0') return true;
        name += n + (name[n] == '|');
    }
    return false;
}

const char *pl_flag_text(const struct pl_service_config *s, const char *names) {
    const char *text = NULL;
    for (size_t i = 1; i < s->command.count; i++) {
        const char *rest = behind(s->command.at[i], names);
        if (rest == NULL) continue;
        if (*rest == '=') text = rest + 1;
        if (*rest == '\0' && i + 1 < s->command.count) text = s->command.at[i + 1];
    }
    for (size_t i = 0; i < s->engine_args.count; i++)
        if (is_key(s->engine_args.at[i].key, names)) text = s->engine_args.at[i].value;
    return text;
}

uint64_t pl_flag_number(const struct pl_service_config *s, const char *names) {
    static const char units[] = "kmgtKMGT";
    const char *text = pl_flag_text(s, names);
    char *end = NULL;
    uint64_t value = text != NULL && text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0,
             times = 1;
    const char *unit = end != NULL && *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        size_t power = (size_t)(unit - units) % 4 + 1;
        for (size_t i = 0; i < power; i++) times *= unit - units < 4 ? 1000 : 1024;
        end++;
    }
    if (end == NULL || *end != '\0' || __builtin_mul_overflow(value, times, &value)) return 0;
    return value <= INT64_MAX ? value : 0;
}

bool pl_flag_switch(const struct pl_service_config *s, const char *names) {
    bool yes = false;
    for (size_t i = 1; i < s->command.count; i++) {
        const char *rest = behind(s->command.at[i], names);
        yes = yes || (rest != NULL && *rest == '\0');
    }
    for (size_t i = 0; i < s->engine_args.count; i++) {
        const char *value = s->engine_args.at[i].value;
        if (is_key(s->engine_args.at[i].key, names))
            yes = value == NULL || (strcmp(value, "false") != 0 && strcmp(value, "0") != 0);
    }
    return yes;
}
