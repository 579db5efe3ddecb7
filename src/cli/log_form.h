/* cli/log_form.h - the form of our own events: main's, and the keeper's few lines beside them. */
#ifndef PL_CLI_LOG_FORM_H
#define PL_CLI_LOG_FORM_H
#include "base/log.h"
#include "config/config.h"

/* `terminal`: stderr is one. */
static inline enum pl_log_format pl_log_form(const struct pl_config *c, bool terminal) {
    if (c->logs_format == PL_CFG_LOGS_FORMAT_JSON) return PL_LOG_JSON;
    if (c->logs_format == PL_CFG_LOGS_FORMAT_LOGFMT) return PL_LOG_LOGFMT;
    return terminal ? PL_LOG_TERMINAL : PL_LOG_JSON;
}
#endif
