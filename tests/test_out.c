/* SPDX-License-Identifier: Apache-2.0 */
/* test_out.c - output files appear whole or not at all. */
#include "file/out.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/tessera-out-XXXXXX";
static tess_ctx *ctx;

static int enter(void **state)
{
    (void)state;
    if (!mkdtemp(dir) || chdir(dir) != 0)
        return -1;
    return tess_ctx_create(NULL, &ctx);
}

static int leave(void **state)
{
    (void)state;
    tess_ctx_info info;
    tess_ctx_query(ctx, &info);
    tess_ctx_destroy(ctx);
    char command[sizeof dir + 16];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return chdir("/") != 0 || system(command) != 0 || info.bytes_now != 0;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_holds(const char *path, const char *text)
{
    char got[256] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t n = fread(got, 1, sizeof got - 1, file);
    got[n] = '\0';
    fclose(file);
    assert_string_equal(got, text);
}

/* Names in the folder, "." and ".." apart. */
static int names_in(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    int n = -2;
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static void write_text(const char *path, const char *text)
{
    tess__out *out = NULL;
    CHECK_OK(tess__out_open(ctx, path, &out));
    CHECK_OK(tess__out_write(out, text, strlen(text)));
    CHECK_OK(tess__out_commit(out));
}

static void a_file_appears_at_the_commit(void **state)
{
    (void)state;
    mkdir("appear", 0777);
    tess__out *out = NULL;
    CHECK_OK(tess__out_open(ctx, "appear/a", &out));
    CHECK_OK(tess__out_write(out, "one ", 4));
    CHECK_OK(tess__out_write(out, NULL, 0));
    CHECK_OK(tess__out_write(out, "two", 3));
    assert_int_not_equal(access("appear/a", F_OK), 0);
    CHECK_OK(tess__out_commit(out));
    assert_holds("appear/a", "one two");
    assert_int_equal(names_in("appear"), 1);
    write_text("appear/a", "three");
    assert_holds("appear/a", "three");
    assert_int_equal(names_in("appear"), 1);
}

static void an_abort_leaves_what_was_there(void **state)
{
    (void)state;
    mkdir("abort", 0777);
    put("abort/a", "before");
    tess__out *out = NULL;
    CHECK_OK(tess__out_open(ctx, "abort/a", &out));
    CHECK_OK(tess__out_write(out, "after", 5));
    tess__out_abort(out);
    assert_holds("abort/a", "before");
    assert_int_equal(names_in("abort"), 1);
    CHECK_OK(tess__out_open(ctx, "abort/b", &out));
    CHECK_OK(tess__out_sync(out));
    tess__out_abort(out);
    assert_int_equal(names_in("abort"), 1);
    tess__out_abort(NULL);
}

/* Pieces below, at and above the buffer's size, in an order that empties it at every fill level. */
static void large_and_small_writes_keep_their_order(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 65535, 65536, 7, 65530, 300000, 0, 65537, 3};
    enum { TOTAL = 1 + 65535 + 65536 + 7 + 65530 + 300000 + 65537 + 3 };
    unsigned char *bytes = malloc(TOTAL), *got = malloc(TOTAL + 1);
    for (size_t i = 0; i < TOTAL; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    tess__out *out = NULL;
    CHECK_OK(tess__out_open(ctx, "large", &out));
    size_t at = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        CHECK_OK(tess__out_write(out, bytes + at, pieces[i]));
        at += pieces[i];
    }
    bytes[5] ^= 1, bytes[6] ^= 1;
    CHECK_OK(tess__out_patch(out, 5, bytes + 5, 2));
    CHECK_OK(tess__out_commit(out));
    FILE *file = fopen("large", "r");
    assert_int_equal(fread(got, 1, TOTAL + 1, file), TOTAL);
    fclose(file);
    assert_memory_equal(got, bytes, TOTAL);
    free(bytes);
    free(got);
}

static void the_mode_is_what_the_umask_leaves(void **state)
{
    (void)state;
    static const mode_t masks[] = {0, 022, 027, 077};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        const mode_t before = umask(masks[i]);
        write_text("mode", "x");
        umask(before);
        struct stat st;
        assert_int_equal(stat("mode", &st), 0);
        assert_int_equal(st.st_mode & 0777, 0666 & ~masks[i]);
    }
}

static void a_link_stays_and_its_target_is_written(void **state)
{
    (void)state;
    mkdir("target", 0777);
    put("target/file", "before");
    assert_int_equal(symlink("target/file", "link"), 0);
    assert_int_equal(symlink("link", "link2"), 0);
    write_text("link2", "after");
    assert_holds("target/file", "after");
    struct stat st;
    assert_int_equal(lstat("link", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(symlink("target/absent", "dangling"), 0);
    write_text("dangling", "made");
    assert_holds("target/absent", "made");
    assert_int_equal(symlink("loop", "loop"), 0);
    tess__out *out = NULL;
    CHECK_FAILS(tess__out_open(ctx, "loop", &out), TESS_EIO,
                "loop: cannot create: Too many levels of symbolic links");
    assert_null(out);
}

static void what_cannot_be_created_gets_a_sentence(void **state)
{
    (void)state;
    tess__out *out = NULL;
    CHECK_FAILS(tess__out_open(ctx, "nowhere/a", &out), TESS_EIO,
                "nowhere/a: cannot create: No such file or directory");
    CHECK_FAILS(tess__out_open(ctx, "", &out), TESS_EIO,
                ": cannot create: No such file or directory");
    mkdir("folder", 0777);
    CHECK_FAILS(tess__out_open(ctx, "folder", &out), TESS_EIO,
                "folder: cannot create: Is a directory");
    put("plain", "");
    CHECK_FAILS(tess__out_open(ctx, "plain/a", &out), TESS_EIO,
                "plain/a: cannot create: Not a directory");
    assert_null(out);
}

static void a_read_only_folder_refuses(void **state)
{
    (void)state;
    if (geteuid() == 0) {
        print_message("skipped: root may write to a read-only folder\n");
        skip();
    }
    mkdir("locked", 0555);
    tess__out *out = NULL;
    CHECK_FAILS(tess__out_open(ctx, "locked/a", &out), TESS_EIO,
                "locked/a: cannot create: Permission denied");
}

static void a_full_disk_is_reported_by_the_write_or_the_commit(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        print_message("skipped: there is no /dev/full\n");
        skip();
    }
    static const char zeros[1 << 17];
    tess__out *out = NULL;
    CHECK_OK(tess__out_open(ctx, "/dev/full", &out));
    CHECK_FAILS(tess__out_write(out, zeros, sizeof zeros), TESS_EIO,
                "/dev/full: cannot write: No space left on device");
    tess__out_abort(out);
    CHECK_OK(tess__out_open(ctx, "/dev/full", &out));
    CHECK_OK(tess__out_write(out, zeros, 10));
    CHECK_FAILS(tess__out_commit(out), TESS_EIO,
                "/dev/full: cannot write: No space left on device");
    struct stat st;
    assert_int_equal(stat("/dev/full", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
}

static void a_destination_that_became_a_folder_is_reported_by_the_commit(void **state)
{
    (void)state;
    mkdir("late", 0777);
    tess__out *out = NULL;
    CHECK_OK(tess__out_open(ctx, "late/a", &out));
    mkdir("late/a", 0777);
    CHECK_FAILS(tess__out_commit(out), TESS_EIO, "late/a: cannot write: Is a directory");
    assert_int_equal(names_in("late"), 1);
}

static void two_files_of_one_name_do_not_disturb_each_other(void **state)
{
    (void)state;
    mkdir("twice", 0777);
    tess__out *a = NULL, *b = NULL;
    CHECK_OK(tess__out_open(ctx, "twice/f", &a));
    CHECK_OK(tess__out_open(ctx, "twice/f", &b));
    CHECK_OK(tess__out_write(a, "a", 1));
    CHECK_OK(tess__out_write(b, "b", 1));
    CHECK_OK(tess__out_commit(b));
    assert_holds("twice/f", "b");
    CHECK_OK(tess__out_commit(a));
    assert_holds("twice/f", "a");
    assert_int_equal(names_in("twice"), 1);
}

/* ---- folders ------------------------------------------------------------------------------- */

/* Opens a folder at path and writes two files to it. */
static tess__folder *fill_folder(const char *path, const char *a, const char *b)
{
    tess__folder *folder = NULL;
    const char *file = NULL;
    CHECK_OK(tess__folder_open(ctx, path, &folder));
    CHECK_OK(tess__folder_file(folder, "a", &file));
    write_text(file, a);
    CHECK_OK(tess__folder_file(folder, "b", &file));
    write_text(file, b);
    return folder;
}

/* A file that is being written stays, also one of another process. */
static void what_killed_processes_left_is_removed(void **state)
{
    (void)state;
    tess__out *out = NULL;
    assert_int_equal(mkdir("left", 0777), 0);
    put("left/.tessera-1-0.tmp", "dead"); /* by its number alone it might live */
    put("left/.tessera-12-3.tmp", "dead");
    put("left/.tessera-12-3.tmp.txt", "another's");
    put("left/.tessera-a-3.tmp", "another's");
    assert_int_equal(symlink("/dev/null", "left/.tessera-4-0.tmp"), 0);
    CHECK_OK(tess__out_open(ctx, "left/new", &out));
    tess__out_clean("left");
    assert_int_equal(names_in("left"), 4); /* and the one of out */
    CHECK_OK(tess__out_write(out, "new", 3));
    CHECK_OK(tess__out_commit(out));
    assert_holds("left/new", "new");
    tess__out_clean("left");
    tess__out_clean("nowhere");
    assert_int_equal(names_in("left"), 4);
}

static void a_folder_appears_with_all_its_files(void **state)
{
    (void)state;
    const int before = names_in(".");
    tess__folder *folder = fill_folder("fresh/", "one", "two");
    assert_int_equal(access("fresh", F_OK), -1);
    CHECK_OK(tess__folder_commit(folder));
    assert_holds("fresh/a", "one");
    assert_holds("fresh/b", "two");
    assert_int_equal(names_in("fresh"), 2);
    assert_int_equal(names_in("."), before + 1);
}

static void files_of_an_existing_folder_change_at_the_commit(void **state)
{
    (void)state;
    assert_int_equal(mkdir("kept", 0777), 0);
    put("kept/a", "old");
    put("kept/other", "stays");
    tess__folder *folder = fill_folder("kept", "one", "two");
    assert_holds("kept/a", "old");
    assert_int_equal(access("kept/b", F_OK), -1);
    CHECK_OK(tess__folder_commit(folder));
    assert_holds("kept/a", "one");
    assert_holds("kept/b", "two");
    assert_holds("kept/other", "stays");
    assert_int_equal(names_in("kept"), 3);
}

static void an_abandoned_folder_leaves_no_trace(void **state)
{
    (void)state;
    const int before = names_in(".");
    tess__folder_abort(fill_folder("never", "one", "two"));
    assert_int_equal(names_in("."), before);
    assert_int_equal(mkdir("still", 0777), 0);
    tess__folder_abort(fill_folder("still", "one", "two"));
    assert_int_equal(names_in("still"), 0);
    tess__folder_abort(NULL);
}

static void a_folder_that_cannot_be_says_why(void **state)
{
    (void)state;
    tess__folder *folder = NULL;
    put("plain", "a file");
    CHECK_FAILS(tess__folder_open(ctx, "plain", &folder), TESS_EIO,
                "plain: cannot create: is a file");
    CHECK_FAILS(tess__folder_open(ctx, "no/where", &folder), TESS_EIO,
                "no/where: cannot create: No such file or directory");
    CHECK_FAILS(tess__folder_open(ctx, "", &folder), TESS_EIO,
                ": cannot create: No such file or directory");
    assert_null(folder);
    /* The destination comes into being, with something in it, while the files are written. */
    const int before = names_in(".");
    folder = fill_folder("taken", "one", "two");
    assert_int_equal(mkdir("taken", 0777), 0);
    put("taken/x", "theirs");
    CHECK_FAILS(tess__folder_commit(folder), TESS_EIO, "taken: cannot create: Directory not empty");
    assert_int_equal(names_in("taken"), 1);
    assert_int_equal(names_in("."), before + 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_file_appears_at_the_commit),
    cmocka_unit_test(an_abort_leaves_what_was_there),
    cmocka_unit_test(large_and_small_writes_keep_their_order),
    cmocka_unit_test(the_mode_is_what_the_umask_leaves),
    cmocka_unit_test(a_link_stays_and_its_target_is_written),
    cmocka_unit_test(what_cannot_be_created_gets_a_sentence),
    cmocka_unit_test(a_read_only_folder_refuses),
    cmocka_unit_test(a_full_disk_is_reported_by_the_write_or_the_commit),
    cmocka_unit_test(a_destination_that_became_a_folder_is_reported_by_the_commit),
    cmocka_unit_test(two_files_of_one_name_do_not_disturb_each_other),
    cmocka_unit_test(what_killed_processes_left_is_removed),
    cmocka_unit_test(a_folder_appears_with_all_its_files),
    cmocka_unit_test(files_of_an_existing_folder_change_at_the_commit),
    cmocka_unit_test(an_abandoned_folder_leaves_no_trace),
    cmocka_unit_test(a_folder_that_cannot_be_says_why),
};
RUN_TESTS_WITH(tests, enter, leave)
