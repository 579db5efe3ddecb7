/* gateway/quarantine.c - requests that have killed workers twice are kept away from them (admit/poison.h).
 * Only what was kept whole has a fingerprint: a stream's body is gone when its worker dies. */
#include <stdio.h>
#include <string.h>

#include "gateway/inside.h"

static uint64_t fingerprint(const struct pl_request *r) {
    const struct pl_http_head *h = pl_conn_head(r->conn);
    return pl_poison_fingerprint(h->method_id, pl_http_at(h, h->target), h->target_len,
                                 r->body.data != NULL ? r->body.data : "", r->body.len);
}

bool pl_quarantined(struct pl_request *r) {
    struct pl_poison *p = &r->gate->poison;
    if (p->count == 0 || !r->kept_whole) return false;
    uint64_t print = r->print = fingerprint(r), left = pl_poison_left_ms(p, print, pl_gateway_now(r->g));
    if (left == 0) return false;
    char text[160];
    snprintf(text, sizeof text,
             "this request was in a handler at %u deaths of a worker; it is not tried again for %llu s",
             pl_poison_deaths(p, print), (unsigned long long)(left + 999) / 1000);
    pl_refuse(r, PL_REASON_QUARANTINED, 0, text);
    return true;
}

void pl_quarantine_answered(const struct pl_request *r) {
    if (r->print != 0) pl_poison_answered(&r->gate->poison, r->print);
}

void pl_quarantine_death(struct pl_request *r, const char *cause) {
    struct pl_poison *p = &r->gate->poison;
    /* A SIGTERM that somebody sent is not the request's doing. */
    if (r->conn == NULL || !r->kept_whole || strcmp(cause, "terminated") == 0) return;
    uint64_t print = fingerprint(r);
    if (!pl_poison_death(p, print, r->berth->worker->generation, pl_gateway_now(r->g))) return;
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)print);
    pl_log(r->g->o.app->log, PL_WARN, "request.quarantined", F_STR("service", r->gate->service->config->id),
           F_STR("fingerprint", text), F_INT("deaths", pl_poison_deaths(p, print)),
           F_INT("until_ms", PL_POISON_WINDOW_MS));
}
