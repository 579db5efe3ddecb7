/* Which Host headers are ours, and which are somebody's name for our address. */
#include <string.h>

#include "door/host.h"
#include "unit.h"

static bool known(const char *host) { return pl_host_is_known(host, strlen(host), "admin.example", "box-7"); }

TEST(addresses_localhost_and_our_own_names_are_known) {
    static const char *const all[] = { "127.0.0.1",  "127.0.0.1:3001", "10.1.2.3",      "[::1]",
                                       "[::1]:3001", "[fd00::7]:1",    "localhost",     "LocalHost:3001",
                                       "box-7",      "Box-7:3001",     "admin.example", "ADMIN.example:1" };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!known(all[i])) fail_msg("%s", all[i]);
}

TEST(any_other_name_is_not) {
    static const char *const all[] = { "",
                                       "evil.example",
                                       "127.0.0.1.evil.example",
                                       "localhost.",
                                       "localhost.evil.example",
                                       "evil.localhost",
                                       "0x7f.1",
                                       "127.1",
                                       "2130706433",
                                       "127.0.0.1:",
                                       "127.0.0.1:x",
                                       "127.0.0.1:3001:1",
                                       "::1",
                                       "[::1",
                                       "[::1]x",
                                       "[::1]:",
                                       "[evil]",
                                       "box-7.evil",
                                       "user@127.0.0.1",
                                       " 127.0.0.1",
                                       "127.0.0.1 ",
                                       "plimsoll" };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (known(all[i])) fail_msg("%s", all[i]);
    char longest[300];
    memset(longest, 'a', sizeof longest);
    assert_false(pl_host_is_known(longest, sizeof longest, NULL, NULL));
    assert_false(pl_host_is_known("", 0, "", ""));
    assert_false(pl_host_is_known("127.0.0.1\0x", 11, NULL, NULL));
}

RUN(cmocka_unit_test(addresses_localhost_and_our_own_names_are_known),
    cmocka_unit_test(any_other_name_is_not))
