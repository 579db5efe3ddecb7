/* page_layout.c - prints the layout of include/plimsoll/shm.h as JSON, so that a test can hold the Python
 * writer to it. */
#include <stddef.h>
#include <stdio.h>

#include "plimsoll/shm.h"

#define NUMBER(name) printf("  \"%s\": %llu,\n", #name, (unsigned long long)(name))
#define STRUCT(type) printf("  \"%s\": {\n    \"size\": %zu", #type, sizeof(struct type))
#define FIELD(type, field)                                                    \
    printf(",\n    \"%s\": [%zu, %zu]", #field, offsetof(struct type, field), \
           sizeof(((struct type *)0)->field))
#define END printf("\n  },\n")

static void print_head(void) {
    STRUCT(pl_page_head);
    FIELD(pl_page_head, magic);
    FIELD(pl_page_head, major);
    FIELD(pl_page_head, minor);
    FIELD(pl_page_head, crc);
    FIELD(pl_page_head, head_bytes);
    FIELD(pl_page_head, total_bytes);
    FIELD(pl_page_head, kind);
    FIELD(pl_page_head, writer_pid);
    FIELD(pl_page_head, writer_start);
    FIELD(pl_page_head, generation);
    FIELD(pl_page_head, boot);
    FIELD(pl_page_head, counters);
    FIELD(pl_page_head, begins);
    FIELD(pl_page_head, ends);
    FIELD(pl_page_head, devices);
    FIELD(pl_page_head, host);
    FIELD(pl_page_head, engine);
    FIELD(pl_page_head, tags);
    END;
    STRUCT(pl_page_block);
    FIELD(pl_page_block, at);
    FIELD(pl_page_block, stride);
    FIELD(pl_page_block, count);
    END;
}

static void print_counts(void) {
    STRUCT(pl_page_counts);
    FIELD(pl_page_counts, progress);
    FIELD(pl_page_counts, begun);
    FIELD(pl_page_counts, ended);
    FIELD(pl_page_counts, in_flight);
    FIELD(pl_page_counts, zombies);
    FIELD(pl_page_counts, tasks);
    FIELD(pl_page_counts, batches);
    FIELD(pl_page_counts, errors);
    FIELD(pl_page_counts, imported_ms);
    FIELD(pl_page_counts, loaded_ms);
    FIELD(pl_page_counts, serving_ms);
    FIELD(pl_page_counts, features);
    FIELD(pl_page_counts, ooms);
    FIELD(pl_page_counts, untagged);
    END;
}

static void print_records(void) {
    STRUCT(pl_page_begin_record);
    FIELD(pl_page_begin_record, crc);
    FIELD(pl_page_begin_record, flags);
    FIELD(pl_page_begin_record, seq);
    FIELD(pl_page_begin_record, id);
    FIELD(pl_page_begin_record, at_us);
    FIELD(pl_page_begin_record, thread);
    FIELD(pl_page_begin_record, in_flight);
    FIELD(pl_page_begin_record, route);
    FIELD(pl_page_begin_record, tag);
    FIELD(pl_page_begin_record, device);
    FIELD(pl_page_begin_record, allocated);
    FIELD(pl_page_begin_record, reserved);
    END;
    STRUCT(pl_page_end_record);
    FIELD(pl_page_end_record, crc);
    FIELD(pl_page_end_record, flags);
    FIELD(pl_page_end_record, seq);
    FIELD(pl_page_end_record, id);
    FIELD(pl_page_end_record, at_us);
    FIELD(pl_page_end_record, duration_us);
    FIELD(pl_page_end_record, thread);
    FIELD(pl_page_end_record, in_flight);
    FIELD(pl_page_end_record, route);
    FIELD(pl_page_end_record, status);
    FIELD(pl_page_end_record, outcome);
    FIELD(pl_page_end_record, tag);
    FIELD(pl_page_end_record, device);
    FIELD(pl_page_end_record, batch);
    FIELD(pl_page_end_record, error_class);
    FIELD(pl_page_end_record, allocated_before);
    FIELD(pl_page_end_record, allocated);
    FIELD(pl_page_end_record, reserved);
    FIELD(pl_page_end_record, peak);
    FIELD(pl_page_end_record, input_bytes);
    FIELD(pl_page_end_record, host_anon);
    FIELD(pl_page_end_record, begun);
    END;
}

static void print_memory(void) {
    STRUCT(pl_page_device);
    FIELD(pl_page_device, index);
    FIELD(pl_page_device, sampled_us);
    FIELD(pl_page_device, allocated);
    FIELD(pl_page_device, reserved);
    FIELD(pl_page_device, active);
    FIELD(pl_page_device, peak);
    FIELD(pl_page_device, inactive_split);
    FIELD(pl_page_device, retries);
    FIELD(pl_page_device, ooms);
    FIELD(pl_page_device, total);
    FIELD(pl_page_device, uuid);
    END;
    STRUCT(pl_page_host);
    FIELD(pl_page_host, sampled_us);
    FIELD(pl_page_host, anon);
    FIELD(pl_page_host, swap);
    FIELD(pl_page_host, rss);
    FIELD(pl_page_host, threads);
    FIELD(pl_page_host, python_blocks);
    FIELD(pl_page_host, gc_objects);
    END;
    STRUCT(pl_page_engine);
    FIELD(pl_page_engine, sampled_us);
    FIELD(pl_page_engine, cells);
    FIELD(pl_page_engine, cells_used);
    FIELD(pl_page_engine, cells_reserved);
    FIELD(pl_page_engine, cells_cached);
    FIELD(pl_page_engine, cells_parked);
    FIELD(pl_page_engine, weights);
    FIELD(pl_page_engine, compute);
    FIELD(pl_page_engine, output);
    FIELD(pl_page_engine, tokens_in);
    FIELD(pl_page_engine, tokens_out);
    FIELD(pl_page_engine, kv);
    FIELD(pl_page_engine, preemptions);
    FIELD(pl_page_engine, steps_us);
    FIELD(pl_page_engine, steps);
    END;
    STRUCT(pl_page_tag);
    FIELD(pl_page_tag, crc);
    FIELD(pl_page_tag, route);
    FIELD(pl_page_tag, text);
    END;
}

int main(void) {
    printf("{\n");
    NUMBER(PL_PAGE_MAGIC);
    NUMBER(PL_PAGE_MAJOR);
    NUMBER(PL_PAGE_MINOR);
    NUMBER(PL_PAGE_BYTES);
    NUMBER(PL_PAGE_RECORDS);
    NUMBER(PL_PAGE_WORKER);
    NUMBER(PL_PAGE_COUNTERS_AT);
    NUMBER(PL_PAGE_BEGINS_AT);
    NUMBER(PL_PAGE_ENDS_AT);
    NUMBER(PL_PAGE_HOST_AT);
    NUMBER(PL_PAGE_ENGINE_AT);
    NUMBER(PL_PAGE_DEVICES_AT);
    NUMBER(PL_PAGE_TAGS_AT);
    NUMBER(PL_PAGE_DEVICES);
    NUMBER(PL_PAGE_TAGS);
    NUMBER(PL_PAGE_TAG_TEXT);
    NUMBER(PL_NO_TAG);
    NUMBER(PL_PAGE_F_MEMORY);
    NUMBER(PL_PAGE_F_PEAKS);
    NUMBER(PL_PAGE_F_HISTORY);
    NUMBER(PL_PAGE_F_LANE);
    NUMBER(PL_RECORD_MEMORY);
    NUMBER(PL_RECORD_ALONE);
    NUMBER(PL_RECORD_OVERLAPPED);
    NUMBER(PL_RECORD_PEAK_EXACT);
    NUMBER(PL_RECORD_QUIESCENT);
    NUMBER(PL_RECORD_OOM);
    NUMBER(PL_RECORD_LANE);
    NUMBER(PL_RECORD_RETURNED);
    NUMBER(PL_PAGE_F_RECORDS);
    NUMBER(PL_PAGE_F_DEADLINE);
    NUMBER(PL_PAGE_F_OVERRIDES);
    NUMBER(PL_PAGE_F_CONTROL);
    NUMBER(PL_RECORD_BATCHED);
    NUMBER(PL_RECORD_ZOMBIE);
    NUMBER(PL_RECORD_STREAM);
    NUMBER(PL_RECORD_TASK);
    NUMBER(PL_RECORD_WARMUP);
    NUMBER(PL_RECORD_EDGE);
    NUMBER(PL_RECORD_UNBEGUN);
    NUMBER(PL_OUTCOME_OK);
    NUMBER(PL_OUTCOME_CLIENT_ERROR);
    NUMBER(PL_OUTCOME_ERROR);
    NUMBER(PL_OUTCOME_CANCELLED);
    NUMBER(PL_NO_ROUTE);
    print_head();
    print_counts();
    print_records();
    print_memory();
    printf("  \"done\": 1\n}\n");
    return 0;
}
