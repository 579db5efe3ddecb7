/* cli/door.h - the door as it is in force: made from papers (door/papers.h), put before gateway and admin
 * port, kept with the keeper, watched for changed files, and put back when a reload is rolled back. */
#ifndef PL_CLI_DOOR_H
#define PL_CLI_DOOR_H
#include "admin/admin.h"
#include "cli/papers.h"
#include "crew/app.h"
#include "door/keys.h"
#include "gateway/gateway.h"

/* What papers say, ready for use. All owned; zero it before the first use. */
struct pl_door {
    struct pl_papers papers;
    struct pl_keyring *keys; /* NULL: none are asked for */
    bool has_token;
    struct pl_key_digest token;
    struct pl_tls *tls; /* NULL: none */
};
/* Takes the papers, also when it fails. Reads no file. Never on the loop: there may be certificates in them.
 */
bool pl_door_open(const struct pl_config *c, struct pl_papers *papers, struct pl_door *out,
                  struct pl_err *err);
/* Reads the files, too. */
bool pl_door_collect(struct pl_config *c, struct pl_door *out, struct pl_err *err);
void pl_door_free(struct pl_door *d);
/* As one text for the keeper: a memfd, owned; -1 and errno. */
int pl_door_memfd(const struct pl_papers *p);

/* --- in main */
struct pl_door_options {
    struct pl_app *app;
    struct pl_gateway *gateway;
    struct pl_admin *admin;
    void (*hold)(const char *name, int fd); /* borrowed */
};
/* `held`: what the keeper has of the one before, -1: nothing; takes it. */
bool pl_door_start(const struct pl_door_options *o, int held, struct pl_err *err);
/* In force from now on; takes what is in `d`. */
void pl_door_put(struct pl_door *d);
/* The one before that, again. */
void pl_door_back(void);
/* The files are looked at every two seconds; a changed one is taken by itself, without a reload, once it
 * holds together with the others. */
void pl_door_watch(void);
/* Nothing is put in force while another main is about to read what is; what has changed is taken afterwards.
 */
void pl_door_freeze(bool yes);
#endif
