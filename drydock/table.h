/* drydock/table.h - the card table: one file in /dev/shm that holds the stand-in cards and what every process
 * has on them.
 *
 * Shared by the stand-in libraries in every process of a run, by the stand-in NVML (which carries a copy of
 * this code and needs no other library), and by `plimsoll drydock`, which makes the file, reads it at the end
 * and removes it. Whoever comes first without the verb makes it from the environment.
 *
 * A card is full when the sum over all processes, what is foreign included, would pass its total. Rows of
 * processes that are gone are cleared before a refusal and before every reading, so a kill -9 gives its
 * memory back as a real driver does. A cleared row keeps its peaks until the room is needed: the report wants
 * them.
 *
 * Device numbers here are physical. One pid namespace: the reaper asks kill(pid, 0) and /proc/PID/stat.
 */
#ifndef DRYDOCK_TABLE_H
#define DRYDOCK_TABLE_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DD_CARDS = 16, DD_ROWS = 256, DD_LACKS = 64, DD_NAME = 96, DD_ERROR = 320 };
#define DD_MAGIC   UINT32_C(0x4c504444)
#define DD_VERSION UINT32_C(1)

/* What is wrong with a card (fault bits). */
enum dd_fault {
    DD_SILENT = 1, /* calls for it do not return until the bit is cleared */
    DD_LOST = 2,   /* fallen off the bus: NVML says 15, CUDA says 999 */
    DD_KEPT = 4,   /* memory of processes that end is not given back */
    DD_HIDDEN = 8, /* NVML does not tell how much each process has */
};

struct dd_card {
    uint64_t total;
    uint64_t cap;     /* allocations over it are refused; 0 = none */
    uint64_t foreign; /* of a tenant that has no row */
    uint64_t peak;    /* of everything together */
    uint64_t launches;
    uint32_t faults; /* bits of enum dd_fault */
    uint32_t xid;    /* the last one reported */
    uint32_t xids;   /* how many were */
    uint32_t pad;
};

/* One process on one card. Bytes. */
struct dd_use {
    uint64_t used, peak, context;
    uint64_t launches;
    uint64_t refused, refused_largest; /* allocations that did not fit */
    /* What PyTorch's own allocator says; valid when `torch` is set. Peaks hold over resets by the program. */
    uint64_t allocated_peak, reserved_peak, ooms, retries, oom_largest;
    uint64_t torch;
};

enum dd_row_state { DD_FREE, DD_LIVE, DD_GONE };
struct dd_row {
    int32_t pid;
    uint32_t state;
    uint64_t start; /* field 22 of /proc/PID/stat: tells a reused pid */
    uint64_t image; /* tells an exec */
    uint64_t born;  /* counts up over the rows: the oldest gone one is reused first */
    char command[DD_NAME];
    struct dd_use use[DD_CARDS];
};

struct dd_table {
    uint32_t magic, version;
    uint64_t bytes;        /* sizeof this struct where it was made */
    pthread_mutex_t mutex; /* process-shared, robust */
    int32_t owner;         /* `plimsoll drydock` that made it and will remove it; 0 = nobody */
    int32_t cards;
    uint64_t owner_start;
    int32_t major, minor, sms, pad; /* compute capability */
    char name[DD_NAME];
    uint64_t context;    /* bytes that each process's context costs on a card */
    uint64_t fail_at;    /* the n-th allocation of the run is refused; 0 = none */
    uint64_t asked;      /* allocations so far */
    uint64_t fail_bytes; /* what was refused on request last, */
    int32_t fail_pid;    /* and to whom: its retry is refused too; 0 = over */
    int32_t pad3;
    uint64_t rows_born; /* so many there were; more than DD_ROWS: some were reused */
    struct dd_card card[DD_CARDS];
    struct dd_row row[DD_ROWS];
    uint32_t lack_count, pad2;
    char lack[DD_LACKS][DD_NAME]; /* functions that were called and that the dry dock lacks */
};

/* --- making and finding it */

/* What a table is made from. */
struct dd_plan {
    const char *gpu; /* NAME, NAMExN, NAME:BYTES */
    int count;       /* 0 = as `gpu` says */
    uint64_t context, cap, fail_at;
    const char *faults; /* "0=lost,1=foreign:2GiB", or NULL */
};
/* The plan that PLIMSOLL_DRYDOCK_{GPU,COUNT,CONTEXT,CAP,FAIL,FAULT} describe. false with a sentence. */
bool dd_plan_from_environment(struct dd_plan *p, char error[DD_ERROR]);
/* Fills a new table; everything but the mutex and the owner is pure. */
bool dd_table_fill(struct dd_table *t, const struct dd_plan *p, char error[DD_ERROR]);
/* Makes the file anew, owner = this process. `name` is below /dev/shm. NULL with a sentence. */
struct dd_table *dd_table_make(const char *name, const struct dd_plan *p, char error[DD_ERROR]);
/* The table of this process: PLIMSOLL_DRYDOCK_SHM, else one that all processes of this user share; made at
 * need. */
struct dd_table *dd_table_open(char error[DD_ERROR]);
/* The same once and for all; a process that cannot have it ends with the sentence. */
struct dd_table *dd_table(void);
/* Tests: `t` is the table of this process. */
void dd_table_use(struct dd_table *t);

/* "NAME", "NAMExN", "NAME:BYTES", "NAME:BYTESxN". false with a sentence that lists the names. */
struct dd_gpu {
    const char *key, *product;
    int major, minor, sms, count;
    uint64_t total;
};
bool dd_gpu_parse(const char *text, struct dd_gpu *out, char error[DD_ERROR]);
const struct dd_gpu *dd_gpu_known(size_t *count); /* plan/gpus.def: name, product, total */
/* "24GiB", "400MiB", "1024"; MB and GB are refused, because they have two readings. */
bool dd_bytes_parse(const char *text, uint64_t *out, char error[DD_ERROR]);
/* Sets or clears faults: "0=silent,1=xid:79,0=none". Bits of faults at once, bytes of foreign at once. */
bool dd_faults_parse(struct dd_table *t, const char *text, char error[DD_ERROR]);

/* --- what processes do with it */

int dd_charge(int card, uint64_t bytes); /* an allocation of the program: 0, or -1: refused */
int dd_charge_context(int card);         /* the cost of a context, the same */
void dd_uncharge(int card, uint64_t bytes);
uint64_t dd_used(int card); /* everything: rows and foreign */
int dd_processes(int card, int32_t *pid, uint64_t *used, int most);
void dd_count_launch(int card);
void dd_note_lack(const char *name);
/* What PyTorch's allocator says now; peaks are folded. */
void dd_note_torch(int card, const uint64_t figures[5]);
/* Waits while the card is silent. 0, or -1: it is lost. */
int dd_gate(int card);
/* Rows of processes that are gone become DD_GONE. */
void dd_table_reap(struct dd_table *t);
uint64_t dd_start_time(int pid); /* field 22 of /proc/PID/stat, 0 = not readable */
#endif
