/* make_record PATH TEXT BASE_MS - a flight record of a minute of a service that leaked and died, at a time of
 * our choosing. TEXT stands wherever a name or a sentence of others may stand. For tests of what reads
 * records. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "record/record.h"

static uint64_t now;
static uint64_t tell(void *ctx) { return (void)ctx, __atomic_load_n(&now, __ATOMIC_SEQ_CST); }
static const struct pl_clock clock_of_test = { .now_ms = tell, .wall_ms = tell };

static void at(uint64_t ms) { __atomic_store_n(&now, ms, __ATOMIC_SEQ_CST); }

/* An event with one text of others in it. */
static void event(struct pl_record *r, enum pl_level level, const char *name, const char *fields,
                  const char *key, const char *text) {
    char ts[PL_TIME_TEXT];
    struct pl_buf line;
    pl_buf_init(&line, 0);
    pl_buf_addf(&line,
                "{\"ts\":\"%s\",\"level\":\"%s\",\"event\":\"%s\",\"service\":\"chat\",\"worker\":1,"
                "\"generation\":1%s,\"%s\":",
                pl_time_rfc3339(tell(NULL), ts), pl_level_name(level), name, fields, key);
    pl_buf_add_json(&line, text, strlen(text));
    pl_buf_adds(&line, "}");
    pl_record_event(r, level, name, line.data, line.len);
    pl_buf_free(&line);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    uint64_t base = strtoull(argv[3], NULL, 10);
    const char *text = argv[2];
    at(base);
    struct pl_record *r = pl_record_create(&(struct pl_record_options){
        .path = argv[1],
        .max_bytes = 64 << 20,
        .clock = &clock_of_test,
        .boot = { .life = 1, .reason = "first", .version = "0.1.0", .instance = "default" } });
    struct pl_record_look look = { 0 };
    while (r != NULL && !look.opened) pl_record_look(r, &look);
    if (r == NULL || look.in_memory) return 1;
    event(r, PL_INFO, "worker.spawned", ",\"pid\":42", "way", "exec");
    event(r, PL_INFO, "worker.imported", "", "since_spawn_ms", "900");
    event(r, PL_INFO, "worker.ready", ",\"after_ms\":1500,\"warm\":true", "note", text);
    for (uint64_t s = 0; s < 60; s++) {
        at(base + 2000 + s * 1000);
        struct pl_record_sample sample = pl_record_sample_of("gpu0");
        sample.service = "chat";
        sample.worker = 1;
        sample.generation = 1;
        sample.allocated = (int64_t)((1000 + s * 12) << 20);
        sample.reserved = sample.allocated + (100 << 20);
        sample.peak = sample.allocated + (200 << 20);
        sample.limit = (int64_t)2000 << 20;
        pl_record_sample(r, &sample);
        for (uint64_t i = 0; i < 5; i++)
            pl_record_request(r, &(struct pl_record_request){ .id = s * 5 + i + 1,
                                                              .service = "chat",
                                                              .method = "POST",
                                                              .method_len = 4,
                                                              .route = text,
                                                              .route_len = strlen(text),
                                                              .worker = 1,
                                                              .generation = 1,
                                                              .status = s % 20 == 19 ? 504 : 200,
                                                              .outcome = s % 20 == 19 ? "timeout" : "ok",
                                                              .duration_us = (int64_t)(5000 + s * 300),
                                                              .queue_us = 100,
                                                              .first_byte_us = 4000,
                                                              .request_bytes = 120,
                                                              .reply_bytes = 2000,
                                                              .input_tokens = (int64_t)(100 + s * 10),
                                                              .output_tokens = 50 });
    }
    event(r, PL_WARN, "memory.verdict",
          ",\"verdict\":\"leak\",\"shape\":\"line\",\"scope\":\"gpu0\",\"bytes_per_request\":2516582.4,"
          "\"confidence\":\"confirmed\"",
          "top_tag", text);
    event(r, PL_WARN, "memory.holder", ",\"file\":\"service.py\",\"line\":41", "holder", text);
    event(r, PL_INFO, "would.replace", ",\"reason\":\"leak\"", "mode", "observe");
    event(r, PL_INFO, "plan.checked", ",\"planned_bytes\":1000,\"actual_bytes\":1100", "note", text);
    pl_record_request(r, &(struct pl_record_request){ .id = 9999,
                                                      .service = "chat",
                                                      .method = "POST",
                                                      .method_len = 4,
                                                      .route = "/long",
                                                      .route_len = 5,
                                                      .worker = 1,
                                                      .generation = 1,
                                                      .open = true,
                                                      .duration_us = 900000,
                                                      .request_bytes = 7,
                                                      .reply_bytes = -1,
                                                      .queue_us = -1,
                                                      .first_byte_us = -1,
                                                      .input_tokens = -1,
                                                      .output_tokens = -1 });
    at(base + 62500);
    event(r, PL_ERROR, "worker.death",
          ",\"death\":\"d1\",\"cause\":\"gpu_out_of_memory\",\"in_handlers\":1,\"status\":9", "sentence",
          text);
    pl_record_destroy(r, 0);
    return 0;
}
