#include "cli/drydock_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pl_size_text pl_size(uint64_t bytes) {
    struct pl_size_text t;
    if (bytes >= (uint64_t)1 << 30)
        snprintf(t.text, sizeof t.text, "%.2f GiB", (double)bytes / (double)(1 << 30));
    else if (bytes >= (uint64_t)1 << 20)
        snprintf(t.text, sizeof t.text, "%.1f MiB", (double)bytes / (double)(1 << 20));
    else if (bytes >= 1024)
        snprintf(t.text, sizeof t.text, "%.1f KiB", (double)bytes / 1024);
    else
        snprintf(t.text, sizeof t.text, "%llu B", (unsigned long long)bytes);
    return t;
}

/* A process has something to tell about a card. */
static bool told(const struct dd_use *u) { return u->peak != 0 || u->refused != 0 || u->torch != 0; }

static int by_birth(const void *a, const void *b) {
    const struct dd_row *x = *(const struct dd_row *const *)a, *y = *(const struct dd_row *const *)b;
    return x->born < y->born ? -1 : x->born > y->born;
}

/* The rows that were ever used, in the order of their first use of a card. */
static size_t in_order(const struct dd_table *t, const struct dd_row *rows[DD_ROWS]) {
    size_t n = 0;
    for (size_t i = 0; i < DD_ROWS; i++)
        if (t->row[i].state != DD_FREE) rows[n++] = &t->row[i];
    qsort(rows, n, sizeof *rows, by_birth);
    return n;
}

/* --- text */

static void use_text(const struct dd_use *u, int card, struct pl_buf *out) {
    pl_buf_addf(out, "    gpu %d: device at most %s", card, pl_size(u->peak).text);
    pl_buf_addf(out, " (context %s)", pl_size(u->context).text);
    if (u->torch != 0) {
        pl_buf_addf(out, ", PyTorch reserved at most %s", pl_size(u->reserved_peak).text);
        pl_buf_addf(out, ", allocated at most %s; %llu OOM", pl_size(u->allocated_peak).text,
                    (unsigned long long)u->ooms);
        if (u->oom_largest != 0) pl_buf_addf(out, " (largest request %s)", pl_size(u->oom_largest).text);
        pl_buf_addf(out, ", %llu retries", (unsigned long long)u->retries);
    } else if (u->refused != 0) {
        pl_buf_addf(out, "; %llu allocations refused (largest %s)", (unsigned long long)u->refused,
                    pl_size(u->refused_largest).text);
    }
    pl_buf_addf(out, "; %llu kernels accepted\n", (unsigned long long)u->launches);
}

void pl_drydock_text(const struct pl_drydock_run *run, struct pl_buf *out) {
    const struct dd_table *t = run->table;
    const struct dd_row *rows[DD_ROWS];
    size_t count = in_order(t, rows);
    pl_buf_addf(out, "plimsoll drydock: " PL_DRYDOCK_LABEL "\n");
    for (int c = 0; c < t->cards; c++) {
        pl_buf_addf(out, "  gpu %d: %s, %s", c, t->name, pl_size(t->card[c].total).text);
        pl_buf_addf(out, ", at most %s in use\n", pl_size(t->card[c].peak).text);
    }
    for (size_t i = 0; i < count; i++) {
        pl_buf_addf(out, "  pid %d  %s\n", rows[i]->pid, rows[i]->command);
        for (int c = 0; c < t->cards; c++)
            if (told(&rows[i]->use[c])) use_text(&rows[i]->use[c], c, out);
    }
    if (count == 0) pl_buf_adds(out, "  no process used a card\n");
    if (t->rows_born > DD_ROWS)
        pl_buf_addf(out, "  %llu processes that ended first are not listed\n",
                    (unsigned long long)(t->rows_born - DD_ROWS));
    for (uint32_t i = 0; i < t->lack_count; i++)
        pl_buf_addf(out, "%s%s", i == 0 ? "  called, but lacking in the dry dock: " : ", ", t->lack[i]);
    if (t->lack_count != 0) pl_buf_adds(out, "\n");
}

/* --- JSON. A figure that is not known is absent. */

static void number(struct pl_buf *out, const char *key, uint64_t value) {
    pl_buf_addf(out, ",\"%s\":%llu", key, (unsigned long long)value);
}

static void text(struct pl_buf *out, const char *key, const char *value) {
    pl_buf_addf(out, ",\"%s\":", key);
    pl_buf_add_json(out, value, strlen(value));
}

static void use_json(const struct dd_use *u, int card, struct pl_buf *out) {
    pl_buf_addf(out, "{\"gpu\":%d", card);
    number(out, "peak_device_bytes", u->peak);
    number(out, "context_bytes", u->context);
    if (u->torch != 0) {
        number(out, "peak_allocated_bytes", u->allocated_peak);
        number(out, "peak_reserved_bytes", u->reserved_peak);
        number(out, "ooms", u->ooms);
        number(out, "retries", u->retries);
        if (u->oom_largest != 0) number(out, "largest_oom_bytes", u->oom_largest);
    }
    number(out, "refused", u->refused);
    if (u->refused != 0) number(out, "largest_refused_bytes", u->refused_largest);
    number(out, "launches", u->launches);
    pl_buf_adds(out, "}");
}

static void row_json(const struct dd_table *t, const struct dd_row *r, struct pl_buf *out) {
    bool first = true;
    pl_buf_addf(out, "{\"pid\":%d", r->pid);
    text(out, "command", r->command);
    pl_buf_adds(out, ",\"devices\":[");
    for (int c = 0; c < t->cards; c++) {
        if (!told(&r->use[c])) continue;
        if (!first) pl_buf_adds(out, ",");
        first = false;
        use_json(&r->use[c], c, out);
    }
    pl_buf_adds(out, "]}");
}

void pl_drydock_json(const struct pl_drydock_run *run, struct pl_buf *out) {
    const struct dd_table *t = run->table;
    const struct dd_row *rows[DD_ROWS];
    size_t count = in_order(t, rows);
    pl_buf_adds(out, "{\"v\":1,\"kind\":\"drydock\",\"dry_run\":true");
    text(out, "label", PL_DRYDOCK_LABEL);
    text(out, "command", run->command);
    if (run->torch[0] != '\0') text(out, "torch", run->torch);
    text(out, "gpu", run->gpu);
    number(out, "status", (uint64_t)run->status);
    pl_buf_addf(out, ",\"seconds\":%.3f,\"devices\":[", run->seconds);
    for (int c = 0; c < t->cards; c++) {
        pl_buf_addf(out, "%s{\"gpu\":%d", c > 0 ? "," : "", c);
        text(out, "name", t->name);
        number(out, "total_bytes", t->card[c].total);
        number(out, "peak_bytes", t->card[c].peak);
        number(out, "launches", t->card[c].launches);
        pl_buf_adds(out, "}");
    }
    pl_buf_adds(out, "],\"processes\":[");
    for (size_t i = 0; i < count; i++) {
        if (i > 0) pl_buf_adds(out, ",");
        row_json(t, rows[i], out);
    }
    pl_buf_adds(out, "]");
    if (t->rows_born > DD_ROWS) number(out, "processes_not_listed", t->rows_born - DD_ROWS);
    pl_buf_adds(out, ",\"lacking\":[");
    for (uint32_t i = 0; i < t->lack_count; i++) {
        if (i > 0) pl_buf_adds(out, ",");
        pl_buf_add_json(out, t->lack[i], strlen(t->lack[i]));
    }
    pl_buf_adds(out, "]}\n");
}
