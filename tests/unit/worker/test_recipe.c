#include <stdio.h>
#include <string.h>

#include "unit.h"
#include "worker/recipe.h"

struct kitchen {
    struct pl_config *config;
    struct pl_arena arena;
    struct pl_recipe_facts facts;
    struct pl_recipe recipe;
    struct pl_err err;
};

static int set_up(void **state) {
    static struct kitchen k;
    k = (struct kitchen){ .config = pl_config_create(),
                          .facts = { .python = "/srv/venv/bin/python",
                                     .python_path = "/usr/share/plimsoll/python-1",
                                     .folder = "/srv/app",
                                     .ident = "service:Digits",
                                     .prom_dir = "/run/plimsoll/default/prom/1-1",
                                     .worker = 2,
                                     .keep_alive_s = 75,
                                     .graceful_stop_s = 10 } };
    pl_arena_init(&k.arena, (size_t)1 << 20);
    *state = &k;
    return pl_config_add_target(k.config, "service:Digits", "digits", false, &k.err) ? 0 : -1;
}

static int tear_down(void **state) {
    struct kitchen *k = *state;
    pl_config_destroy(k->config);
    pl_arena_free(&k->arena);
    return 0;
}

static void set(struct kitchen *k, size_t service, const char *path, const char *text) {
    if (!pl_config_set(k->config, service, path, text, PL_FROM_FLAG, "test", &k->err))
        fail_msg("%s", k->err.msg);
}

static bool try(struct kitchen *k, struct pl_arena *a, const char *const *inherited) {
    char words[16][64], *environ_in[17] = { 0 };
    for (size_t i = 0; inherited[i] != NULL; i++) {
        snprintf(words[i], sizeof words[i], "%s", inherited[i]);
        environ_in[i] = words[i];
    }
    return pl_recipe_python(k->config, &k->config->services[0], &k->facts, environ_in, a, &k->recipe,
                            &k->err);
}

/* `...` are the inherited variables. */
#define INHERITED(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define COOK(k, ...)   cook(k, INHERITED(__VA_ARGS__))
static void cook(struct kitchen *k, const char *const *inherited) {
    if (!try(k, &k->arena, inherited)) fail_msg("%s", k->err.msg);
}

/* The value of a variable that is there exactly once, or NULL. */
static const char *get(const struct kitchen *k, const char *name) {
    const char *value = NULL;
    size_t n = strlen(name);
    for (uint32_t i = 0; i < k->recipe.envc; i++) {
        const char *word = k->recipe.envp[i];
        if (strncmp(word, name, n) != 0 || word[n] != '=') continue;
        assert_null(value);
        value = word + n + 1;
    }
    assert_null(k->recipe.envp[k->recipe.envc]);
    return value;
}

static void assert_variable(const struct kitchen *k, const char *name, const char *want) {
    const char *value = get(k, name);
    if (want == NULL ? value != NULL : value == NULL || strcmp(value, want) != 0)
        fail_msg("%s=%s", name, value != NULL ? value : "(not set)");
}

static void assert_argv(const struct kitchen *k, const char *const *want) {
    uint32_t i = 0;
    for (; want[i] != NULL; i++) assert_string_equal(k->recipe.argv[i], want[i]);
    assert_null(k->recipe.argv[i]);
    assert_int_equal(k->recipe.argc, i);
}

#define KITCHEN(name) static void name(struct kitchen *k)

KITCHEN(check_argv) {
    static const char *const plain[] = { "/srv/venv/bin/python",
                                         "-m",
                                         "plimsoll.worker",
                                         "service:Digits",
                                         "--fd",
                                         "3",
                                         "--worker-id",
                                         "2",
                                         "--timeout-keep-alive",
                                         "75",
                                         "--timeout-graceful-shutdown",
                                         "10",
                                         NULL };
    static const char *const all[] = { "/srv/venv/bin/python",
                                       "-m",
                                       "plimsoll.worker",
                                       "service:Digits",
                                       "--fd",
                                       "3",
                                       "--service-name",
                                       "Pre",
                                       "--worker-id",
                                       "2",
                                       "--timeout-keep-alive",
                                       "75",
                                       "--timeout-graceful-shutdown",
                                       "10",
                                       "--args",
                                       "{\"model\":\"a \\\"b\\\"\",\"n\":\"3\"}",
                                       NULL };
    COOK(k, "A=1");
    assert_string_equal(k->recipe.folder, "/srv/app");
    assert_argv(k, plain);
    k->facts.dependency = "Pre";
    set(k, 0, "args", "{\"model\": \"a \\\"b\\\"\", \"n\": \"3\"}");
    COOK(k, "A=1");
    assert_argv(k, all);
}

KITCHEN(check_given) {
    COOK(k, "HOME=/root");
    assert_variable(k, "HOME", "/root");
    assert_variable(k, "PLIMSOLL_PAGE_FD", "4");
    assert_variable(k, "PLIMSOLL_CONTROL_FD", "5");
    assert_variable(k, "PLIMSOLL_WORKER", "2");
    assert_variable(k, "PLIMSOLL_WORKER_NAME", "digits");
    assert_variable(k, "PYTHONPATH", "/usr/share/plimsoll/python-1");
    assert_variable(k, "PROMETHEUS_MULTIPROC_DIR", "/run/plimsoll/default/prom/1-1");
    assert_variable(k, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    assert_variable(k, "BENTOML_DO_NOT_TRACK", "True");
    assert_variable(k, "PYTHONUNBUFFERED", "1");
    assert_variable(k, "CUDA_VISIBLE_DEVICES", NULL);
    assert_variable(k, "TMPDIR", NULL);
    assert_variable(k, "HF_HUB_OFFLINE", NULL); /* auto */
    assert_variable(k, "TRITON_CACHE_DIR", NULL);
    k->facts.jit_dir = "/var/cache/plimsoll/jit/digits";
    COOK(k, "CUDA_CACHE_PATH=/mine");
    assert_variable(k, "TRITON_CACHE_DIR", "/var/cache/plimsoll/jit/digits/triton");
    assert_variable(k, "TORCHINDUCTOR_CACHE_DIR", "/var/cache/plimsoll/jit/digits/inductor");
    assert_variable(k, "CUDA_CACHE_PATH", "/mine");
    assert_variable(k, "VLLM_CACHE_ROOT", NULL);
    k->facts.gpus = "GPU-1,GPU-2";
    k->facts.tmp_dir = "/run/plimsoll/default/tmp/1-1";
    COOK(k, "CUDA_VISIBLE_DEVICES=0", "TMPDIR=/tmp", "PROMETHEUS_MULTIPROC_DIR=/shared");
    assert_variable(k, "CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2");
    assert_variable(k, "TMPDIR", "/run/plimsoll/default/tmp/1-1");
    assert_variable(k, "PROMETHEUS_MULTIPROC_DIR", "/run/plimsoll/default/prom/1-1");
}

KITCHEN(check_set_already) {
    COOK(k, "CUDA_DEVICE_ORDER=FASTEST_FIRST", "BENTOML_DO_NOT_TRACK=False",
         "PYTHONUNBUFFERED=", "CUDA_VISIBLE_DEVICES=1", "TMPDIR=/scratch");
    assert_variable(k, "CUDA_DEVICE_ORDER", "FASTEST_FIRST");
    assert_variable(k, "BENTOML_DO_NOT_TRACK", "False");
    assert_variable(k, "PYTHONUNBUFFERED", "");
    assert_variable(k, "CUDA_VISIBLE_DEVICES", "1");
    assert_variable(k, "TMPDIR", "/scratch");
}

KITCHEN(check_taken_away) {
    COOK(k, "PLIMSOLL_TOKEN_FILE=/t", "PLIMSOLL__SERVICES__DIGITS__WORKERS=2", "PLIMSOLL_WORKER=9",
         "NOTIFY_SOCKET=/n", "LISTEN_FDS=1", "LISTEN_PID=7", "PYTHONSAFEPATH=1", "NOTIFY_SOCKETS=kept",
         "PLIMSOLL_DRYDOCK_SHM=kept", "LISTENER=kept", "no equals sign", "=strange", "LAST=1");
    static const char *const away[] = { "PLIMSOLL_TOKEN_FILE", "PLIMSOLL__SERVICES__DIGITS__WORKERS",
                                        "NOTIFY_SOCKET",       "LISTEN_FDS",
                                        "LISTEN_PID",          "PYTHONSAFEPATH" };
    for (size_t i = 0; i < sizeof away / sizeof away[0]; i++) assert_variable(k, away[i], NULL);
    assert_variable(k, "PLIMSOLL_WORKER", "2");
    assert_variable(k, "NOTIFY_SOCKETS", "kept");
    assert_variable(k, "LISTENER", "kept");
    assert_variable(k, "PLIMSOLL_DRYDOCK_SHM", "kept"); /* the stand-ins in the worker read them */
    assert_variable(k, "LAST", "1");
}

KITCHEN(check_secrets) {
    k->config->admin_token = "env:ADMIN_TOKEN";
    k->config->tls_keyfile_password = "file:/run/secrets/TLS";
    COOK(k, "ADMIN_TOKEN=s3cret", "ADMIN_TOKEN_2=kept", "ADMIN=kept", "/run/secrets/TLS=kept");
    assert_variable(k, "ADMIN_TOKEN", NULL);
    assert_variable(k, "ADMIN_TOKEN_2", "kept");
    assert_variable(k, "ADMIN", "kept");
    assert_variable(k, "/run/secrets/TLS", "kept");
}

KITCHEN(check_env_of_the_service) {
    set(k, 0, "env",
        "{\"CUDA_VISIBLE_DEVICES\": \"3\", \"TMPDIR\": \"/mine\", \"PYTHONUNBUFFERED\": \"0\", \"NEW\": "
        "\"a=b\", "
        "\"HOME\": \"/srv\", \"PROMETHEUS_MULTIPROC_DIR\": \"/shared\", \"PYTHONPATH\": \"/srv/lib\"}");
    k->facts.gpus = "0";
    k->facts.tmp_dir = "/run/tmp";
    COOK(k, "HOME=/root", "PYTHONPATH=/inherited");
    assert_variable(k, "CUDA_VISIBLE_DEVICES", "3");
    assert_variable(k, "TMPDIR", "/mine");
    assert_variable(k, "PYTHONUNBUFFERED", "0");
    assert_variable(k, "NEW", "a=b");
    assert_variable(k, "HOME", "/srv");
    assert_variable(k, "PROMETHEUS_MULTIPROC_DIR",
                    "/run/plimsoll/default/prom/1-1"); /* one folder for one worker */
    assert_variable(k, "PYTHONPATH", "/usr/share/plimsoll/python-1:/srv/lib");
}

KITCHEN(check_python_path) {
    COOK(k, "PYTHONPATH=/a:/b");
    assert_variable(k, "PYTHONPATH", "/usr/share/plimsoll/python-1:/a:/b");
    COOK(k, "PYTHONPATH=");
    assert_variable(k, "PYTHONPATH", "/usr/share/plimsoll/python-1");
}

KITCHEN(check_offline) {
    set(k, 0, "offline", "on");
    COOK(k, "HF_HUB_OFFLINE=0");
    assert_variable(k, "HF_HUB_OFFLINE", "1");
    assert_variable(k, "TRANSFORMERS_OFFLINE", "1");
    assert_variable(k, "HF_DATASETS_OFFLINE", "1");
    set(k, 0, "offline", "off");
    COOK(k, "HF_HUB_OFFLINE=0");
    assert_variable(k, "HF_HUB_OFFLINE", "0");
    assert_variable(k, "TRANSFORMERS_OFFLINE", NULL);
}

KITCHEN(check_doubles) {
    COOK(k, "A=1", "A=2");
    assert_variable(k, "A", "2");
}

KITCHEN(check_refusals) {
    const char **const needed[] = { &k->facts.python, &k->facts.python_path, &k->facts.folder,
                                    &k->facts.ident, &k->facts.prom_dir };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        const char *was = *needed[i];
        *needed[i] = NULL;
        assert_false(try(k, &k->arena, INHERITED("A=1")));
        assert_int_equal(k->err.code, PL_E_CONFIG);
        *needed[i] = was;
    }
    set(k, 0, "env", "{\"PLIMSOLL_PAGE_FD\": \"9\"}");
    assert_false(try(k, &k->arena, INHERITED("A=1")));
    assert_non_null(strstr(k->err.msg, "PLIMSOLL_PAGE_FD"));
}

KITCHEN(check_without_memory) {
    set(k, 0, "args", "{\"a\": \"1\"}");
    bool fits = false;
    for (size_t cap = 16; cap < 1 << 14 && !fits; cap += 48) {
        struct pl_arena small;
        pl_arena_init(&small, cap);
        fits = try(k, &small, INHERITED("A=1", "B=2", "PYTHONPATH=/x"));
        if (!fits) assert_int_equal(k->err.code, PL_E_NOMEM);
        pl_arena_free(&small);
    }
    assert_true(fits);
}

KITCHEN(check_hash) {
    COOK(k, "A=1", "B=2");
    uint64_t first = pl_recipe_hash(&k->recipe);
    assert_int_not_equal(first, 0);
    /* another start, and another order */
    k->facts.prom_dir = "/run/plimsoll/default/prom/1-2";
    k->facts.tmp_dir = "/run/plimsoll/default/tmp/1-2";
    COOK(k, "B=2", "A=1");
    assert_true(pl_recipe_hash(&k->recipe) == first);
    COOK(k, "A=1", "B=3");
    assert_true(pl_recipe_hash(&k->recipe) != first);
    COOK(k, "A=2", "B=1");
    assert_true(pl_recipe_hash(&k->recipe) != first);
    COOK(k, "A=1");
    assert_true(pl_recipe_hash(&k->recipe) != first);
    static const char *const others[] = { "/other", "" };
    for (size_t i = 0; i < 2; i++) {
        const char *was = k->facts.folder;
        k->facts.folder = others[i];
        COOK(k, "A=1", "B=2");
        assert_true(pl_recipe_hash(&k->recipe) != first);
        k->facts.folder = was;
    }
    k->facts.worker = 3;
    COOK(k, "A=1", "B=2");
    assert_true(pl_recipe_hash(&k->recipe) != first);
}

/* What all workers of one zygote have in common: another worker, another card, another folder are the same.
 */
KITCHEN(check_family) {
    COOK(k, "A=1", "CUDA_VISIBLE_DEVICES=0", "PLIMSOLL_DRYDOCK_SHM=a");
    uint64_t first = pl_recipe_family(&k->recipe);
    assert_int_not_equal(first, 0);
    k->facts.worker = 7;
    k->facts.prom_dir = "/run/plimsoll/default/prom/1-2";
    k->facts.tmp_dir = "/run/plimsoll/default/tmp/1-2";
    COOK(k, "CUDA_VISIBLE_DEVICES=1", "PLIMSOLL_DRYDOCK_SHM=a", "A=1",
         "PYTORCH_CUDA_ALLOC_CONF=backend:native");
    assert_true(pl_recipe_family(&k->recipe) == first);
    COOK(k, "A=2", "PLIMSOLL_DRYDOCK_SHM=a");
    assert_true(pl_recipe_family(&k->recipe) != first);
    COOK(k, "A=1", "OMP_NUM_THREADS=1", "PLIMSOLL_DRYDOCK_SHM=a");
    assert_true(pl_recipe_family(&k->recipe) != first);
    COOK(k, "A=1", "PLIMSOLL_DRYDOCK_SHM=b");
    assert_true(pl_recipe_family(&k->recipe) != first);
    k->facts.ident = "other:Class";
    COOK(k, "A=1", "PLIMSOLL_DRYDOCK_SHM=a");
    assert_true(pl_recipe_family(&k->recipe) != first);
}

KITCHEN(check_zygote) {
    const char *names[] = { "pandas", "PIL.Image" };
    const struct pl_strings preload = { .at = names, .count = 2 };
    COOK(k, "A=1");
    uint32_t before = k->recipe.envc;
    assert_true(pl_recipe_zygote(&k->recipe, &preload, &k->arena, &k->err));
    assert_string_equal(k->recipe.argv[2], "plimsoll.zygote");
    assert_int_equal(k->recipe.envc, before + 1);
    assert_string_equal(k->recipe.envp[before], "PLIMSOLL_ZYGOTE_PRELOAD=pandas,PIL.Image");
    assert_null(k->recipe.envp[before + 1]);
}

#define NAMED(name, check) \
    TEST(name) { check(*state); }
NAMED(the_interpreter_runs_our_launcher_with_bentomls_own_arguments, check_argv)
NAMED(a_worker_is_told_who_it_is_and_where_its_descriptors_are, check_given)
NAMED(what_the_caller_set_is_not_overruled, check_set_already)
NAMED(nothing_of_ours_is_handed_down, check_taken_away)
NAMED(variables_that_hold_secrets_are_taken_away, check_secrets)
NAMED(the_services_own_env_comes_on_top, check_env_of_the_service)
NAMED(our_modules_come_first_on_the_python_path, check_python_path)
NAMED(offline_keeps_the_hubs_out, check_offline)
NAMED(a_variable_given_twice_is_passed_once, check_doubles)
NAMED(what_is_missing_or_ours_is_refused, check_refusals)
NAMED(without_memory_it_fails_at_any_point, check_without_memory)
NAMED(the_hash_leaves_out_what_is_new_at_every_start, check_hash)
NAMED(the_family_leaves_out_what_may_differ_between_its_workers, check_family)
NAMED(a_zygote_has_its_workers_recipe_and_more_modules, check_zygote)

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
RUN(T(the_interpreter_runs_our_launcher_with_bentomls_own_arguments),
    T(a_worker_is_told_who_it_is_and_where_its_descriptors_are), T(what_the_caller_set_is_not_overruled),
    T(nothing_of_ours_is_handed_down), T(variables_that_hold_secrets_are_taken_away),
    T(the_services_own_env_comes_on_top), T(our_modules_come_first_on_the_python_path),
    T(offline_keeps_the_hubs_out), T(a_variable_given_twice_is_passed_once),
    T(what_is_missing_or_ours_is_refused), T(without_memory_it_fails_at_any_point),
    T(the_hash_leaves_out_what_is_new_at_every_start),
    T(the_family_leaves_out_what_may_differ_between_its_workers),
    T(a_zygote_has_its_workers_recipe_and_more_modules))
