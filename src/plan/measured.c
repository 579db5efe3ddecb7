/* measured.c - llama.cpp's own dry run of the planned context beside the formula. Where the two disagree by
 * more than 1.5 % the planner does not understand the model, and llama.cpp's figure counts (planner.md,
 * section 17). */
#include "model/num.h"
#include "plan/inside.h"

enum { PAD = 256, TRUSTED = 15 /* of PL_SHARES */ };

static uint64_t formula_kv(const struct pl_plan *p, uint64_t cells, uint64_t parallel) {
    struct pl_llama o = { .n_ctx = cells,
                          .n_seq = parallel,
                          .n_ubatch = 512,
                          .n_outputs = 512,
                          .type_k = p->ask.kv,
                          .type_v = p->ask.kv };
    struct pl_llama_bytes b = pl_llama_bytes(p->ranks[p->least].part, &o);
    return pl_add(b.kv, b.state);
}

/* Cells within `room` bytes, by what the measured ones took. */
static uint64_t cells_in(const struct pl_measured *m, uint64_t room) {
    unsigned __int128 cells = (unsigned __int128)room * m->cells / pl_max(m->kv, 1);
    return (uint64_t)(cells > UINT64_MAX / 2 ? UINT64_MAX / 2 : cells) / PAD * PAD;
}

void pl_plan_measured(struct pl_plan *p, const struct pl_measured *m) {
    p->measured = *m;
    p->has_measured = true;
    if (m->why_not != NULL || m->cells == 0) return;
    uint64_t real = pl_add(m->kv, m->state), planned = formula_kv(p, m->cells, m->parallel);
    uint64_t off = pl_max(real, planned) - pl_min(real, planned);
    p->measured_kv = planned;
    p->measured_off =
        off > real ? PL_SHARES : (uint32_t)((unsigned __int128)off * PL_SHARES / pl_max(real, 1));
    if (p->measured_off <= TRUSTED) return;
    p->provisional = true;
    uint64_t fixed = pl_add(pl_add(m->compute, m->output), m->state);
    for (int i = 0; i < PL_PART_KV; i++)
        if (i != PL_PART_ACTIVATION) fixed = pl_add(fixed, p->terms[i].bytes);
    uint64_t fit = cells_in(m, pl_less(p->ask.gpu.total_bytes, fixed));
    if (p->ctx > fit) p->ctx = fit;
    if (p->ctx >= p->max_len) return;
    p->fits = false;
    p->binds = "length";
    p->longest = pl_min(p->longest, p->ctx);
}
