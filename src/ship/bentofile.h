/* ship/bentofile.h - the rules PL029 to PL032 on a bentofile.yaml. The texts of the rules are those of the
 * table of `plimsoll lint` (python/plimsoll/lint/rules.py). Pure: what the service's own file says comes as
 * facts. */
#ifndef PL_SHIP_BENTOFILE_H
#define PL_SHIP_BENTOFILE_H
#include "ship/tree.h"

struct pl_bento_facts {
    bool known;          /* the service's file was found and read */
    bool records_models; /* its class names its models: the bento finds them */
    bool holds_models;   /* it loads any */
    bool device;         /* it uses a GPU */
};
struct pl_bento_finding {
    const char *rule;
    uint32_t line, col;
    char text[160];
};
enum { PL_BENTO_FINDINGS = 256 };

/* In order of their place; at most PL_BENTO_FINDINGS. Returns how many. */
size_t pl_bentofile_check(const struct pl_node *doc, const struct pl_bento_facts *facts,
                          struct pl_bento_finding out[PL_BENTO_FINDINGS]);
#endif
