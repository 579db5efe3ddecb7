/* A worker's end records may say anything: rows and samples made of the input, 16 bytes each.
 * USES ledger
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "ledger/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Small numbers, enormous ones, and what lies between, all from a byte. */
static uint64_t number(uint8_t b) { return b < 0xf0 ? (uint64_t)b << (b % 53) : UINT64_MAX >> (b % 16); }

static void check(const struct pl_ledger *l) {
    struct pl_ledger_verdict v;
    struct pl_tag_report tags;
    struct pl_forecast f;
    pl_ledger_verdict(l, &v);
    PL_ASSERT((unsigned)v.word < PL_VERDICT_COUNT && v.scope >= 0 && v.scope < PL_LEDGER_SCOPES);
    PL_ASSERT(v.low <= v.bytes_per_request && v.bytes_per_request <= v.high);
    pl_tags_report(&l->tags, v.bytes_per_request, &tags);
    PL_ASSERT(tags.count <= PL_TAG_SHARES && tags.failed_share >= 0 && tags.failed_share <= 1.0001);
    for (int i = 0; i < PL_LEDGER_SCOPES; i++) {
        pl_ledger_forecast(l, i, 500, &f);
        PL_ASSERT(f.low_s <= f.seconds && f.seconds <= f.high_s);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_ledger *l = malloc(sizeof *l);
    struct pl_empty e = { 0 };
    const struct pl_empty_rule rule = { .reserved_over = 100, .every_requests = 3 };
    if (l == NULL) return 0;
    pl_ledger_start(l);
    for (size_t at = 0; at + 16 <= size; at += 16) {
        const uint8_t *b = data + at;
        struct pl_ledger_row r = { .at_ms = number(b[1]),
                                   .tag = (uint16_t)(b[2] << 8 | b[3]),
                                   .gpu = b[4] % 10,
                                   .failed = b[5] & 1,
                                   .quiet = b[5] & 2,
                                   .peak_exact = b[5] & 4,
                                   .oom = b[5] & 8,
                                   .known = b[5] & 16,
                                   .batch = (uint32_t)number(b[6]),
                                   .before = number(b[7]),
                                   .after = number(b[8]),
                                   .reserved = number(b[9]),
                                   .peak = number(b[10]),
                                   .host_bytes = number(b[11]) };
        struct pl_ledger_sample s = { .at_ms = number(b[1]),
                                      .host_bytes = number(b[2]),
                                      .host_max = number(b[3]),
                                      .host_others = number(b[4]),
                                      .holders = b[5],
                                      .holders_ok = b[6] };
        for (int i = 0; i < PL_LEDGER_GPUS; i++) {
            s.gpu[i].total = number(b[7]);
            s.gpu[i].used = number(b[8]);
            s.gpu[i].process = number((uint8_t)(b[9] + i));
            s.gpu[i].inactive_split = number(b[10]);
            s.gpu[i].retries = number(b[11]);
        }
        switch (b[0] % 4) {
        case 0: /* many alike: only a long series is looked at */
            for (int i = 0; i < 40; i++) {
                r.after += b[12];
                pl_ledger_row(l, &r);
            }
            break;
        case 1:
            pl_ledger_row(l, &r);
            break;
        case 2:
            pl_ledger_lost(l, number(b[12]));
            break;
        default:
            pl_ledger_sample(l, &s);
            break;
        }
        for (int i = 0; i < PL_LEDGER_GPUS; i++)
            if (pl_empty_wanted(&e, &rule, l, i, number(b[13]))) pl_empty_done(&e, number(b[14]));
    }
    check(l);
    free(l);
    return 0;
}
