/* SPDX-License-Identifier: Apache-2.0 */
/* fake_setup.c - the driver of tests as the environment says, before the command starts.
 *
 *   FAKE_DRIVER="version=10020 major=7 devices=0 load=209 launch=719 seed=3"   any of these
 */
#include "fake_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set(const char *word, const char *value)
{
    const int n = atoi(value);
    if (strcmp(word, "version") == 0)
        fake_driver.version = n;
    else if (strcmp(word, "devices") == 0)
        fake_driver.devices = n;
    else if (strcmp(word, "major") == 0)
        fake_driver.major = n;
    else if (strcmp(word, "load") == 0)
        fake_driver.load_result = n;
    else if (strcmp(word, "launch") == 0)
        fake_driver.launch_result = n;
    else if (strcmp(word, "seed") == 0)
        fake_driver.seed = (unsigned)n;
    else if (strcmp(word, "spoil") == 0)
        fake_driver.spoil = n;
    else
        abort();
}

__attribute__((constructor)) static void read_setup(void)
{
    char text[256], *at = NULL;
    const char *const given = getenv("FAKE_DRIVER");
    snprintf(text, sizeof text, "%s", given ? given : "");
    for (char *word = strtok_r(text, " ", &at); word; word = strtok_r(NULL, " ", &at)) {
        char *const value = strchr(word, '=');
        if (!value)
            abort();
        *value = 0;
        set(word, value + 1);
    }
}
