/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the command `tessera`: finds the command, reads its options, runs it, exits.
 *
 * Exit codes: 0 success; 1 failed; 2 wrong usage; 3 a check found a mismatch; 4 not possible on
 * this machine; 128 + the signal that stopped it.
 */
#include "cli.h"

#include "tessera/advanced/nearest.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STACK_LEAST = 256 << 10, STACK_USUAL = 8 << 20 }; /* bytes */

/* A standard stream that was closed would lend its number to the next file opened, which would
 * then receive what is printed. A placeholder that cannot be written to takes it instead. */
static void hold_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(EXIT_FAILED);
}

/* An OpenMP thread that waits for the others would spin for milliseconds before it sleeps; where
 * cores are shared with other processes, it occupies the core of the thread it waits for: steps of
 * many short loops then take up to five times as long. GNU's OpenMP reads the spin count when it is
 * loaded. Returns 1 if a small one is set for a process that begins now; not where the user has set
 * a policy. */
static int spin_briefly(void)
{
    return !getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT") &&
           setenv("GOMP_SPINCOUNT", "1000", 0) == 0;
}

/* Stacks of threads have the size that the limit of the main one had when the process began. The
 * least is twice what `tessera train` needed in tests. Returns 1 if a lower limit was raised for a
 * process that begins now. */
static int raise_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_LEAST)
        return 0;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < STACK_USUAL ? limit.rlim_max : STACK_USUAL;
    if (limit.rlim_cur >= STACK_LEAST && setrlimit(RLIMIT_STACK, &limit) == 0)
        return 1;
    fprintf(stderr, "tessera: the limit of the stack is %d KiB, must be %d or more (ulimit -s)\n",
            (int)(before / 1024), STACK_LEAST / 1024);
    exit(EXIT_MACHINE);
}

/* Executes the command again where something takes effect at the start of a process alone. */
static void restart(char **argv)
{
    const int stack = raise_stack(), spin = spin_briefly();
    if (stack || spin)
        execv("/proc/self/exe", argv); /* if that fails, all is as it was */
    /* That process would be called exe. */
    const char *slash = argv[0] ? strrchr(argv[0], '/') : NULL;
    if (argv[0])
        prctl(PR_SET_NAME, slash ? slash + 1 : argv[0]);
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
static tess_status run_bare(cli *c, const char *word)
{
    if (!word || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        if (c->rank == 0)
            help_short(stdout);
        return TESS_OK;
    }
    if (strcmp(word, "--version") == 0) {
        if (c->rank == 0)
            printf("tessera %s\n", tess_version());
        return TESS_OK;
    }
    if (*word == '-')
        return out_usage(c,
                         "%.80s comes before the command, must be --help or --version; a command's "
                         "options come after it",
                         word);
    const char *names[64], *near;
    int n = 0;
    for (; n < n_commands && n < 64; n++)
        names[n] = commands[n]->name;
    near = tess_nearest(word, names, n);
    return out_usage(c, "\"%.80s\" is no command%s%s%s", word, near ? ", did you mean " : "",
                     near ? near : "", near ? "?" : "");
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
    return tess_ctx_create(&opts, &c->ctx);
}

/* Rank 0 alone prints. */
static tess_status open_output(cli *c)
{
    if (c->rank != 0) {
        c->out = fopen("/dev/null", "w");
        return c->out ? TESS_OK : out_fail(c, TESS_EIO, "/dev/null: cannot be opened");
    }
    c->json = c->common->json ? json_object() : NULL;
    c->json_failed = c->common->json && !c->json;
    c->progress.terminal = isatty(STDERR_FILENO);
    c->progress.on = !c->common->quiet;
    return TESS_OK;
}

/* Leaves together with the other ranks. Returns the exit code. */
static int finish(cli *c, tess_status status)
{
    c->code = exit_code(c, status);
    status = world_end(c, status);
    const int code = out_finish(c, status);
    world_close(c, status, code);
    if (c->out && c->out != stdout)
        fclose(c->out);
    tess_ctx_destroy(c->ctx);
    json_decref(c->json);
    return code;
}

/* Runs a command whose options are read. */
static tess_status run_command(cli *c, const void *values)
{
    if (!c->cmd->plain) {
        const tess_status opened = world_open(c, open_context(c));
        TRY(open_output(c)); /* a failure is printed as JSON as well */
        TRY(opened);
    }
    tess_status status = TESS_OK;
    if (c->cmd->everywhere || c->rank == 0)
        status = c->cmd->run(c, values);
    else if (c->cmd->serve)
        status = c->cmd->serve(c, values);
    if (status == TESS_ESTOPPED && signals_caught() && !c->sentence[0])
        out_fail(c, status, "interrupted by a signal");
    if (status != TESS_OK)
        world_fail(c, status);
    return status;
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
    restart(argv);
    hold_standard_streams();
    commands_bind();
    signals_catch();
    cli c = {.out = stdout, .rank = world_rank()};
    c.colour =
        isatty(STDOUT_FILENO) && !(no_colour && *no_colour) && term && strcmp(term, "dumb") != 0;
    c.cmd = argc > 1 ? command_find(argv[1]) : NULL;
    if (!c.cmd) {
        const tess_status status = run_bare(&c, argc > 1 ? argv[1] : NULL);
        return finish(&c, status == TESS_OK ? status : world_open(&c, status));
    }
    c.argc = argc - 2;
    c.argv = argv + 2;

    char error[OPT_ERROR_MAX];
    void *values = calloc(1, c.cmd->size);
    tess_status status = TESS_OK;
    c.common = values;
    if (!values) {
        status = world_open(&c, out_fail(&c, TESS_ENOMEM, "no memory for the options"));
    } else if (opt_parse(c.cmd, c.argc, c.argv, values, error) != 0) {
        status = world_open(&c, out_usage(&c, "%s", error));
        c.json = c.rank == 0 && has_json(c.argc, c.argv) ? json_object() : NULL;
    } else if (c.common->help) {
        if (c.rank == 0)
            help_command(stdout, c.cmd);
    } else {
        status = run_command(&c, values);
    }
    const int code = finish(&c, status);
    if (values)
        opt_free(c.cmd, values);
    free(values);
    return code;
}
