/* Many small files of OrangeFS, by its system interface (PVFS_sys_*), one behind the other; each
 * phase is a process of its own, so that no cache of the one before helps it.
 *
 *   files create MOUNT COUNT BYTES     makes and writes them
 *   files list MOUNT COUNT BYTES       reads the folder, and finds as many
 *   files read MOUNT COUNT BYTES       looks each up, reads it, compares it
 *   files remove MOUNT COUNT BYTES
 *
 * MOUNT is a mount point of the table that PVFS2TAB_FILE names. It prints one line of JSON: what all
 * took in seconds, and what a file took (a call, of `list`) in milliseconds. */
#include "tools.h"
#include <pvfs2.h>
#include <pvfs2-util.h>
#include <string.h>

#define FOLDER "files"
/* As many names a call as the protocol allows. */
#define NAMES 512

static PVFS_credential who;
static PVFS_object_ref folder;

static void name_of(char *name, size_t size, long number)
{
    snprintf(name, size, "file-%06ld", number);
}

static void fill(char *data, long bytes, long number)
{
    for (long i = 0; i < bytes; i++)
        data[i] = (char)(number * 31 + i * 7);
}

static PVFS_sys_attr attributes(void)
{
    PVFS_sys_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.owner = who.userid;
    attr.group = who.group_array[0];
    attr.perms = 0755;
    attr.atime = attr.mtime = attr.ctime = time(NULL);
    attr.mask = PVFS_ATTR_SYS_ALL_SETABLE;
    return attr;
}

/* Finds the folder; who makes files makes it, too. */
static void begin(const char *mount, int make)
{
    PVFS_sysresp_lookup found;
    PVFS_sysresp_mkdir made;
    PVFS_fs_id fs;
    char path[PVFS_NAME_MAX];
    check("PVFS_util_init_defaults", PVFS_util_init_defaults());
    check("PVFS_util_resolve", PVFS_util_resolve(mount, &fs, path, sizeof path));
    check("PVFS_util_gen_credential_defaults", PVFS_util_gen_credential_defaults(&who));
    memset(&found, 0, sizeof found);
    if (!make) {
        check("the folder", PVFS_sys_lookup(fs, "/" FOLDER, &who, &found, PVFS2_LOOKUP_LINK_FOLLOW, NULL));
        folder = found.ref;
        return;
    }
    check("the root", PVFS_sys_lookup(fs, "/", &who, &found, PVFS2_LOOKUP_LINK_FOLLOW, NULL));
    check("PVFS_sys_mkdir", PVFS_sys_mkdir(FOLDER, found.ref, attributes(), &who, &made, NULL));
    folder = made.ref;
}

/* Reads or writes all of a file. */
static void move(PVFS_object_ref file, char *data, long bytes, enum PVFS_io_type type)
{
    PVFS_sysresp_io done;
    PVFS_Request memory;
    check("PVFS_Request_contiguous", PVFS_Request_contiguous(bytes, PVFS_BYTE, &memory));
    check("PVFS_sys_io", PVFS_sys_io(file, PVFS_BYTE, 0, data, memory, &who, &done, type, NULL));
    if (done.total_completed != bytes)
        fail("bytes of a file", done.total_completed);
    PVFS_Request_free(&memory);
}

static void create(long number, char *data, char *expected, long bytes)
{
    PVFS_sysresp_create made;
    char name[32];
    (void)expected;
    name_of(name, sizeof name, number);
    check("PVFS_sys_create", PVFS_sys_create(name, folder, attributes(), &who, NULL, &made, NULL, NULL));
    fill(data, bytes, number);
    move(made.ref, data, bytes, PVFS_IO_WRITE);
}

static void look_up_and_read(long number, char *data, char *expected, long bytes)
{
    PVFS_sysresp_lookup found;
    char name[32], path[48];
    name_of(name, sizeof name, number);
    snprintf(path, sizeof path, "/" FOLDER "/%s", name);
    memset(&found, 0, sizeof found);
    check("PVFS_sys_lookup", PVFS_sys_lookup(folder.fs_id, path, &who, &found, PVFS2_LOOKUP_LINK_FOLLOW, NULL));
    move(found.ref, data, bytes, PVFS_IO_READ);
    fill(expected, bytes, number);
    if (memcmp(data, expected, bytes) != 0)
        fail("a file differs", number);
}

static void take_away(long number, char *data, char *expected, long bytes)
{
    char name[32];
    (void)data, (void)expected, (void)bytes;
    name_of(name, sizeof name, number);
    check("PVFS_sys_remove", PVFS_sys_remove(name, folder, &who, NULL));
}

/* Reads the folder; a time for each call. Returns how many calls it were. */
static long list(long count, double *times)
{
    PVFS_ds_position token = PVFS_READDIR_START;
    long names = 0, calls = 0;
    for (;;) {
        PVFS_sysresp_readdir some;
        double begin = now_us();
        memset(&some, 0, sizeof some);
        check("PVFS_sys_readdir", PVFS_sys_readdir(folder, token, NAMES, &who, &some, NULL));
        if (calls < count)
            times[calls++] = now_us() - begin;
        names += some.pvfs_dirent_outcount;
        token = some.token;
        /* (The array is left: it is of an allocator of OrangeFS's own, whose free is not public.) */
        if (some.pvfs_dirent_outcount < NAMES)
            break;
    }
    if (names != count)
        fail("names in the folder", names);
    return calls;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(double *times, long n)
{
    double sum = 0;
    for (long i = 0; i < n; i++)
        sum += times[i];
    qsort(times, n, sizeof *times, by_size);
    printf("{\"s\": %.6f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f}\n", sum * 1e-6,
           times[n / 2] * 1e-3, times[n * 99 / 100] * 1e-3, times[n - 1] * 1e-3);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: files create|list|read|remove MOUNT COUNT BYTES\n");
        return 2;
    }
    const char *phase = argv[1];
    long count = atol(argv[3]), bytes = atol(argv[4]), timed = count;
    if (count < 1 || bytes < 1)
        fail("count and bytes", count);
    void (*work)(long, char *, char *, long) = NULL;
    if (strcmp(phase, "create") == 0)
        work = create;
    else if (strcmp(phase, "read") == 0)
        work = look_up_and_read;
    else if (strcmp(phase, "remove") == 0)
        work = take_away;
    else if (strcmp(phase, "list") != 0)
        fail("no such phase", 0);
    double *times = calloc(count, sizeof *times);
    char *data = malloc(bytes), *expected = malloc(bytes);
    if (!times || !data || !expected)
        fail("memory", 0);
    begin(argv[2], work == create);
    if (!work)
        timed = list(count, times);
    for (long i = 0; work && i < count; i++) {
        double begin = now_us();
        work(i, data, expected, bytes);
        times[i] = now_us() - begin;
    }
    tell(times, timed);
    PVFS_sys_finalize();
    return 0;
}
