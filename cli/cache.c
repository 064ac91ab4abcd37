/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - the folder that stores measurements of this machine.
 *
 * As other programs do it (XDG Base Directory Specification): $XDG_CACHE_HOME/tessera where that is
 * an absolute path, else ~/.cache/tessera. The command makes the folder; where it cannot, the
 * library warns that nothing is stored.
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The folder that a user who says nothing gets, or -1. */
static int own_folder(char path[CLI_CACHE_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    int n = -1;
    if (cache && cache[0] == '/')
        n = snprintf(path, CLI_CACHE_MAX, "%s/tessera", cache);
    else if (user && user[0])
        n = snprintf(path, CLI_CACHE_MAX, "%s/.cache/tessera", user);
    return n > 0 && n < CLI_CACHE_MAX ? 0 : -1;
}

/* With the folders it is in. */
static void make_folder(const char *folder)
{
    char path[CLI_CACHE_MAX];
    strcpy(path, folder);
    for (char *at = strchr(path, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0777);
        *at = '/';
    }
    mkdir(path, 0777);
}

tess_status cache_choose(cli *c, const char *given)
{
    c->cache[0] = 0;
    if (given && strcmp(given, "none") == 0)
        return TESS_OK;
    if (given && strlen(given) >= sizeof c->cache)
        return out_usage(c, "--cache has %zu characters, must have fewer than %zu", strlen(given),
                         sizeof c->cache);
    if (given) {
        strcpy(c->cache, given);
        make_folder(c->cache);
        return TESS_OK;
    }
    if (own_folder(c->cache) == 0) {
        make_folder(c->cache);
    } else {
        c->cache[0] = 0;
        if (!c->common->quiet)
            out_log(c, TESS_LOG_INFO,
                    "no folder for a cache (XDG_CACHE_HOME and HOME are not set): break-even is "
                    "measured "
                    "at each start");
    }
    return TESS_OK;
}

const char *cache_folder(const cli *c)
{
    return c->cache[0] ? c->cache : NULL;
}
