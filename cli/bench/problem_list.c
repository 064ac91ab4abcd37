/* SPDX-License-Identifier: Apache-2.0 */
/* problem_list.c - the problems of a command line: its arguments, then the lines of a file. */
#include "problem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static tess_status append(cli *c, problems *list, const problem *p)
{
    problem *items = realloc(list->items, ((size_t)list->n + 1) * sizeof *items);
    if (!items)
        return out_fail(c, TESS_ENOMEM, "no memory for %d problems", list->n + 1);
    items[list->n++] = *p;
    list->items = items;
    return TESS_OK;
}

/* Cuts a comment and the white space around a line. */
static char *trim(char *line)
{
    static const char space[] = " \t\r\n";
    line[strcspn(line, "#")] = 0;
    line += strspn(line, space);
    size_t length = strlen(line);
    while (length > 0 && strchr(space, line[length - 1]))
        line[--length] = 0;
    return line;
}

static tess_status read_lines(cli *c, FILE *f, const char *path, problems *list)
{
    char *line = NULL, error[OPT_ERROR_MAX];
    size_t size = 0;
    tess_status status = TESS_OK;
    for (int number = 1; status == TESS_OK && getline(&line, &size, f) >= 0; number++) {
        problem p;
        const char *text = trim(line);
        if (!*text)
            continue;
        if (problem_parse(text, c->common->seed, &p, error) != 0)
            status = out_fail(c, TESS_EFORMAT, "%.200s: line %d: %.256s", path, number, error);
        else
            status = append(c, list, &p);
    }
    if (status == TESS_OK && ferror(f))
        status = out_fail(c, TESS_EIO, "%.200s: cannot read: %s", path, strerror(errno));
    free(line);
    return status;
}

tess_status problems_read(cli *c, const strings *texts, const char *path, problems *list)
{
    char error[OPT_ERROR_MAX];
    problem p;
    *list = (problems){0};
    if (texts->n == 0 && !path)
        return out_usage(c, "PROBLEM is missing, and so is --file");
    for (int i = 0; i < texts->n; i++) {
        if (problem_parse(texts->items[i], c->common->seed, &p, error) != 0)
            return out_usage(c, "%s", error);
        const tess_status status = append(c, list, &p);
        if (status != TESS_OK)
            return status;
    }
    if (!path)
        return TESS_OK;
    FILE *f;
    TRY(input_open(c, path, &f));
    tess_status status = read_lines(c, f, path, list);
    fclose(f);
    if (status == TESS_OK && list->n == 0)
        status = out_fail(c, TESS_EFORMAT, "%.200s: holds no problem", path);
    return status;
}

void problems_free(problems *list)
{
    free(list->items);
    *list = (problems){0};
}
