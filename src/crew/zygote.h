/* crew/zygote.h - a zygote for each Python service: a process that has imported what its workers import, and
 * from which the keeper has them forked (base/wire.h, python/plimsoll/zygote.py).
 *
 * It is started when the service has settled, out of a record of imports that a worker has made after its
 * warm-up; kept in state_dir/zygote/FAMILY.json, where FAMILY is what all workers of one zygote have in
 * common. Whatever is wrong with it costs an exec: a start never waits for a zygote. One that refuses is not
 * started again before a later worker has made a new record, and at the third time not in this life.
 */
#ifndef PL_CREW_ZYGOTE_H
#define PL_CREW_ZYGOTE_H
#include "crew/more.h"

void pl_zygote_init(const struct pl_service *s); /* closed label sets */
bool pl_zygote_is(const struct pl_wire_item *item);
void pl_zygote_adopt(struct pl_crew *c, const struct pl_wire_item *item, int page_fd,
                     int ring_fd);                                       /* takes both */
bool pl_zygote_news(struct pl_crew *c, const struct pl_wire_message *m); /* false: not about a zygote */
void pl_zygote_tick(struct pl_crew *c, uint64_t now);
/* The generation that is to fork `w`, a member of `family`; 0: by exec. */
uint64_t pl_zygote_for(const struct pl_worker *w, uint64_t family);
/* How it came to be, enum pl_spawn_way: counted. */
void pl_zygote_counted(const struct pl_worker *w);
/* A worker that it forked started over by exec, or did not become ready. */
void pl_zygote_unfit(struct pl_worker *w, const char *reason);
/* Host memory of the zygote and its standby, as the watch process has seen it. False: `pid` is no zygote's.
 */
bool pl_zygote_seen(struct pl_crew *c, uint32_t pid, uint64_t pss);
const char *pl_way_name(uint32_t way); /* "exec", "standby", "fork" */
#endif
