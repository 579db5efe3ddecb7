#include <string.h>

#include "gateway/route.h"
#include "unit.h"

static struct pl_text text(const char *s) { return (struct pl_text){ s, strlen(s) }; }

TEST(the_path_ends_at_the_query) {
    static const struct {
        const char *target, *path;
    } table[] = { { "/", "/" }, { "/a/b?x=1?y", "/a/b" }, { "/a?", "/a" }, { "?x", "" }, { "*", "*" } };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct pl_text p = pl_route_path(table[i].target, strlen(table[i].target));
        assert_int_equal(p.len, strlen(table[i].path));
        assert_memory_equal(p.at, table[i].path, p.len);
    }
}

TEST(a_prefix_holds_at_a_slash_only) {
    static const struct {
        const char *path, *prefix;
        bool below;
    } table[] = { { "/a", "/", true },   { "/", "/", true },     { "/a", "/a", true },
                  { "/a/", "/a", true }, { "/a/b", "/a", true }, { "/ab", "/a", false },
                  { "/", "/a", false },  { "", "/a", false },    { "/a/bc", "/a/b", false },
                  { "/A", "/a", false }, { "/x/a", "/a", false } };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        assert_int_equal(pl_route_below(text(table[i].path), table[i].prefix), table[i].below);
}

TEST(host_goes_before_path_and_the_longer_path_wins) {
    static const struct pl_route_rule rules[] = {
        { "/", NULL },
        { "/chat", NULL },
        { "/chat/v2", "" },
        { "/", "img.example.com" },
        { "/chat", "IMG2.example.com" },
    };
    static const struct {
        const char *path, *host;
        int rule;
    } table[] = {
        { "/", "any", 0 },
        { "/chat", "any", 1 },
        { "/chat/v2/x", "any:3000", 2 },
        { "/chatter", "any", 0 },
        { "/chat", "img.example.com", 3 },
        { "/chat", "IMG.Example.COM:8080", 3 },
        { "/chat/v2", "img2.example.com", 4 },
        { "/other", "img2.example.com", 0 },
        { "/other", "[::1]:3000", 0 },
        { "/other", "", 0 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        assert_int_equal(pl_route_pick(rules, 5, text(table[i].path), text(table[i].host)), table[i].rule);
    assert_int_equal(pl_route_pick(rules + 1, 2, text("/none"), text("any")), -1);
    assert_int_equal(pl_route_pick(rules, 0, text("/"), text("any")), -1);
}

TEST(our_own_routes_are_a_closed_set) {
    static const char *const own[] = { "/livez", "/livez/chat", "/readyz", "/readyz/chat", "/metrics" };
    static const char *const others[] = { "/",          "/livez/",  "/livezz",    "/readyz/a/b",
                                          "/metrics/x", "/healthz", "/docs.json", "/live",
                                          "",           "/Metrics", "/readyz/",   "/metrics/",
                                          "/livez//" };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) assert_true(pl_route_is_own(text(own[i])));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(pl_route_is_own(text(others[i])));
}

TEST(routes_of_other_servers_are_a_closed_set_too) {
    static const struct {
        const char *path;
        enum pl_route_compat want;
    } rows[] = { { "/health", PL_COMPAT_VLLM },
                 { "/ping", PL_COMPAT_VLLM },
                 { "/load", PL_COMPAT_VLLM },
                 { "/v1/models", PL_COMPAT_VLLM_MODELS },
                 { "/v1/models/", PL_COMPAT_NONE },
                 { "/v1/models/x", PL_COMPAT_NONE },
                 { "/v2/health/live", PL_COMPAT_KSERVE },
                 { "/v2/health/ready", PL_COMPAT_KSERVE },
                 { "/v2/health", PL_COMPAT_NONE },
                 { "/v2/models/m/ready", PL_COMPAT_KSERVE_MODEL },
                 { "/v2/models/org/m/ready", PL_COMPAT_KSERVE_MODEL },
                 { "/v2/models//ready", PL_COMPAT_NONE },
                 { "/v2/models/ready", PL_COMPAT_NONE },
                 { "/v2/models/m/infer", PL_COMPAT_NONE },
                 { "/healthz", PL_COMPAT_NONE },
                 { "", PL_COMPAT_NONE } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (pl_route_compat(text(rows[i].path)) != rows[i].want) fail_msg("%s", rows[i].path);
}

TEST(a_traceparent_gives_two_ids_or_none) {
    struct pl_text trace, span;
    const char *good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert_true(pl_route_trace(text(good), &trace, &span));
    assert_int_equal(trace.len, 32);
    assert_memory_equal(trace.at, "0af7651916cd43dd8448eb211c80319c", 32);
    assert_memory_equal(span.at, "b7ad6b7169203331", 16);
    assert_false(pl_route_trace(text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033"), &trace, &span));
    assert_false(
        pl_route_trace(text("00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), &trace, &span));
    assert_false(
        pl_route_trace(text("00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), &trace, &span));
    assert_false(pl_route_trace(text(""), &trace, &span));
}

RUN(cmocka_unit_test(the_path_ends_at_the_query), cmocka_unit_test(a_prefix_holds_at_a_slash_only),
    cmocka_unit_test(host_goes_before_path_and_the_longer_path_wins),
    cmocka_unit_test(routes_of_other_servers_are_a_closed_set_too),
    cmocka_unit_test(our_own_routes_are_a_closed_set), cmocka_unit_test(a_traceparent_gives_two_ids_or_none))
