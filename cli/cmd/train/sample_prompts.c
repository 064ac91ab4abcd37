/* SPDX-License-Identifier: Apache-2.0 */
/* sample_prompts.c - prompts of tessera sample: those of the command line, then those of a file, a
 * prompt a line; empty lines are left out. */
#include "cmd_sample.h"

#include <stdlib.h>
#include <string.h>

static tess_status append(sample_job *j, const char *text)
{
    const char **grown =
        realloc(j->prompts.items, (size_t)(j->prompts.n + 1) * sizeof *j->prompts.items);
    char *copy = strdup(text);
    if (grown)
        j->prompts.items = grown;
    if (!grown || !copy) {
        free(copy);
        return out_fail(j->c, TESS_ENOMEM, "no memory for %d prompts", j->prompts.n + 1);
    }
    j->prompts.items[j->prompts.n++] = copy;
    return TESS_OK;
}

static tess_status read_lines(sample_job *j, FILE *f)
{
    char *line = NULL;
    size_t room = 0;
    tess_status status = TESS_OK;
    while (status == TESS_OK && getline(&line, &room, f) >= 0) {
        line[strcspn(line, "\r\n")] = 0;
        if (line[strspn(line, " \t")])
            status = append(j, line);
    }
    if (status == TESS_OK && ferror(f))
        status = out_fail(j->c, TESS_EIO, "%.200s: cannot read", j->v->prompt_file);
    free(line);
    return status;
}

tess_status sample_prompts(sample_job *j)
{
    const sample_values *v = j->v;
    FILE *f;
    for (int i = 0; i < v->prompts.n; i++)
        TRY(append(j, v->prompts.items[i]));
    if (!v->prompt_file)
        return TESS_OK;
    const int given = j->prompts.n;
    TRY(input_open(j->c, v->prompt_file, &f));
    const tess_status status = read_lines(j, f);
    fclose(f);
    TRY(status);
    if (j->prompts.n == given)
        return out_fail(j->c, TESS_EFORMAT, "%.200s: has no prompt, must have one a line",
                        v->prompt_file);
    return TESS_OK;
}

const char *sample_prompt_of(const sample_job *j, int64_t clip)
{
    return j->prompts.n ? j->prompts.items[clip / j->v->count] : "";
}

void sample_prompts_free(sample_job *j)
{
    for (int i = 0; i < j->prompts.n; i++)
        free((void *)j->prompts.items[i]);
    free(j->prompts.items);
}
