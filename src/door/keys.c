#include "door/keys.h"

#include <ctype.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "config/similar.h"
#include "config/yaml.h"

enum { ARENA_BYTES = 8 << 20, SERVICES_MOST = 256, LIMIT_MOST = 1000000000 };

static const char *const priority_words[] = { "low", "normal", "high" };

struct pl_key_digest pl_key_hash(const char *key, size_t len) {
    struct pl_key_digest d;
    SHA256((const unsigned char *)key, len, d.bytes);
    return d;
}

/* Takes as long whatever they are. In words, since a request is held against every hash there is: byte by
 * byte, a thousand of them cost more than all else that is done for it. */
bool pl_key_same(const struct pl_key_digest *a, const struct pl_key_digest *b) {
    uint64_t x[PL_KEY_DIGEST_BYTES / 8], y[PL_KEY_DIGEST_BYTES / 8], differs = 0;
    memcpy(x, a->bytes, sizeof x);
    memcpy(y, b->bytes, sizeof y);
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) differs |= x[i] ^ y[i];
    return differs == 0;
}

bool pl_priority_read(const char *text, size_t len, enum pl_priority *out) {
    for (size_t i = 0; i < sizeof priority_words / sizeof priority_words[0]; i++) {
        if (strlen(priority_words[i]) != len || memcmp(priority_words[i], text, len) != 0) continue;
        *out = (enum pl_priority)i;
        return true;
    }
    return false;
}

/* --- reading a file */

struct reader {
    struct pl_yaml y;
    struct pl_keyring *ring;
};

static bool wrong(struct reader *r, const yaml_node_t *node, const char *what) {
    return PL_FAIL(r->y.err, PL_E_CONFIG, "%s: %s", pl_yaml_place(&r->y, node).text, what);
}

static bool no_memory(struct reader *r) {
    return PL_FAIL(r->y.err, PL_E_NOMEM, "%s: too many keys", pl_quote(r->y.file).text);
}

static bool is_name(const char *text) {
    size_t n = strlen(text);
    if (n == 0 || n > PL_KEY_NAME_MOST) return false;
    for (; *text != '\0'; text++)
        if (!isalnum((unsigned char)*text) && strchr("._@-", *text) == NULL) return false;
    return true;
}

static bool take_name(struct reader *r, struct pl_key_row *row, yaml_node_t *node) {
    const char *text = pl_yaml_scalar(&r->y, node);
    if (text == NULL) return false;
    if (!is_name(text)) return wrong(r, node, "a name is 1 to 64 letters, digits and . _ @ -");
    for (size_t i = 0; i < r->ring->row_count; i++) {
        if (&r->ring->rows[i] == row || r->ring->rows[i].name == NULL ||
            strcmp(r->ring->rows[i].name, text) != 0)
            continue;
        wrong(r, node, "this name is there already");
        return pl_err_hint(r->y.err, "a key that is being changed has one row and a list of hashes");
    }
    row->name = pl_arena_strndup(&r->ring->arena, text, strlen(text));
    return row->name != NULL || no_memory(r);
}

static int nibble(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool read_digest(const char *text, struct pl_key_digest *out) {
    static const char prefix[] = "sha256:";
    if (strncmp(text, prefix, sizeof prefix - 1) != 0) return false;
    text += sizeof prefix - 1;
    if (strlen(text) != 2 * (size_t)PL_KEY_DIGEST_BYTES) return false;
    for (size_t i = 0; i < PL_KEY_DIGEST_BYTES; i++) {
        int high = nibble(text[2 * i]), low = nibble(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out->bytes[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

static bool take_hash(struct reader *r, uint32_t row, yaml_node_t *node) {
    struct pl_keyring *ring = r->ring;
    struct pl_key_digest d;
    const char *text = pl_yaml_scalar(&r->y, node);
    if (text == NULL) return false;
    if (!read_digest(text, &d)) { /* what stands there may be a key */
        wrong(r, node, "this is not sha256: and 64 hexadecimal digits");
        return pl_err_hint(r->y.err, "printf %%s \"$KEY\" | sha256sum prints them");
    }
    for (size_t i = 0; i < ring->hash_count; i++)
        if (pl_key_same(&d, &ring->hashes[i].digest)) return wrong(r, node, "this hash is there already");
    ring->hashes[ring->hash_count].digest = d;
    ring->hashes[ring->hash_count++].row = row;
    return true;
}

static bool take_hashes(struct reader *r, uint32_t row, yaml_node_t *node) {
    if (node->type != YAML_SEQUENCE_NODE) return take_hash(r, row, node);
    const yaml_node_item_t *at = node->data.sequence.items.start, *end = node->data.sequence.items.top;
    if (at == end) return wrong(r, node, "there is no hash");
    if (end - at > PL_KEY_HASHES_MOST) return wrong(r, node, "more than 8 hashes for one name");
    for (; at < end; at++)
        if (!take_hash(r, row, pl_yaml_node(&r->y, *at))) return false;
    return true;
}

static bool take_service(struct reader *r, struct pl_key_row *row, yaml_node_t *node) {
    const char *text = pl_yaml_scalar(&r->y, node);
    if (text == NULL) return false;
    if (text[0] == '\0' || strlen(text) > 128) return wrong(r, node, "this is not the name of a service");
    const char *copy = pl_arena_strndup(&r->ring->arena, text, strlen(text));
    if (copy == NULL) return no_memory(r);
    row->services[row->service_count++] = copy;
    return true;
}

static bool take_services(struct reader *r, struct pl_key_row *row, yaml_node_t *node) {
    bool list = node->type == YAML_SEQUENCE_NODE;
    const yaml_node_item_t *at = list ? node->data.sequence.items.start : NULL,
                           *end = list ? node->data.sequence.items.top : NULL;
    size_t count = list ? (size_t)(end - at) : 1;
    /* An empty list reads as "none" to some and as "all" to others. */
    if (count == 0) return wrong(r, node, "name a service, or leave `services` out for all");
    if (count > SERVICES_MOST) return wrong(r, node, "more than 256 services");
    row->services = pl_arena_alloc(&r->ring->arena, count * sizeof *row->services);
    if (row->services == NULL) return no_memory(r);
    if (!list) return take_service(r, row, node);
    for (; at < end; at++)
        if (!take_service(r, row, pl_yaml_node(&r->y, *at))) return false;
    return true;
}

static bool take_limit(struct reader *r, int64_t *out, yaml_node_t *node) {
    const char *text = pl_yaml_scalar(&r->y, node);
    int64_t value = 0;
    if (text == NULL) return false;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 10 || text[digits] != '\0')
        return wrong(r, node, "this is not a whole number");
    for (const char *s = text; *s != '\0'; s++) value = value * 10 + (*s - '0');
    if (value < 1 || value > LIMIT_MOST) {
        wrong(r, node, "a limit is 1 to 1000000000");
        return pl_err_hint(r->y.err, "leave it out for no limit; to lock a key out, take its row out");
    }
    *out = value;
    return true;
}

static bool take_priority(struct reader *r, struct pl_key_row *row, yaml_node_t *node) {
    const char *text = pl_yaml_scalar(&r->y, node);
    if (text == NULL) return false;
    return pl_priority_read(text, strlen(text), &row->max_priority) ||
           wrong(r, node, "this is none of low, normal, high");
}

static bool unknown(struct reader *r, const yaml_node_t *key, const char *name) {
    static const char *const fields[] = {
        "name",        "hash", "services", "max_concurrency", "requests_per_minute", "tokens_per_minute",
        "max_priority"
    };
    PL_FAIL(r->y.err, PL_E_CONFIG, "%s: unknown field '%s'", pl_yaml_place(&r->y, key).text,
            pl_quote(name).text);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (pl_edit_near(name, fields[i])) return pl_err_hint(r->y.err, "did you mean '%s'?", fields[i]);
    return false;
}

static bool take_field(struct reader *r, uint32_t at, const yaml_node_pair_t *pair) {
    struct pl_key_row *row = &r->ring->rows[at];
    const yaml_node_t *key = pl_yaml_node(&r->y, pair->key);
    yaml_node_t *value = pl_yaml_node(&r->y, pair->value);
    const char *name = pl_yaml_scalar(&r->y, key);
    if (name == NULL) return false;
    if (strcmp(name, "name") == 0) return take_name(r, row, value);
    if (strcmp(name, "hash") == 0) return take_hashes(r, at, value);
    if (strcmp(name, "services") == 0) return take_services(r, row, value);
    if (strcmp(name, "max_concurrency") == 0) return take_limit(r, &row->max_concurrency, value);
    if (strcmp(name, "requests_per_minute") == 0) return take_limit(r, &row->requests_per_minute, value);
    if (strcmp(name, "tokens_per_minute") == 0) return take_limit(r, &row->tokens_per_minute, value);
    if (strcmp(name, "max_priority") == 0) return take_priority(r, row, value);
    return unknown(r, key, name);
}

static bool take_row(struct reader *r, yaml_node_t *node) {
    struct pl_keyring *ring = r->ring;
    uint32_t at = (uint32_t)ring->row_count;
    size_t hashes = ring->hash_count;
    if (node->type != YAML_MAPPING_NODE) return wrong(r, node, "a row is a mapping: {name, hash, ...}");
    if (!pl_yaml_no_twins(&r->y, node)) return false;
    ring->row_count++;
    ring->rows[at].max_priority = PL_PRIORITY_NORMAL;
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++)
        if (!take_field(r, at, p)) return false;
    if (ring->rows[at].name == NULL) return wrong(r, node, "this row has no name");
    return ring->hash_count > hashes || wrong(r, node, "this row has no hash");
}

/* The list itself, or what stands below `keys:`. */
static yaml_node_t *find_list(struct reader *r, yaml_node_t *root) {
    if (root == NULL) return NULL;
    if (root->type == YAML_SEQUENCE_NODE) return root;
    const yaml_node_pair_t *pair = root->type == YAML_MAPPING_NODE ? root->data.mapping.pairs.start : NULL;
    if (pair == NULL || root->data.mapping.pairs.top != pair + 1) return NULL;
    const yaml_node_t *key = pl_yaml_node(&r->y, pair->key);
    bool keys = key->type == YAML_SCALAR_NODE && strcmp((const char *)key->data.scalar.value, "keys") == 0;
    yaml_node_t *list = keys ? pl_yaml_node(&r->y, pair->value) : NULL;
    return list != NULL && list->type == YAML_SEQUENCE_NODE ? list : NULL;
}

static struct pl_keyring *make_ring(size_t rows) {
    struct pl_keyring *ring = calloc(1, sizeof *ring);
    if (ring == NULL) return NULL;
    pl_arena_init(&ring->arena, ARENA_BYTES);
    /* one more of each: --api-key beside a file */
    ring->rows = pl_arena_alloc(&ring->arena, (rows + 1) * sizeof *ring->rows);
    ring->hashes = pl_arena_alloc(&ring->arena, (rows * PL_KEY_HASHES_MOST + 1) * sizeof *ring->hashes);
    if (ring->rows != NULL && ring->hashes != NULL) return ring;
    pl_keyring_free(ring);
    return NULL;
}

static bool read_rows(struct reader *r) {
    yaml_node_t *root = yaml_document_get_root_node(&r->y.doc), *list = find_list(r, root);
    if (list == NULL)
        return PL_FAIL(r->y.err, PL_E_CONFIG, "%s: a list of rows {name, hash: sha256:...} is wanted",
                       pl_quote(r->y.file).text);
    const yaml_node_item_t *at = list->data.sequence.items.start, *end = list->data.sequence.items.top;
    /* It would lock everybody out, which is hardly meant. */
    if (at == end) return PL_FAIL(r->y.err, PL_E_CONFIG, "%s: no key in it", pl_quote(r->y.file).text);
    if (end - at > PL_KEYS_MOST)
        return PL_FAIL(r->y.err, PL_E_CONFIG, "%s: more than %d keys", pl_quote(r->y.file).text,
                       PL_KEYS_MOST);
    r->ring = make_ring((size_t)(end - at));
    if (r->ring == NULL) return no_memory(r);
    for (; at < end; at++)
        if (!take_row(r, pl_yaml_node(&r->y, *at))) return false;
    return true;
}

struct pl_keyring *pl_keyring_read(const char *file, const char *text, size_t len, struct pl_err *err) {
    struct reader r = { .y = { .file = file, .err = err } };
    if (!pl_yaml_load(&r.y, text, len)) return NULL;
    bool ok = read_rows(&r);
    pl_yaml_free(&r.y);
    if (ok) return r.ring;
    pl_keyring_free(r.ring);
    return NULL;
}

struct pl_keyring *pl_keyring_add(struct pl_keyring *ring, const char *name,
                                  const struct pl_key_digest *digest, struct pl_err *err) {
    bool fresh = ring == NULL;
    if (fresh) ring = make_ring(0);
    char *copy = ring != NULL ? pl_arena_strndup(&ring->arena, name, strlen(name)) : NULL;
    for (size_t i = 0; copy != NULL && i < ring->row_count; i++) {
        if (strcmp(ring->rows[i].name, name) != 0) continue;
        PL_FAIL(err, PL_E_CONFIG, "a key of api_keys.file is named '%s', as that of --api-key is", name);
        return NULL;
    }
    if (copy == NULL) {
        PL_FAIL(err, PL_E_NOMEM, "out of memory");
        if (fresh) pl_keyring_free(ring);
        return NULL;
    }
    uint32_t row = (uint32_t)ring->row_count++;
    ring->rows[row] = (struct pl_key_row){ .name = copy, .max_priority = PL_PRIORITY_HIGH };
    ring->hashes[ring->hash_count].digest = *digest;
    ring->hashes[ring->hash_count++].row = row;
    return ring;
}

void pl_keyring_free(struct pl_keyring *ring) {
    if (ring == NULL) return;
    pl_arena_free(&ring->arena);
    free(ring);
}

/* --- asking */

const struct pl_key_row *pl_keyring_find(const struct pl_keyring *ring, const char *key, size_t len) {
    struct pl_key_digest d = pl_key_hash(key, len);
    size_t found = 0; /* number of the hash, from 1 */
    for (size_t i = 0; i < ring->hash_count; i++) {
        size_t same = (size_t)0 - (size_t)pl_key_same(&d, &ring->hashes[i].digest); /* all ones, or none */
        found |= same & (i + 1);
    }
    return found != 0 ? &ring->rows[ring->hashes[found - 1].row] : NULL;
}

bool pl_key_opens(const struct pl_key_row *row, const char *service) {
    for (size_t i = 0; i < row->service_count; i++)
        if (strcmp(row->services[i], service) == 0) return true;
    return row->service_count == 0;
}
