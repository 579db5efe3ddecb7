/* keeper_main.c - becomes the keeper. Started by `plimsoll serve`, never by hand; see keeper/options.h for
 * the words. Exit statuses: what main said with BYE (0 after an orderly stop), 70 crash loop, 2 usage, 5
 * system. */
#include <stdio.h>

#include "keeper/keeper.h"

int main(int argc, char **argv) {
    static struct pl_keeper_options options;
    struct pl_err err = { .code = PL_OK };
    int status;
    if (pl_keeper_read_options(argc, argv, &options, &err)) {
        status = pl_keeper_run(&options, &err);
    } else {
        status = pl_err_exit_status(err.code);
    }
    if (err.code != PL_OK) fprintf(stderr, "plimsoll keeper: %s\n", err.msg);
    return status;
}
