/* config/config.h - the settings of the instance and its services: typed, checked, each with where it came
 * from.
 *
 * Pure: texts and the environment are handed in, nothing is opened. Every key is a line of schema.def, and
 * the two structs below are made from it: field = key with '.' as '_', plus _ms (DURATION), _bytes (BYTES),
 * _bp (SHARE, 1/100 of a percent). So `traffic.queue.max_wait` of a service is `int64_t
 * traffic_queue_max_wait_ms`. Numbers may hold PL_CFG_AUTO, PL_CFG_NONE or PL_CFG_CPU_COUNT where schema.def
 * names the word. Strings are NULL when not set. Everything lives in the configuration's arena and dies with
 * it.
 *
 * Order: create, read the file, add the target, read the environment, set the flags, check. Sources may come
 * in any order, since a stronger origin is never overwritten by a weaker one: what a service's decorator says
 * arrives last and does not beat a flag.
 */
#ifndef PL_CONFIG_CONFIG_H
#define PL_CONFIG_CONFIG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define PL_CFG_AUTO      INT64_C(-1) /* auto, all */
#define PL_CFG_NONE      INT64_C(-2) /* none, never */
#define PL_CFG_CPU_COUNT INT64_C(-3) /* workers: cpu_count */

/* Weakest first. */
/* clang-format off */
#define PL_ORIGINS(X) \
    X(DEFAULT, "default") X(PRESET, "preset") X(DECORATOR, "decorator") X(BENTOML_CONFIG, "bentoml_config") \
    X(FILE, "file") X(ENV, "env") X(FLAG, "flag") X(OPERATOR, "operator")
/* clang-format on */
enum pl_origin {
#define X(sym, name) PL_FROM_##sym,
    PL_ORIGINS(X)
#undef X
        PL_ORIGIN_COUNT
};

struct pl_strings {
    const char **at;
    size_t count;
};
struct pl_pair {
    const char *key, *value;
};
struct pl_pairs {
    struct pl_pair *at;
    size_t count;
};

enum pl_address_kind { PL_ADDRESS_NONE, PL_ADDRESS_TCP, PL_ADDRESS_UNIX };
struct pl_address {
    enum pl_address_kind kind;
    const char *text; /* as messages show it: "[::1]:3000", "unix:/run/x.sock" */
    const char *host; /* TCP: name or IP, without brackets */
    const char *path; /* UNIX */
    uint16_t port;    /* TCP; 0 = the kernel picks one */
};
struct pl_addresses {
    struct pl_address *at;
    size_t count;
};
struct pl_gpus {
    bool all;               /* whatever is seen */
    int64_t count;          /* so many of them; 0 unless written as a number */
    struct pl_strings list; /* indexes, UUIDs */
};
struct pl_amount { /* a share or bytes */
    int64_t value; /* bytes, or 1/100 of a percent */
    bool share;
};
struct pl_warmup_request {
    const char *method, *path; /* "POST" unless said */
    const char *content_type;  /* NULL: application/json if there is a body */
    const char *body;          /* text, JSON, or "@FILE"; NULL: none */
    struct pl_pairs headers;
    uint16_t status; /* expected; 0: any below 400 */
    bool canary;
};
struct pl_warmup_requests {
    struct pl_warmup_request *at;
    size_t count;
};

/* enum pl_cfg_<field>, see words.def */
#define W(sym, text)        PL_CFG_##sym,
#define WORDS(field, words) enum pl_cfg_##field{ words };
#include "config/words.def"
#undef WORDS
#undef W

/* type of schema.def -> name and type of the member */
#define PL_CFG_NAME_INT(f)         f
#define PL_CFG_NAME_STATUS(f)      f
#define PL_CFG_NAME_BYTES(f)       f##_bytes
#define PL_CFG_NAME_DURATION(f)    f##_ms
#define PL_CFG_NAME_SHARE(f)       f##_bp
#define PL_CFG_NAME_AMOUNT(f)      f
#define PL_CFG_NAME_SWITCH(f)      f
#define PL_CFG_NAME_ENUM(f)        f
#define PL_CFG_NAME_STRING(f)      f
#define PL_CFG_NAME_PATH(f)        f
#define PL_CFG_NAME_ROUTE(f)       f
#define PL_CFG_NAME_ID(f)          f
#define PL_CFG_NAME_METRIC(f)      f
#define PL_CFG_NAME_SECRET(f)      f
#define PL_CFG_NAME_ADDRESS(f)     f
#define PL_CFG_NAME_ADDRESSES(f)   f
#define PL_CFG_NAME_LIST(f)        f
#define PL_CFG_NAME_MAP(f)         f
#define PL_CFG_NAME_ENV(f)         f
#define PL_CFG_NAME_GPUS(f)        f
#define PL_CFG_NAME_WARMUP(f)      f
#define PL_CFG_MEMBER_INT(f)       int64_t f;
#define PL_CFG_MEMBER_STATUS(f)    int64_t f;
#define PL_CFG_MEMBER_BYTES(f)     int64_t f##_bytes;
#define PL_CFG_MEMBER_DURATION(f)  int64_t f##_ms;
#define PL_CFG_MEMBER_SHARE(f)     int64_t f##_bp;
#define PL_CFG_MEMBER_AMOUNT(f)    struct pl_amount f;
#define PL_CFG_MEMBER_SWITCH(f)    bool f;
#define PL_CFG_MEMBER_ENUM(f)      enum pl_cfg_##f f;
#define PL_CFG_MEMBER_STRING(f)    const char *f;
#define PL_CFG_MEMBER_PATH(f)      const char *f;
#define PL_CFG_MEMBER_ROUTE(f)     const char *f; /* begins with '/', no '/' at the end unless it is all */
#define PL_CFG_MEMBER_ID(f)        const char *f;
#define PL_CFG_MEMBER_METRIC(f)    const char *f;
#define PL_CFG_MEMBER_SECRET(f)    const char *f; /* "file:PATH" or "env:NAME" */
#define PL_CFG_MEMBER_ADDRESS(f)   struct pl_address f;
#define PL_CFG_MEMBER_ADDRESSES(f) struct pl_addresses f;
#define PL_CFG_MEMBER_LIST(f)      struct pl_strings f;
#define PL_CFG_MEMBER_MAP(f)       struct pl_pairs f;
#define PL_CFG_MEMBER_ENV(f)       struct pl_pairs f;
#define PL_CFG_MEMBER_GPUS(f)      struct pl_gpus f;
#define PL_CFG_MEMBER_WARMUP(f)    struct pl_warmup_requests f;

struct pl_config_entry; /* text, origin and place of each key */

struct pl_service_config {
    const char *id;    /* services.<id> */
    const char *place; /* where it was first named */
#define INSTANCE(...)
#define SERVICE(field, key, type, ...) PL_CFG_MEMBER_##type(field)
#include "config/schema.def"
#undef SERVICE
#undef INSTANCE
    struct pl_config_entry *entries;
};

struct pl_config {
#define INSTANCE(field, key, type, ...) PL_CFG_MEMBER_##type(field)
#define SERVICE(...)
#include "config/schema.def"
#undef SERVICE
#undef INSTANCE
    struct pl_service_config *services; /* those that are started */
    size_t service_count;
    struct pl_strings not_started; /* of the file, set aside by pl_config_add_target */
    struct pl_strings warnings;    /* "plimsoll.yaml:3:5: 'memory.margin' has no effect in this version" */
    struct pl_strings links;       /* variables ignored as Kubernetes service links */
    const char *file;              /* that was read, as named; NULL = none */
    struct pl_config_entry *entries;
    struct pl_config_inside *inside;
};

/* NULL only without memory. All keys have their defaults; there are no services. */
struct pl_config *pl_config_create(void);
void pl_config_destroy(struct pl_config *cfg);

/* Reads the text of a configuration file. `file` names it in messages; `env` serves ${NAME}. After a failure
 * the configuration may be half filled: destroy it. */
bool pl_config_read_yaml(struct pl_config *cfg, const char *file, const char *text, size_t len,
                         char *const *env, struct pl_err *err);
/* Takes PLIMSOLL__A__B and BENTOML_HOST, BENTOML_PORT, BENTOML_TIMEOUT. Services must be known by now. */
bool pl_config_read_env(struct pl_config *cfg, char *const *env, struct pl_err *err);
/* `serve TARGET`: from now on one service is started, that of the file whose `run` is the target, else a new
 * one. `name` or NULL: made from the target. `exists`: the target names a file or folder that is there. */
bool pl_config_add_target(struct pl_config *cfg, const char *target, const char *name, bool exists,
                          struct pl_err *err);

/* `serve -- CMD...`: the same for a command, of which there is at least one word. */
bool pl_config_add_command(struct pl_config *cfg, const struct pl_strings *words, const char *name,
                           struct pl_err *err);
/* http://HOST[:PORT][/]: host without brackets, at most 255 bytes. The message does not name the key. */
enum { PL_CFG_HOST_BYTES = 256 };
bool pl_config_parse_url(const char *text, char host[PL_CFG_HOST_BYTES], uint16_t *port, struct pl_err *err);

#define PL_CFG_INSTANCE SIZE_MAX
/* Sets one key from text, like ("traffic.timeout", "30s"); `service` is an index or PL_CFG_INSTANCE. A weaker
 * origin than the present one is checked and then ignored. `place` begins the message and is shown by `config
 * show`. */
bool pl_config_set(struct pl_config *cfg, size_t service, const char *path, const char *text,
                   enum pl_origin origin, const char *place, struct pl_err *err);
/* The same for a path as flags and variables write it: "listen", "services.chat.workers", or "workers" when
 * there is one service; '-' is '_'. */
bool pl_config_set_path(struct pl_config *cfg, const char *path, const char *text, enum pl_origin origin,
                        const char *place, struct pl_err *err);
/* Drops what came from `origin` before it is told anew: a successor's decorator may say less. */
void pl_config_forget(struct pl_config *cfg, size_t service, enum pl_origin origin);
/* Adds to `warnings`; a line that is there already is not added. */
void pl_config_note_warning(struct pl_config *cfg, const char *line);
/* What no single key shows: exactly one of run, command, model and url, routes that overlap, limits against
 * each other. Call it when all sources are in, and again after inherited values came. */
bool pl_config_check(const struct pl_config *cfg, struct pl_err *err);

/* Whether a path (of flags: '-' is '_', services.NAME. or not) is a key; if not, err gets a hint. */
bool pl_config_knows(const char *path, struct pl_err *err);
/* Index of a started service, or SIZE_MAX. */
size_t pl_config_find(const struct pl_config *cfg, const char *name);
/* Where a value came from. `place` may be NULL; it gets "" for defaults. Unknown key: PL_FROM_DEFAULT. */
enum pl_origin pl_config_origin(const struct pl_config *cfg, size_t service, const char *path,
                                const char **place);
/* The value as `config show` prints it ("30s"), "" = not set; secrets are "(set)". Borrowed. NULL: unknown
 * key. */
const char *pl_config_text(const struct pl_config *cfg, size_t service, const char *path);
/* A duration as the configuration writes it ("90s"). */
bool pl_config_parse_duration(const char *text, int64_t *ms, struct pl_err *err);
const char *pl_origin_name(enum pl_origin origin);
/* An ENUM key's word for a value, e.g. ("mode", PL_CFG_MODE_GUARD). */
const char *pl_config_word(const char *key, unsigned value);

/* The accepted configuration as one JSON text, for main: started services and all values that are not
 * defaults. */
bool pl_config_to_json(const struct pl_config *cfg, struct pl_buf *out);
/* NULL and err: not such a text. Keys and values this version does not know are skipped, with a warning. */
struct pl_config *pl_config_from_json(const char *text, size_t len, struct pl_err *err);
/* The same, but a value that this version does not know, or does not take, is an error with its place. */
struct pl_config *pl_config_from_json_whole(const char *text, size_t len, struct pl_err *err);
/* Hash of what file, environment and flags say, places aside; what services bring along does not count. */
void pl_config_hash(const struct pl_config *cfg, char hex[17]);

/* `config show`: one line a key, or one JSON document. `service` NULL: everything. False: no such service, or
 * `out` is full. */
bool pl_config_show(const struct pl_config *cfg, const char *service, bool json, struct pl_buf *out);
/* The reference page (Markdown), and the schema for editors (JSON Schema 2020-12), both from the table alone.
 */
bool pl_config_write_reference(struct pl_buf *out);
bool pl_config_write_schema(struct pl_buf *out);
#endif
