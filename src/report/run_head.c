/* SPDX-License-Identifier: Apache-2.0 */
/* run_head.c - title and header of a run's page: model, data, attention, dates, command.
 *
 * From settings.json and commands.txt, whose lines are "DATE COMMAND", one for each start of the
 * run; a run made through the library may have neither.
 */
#include "run_page.h"

#include "file/file_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { FACT = 512 };

static const char *text_of(const json_t *settings, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(settings, key));
    return text ? text : otherwise;
}

static long long number_of(const json_t *settings, const char *key)
{
    return (long long)json_integer_value(json_object_get(settings, key));
}

/* The last component of the folder's real path. */
static void name_of(const char *run, char name[FACT])
{
    char path[PATH_MAX];
    const char *real = realpath(run, path) ? path : run, *slash = strrchr(real, '/');
    snprintf(name, FACT, "%.500s", slash && slash[1] ? slash + 1 : real);
}

static void data_text(const json_t *settings, char text[FACT])
{
    const long long frames = number_of(settings, "frames"), height = number_of(settings, "height");
    const int n = snprintf(text, FACT, "%.400s", text_of(settings, "data", "not recorded"));
    if (frames > 0 && height > 0)
        snprintf(text + n, (size_t)(FACT - n), ", clips of %lld frames of %lld x %lld", frames,
                 height, number_of(settings, "width"));
}

/* The date of the first line and the command of the last one, which has room for n bytes. */
static void read_commands(const char *path, char date[FACT], char *command, size_t n)
{
    tess__source source;
    if (tess__source_open(path, &source) != TESS_OK)
        return;
    const char *text = (const char *)source.data;
    size_t end = source.bytes;
    while (end > 0 && text[end - 1] == '\n')
        end--;
    size_t begin = end;
    while (begin > 0 && text[begin - 1] != '\n')
        begin--;
    const char *space = end > begin ? memchr(text + begin, ' ', end - begin) : NULL;
    if (space) {
        snprintf(command, n, "%.*s", (int)(text + end - space - 1), space + 1);
        if (source.bytes > 16 && text[10] == 'T') /* 2026-11-18T04:40:12Z */
            snprintf(date, FACT, "begun %.10s %.5s UTC, ", text, text + 11);
    }
    tess__source_close(&source);
}

static void last_step(const char *path, char *date)
{
    struct stat st;
    struct tm tm;
    if (stat(path, &st) == 0 && gmtime_r(&st.st_mtime, &tm))
        strftime(date, 64, "last step %Y-%m-%d %H:%M UTC", &tm);
}

void tess__run_head(tess__markup *page, const char *run, const json_t *settings, int refresh)
{
    char name[FACT], title[3 * FACT], data[FACT], date[FACT + 64] = "", path[PATH_MAX];
    char command[8192] = "";
    const char *model = text_of(settings, "config", text_of(settings, "preset", NULL));
    const char *attention = text_of(settings, "attention", NULL);
    name_of(run, name);
    data_text(settings, data);
    if (snprintf(path, sizeof path, "%s/commands.txt", run) < (int)sizeof path)
        read_commands(path, date, command, sizeof command);
    if (snprintf(path, sizeof path, "%s/metrics.jsonl", run) < (int)sizeof path)
        last_step(path, date + strlen(date));
    if (model && attention)
        snprintf(title, sizeof title, "%s: %.400s on %.400s, %.40s", name, model,
                 text_of(settings, "data", "data"), attention);
    else
        snprintf(title, sizeof title, "%s: a training run", name);
    tess__page_begin(page, title, refresh);
    const tess__fact facts[] = {{"model", model, 0},         {"data", settings ? data : NULL, 0},
                                {"attention", attention, 0}, {"date", date, 0},
                                {"folder", run, 0},          {"command", command, 1}};
    tess__page_facts(page, facts, (int)(sizeof facts / sizeof *facts));
}
