/* snapshot.c - `plimsoll snapshot [report|replay|what-if] FILE`: reads the file in pieces, then asks the pure
 * room. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/out.h"
#include "cli/snapshot_out.h"
#include "cli/verbs.h"
#include "config/value.h"
#include "sample/oom.h"
#include "snapshot/reader.h"

enum {
    PIECE_BYTES = 1 << 20,
    LOG_BYTES = 64 << 20,
    MOST_TOP = 10000,
    EXIT_NO = 1,
    EXIT_NOT_JUDGED = 4,
    TORCH_BY_AGE = 13
};

struct look {
    struct pl_cli *cli;
    struct pl_snap *s, *since;
    struct pl_snapshot_doc doc;
    int64_t device; /* -1 = all, or the only one */
    char from[96];
};

/* ---- files ---- */

/* What a file may make us hold: a real one needs less than its own size (docs/snapshot.md). */
static size_t memory_for(int64_t file_bytes) {
    return ((size_t)256 << 20) + 2 * (size_t)(file_bytes > 0 ? file_bytes : 0);
}

static bool feed(struct pl_snap_reader *r, int fd, const char *path, struct pl_err *err) {
    unsigned char *piece = malloc(PIECE_BYTES);
    ssize_t n;
    bool ok = piece != NULL || PL_FAIL(err, PL_E_NOMEM, "no memory");
    while (ok && (n = read(fd, piece, PIECE_BYTES)) != 0) {
        if (n == -1 && errno == EINTR) continue;
        if (n == -1)
            ok = PL_FAIL_SYS(err, errno, "read %s", path);
        else if (!pl_snap_reader_feed(r, piece, (size_t)n, err))
            ok = pl_err_wrap(err, "%s", path);
    }
    free(piece);
    return ok;
}

static struct pl_snap *read_snapshot(const char *path, struct pl_err *err) {
    struct stat st;
    PL_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd == -1 || fstat(fd, &st) == -1) {
        PL_FAIL_SYS(err, errno, "open %s", path);
        return NULL;
    }
    if (S_ISDIR(st.st_mode)) {
        PL_FAIL(err, PL_E_CONFIG, "%s is a folder", path);
        return NULL;
    }
    struct pl_snap_limits limits = { .memory_bytes = memory_for(st.st_size) };
    if (getrandom(&limits.seed, sizeof limits.seed, 0) != sizeof limits.seed)
        limits.seed = (uintptr_t)&st ^ (uint64_t)getpid();
    struct pl_snap_reader *r = pl_snap_reader_create(&limits);
    if (r == NULL) {
        PL_FAIL(err, PL_E_NOMEM, "no memory");
        return NULL;
    }
    if (!feed(r, fd, path, err)) {
        pl_snap_reader_destroy(r);
        return NULL;
    }
    struct pl_snap *s = pl_snap_reader_finish(r, err);
    if (s == NULL) pl_err_wrap(err, "%s", path);
    malloc_trim(0); /* what only the reading needed goes back before the report takes its own */
    return s;
}

static bool read_log(const char *path, struct pl_oom *out, struct pl_err *err) {
    struct pl_buf text;
    char piece[1 << 16];
    size_t n;
    pl_buf_init(&text, LOG_BYTES);
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    if (f == NULL) return PL_FAIL_SYS(err, errno, "open %s", path);
    while ((n = fread(piece, 1, sizeof piece, f)) > 0) {
        if (!pl_buf_reserve(&text, n)) pl_buf_drop(&text, text.len / 2); /* the end of a log counts */
        if (!pl_buf_add(&text, piece, n)) break;
    }
    bool found = text.len > 0 && pl_oom_last_torch(text.data, text.len, out);
    pl_buf_free(&text);
    if (found) return true;
    PL_FAIL(err, PL_E_CONFIG, "%s: no message of PyTorch with the capacity in it", path);
    return pl_err_hint(
        err, "it begins with 'CUDA out of memory. Tried to allocate'; or give --capacity and --other");
}

/* ---- flags ---- */

static bool flag_number(struct look *l, const char *name, enum pl_option_type type, int64_t least,
                        int64_t most, int64_t *out, struct pl_err *err) {
    const char *text = pl_args_value(&l->cli->args, name);
    const struct pl_option o = {
        .key = name, .word = "", .def = "", .unit = "", .help = "", .lo = least, .hi = most, .type = type
    };
    if (text == NULL || pl_value_parse(&o, text, l->cli->arena, out, err)) return true;
    err->code = PL_E_USAGE;
    return pl_err_wrap(err, "--%s", name);
}

/* 2.13 is about where free blocks began to be ordered by age. */
static bool torch_order(struct look *l, struct pl_err *err) {
    const char *text = pl_args_value(&l->cli->args, "torch");
    unsigned major, minor;
    l->doc.options.order = PL_REPLAY_ORDER_GUESS;
    if (text == NULL) return true;
    if (sscanf(text, "%u.%u", &major, &minor) != 2) {
        PL_FAIL(err, PL_E_USAGE, "--torch %.40s: a version is wanted", text);
        return pl_err_hint(err, "for example --torch 2.8");
    }
    if (major < 2 || minor < TORCH_BY_AGE)
        l->doc.options.order = PL_REPLAY_ORDER_ADDRESS;
    else if (minor > TORCH_BY_AGE)
        l->doc.options.order = PL_REPLAY_ORDER_AGE;
    return true;
}

static bool read_flags(struct look *l, struct pl_err *err) {
    struct pl_report_options *o = &l->doc.options;
    int64_t top = PL_SNAPSHOT_TOP, capacity = -1, other = -1, share = 10000;
    struct pl_oom line;
    const char *log = pl_args_value(&l->cli->args, "log");
    l->device = -1;
    if (!flag_number(l, "device", PL_OPTION_INT, 0, 4095, &l->device, err) ||
        !flag_number(l, "top", PL_OPTION_INT, 1, MOST_TOP, &top, err) ||
        !flag_number(l, "capacity", PL_OPTION_BYTES, 1, (int64_t)1 << 44, &capacity, err) ||
        !flag_number(l, "other", PL_OPTION_BYTES, 0, (int64_t)1 << 44, &other, err) ||
        !flag_number(l, "fraction", PL_OPTION_SHARE, 1, 10000, &share, err) || !torch_order(l, err))
        return false;
    if (log != NULL) {
        if (!read_log(log, &line, err)) return false;
        snprintf(l->from, sizeof l->from, "the OOM line of %.60s", log);
        l->doc.capacity_from = l->from;
        if (capacity < 0) capacity = (int64_t)line.total;
        if (other < 0) other = (int64_t)pl_oom_other(&line);
    }
    if (pl_args_has(&l->cli->args, "capacity")) l->doc.capacity_from = "--capacity";
    o->top = (size_t)top;
    o->capacity = capacity > 0 ? (uint64_t)capacity : 0;
    o->other = other > 0 ? (uint64_t)other : 0;
    o->fraction = (double)share / 10000;
    if (o->capacity > 0 && o->other >= o->capacity)
        return PL_FAIL(err, PL_E_USAGE, "--other is as much as --capacity: nothing is left for PyTorch");
    return true;
}

static bool open_files(struct look *l, const char *path, struct pl_err *err) {
    if (!read_flags(l, err)) return false;
    l->doc.file = path;
    l->doc.since = pl_args_value(&l->cli->args, "since");
    if ((l->s = read_snapshot(path, err)) == NULL) return false;
    if (l->doc.since != NULL && (l->since = read_snapshot(l->doc.since, err)) == NULL) return false;
    l->doc.s = l->s;
    l->doc.options.since = l->since;
    size_t count = pl_snap_device_count(l->s);
    if (l->device >= 0 && (size_t)l->device >= count)
        return PL_FAIL(err, PL_E_USAGE, "--device %lld: the file has %zu device%s", (long long)l->device,
                       count, count == 1 ? "" : "s");
    return true;
}

/* ---- report ---- */

static bool has_anything(const struct pl_snap *s, uint32_t device) {
    return pl_snap_segments_of(s, device).count > 0 || pl_snap_trace_of(s, device).count > 0;
}

static bool make_reports(struct look *l, struct pl_err *err) {
    size_t count = pl_snap_device_count(l->s);
    l->doc.reports = calloc(count + 1, sizeof *l->doc.reports);
    if (l->doc.reports == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory");
    for (uint32_t i = 0; i < count; i++) {
        if (l->device >= 0 ? i != l->device : !has_anything(l->s, i)) continue;
        if (!pl_report_make(l->s, i, &l->doc.options, &l->doc.reports[l->doc.report_count], err))
            return false;
        l->doc.report_count++;
    }
    return true;
}

static bool write_form(struct look *l, const char *flag,
                       bool (*write)(const struct pl_snapshot_doc *, struct pl_buf *), struct pl_err *err) {
    const char *path = pl_args_value(&l->cli->args, flag);
    struct pl_buf text;
    if (path == NULL) return true;
    pl_buf_init(&text, 0);
    bool ok = (write(&l->doc, &text) || PL_FAIL(err, PL_E_NOMEM, "no memory for %s", path)) &&
              pl_out_file(path, &text, err);
    pl_buf_free(&text);
    return ok;
}

static int print(struct pl_buf *text, bool ok, struct pl_cli *cli) {
    struct pl_err err = { 0 };
    if (ok) ok = fwrite(text->data, 1, text->len, stdout) == text->len && fflush(stdout) == 0;
    pl_buf_free(text);
    if (ok) return 0;
    PL_FAIL_SYS(&err, errno, "write the answer");
    return pl_cli_fail(cli, &err);
}

static int report(struct look *l, struct pl_err *err) {
    struct pl_buf text;
    const char *sqlite = pl_args_value(&l->cli->args, "sqlite");
    if (!make_reports(l, err) || !write_form(l, "folded", pl_snapshot_write_folded, err) ||
        !write_form(l, "html", pl_snapshot_write_html, err) ||
        (sqlite != NULL && !pl_snapshot_write_sqlite(&l->doc, sqlite, err)))
        return pl_cli_fail(l->cli, err);
    pl_buf_init(&text, 0);
    return print(&text,
                 l->cli->args.json ? pl_snapshot_write_json(&l->doc, &text)
                                   : pl_snapshot_write_text(&l->doc, &text),
                 l->cli);
}

/* ---- replay and what-if ---- */

/* The device asked for, else the one with the longest trace. */
static uint32_t replayed_device(const struct look *l) {
    uint32_t best = 0;
    if (l->device >= 0) return (uint32_t)l->device;
    for (uint32_t i = 1; i < l->s->trace_count; i++)
        if (l->s->traces[i].count > l->s->traces[best].count) best = i;
    return best;
}

static void recorded_conf(const struct look *l, struct pl_alloc_conf *conf) {
    pl_alloc_conf_recorded(l->s, conf);
    if (l->doc.options.fraction < 1.0) conf->fraction = l->doc.options.fraction;
}

static bool run_baseline(struct look *l, struct pl_snapshot_replay *r, struct pl_snap_lives *lives,
                         struct pl_err *err) {
    struct pl_alloc_conf conf;
    const struct pl_report_options *o = &l->doc.options;
    r->device = replayed_device(l);
    if (!pl_snap_lives_make(l->s, r->device, lives, err)) return false;
    r->lives = lives;
    recorded_conf(l, &conf);
    return pl_replay_baseline(l->s, lives, &conf, o->order, o->capacity, o->other, &r->fidelity, &r->baseline,
                              err);
}

/* A setting as given, with the fraction that holds for the process whatever its text says. */
static const char *with_fraction(struct look *l, const char *conf) {
    if (l->doc.options.fraction >= 1.0 || strstr(conf, "per_process_memory_fraction") != NULL) return conf;
    size_t room = strlen(conf) + 64;
    char *text = pl_arena_alloc(l->cli->arena, room);
    if (text != NULL)
        snprintf(text, room, "%s%sper_process_memory_fraction:%.4g", conf, conf[0] != '\0' ? "," : "",
                 l->doc.options.fraction);
    return text != NULL ? text : conf;
}

/* What-ifs are for the device given, whatever it was recorded on. */
static struct pl_whatif whatif_of(const struct look *l, const struct pl_snapshot_replay *r) {
    const struct pl_report_options *o = &l->doc.options;
    const struct pl_replay_fidelity *f = &r->fidelity;
    struct pl_whatif w = { .s = l->s,
                           .lives = r->lives,
                           .fidelity = f,
                           .baseline = &r->baseline,
                           .capacity = o->capacity,
                           .other = o->other };
    if (o->capacity == 0 && f->capacity != PL_REPLAY_ENDLESS) {
        w.capacity = f->capacity;
        w.other = f->other;
    }
    return w;
}

static int replay(struct look *l, struct pl_err *err) {
    struct pl_snapshot_replay r = { .conf = pl_args_value(&l->cli->args, "conf") };
    struct pl_snap_lives lives;
    struct pl_whatif_row row = { 0 };
    struct pl_buf text;
    if (!run_baseline(l, &r, &lives, err)) return pl_cli_fail(l->cli, err);
    int status = r.fidelity.trusted ? 0 : EXIT_NOT_JUDGED;
    bool oom = r.baseline.first_oom != PL_SNAP_NONE || r.baseline.stats.ooms > 0;
    if (r.conf != NULL && status == 0) {
        struct pl_whatif w = whatif_of(l, &r);
        if (!pl_whatif_row(&w, with_fraction(l, r.conf), NULL, &row, err)) status = pl_cli_fail(l->cli, err);
        r.run = row.run;
        oom = r.run.first_oom != PL_SNAP_NONE || r.run.start_failed;
    }
    if (status == 0 && oom) status = EXIT_NO;
    if (status == 0 || status == EXIT_NO || status == EXIT_NOT_JUDGED) {
        pl_buf_init(&text, 0);
        bool ok = l->cli->args.json ? pl_snapshot_write_replay_json(&l->doc, &r, &text)
                                    : pl_snapshot_write_replay_text(&l->doc, &r, &text);
        int printed = print(&text, ok, l->cli);
        if (printed != 0) status = printed;
    }
    pl_replay_result_free(&r.baseline);
    pl_snap_lives_free(&lives);
    return status;
}

/* Every --conf, or the candidates; the recorded text first when it is none of them. */
static size_t settings_to_try(struct look *l, const char *out[PL_WHATIF_MOST], size_t *now) {
    size_t count = 0;
    const char *recorded = with_fraction(l, pl_snap_conf(l->s));
    out[count++] = recorded;
    *now = 0;
    bool given = false;
    for (size_t i = 0; i < l->cli->args.flag_count; i++) {
        if (strcmp(l->cli->args.flags[i].name, "conf") != 0 || count == PL_WHATIF_MOST) continue;
        given = true;
        out[count++] = with_fraction(l, l->cli->args.flags[i].value);
    }
    for (size_t i = 0; !given && pl_whatif_candidates[i] != NULL && count < PL_WHATIF_MOST; i++) {
        const char *text = with_fraction(l, pl_whatif_candidates[i]);
        if (strcmp(text, recorded) != 0) out[count++] = text;
    }
    return count;
}

static bool try_all(struct look *l, struct pl_snapshot_replay *r, struct pl_whatif_row rows[PL_WHATIF_MOST],
                    struct pl_err *err) {
    const char *texts[PL_WHATIF_MOST];
    struct pl_whatif w = whatif_of(l, r);
    struct pl_alloc_conf recorded;
    recorded_conf(l, &recorded);
    w.bisect = r->bisected = !pl_args_has(&l->cli->args, "no-bisect");
    r->row_count = settings_to_try(l, texts, &r->now);
    r->rows = rows;
    for (size_t i = 0; i < r->row_count; i++) {
        if (!l->cli->args.json && !l->cli->args.quiet && isatty(2))
            fprintf(stderr, "\r%zu of %zu settings", i + 1, r->row_count);
        const struct pl_alloc_conf *as_recorded = i == r->now ? &recorded : NULL;
        if (!pl_whatif_row(&w, texts[i], as_recorded, &rows[i], err)) return false;
    }
    if (!l->cli->args.json && !l->cli->args.quiet && isatty(2)) fprintf(stderr, "\r\033[K");
    for (size_t i = 0; i < r->row_count; i++) r->saves[i] = pl_whatif_saves(&w, &rows[i]);
    r->best = pl_whatif_choose(&w, rows, r->row_count, r->now, &r->by);
    return true;
}

static int what_if(struct look *l, struct pl_err *err) {
    struct pl_snapshot_replay r = { 0 };
    struct pl_snap_lives lives;
    struct pl_whatif_row rows[PL_WHATIF_MOST];
    struct pl_buf text;
    if (!run_baseline(l, &r, &lives, err)) return pl_cli_fail(l->cli, err);
    int status = r.fidelity.trusted ? 0 : EXIT_NOT_JUDGED;
    if (status == 0 && !try_all(l, &r, rows, err)) {
        status = pl_cli_fail(l->cli, err);
    } else {
        pl_buf_init(&text, 0);
        bool ok = l->cli->args.json ? pl_snapshot_write_whatif_json(&l->doc, &r, &text)
                                    : pl_snapshot_write_whatif_text(&l->doc, &r, &text);
        if (status == 0 && r.best == r.now) status = EXIT_NO;
        int printed = print(&text, ok, l->cli);
        if (printed != 0) status = printed;
    }
    pl_replay_result_free(&r.baseline);
    pl_snap_lives_free(&lives);
    return status;
}

/* ---- the verb ---- */

static bool check_words(struct look *l, const char **what, const char **path, struct pl_err *err) {
    static const char *const only_report[] = { "since", "top", "html", "folded", "sqlite" };
    const struct pl_strings *words = &l->cli->args.words;
    *what = words->count > 1 ? words->at[0] : "report";
    *path = words->at[words->count - 1];
    bool is_report = strcmp(*what, "report") == 0, is_replay = strcmp(*what, "replay") == 0,
         is_whatif = strcmp(*what, "what-if") == 0;
    if (!is_report && !is_replay && !is_whatif)
        return PL_FAIL(err, PL_E_USAGE, "snapshot %.40s: there is report, replay and what-if", *what);
    if (words->count == 1 &&
        (strcmp(*path, "report") == 0 || strcmp(*path, "replay") == 0 || strcmp(*path, "what-if") == 0)) {
        PL_FAIL(err, PL_E_USAGE, "snapshot %s: the file is missing", *path);
        return pl_err_hint(err, "a file of that name is written ./%s", *path);
    }
    for (size_t i = 0; !is_report && i < sizeof only_report / sizeof *only_report; i++)
        if (pl_args_has(&l->cli->args, only_report[i]))
            return PL_FAIL(err, PL_E_USAGE, "--%s belongs to snapshot report", only_report[i]);
    if (is_report && pl_args_has(&l->cli->args, "conf"))
        return PL_FAIL(err, PL_E_USAGE, "--conf belongs to snapshot replay and what-if");
    if (!is_whatif && pl_args_has(&l->cli->args, "no-bisect"))
        return PL_FAIL(err, PL_E_USAGE, "--no-bisect belongs to snapshot what-if");
    return true;
}

int pl_verb_snapshot(struct pl_cli *cli) {
    struct look l = { .cli = cli };
    struct pl_err err = { 0 };
    const char *what, *path;
    int status;
    if (!check_words(&l, &what, &path, &err) || !open_files(&l, path, &err))
        status = pl_cli_fail(cli, &err);
    else if (strcmp(what, "replay") == 0)
        status = replay(&l, &err);
    else if (strcmp(what, "what-if") == 0)
        status = what_if(&l, &err);
    else
        status = report(&l, &err);
    for (size_t i = 0; i < l.doc.report_count; i++) pl_report_free(&l.doc.reports[i]);
    free(l.doc.reports);
    pl_snap_destroy(l.since);
    pl_snap_destroy(l.s);
    return status;
}
