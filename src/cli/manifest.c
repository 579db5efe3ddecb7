/* manifest.c - `plimsoll manifest`: --check judges files (manifest_check.c), else they are written
 * (manifest_write.c). */
#include "cli/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

bool pl_manifest_read(const char *path, struct pl_buf *out, struct pl_err *err) {
    char piece[16384];
    bool own = strcmp(path, "-") == 0;
    PL_AUTO_FILE FILE *f = own ? NULL : fopen(path, "re");
    FILE *in = own ? stdin : f;
    if (in == NULL) return PL_FAIL_SYS(err, errno, "open %s", path);
    for (size_t n; (n = fread(piece, 1, sizeof piece, in)) > 0;)
        if (!pl_buf_add(out, piece, n)) return PL_FAIL(err, PL_E_TOO_LARGE, "%s: larger than 8 MiB", path);
    return ferror(in) == 0 || PL_FAIL_SYS(err, errno, "read %s", path);
}

int pl_verb_manifest(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    if (pl_args_has(&cli->args, "check")) return pl_manifest_check(cli);
    if (cli->args.words.count == 0) return pl_manifest_write(cli);
    PL_FAIL(&err, PL_E_USAGE, "manifest takes no '%.60s'", cli->args.words.at[0]);
    pl_err_hint(&err, "--check FILE judges one; --from FILE says what to write one for");
    return pl_cli_fail(cli, &err);
}
