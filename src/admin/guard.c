/* guard.c - who may ask the admin port, and who may act.
 *
 * The Unix socket obeys its own user and root. Over TCP, reading is open to this machine when the Host is one
 * of ours (a page in a browser here must not read along, see door/host.h), elsewhere it needs the token;
 * health and metrics are on the data port too and need nothing. Acting over TCP needs the token, a Host of
 * ours and `x-plimsoll-admin: 1`, which no page of another origin can send without being asked first, and we
 * never say yes. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "admin/inside.h"
#include "door/host.h"

void pl_admin_set_token(struct pl_admin *a, const struct pl_key_digest *token) {
    a->has_token = token != NULL;
    if (token != NULL) a->token = *token;
}

static bool host_is_known(const struct pl_admin *a, const struct pl_http_head *h) {
    const struct pl_http_header *f = pl_http_find(h, PL_HF_HOST);
    char machine[256] = "";
    if (gethostname(machine, sizeof machine - 1) != 0) machine[0] = '\0';
    return f != NULL &&
           pl_host_is_known(pl_http_at(h, f->value), f->value_len, a->o.app->config->admin.host, machine);
}

enum token { TOKEN_NONE, TOKEN_WRONG, TOKEN_RIGHT };

static enum token shown_token(const struct pl_admin *a, const struct pl_http_head *h) {
    static const char bearer[] = "bearer ";
    const struct pl_http_header *f = pl_http_find(h, PL_HF_AUTHORIZATION);
    if (f == NULL) return TOKEN_NONE;
    if (!a->has_token || f->value_len < sizeof bearer - 1 ||
        strncasecmp(pl_http_at(h, f->value), bearer, sizeof bearer - 1) != 0)
        return TOKEN_WRONG;
    struct pl_key_digest d =
        pl_key_hash(pl_http_at(h, f->value) + sizeof bearer - 1, f->value_len - (sizeof bearer - 1));
    return pl_key_same(&d, &a->token) ? TOKEN_RIGHT : TOKEN_WRONG;
}

static bool refuse(struct pl_admin *a, struct pl_conn *c, uint16_t status, const char *what,
                   const char *message, const char *hint) {
    char peer[PL_PEER_TEXT];
    int64_t left_out = pl_log_sample(&a->refused, pl_timers_now(a->o.timers));
    if (left_out >= 0)
        pl_log(a->o.app->log, PL_WARN, "operator.action", F_STR("verb", "refused"), F_STR("reason", what),
               F_STR("address", pl_conn_peer(c, peer)), F_INT("suppressed", left_out));
    pl_admin_reply_error(c, status, status == 401 ? "unauthorized" : "forbidden", message, hint);
    return false;
}

static const char no_token_set[] = "admin_token: file:PATH in the configuration opens it";

bool pl_admin_may_read(struct pl_admin *a, struct pl_conn *c) {
    const struct pl_http_head *h = pl_conn_head(c);
    uid_t uid;
    if (pl_conn_peer_uid(c, &uid)) return true; /* mode 0600 let it come */
    enum token t = shown_token(a, h);
    if (t == TOKEN_RIGHT) return true;
    if (t == TOKEN_WRONG) return refuse(a, c, 401, "token", "this token is not the one of admin_token", NULL);
    if (!pl_conn_is_loopback(c))
        return refuse(a, c, 401, "token", "reading from elsewhere needs Authorization: Bearer TOKEN",
                      a->has_token ? "plimsoll --token-file FILE" : no_token_set);
    if (!host_is_known(a, h))
        return refuse(a, c, 403, "host", "this Host is none of ours",
                      "use the address, localhost, or the name of this machine");
    return true;
}

static bool has_custom_header(const struct pl_http_head *h) {
    const struct pl_http_header *f = pl_http_find_named(h, "x-plimsoll-admin");
    return f != NULL && f->value_len == 1 && pl_http_at(h, f->value)[0] == '1';
}

bool pl_admin_may_act(struct pl_admin *a, struct pl_conn *c, struct pl_actor *who) {
    const struct pl_http_head *h = pl_conn_head(c);
    *who = (struct pl_actor){ .uid = 0 };
    who->local = pl_conn_peer_uid(c, &who->uid);
    if (who->local) {
        if (who->uid == geteuid() || who->uid == 0) return true;
        return refuse(a, c, 403, "uid", "this socket obeys its own user and root", NULL);
    }
    if (!a->has_token)
        return refuse(a, c, 403, "token", "acting is allowed on run_dir/admin.sock only, or with admin_token",
                      "plimsoll finds the socket by itself; or --admin unix:RUN_DIR/admin.sock");
    if (!host_is_known(a, h))
        return refuse(a, c, 403, "host", "this Host is none of ours",
                      "use the address, localhost, or the name of this machine");
    if (!has_custom_header(h))
        return refuse(a, c, 403, "header", "acting over TCP needs the header x-plimsoll-admin: 1", NULL);
    if (shown_token(a, h) != TOKEN_RIGHT)
        return refuse(a, c, 401, "token",
                      "acting over TCP needs Authorization: Bearer TOKEN, the one of admin_token",
                      "plimsoll --token-file FILE");
    return true;
}
