/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_opt.c - the option parser with the command's own tables.
 *
 * The input is a command line, one word per line; the first word names the command, and one that is
 * none stands for the last. Whatever the words are, the parser fills the values or says why not.
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { WORDS_MAX = 64 };
    char *argv[WORDS_MAX], error[OPT_ERROR_MAX];
    int argc = 0;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    for (size_t at = 0; at < size && argc < WORDS_MAX; at += strlen(text + at) + 1) {
        argv[argc++] = text + at;
        text[at + strcspn(text + at, "\n")] = 0;
    }
    commands_bind();
    const command *cmd = argc ? command_find(argv[0]) : NULL;
    if (!cmd)
        cmd = commands[n_commands - 1];
    void *values = calloc(1, cmd->size);
    if (values) {
        const int failed = opt_parse(cmd, argc ? argc - 1 : 0, argv + 1, values, error);
        if (failed ? !error[0] || strlen(error) >= OPT_ERROR_MAX : error[0] != 0)
            abort();
        opt_free(cmd, values);
    }
    free(values);
    free(text);
    return 0;
}
