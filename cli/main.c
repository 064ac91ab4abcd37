/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the command `tessera`: finds the command, reads its options, runs it, leaves.
 *
 * Exit codes: 0 success; 1 failed; 2 wrong usage; 3 a check found a mismatch; 4 not possible on
 * this machine; 128 + the signal that stopped it.
 */
#include "cli.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A standard stream that was closed would lend its number to the next file opened, which would
 * then receive what is printed. A placeholder that cannot be written to takes it instead. */
static void hold_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(EXIT_FAILED);
}

/* A thread that waits for the others of its team would spin for milliseconds before it sleeps, and
 * where cores are shared with other processes it keeps them from the very thread it waits for:
 * steps of many short loops were seen to take five times as long. GNU's OpenMP reads how long to
 * spin when it is loaded, so the command starts itself again with a short time. Who has said
 * something about waiting is left alone. */
static void spin_briefly(char **argv)
{
    if (!getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT") &&
        setenv("GOMP_SPINCOUNT", "1000", 0) == 0)
        execv("/proc/self/exe", argv); /* where that fails, it waits as it would have */
}

static int exit_code(const cli *c, tess_status status)
{
    switch (status) {
    case TESS_OK: return c->code;
    case TESS_ENOTSUP: return EXIT_MACHINE;
    case TESS_ESTOPPED: return c->code ? c->code : EXIT_SIGNAL + signals_caught();
    default: return c->code ? c->code : EXIT_FAILED;
    }
}

/* `tessera` without a command, or with something that is none. */
static int run_bare(cli *c, const char *word)
{
    if (!word || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        if (c->rank == 0)
            help_short(stdout);
        return out_finish(c, TESS_OK);
    }
    if (strcmp(word, "--version") == 0) {
        if (c->rank == 0)
            printf("tessera %s\n", tess_version());
        return out_finish(c, TESS_OK);
    }
    if (*word == '-')
        return out_finish(c, out_usage(c,
                                       "%.80s comes before the command, must be --help or "
                                       "--version; a command's options come after it",
                                       word));
    const char *names[64], *near;
    int n = 0;
    for (; n < n_commands && n < 64; n++)
        names[n] = commands[n]->name;
    near = tess_nearest(word, names, n);
    return out_finish(c,
                      out_usage(c, "\"%.80s\" is no command%s%s%s", word,
                                near ? ", did you mean " : "", near ? near : "", near ? "?" : ""));
}

static tess_status open_context(cli *c)
{
    const common *o = c->common;
    const tess_ctx_opts opts = {
        .isa = o->isa,
        .threads = (int)o->threads,
        .log = out_log,
        .log_user = c,
        .log_level = o->verbose > 1 ? TESS_LOG_DEBUG
                     : o->verbose   ? TESS_LOG_INFO
                     : o->quiet     ? TESS_LOG_ERROR
                                    : TESS_LOG_WARN,
        .progress = progress_call,
        .progress_user = c,
    };
    const tess_status status = tess_ctx_create(&opts, &c->ctx);
    return status == TESS_OK ? world_open(c) : status;
}

/* Runs a command whose options are read. Returns the exit code. */
static int run_command(cli *c, const void *values)
{
    tess_status status = TESS_OK;
    if (!c->cmd->plain) {
        c->json = c->common->json ? json_object() : NULL;
        c->json_failed = c->common->json && !c->json;
        c->progress.terminal = isatty(STDERR_FILENO);
        c->progress.on = !c->common->quiet;
        status = open_context(c);
    }
    if (status == TESS_OK && c->rank == 0)
        status = c->cmd->run(c, values);
    else if (status == TESS_OK && c->cmd->serve)
        status = c->cmd->serve(c, values);
    if (status == TESS_ESTOPPED && signals_caught() && !c->sentence[0])
        out_fail(c, status, "interrupted by a signal");
    c->code = exit_code(c, status);
    status = world_agree(c, status);
    const int code = out_finish(c, status);
    world_close(c);
    tess_ctx_destroy(c->ctx);
    json_decref(c->json);
    return code;
}

static int has_json(int argc, char *const *argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    spin_briefly(argv);
    hold_standard_streams();
    signals_catch();
    cli c = {.out = stdout, .rank = world_rank()};
    c.colour =
        isatty(STDOUT_FILENO) && !(no_colour && *no_colour) && term && strcmp(term, "dumb") != 0;
    c.cmd = argc > 1 ? command_find(argv[1]) : NULL;
    if (!c.cmd)
        return run_bare(&c, argc > 1 ? argv[1] : NULL);
    c.argc = argc - 2;
    c.argv = argv + 2;

    char error[OPT_ERROR_MAX];
    void *values = calloc(1, c.cmd->size);
    int code = EXIT_FAILED;
    c.common = values;
    if (!values) {
        out_error(&c, "no memory for the options");
    } else if (opt_parse(c.cmd, c.argc, c.argv, values, error) != 0) {
        c.json = has_json(c.argc, c.argv) ? json_object() : NULL;
        code = out_finish(&c, out_usage(&c, "%s", error));
        json_decref(c.json);
    } else if (c.common->help) {
        if (c.rank == 0)
            help_command(stdout, c.cmd);
        code = out_finish(&c, TESS_OK);
    } else {
        code = run_command(&c, values);
    }
    if (values)
        opt_free(c.cmd, values);
    free(values);
    return code;
}
