/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_report.c - what a bug report needs beside `tessera info` and the findings: the system, the
 * compiler, MPI and the environment variables that change how Tessera runs.
 *
 * The text is meant for a public page: of an absolute path only the last name is printed, and the
 * names of the user and of the host are replaced.
 */
#include "cmd/cmd_info.h"
#include "cmd_doctor.h"

#include <ctype.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

extern char **environ;

/* Variables, or beginnings of their names, that change how the command runs. The others of Open
 * MPI's parameters hold addresses and folders of the launcher. */
static const char *const prefixes[] = {
    "TESS_",         "OMP_",          "GOMP_",
    "KMP_",          "DNNL_",         "ONEDNN_",
    "MALLOC_",       "LD_PRELOAD",    "LC_",
    "LANG",          "NO_COLOR",      "XDG_CACHE_HOME",
    "OMPI_COMM_",    "OMPI_MCA_btl",  "OMPI_MCA_pml",
    "OMPI_MCA_coll", "OMPI_MCA_mpi_", "OMPI_MCA_rmaps",
    "PMI_SIZE",      "PMI_RANK",      "MPI_LOCALNRANKS",
    "UCX_",          "SLURM_NTASKS",  "SLURM_STEP_NUM_TASKS",
    "SLURM_CPUS_",   "SLURM_PROCID",
};

/* ---- private names --------------------------------------------------------------------------- */

/* Replaces a whole word; text has room for bytes. */
static void replace_word(char *text, size_t bytes, const char *word, const char *by)
{
    const size_t n = strlen(word), m = strlen(by);
    if (n < 2) /* would replace parts of ordinary text */
        return;
    for (char *at = text; (at = strstr(at, word));) {
        const int begins = at == text || !isalnum((unsigned char)at[-1]);
        if (!begins || isalnum((unsigned char)at[n]) || strlen(text) + m >= bytes + n) {
            at += n;
            continue;
        }
        memmove(at + m, at + n, strlen(at + n) + 1);
        memcpy(at, by, m);
        at += m;
    }
}

/* Paths that are the same on every machine. */
static int is_system_path(const char *path)
{
    static const char *const folders[] = {"/dev/", "/etc/", "/lib", "/proc/", "/sys/", "/usr/"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (strncmp(path, folders[i], strlen(folders[i])) == 0)
            return 1;
    return 0;
}

/* "/a/b/lib.so" becomes ".../lib.so", also within a text. */
static void shorten_paths(const char *s, char *text, size_t bytes)
{
    size_t used = 0;
    for (size_t i = 0; s[i] && used + 4 < bytes;) {
        const int begins = i == 0 || strchr(" \"'=:;,(", s[i - 1]);
        if (s[i] != '/' || !begins || is_system_path(s + i)) {
            text[used++] = s[i++];
            continue;
        }
        const size_t n = strcspn(s + i, " \"':;,)");
        size_t last = i + n;
        while (last > i && s[last - 1] != '/')
            last--;
        memcpy(text + used, ".../", 4);
        used += 4;
        for (; last < i + n && used + 4 < bytes; last++)
            text[used++] = s[last];
        i += n;
    }
    text[used] = 0;
}

char *doctor_mask(const char *s, char *text, size_t bytes)
{
    char host[256] = "";
    const struct passwd *user = getpwuid(getuid());
    shorten_paths(s, text, bytes);
    if (gethostname(host, sizeof host - 1) == 0)
        replace_word(text, bytes, host, "HOST");
    if (user && user->pw_name)
        replace_word(text, bytes, user->pw_name, "USER");
    return text;
}

/* ---- sections -------------------------------------------------------------------------------- */

/* PRETTY_NAME of /etc/os-release: "Debian GNU/Linux 12 (bookworm)". */
static void distribution(char *text, size_t bytes)
{
    char line[256];
    FILE *f = fopen("/etc/os-release", "r");
    snprintf(text, bytes, "unknown");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "PRETTY_NAME=", 12) == 0) {
            line[strcspn(line, "\n")] = 0;
            const char *name = line + 12 + (line[12] == '"');
            snprintf(text, bytes, "%.*s", (int)strcspn(name, "\""), name);
        }
    if (f)
        fclose(f);
}

static void put_line(cli *c, json_t *object, const char *name, const char *text)
{
    if (object)
        out_set(c, object, name, out_text(text));
    else
        info_line(c, name, text);
}

static void report_system(cli *c, json_t *o)
{
    struct utsname kernel;
    char text[256];
    distribution(text, sizeof text);
    put_line(c, o, "system", text);
    if (uname(&kernel) == 0) {
        snprintf(text, sizeof text, "%.64s %.64s %.64s", kernel.sysname, kernel.release,
                 kernel.machine);
        put_line(c, o, "kernel", text);
    }
#ifdef __clang__
    put_line(c, o, "compiler", __VERSION__);
#else
    put_line(c, o, "compiler", "gcc " __VERSION__);
#endif
    world_mpi(text, 64);
    put_line(c, o, "MPI", text);
}

static void report_environment(cli *c, json_t *o)
{
    int n = 0;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        for (char **at = environ; *at; at++) {
            char name[64], value[512], clean[512];
            const size_t length = strcspn(*at, "=");
            if (strncmp(*at, prefixes[i], strlen(prefixes[i])) != 0 || length >= sizeof name)
                continue;
            snprintf(name, sizeof name, "%.*s", (int)length, *at);
            out_clean(*at + length + ((*at)[length] == '='), clean, sizeof clean);
            put_line(c, o, name, doctor_mask(clean, value, sizeof value));
            n++;
        }
    if (n == 0 && !o)
        info_line(c, "none", "of the variables that change how the command runs");
}

tess_status doctor_report(cli *c)
{
    json_t *system = c->json ? json_object() : NULL, *environment = c->json ? json_object() : NULL;
    TRY(info_report(c, 0));
    if (!c->json)
        info_title(c, "system");
    report_system(c, system);
    if (!c->json)
        info_title(c, "environment");
    report_environment(c, environment);
    if (c->json) {
        out_set(c, c->json, "system", system);
        out_set(c, c->json, "environment", environment);
    } else {
        info_title(c, "findings");
    }
    return TESS_OK;
}
