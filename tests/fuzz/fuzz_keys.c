/* The file of API keys (door/keys.c over config/yaml.c), and what the keeper holds for the door
 * (door/papers.c).
 *
 * USES door
 */
#include <stdlib.h>
#include <string.h>

#include "door/keys.h"
#include "door/papers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_err err = { 0 };
    struct pl_papers papers = { 0 };
    struct pl_keyring *ring = pl_keyring_read("keys.yaml", (const char *)data, size, &err);
    if (ring == NULL && err.msg[0] == '\0') abort();
    if (ring != NULL) {
        if (ring->row_count == 0 || ring->row_count > PL_KEYS_MOST || ring->hash_count < ring->row_count)
            abort();
        for (size_t i = 0; i < ring->hash_count; i++)
            if (ring->hashes[i].row >= ring->row_count) abort();
        for (size_t i = 0; i < ring->row_count; i++)
            if (ring->rows[i].name == NULL || strlen(ring->rows[i].name) > PL_KEY_NAME_MOST) abort();
        if (pl_keyring_find(ring, (const char *)data, size) != NULL) abort(); /* SHA-256 of itself */
    }
    pl_keyring_free(ring);
    pl_papers_read(&papers, (const char *)data, size, &err);
    pl_papers_free(&papers);
    return 0;
}
