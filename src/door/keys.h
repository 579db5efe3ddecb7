/* door/keys.h - API keys: who may come in, to which services, how much at a time.
 *
 * A key itself is never kept: a row holds its SHA-256, and a presented key is hashed and compared with every
 * row in a time that tells nothing about them. Keys are long random texts, so a plain hash is enough; there
 * is nothing to guess. A row may have several hashes: the old key and the new one both open while a rotation
 * is under way.
 *
 * The file (api_keys.file) is YAML, so JSON too: a list of rows, or the same below `keys:`.
 *
 *     - name: team-a                       # in metrics and logs, where the key never is
 *       hash: sha256:9f86d08...            # or a list of them; printf %s "$KEY" | sha256sum
 *       services: [chat]                   # all, when it is not said
 *       max_concurrency: 8                 # running or waiting; no limit when not said, as all below
 *       requests_per_minute: 600
 *       tokens_per_minute: 100000
 *       max_priority: normal               # of x-priority: low, normal (default), high
 */
#ifndef PL_DOOR_KEYS_H
#define PL_DOOR_KEYS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

enum { PL_KEYS_MOST = 1000, PL_KEY_HASHES_MOST = 8, PL_KEY_NAME_MOST = 64, PL_KEY_DIGEST_BYTES = 32 };

enum pl_priority { PL_PRIORITY_LOW, PL_PRIORITY_NORMAL, PL_PRIORITY_HIGH };

struct pl_key_digest {
    uint8_t bytes[PL_KEY_DIGEST_BYTES];
};

struct pl_key_row {
    const char *name;
    const char **services; /* ids; none: all */
    size_t service_count;
    int64_t max_concurrency, requests_per_minute, tokens_per_minute; /* 0: no limit */
    enum pl_priority max_priority;
};

struct pl_keyring {
    struct pl_arena arena; /* owns all that follows */
    struct pl_key_row *rows;
    size_t row_count;
    struct {
        struct pl_key_digest digest;
        uint32_t row;
    } * hashes;
    size_t hash_count;
};

struct pl_key_digest pl_key_hash(const char *key, size_t len);
/* Takes as long whether or where they differ. */
bool pl_key_same(const struct pl_key_digest *a, const struct pl_key_digest *b);

/* `file` names it in messages, which have FILE:LINE:COL and never show a hash. Owned: pl_keyring_free. NULL
 * and err otherwise. */
struct pl_keyring *pl_keyring_read(const char *file, const char *text, size_t len, struct pl_err *err);
/* A ring of one key that opens everything, or that key added to `ring` (which is then returned). NULL and err
 * when there is no room, or a row has that name. */
struct pl_keyring *pl_keyring_add(struct pl_keyring *ring, const char *name,
                                  const struct pl_key_digest *digest, struct pl_err *err);
void pl_keyring_free(struct pl_keyring *ring);

/* The row that a presented key opens, borrowed; or NULL. All rows are looked at either way. */
const struct pl_key_row *pl_keyring_find(const struct pl_keyring *ring, const char *key, size_t len);
bool pl_key_opens(const struct pl_key_row *row, const char *service);

/* x-priority: false when it is none of the three words. */
bool pl_priority_read(const char *text, size_t len, enum pl_priority *out);
#endif
