/* The command line as data. */
#include "cli/args.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

static const struct pl_flag own_flags[] = {
    { "follow", 'f', PL_FLAG_SWITCH, NULL, "go on" },
    { "tail", 'n', PL_FLAG_VALUE, "N", "last lines" },
    { "watch", 'w', PL_FLAG_OPTIONAL, "SEC", "again" },
    { "previous", 'p', PL_FLAG_SWITCH, NULL, "of the last" },
    { "no-wait", 0, PL_FLAG_SWITCH, NULL, "do not wait" },
};
static const struct pl_verb_args logs = {
    .verb = "logs", .flags = own_flags, .flag_count = 5, .server = true, .max_words = 1
};
static const struct pl_verb_args serve = { .verb = "serve", .keys = true, .max_words = 1 };

static struct pl_arena arena;
static struct pl_args args;
static struct pl_err err;

static char line_text[512], *argv[32];
static int argc;

static void split(const char *line) {
    argc = 0;
    snprintf(line_text, sizeof line_text, "%s", line);
    for (char *s = strtok(line_text, " "); s != NULL; s = strtok(NULL, " ")) argv[argc++] = s;
}

static bool parse(const struct pl_verb_args *verb, const char *line) {
    pl_arena_free(&arena);
    pl_arena_init(&arena, 0);
    split(line);
    int at = pl_args_find_verb(argc, argv);
    if (verb != NULL) assert_string_equal(argv[at], verb->verb);
    return pl_args_parse(argc, argv, at, verb, &arena, &args, &err);
}
static void good(const struct pl_verb_args *verb, const char *line) {
    if (!parse(verb, line)) fail_msg("%s: %s", line, err.msg);
}
static void bad(const struct pl_verb_args *verb, const char *line, const char *message, const char *hint) {
    if (parse(verb, line)) fail_msg("accepted: %s", line);
    assert_string_equal(err.msg, message);
    assert_string_equal(err.hint, hint);
    assert_int_equal(pl_err_exit_status(err.code), 2);
}
static void has_key(size_t i, const char *path, const char *text, const char *place) {
    assert_true(i < args.key_count);
    assert_string_equal(args.keys[i].path, path);
    assert_string_equal(args.keys[i].text, text);
    assert_string_equal(args.keys[i].place, place);
}

TEST(shared_flags_stand_before_or_behind_the_verb) {
    static const char *const same[] = { "p --json -q -v -c f.yaml --color never logs",
                                        "p logs --json -qv -cf.yaml --color=never",
                                        "p --config f.yaml --color never logs --quiet --verbose --json",
                                        "p --json logs --config=f.yaml -vq --color=never" };
    for (size_t i = 0; i < 4; i++) {
        good(&logs, same[i]);
        assert_true(args.json && args.quiet && !args.help && !args.version);
        assert_int_equal(args.verbose, 1);
        assert_string_equal(args.config, "f.yaml");
        assert_int_equal(args.color, PL_COLOR_NEVER);
        assert_int_equal(args.words.count, 0);
    }
    good(&logs, "p logs -vvv");
    assert_int_equal(args.verbose, 3);
    assert_int_equal(args.wait_ms, -1);
    assert_null(args.config);
    assert_null(args.admin);
}

TEST(without_a_verb_only_shared_flags_are_known) {
    good(NULL, "p --help");
    assert_true(args.help);
    good(NULL, "p -V");
    assert_true(args.version);
    good(NULL, "p");
    bad(NULL, "p --halp", "unknown flag --halp", "did you mean --help?");
    bad(NULL, "p -x", "unknown flag -x", "");
}

TEST(the_verb_is_the_first_word_that_is_no_value) {
    static const struct {
        const char *line;
        int at;
    } all[] = { { "p --config serve --admin x status serve", 5 },
                { "p -c x --wait=3s --color never top", 6 },
                { "p -- serve", 0 },
                { "p --json", 0 },
                { "p", 0 },
                { "p -cx --bogus status", 3 } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        split(all[i].line);
        assert_int_equal(pl_args_find_verb(argc, argv), all[i].at);
    }
}

TEST(flags_of_a_verb_that_talks_to_a_server) {
    good(&logs, "p logs chat --admin 127.0.0.1:3001 --token-file t --wait 30s");
    assert_string_equal(args.admin, "127.0.0.1:3001");
    assert_string_equal(args.token_file, "t");
    assert_int_equal(args.wait_ms, 30000);
    assert_int_equal(args.words.count, 1);
    assert_string_equal(args.words.at[0], "chat");
    good(&logs, "p logs --token_file t");
    assert_string_equal(args.token_file, "t");
    bad(&logs, "p logs --wait 30", "--wait: '30' is a duration without a unit",
        "write 30s if seconds are meant");
    bad(&logs, "p logs --color pink", "--color: 'pink' is none of auto, always, never", "");
    bad(&serve, "p serve --wait 3s", "unknown flag --wait", "");
}

TEST(own_flags_are_found_by_name_and_letter) {
    good(&logs, "p logs -fp --tail 5 --tail=6 -n7 --no_wait");
    assert_true(pl_args_has(&args, "follow"));
    assert_true(pl_args_has(&args, "previous"));
    assert_true(pl_args_has(&args, "no-wait"));
    assert_false(pl_args_has(&args, "watch"));
    assert_string_equal(pl_args_value(&args, "tail"), "7"); /* the last one */
    assert_string_equal(pl_args_value(&args, "follow"), "");
    assert_null(pl_args_value(&args, "watch"));
    assert_int_equal(args.flag_count, 6);
}

TEST(an_optional_value_is_taken_when_it_is_a_number) {
    good(&logs, "p logs -w 2 chat");
    assert_string_equal(pl_args_value(&args, "watch"), "2");
    assert_string_equal(args.words.at[0], "chat");
    good(&logs, "p logs -w chat");
    assert_true(pl_args_has(&args, "watch"));
    assert_null(pl_args_value(&args, "watch"));
    good(&logs, "p logs --watch=abc");
    assert_string_equal(pl_args_value(&args, "watch"), "abc");
    good(&logs, "p logs -w5");
    assert_string_equal(pl_args_value(&args, "watch"), "5");
    good(&logs, "p logs --watch");
    assert_true(pl_args_has(&args, "watch"));
}

TEST(a_wrong_flag_is_a_usage_error_with_its_nearest_neighbour) {
    bad(&logs, "p logs --folow", "unknown flag --folow", "did you mean --follow?");
    bad(&logs, "p logs --jsn", "unknown flag --jsn", "did you mean --json?");
    bad(&logs, "p logs --tokenfile x", "unknown flag --tokenfile", "did you mean --token-file?");
    bad(&logs, "p logs --workers 2", "unknown flag --workers", "");
    bad(&logs, "p logs -follow", "unknown flag -o", "long flags have two dashes: --follow");
    bad(&logs, "p logs --tail", "--tail needs a value: N", "");
    bad(&logs, "p logs --tail --json", "--tail needs a value: N", "");
    bad(&logs, "p logs -n", "-n needs a value: N", "");
    bad(&logs, "p logs --json=1", "--json takes no value", "");
    bad(&logs, "p logs a b", "logs: 'b' is one argument too many", "see plimsoll logs --help");
    struct pl_verb_args two = logs;
    two.min_words = 2;
    bad(&two, "p logs a", "logs: an argument is missing", "see plimsoll logs --help");
    good(&two, "p logs --help"); /* help is never refused */
}

TEST(a_count_is_a_whole_number_within_its_limits) {
    static const struct {
        const char *line;
        uint64_t count;
    } fine[] = { { "p logs --tail 1", 1 },
                 { "p logs --tail=2K", 2000 },
                 { "p logs --tail 3M", 3000000 },
                 { "p logs", 77 } };
    static const char *const wrong[] = { "p logs --tail 0",
                                         "p logs --tail -1",
                                         "p logs --tail=",
                                         "p logs --tail two",
                                         "p logs --tail 2x",
                                         "p logs --tail 1.5",
                                         "p logs --tail 5M",
                                         "p logs --tail 99999999999999999999",
                                         "p logs --tail 18446744073709551615K" };
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        uint64_t n = 77;
        good(&logs, fine[i].line);
        assert_true(pl_args_count(&args, "tail", 1, 4000000, &n, &err));
        assert_int_equal(n, fine[i].count);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint64_t n = 77;
        good(&logs, wrong[i]);
        if (pl_args_count(&args, "tail", 1, 4000000, &n, &err)) fail_msg("accepted: %s", wrong[i]);
        assert_int_equal(n, 77);
        assert_non_null(strstr(err.msg, "is no number from 1 to 4000000"));
        assert_int_equal(pl_err_exit_status(err.code), 2);
    }
}

TEST(two_dashes_end_the_flags) {
    good(&serve, "p serve --workers 2 -- vllm serve --port 8000");
    assert_true(args.has_rest);
    assert_int_equal(args.rest.count, 4);
    assert_string_equal(args.rest.at[2], "--port");
    assert_int_equal(args.words.count, 0);
    has_key(0, "workers", "2", "--workers");
    good(&serve, "p serve --");
    assert_true(args.has_rest);
    assert_int_equal(args.rest.count, 0);
    good(&serve, "p serve -");
    assert_string_equal(args.words.at[0], "-");
}

TEST(serve_takes_the_names_bentoml_users_know) {
    good(&serve,
         "p serve s:C -p 4000 --host ::1 --timeout 30 --max-concurrency 8 --workers 2 --gpus 0,1 --name x "
         "--python /py --mode observe --check --working-dir /w --reload");
    assert_string_equal(args.words.at[0], "s:C");
    assert_string_equal(args.name, "x");
    assert_true(args.check);
    has_key(0, "http.port", "4000", "-p");
    has_key(1, "http.host", "::1", "--host");
    has_key(2, "traffic.timeout", "30s", "--timeout");
    has_key(3, "traffic.max_concurrency", "8", "--max-concurrency");
    has_key(4, "workers", "2", "--workers");
    has_key(5, "gpus", "0,1", "--gpus");
    has_key(6, "python", "/py", "--python");
    has_key(7, "mode", "observe", "--mode");
    has_key(8, "working-dir", "/w", "--working-dir");
    has_key(9, "watch", "on", "--reload");
    good(&serve, "p serve --timeout 1500ms --port=1 -p2");
    has_key(0, "traffic.timeout", "1500ms", "--timeout");
    has_key(1, "http.port", "1", "--port");
    has_key(2, "http.port", "2", "-p");
}

TEST(serve_takes_every_key_as_a_flag) {
    good(&serve,
         "p serve --services.chat.traffic.queue.max-wait 3s --drain_delay=2s --admin none --listen a:1");
    has_key(0, "services.chat.traffic.queue.max-wait", "3s", "--services.chat.traffic.queue.max-wait");
    has_key(1, "drain_delay", "2s", "--drain_delay");
    has_key(2, "admin", "none", "--admin");
    has_key(3, "listen", "a:1", "--listen");
    assert_null(args.admin);
    bad(&serve, "p serve --traffic.timout 3s", "unknown flag --traffic.timout",
        "did you mean 'traffic.timeout'?");
    bad(&serve, "p serve --wrokers 3", "unknown flag --wrokers", "did you mean 'workers'?");
    bad(&serve, "p serve --prot 3", "unknown flag --prot", "did you mean --port?");
    bad(&serve, "p serve --max_wait 3s", "unknown flag --max_wait", "did you mean 'traffic.queue.max_wait'?");
    bad(&serve, "p serve --drain-delay", "--drain-delay needs a value", "");
}

TEST(flags_are_set_in_the_configuration_with_their_place) {
    struct pl_config *cfg = pl_config_create();
    const char *place;
    good(&serve, "p serve s:Digits --port 0 --timeout 30 --services.digits.threads 2 --max-concurrency none");
    assert_true(pl_config_add_target(cfg, args.words.at[0], args.name, false, &err));
    if (!pl_args_apply(&args, cfg, &err)) fail_msg("%s", err.msg);
    assert_string_equal(cfg->listen.at[0].text, "0.0.0.0:0");
    assert_int_equal(cfg->services[0].traffic_timeout_ms, 30000);
    assert_int_equal(cfg->services[0].threads, 2);
    assert_int_equal(pl_config_origin(cfg, 0, "traffic.timeout", &place), PL_FROM_FLAG);
    assert_string_equal(place, "--timeout");
    good(&serve, "p serve s:Digits --workers 0");
    assert_false(pl_args_apply(&args, cfg, &err));
    assert_string_equal(err.msg, "--workers: workers: '0' is outside 1 to 256");
    assert_int_equal(err.code, PL_E_CONFIG);
    good(&serve, "p serve s:Digits --services.other.workers 1");
    assert_false(pl_args_apply(&args, cfg, &err));
    assert_string_equal(err.msg, "--services.other.workers: no service 'other'");
    assert_int_equal(err.code, PL_E_USAGE);
    pl_config_destroy(cfg);
}

TEST(every_flag_in_the_help_is_a_flag) {
    static const struct pl_flag *(*const tables[])(size_t *) = { pl_args_shared_flags, pl_args_serve_flags,
                                                                 pl_args_server_flags };
    for (size_t t = 0; t < 3; t++) {
        size_t count;
        const struct pl_flag *flags = tables[t](&count);
        const struct pl_verb_args *verb = t == 1 ? &serve : &logs;
        for (size_t i = 0; i < count; i++) {
            char line[100];
            const char *value = strcmp(flags[i].name, "color") == 0  ? " auto"
                                : strcmp(flags[i].name, "wait") == 0 ? " 1s"
                                : flags[i].kind == PL_FLAG_VALUE     ? " 1"
                                                                     : "";
            snprintf(line, sizeof line, "p %s --%s%s", verb->verb, flags[i].name, value);
            good(verb, line);
            assert_true(strlen(flags[i].help) > 5);
            assert_true((flags[i].value != NULL) == (flags[i].kind != PL_FLAG_SWITCH));
        }
    }
}

static int free_arena(void **state) {
    (void)state;
    pl_arena_free(&arena);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_flags_stand_before_or_behind_the_verb),
        cmocka_unit_test(without_a_verb_only_shared_flags_are_known),
        cmocka_unit_test(the_verb_is_the_first_word_that_is_no_value),
        cmocka_unit_test(flags_of_a_verb_that_talks_to_a_server),
        cmocka_unit_test(own_flags_are_found_by_name_and_letter),
        cmocka_unit_test(an_optional_value_is_taken_when_it_is_a_number),
        cmocka_unit_test(a_wrong_flag_is_a_usage_error_with_its_nearest_neighbour),
        cmocka_unit_test(a_count_is_a_whole_number_within_its_limits),
        cmocka_unit_test(two_dashes_end_the_flags),
        cmocka_unit_test(serve_takes_the_names_bentoml_users_know),
        cmocka_unit_test(serve_takes_every_key_as_a_flag),
        cmocka_unit_test(flags_are_set_in_the_configuration_with_their_place),
        cmocka_unit_test(every_flag_in_the_help_is_a_flag),
    };
    return cmocka_run_group_tests(tests, NULL, free_arena);
}
