/* SPDX-License-Identifier: Apache-2.0 */
/* sweep_process.c - a run of a sweep as a process, watched until it ends.
 *
 * The process has a group of its own, so that Ctrl-C reaches the sweep alone, which passes it on
 * once as SIGTERM; the kernel sends the same if the sweep dies. Its output goes to NAME.log beside
 * its folder; how far it is, is read from the last line of its metrics.
 */
#include "cmd_sweep.h"

#include "tessera/advanced/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* In the child: signal-safe calls only. */
static void become(const char *program, char *const *words, int log)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(127);
    execv(program, words);
    _exit(127);
}

static tess_status start(const sweep_job *j, const sweep_run *r, pid_t *pid)
{
    char path[SWEEP_PATH + 8], program[SWEEP_PATH];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    snprintf(path, sizeof path, "%s.log", r->path);
    const int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log < 0)
        return out_fail(j->c, TESS_EIO, "%s: cannot open: %s", path, strerror(errno));
    char **words = sweep_command(j, r);
    *pid = words ? fork() : -1;
    if (*pid == 0)
        become(program, words, log);
    const int why = words ? errno : ENOMEM;
    close(log);
    sweep_words_free(words);
    return *pid > 0 ? TESS_OK
                    : out_fail(j->c, TESS_EIO, "cannot start %s: %s", r->name, strerror(why));
}

/* Step and loss of the last complete line of the metrics. */
static void read_metrics(sweep_run *r)
{
    char path[SWEEP_PATH + 16], text[8192];
    snprintf(path, sizeof path, "%s/metrics.jsonl", r->path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    const off_t size = lseek(fd, 0, SEEK_END);
    const off_t from = size > (off_t)sizeof text - 1 ? size - ((off_t)sizeof text - 1) : 0;
    const ssize_t n = pread(fd, text, sizeof text - 1, from);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    char *end = strrchr(text, '\n');
    if (!end)
        return;
    *end = 0;
    const char *line = strrchr(text, '\n');
    json_t *root = json_loads(line ? line + 1 : text, 0, NULL);
    const json_t *step = json_object_get(root, "step"), *loss = json_object_get(root, "loss");
    if (json_is_integer(step) && json_is_number(loss)) {
        r->step = json_integer_value(step);
        r->loss = json_number_value(loss);
    }
    json_decref(root);
}

/* The run, and the time left for all of them at the rate of the steps so far. */
static void show(const sweep_job *j, const sweep_run *r)
{
    char text[256], left[32] = "";
    int64_t rest = 0;
    for (unsigned i = 0; i < j->n_runs; i++)
        rest += j->runs[i].failed ? 0 : j->runs[i].end - j->runs[i].step;
    for (unsigned i = 0; i < j->n_runs; i++) /* an arm begins at the end of its trunk */
        rest -= j->runs[i].trunk[0] && j->runs[i].step == 0 && !j->runs[i].failed ? j->trunk : 0;
    const int64_t done = j->done + r->step - r->first;
    if (done > 0)
        progress_time(1e-9 * (double)(tess_clock_ns() - j->begun) / (double)done * (double)rest,
                      left);
    snprintf(text, sizeof text, "%s (run %d of %u)  step %lld/%lld  loss %.4f  %s%s", r->name,
             (int)(r - j->runs) + 1, j->n_runs, (long long)r->step, (long long)r->end, r->loss,
             left, done > 0 ? " left" : "");
    progress_line(j->c, text);
}

tess_status sweep_process(sweep_job *j, sweep_run *r, int *code)
{
    static const struct timespec moment = {.tv_nsec = 50000000};
    pid_t pid;
    int status, asked = 0;
    TRY(start(j, r, &pid));
    if (r->first == 0 && r->trunk[0])
        r->first = r->step = j->trunk;
    for (int64_t read_at = 0; waitpid(pid, &status, WNOHANG) == 0;) {
        if (signals_caught() && !asked) {
            kill(pid, SIGTERM);
            asked = 1;
        }
        nanosleep(&moment, NULL);
        if (tess_clock_ns() - read_at > 500000000) {
            read_metrics(r);
            if (r->step > r->first)
                show(j, r);
            read_at = tess_clock_ns();
        }
    }
    read_metrics(r);
    j->done += r->step - r->first;
    progress_clear(j->c);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return asked ? TESS_ESTOPPED : TESS_OK;
}
