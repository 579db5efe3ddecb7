#include "cli/figures.h"

#include <stdio.h>
#include <string.h>

const char *pl_fig_text(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "-";
}

double pl_fig_number(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

bool pl_fig_has(const json_t *o, const char *key) { return json_object_get(o, key) != NULL; }

const char *pl_fig_duration(double seconds, char *out, size_t room) {
    if (seconds < 60)
        snprintf(out, room, "%.0fs", seconds);
    else if (seconds < 3600)
        snprintf(out, room, "%.0fm%02.0fs", (double)(long)(seconds / 60), (double)((long)seconds % 60));
    else if (seconds < 86400)
        snprintf(out, room, "%ldh%02ldm", (long)seconds / 3600, (long)seconds / 60 % 60);
    else
        snprintf(out, room, "%ldd%02ldh", (long)seconds / 86400, (long)seconds / 3600 % 24);
    return out;
}

const char *pl_fig_size(double bytes, char *out, size_t room) {
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    size_t u = 0;
    for (; bytes >= 1024 && u + 1 < sizeof units / sizeof *units; u++) bytes /= 1024;
    snprintf(out, room, u == 0 ? "%.0f %s" : "%.1f %s", bytes, units[u]);
    return out;
}

const char *pl_fig_budget(const json_t *row, char *out, size_t room) {
    char charged[24], budget[24], size[24], fixed[48] = "", of[80];
    const json_t *gpu = json_object_get(row, "gpu");
    if (json_is_number(gpu))
        snprintf(of, sizeof of, "gpu %.0f", json_number_value(gpu));
    else
        snprintf(of, sizeof of, "%s", pl_fig_text(row, "gpu"));
    if (pl_fig_has(row, "fixed_bytes"))
        snprintf(fixed, sizeof fixed, ", %s fixed",
                 pl_fig_size(pl_fig_number(row, "fixed_bytes"), size, sizeof size));
    snprintf(out, room, "budget of %s: %s of %s charged%s", of,
             pl_fig_size(pl_fig_number(row, "charged_bytes"), charged, sizeof charged),
             pl_fig_size(pl_fig_number(row, "budget_bytes"), budget, sizeof budget), fixed);
    return out;
}

const char *pl_fig_counts(json_t *o, char *out, size_t room) {
    double below = 1e300;
    size_t at = 0, said = 0;
    const char *key;
    json_t *value;
    out[0] = '\0';
    /* Few and short: each round says what has the next smaller count. */
    while (said < json_object_size(o) && at + 1 < room) {
        double most = -1;
        json_object_foreach(o, key, value) {
            double n = json_number_value(value);
            if (n < below && n > most) most = n;
        }
        if (most < 0) break;
        json_object_foreach(o, key, value) {
            if (json_number_value(value) != most || at + 1 >= room) continue;
            at += (size_t)snprintf(out + at, room - at, "%s%s %.0f", at > 0 ? ", " : "", key, most);
            said++;
        }
        below = most;
    }
    return out;
}

bool pl_fig_is_plain(const json_t *verdict) {
    const char *word = json_string_value(json_object_get(verdict, "word"));
    return word == NULL || word[0] == '\0' || strcmp(word, "stable") == 0 || strcmp(word, "warming") == 0;
}
