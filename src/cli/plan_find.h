/* cli/plan_find.h - between plan_find.c (names to paths) and plan_read.c (paths to models). */
#ifndef PL_CLI_PLAN_FIND_H
#define PL_CLI_PLAN_FIND_H
#include "cli/plan_files.h"

enum { PL_PLAN_PATH = 4608 };
bool pl_plan_read_path(struct pl_plan_files *f, const char *path, struct pl_arena *arena, struct pl_err *err);
#endif
