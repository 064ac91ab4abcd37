/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - runs a fuzz target over a folder of inputs, without a fuzzer and with any compiler.
 *
 * Each file is read into a buffer of exactly its size, so that AddressSanitizer sees a read of one
 * byte too many. Files run in the order of their names; the name of the running one is printed
 * first, so that a crash says whose it is. A folder without files is a failure: a test that ran
 * nothing has shown nothing.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Runs one file. Returns 1 if it ran, 0 if it is a folder, -1 if it cannot be read. */
static int run(const char *path)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &info) != 0) {
        perror(path);
        if (file)
            fclose(file);
        return -1;
    }
    if (!S_ISREG(info.st_mode)) {
        fclose(file);
        return 0;
    }
    const size_t size = (size_t)info.st_size;
    uint8_t *data = malloc(size ? size : 1);
    const int whole = data && fread(data, 1, size, file) == size;
    fclose(file);
    if (whole) {
        printf("%s\n", path);
        fflush(stdout);
        LLVMFuzzerTestOneInput(data, size);
    } else {
        fprintf(stderr, "%s: cannot be read\n", path);
    }
    free(data);
    return whole ? 1 : -1;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    struct dirent **entries;
    const int count = scandir(argv[1], &entries, is_visible, alphasort);
    if (count < 0) {
        perror(argv[1]);
        return 1;
    }
    int ran = 0, failed = 0;
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
        const int result = run(path);
        ran += result == 1;
        failed += result < 0;
        free(entries[i]);
    }
    free(entries);
    printf("%d inputs ran, %d could not be read\n", ran, failed);
    if (!ran)
        fprintf(stderr, "%s: no inputs\n", argv[1]);
    return ran && !failed ? 0 : 1;
}
