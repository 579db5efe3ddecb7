#include "cli/manifest.h"
int pl_manifest_write(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    PL_FAIL(&err, PL_E_USAGE, "manifest needs --check FILE|DIR");
    return pl_cli_fail(cli, &err);
}
