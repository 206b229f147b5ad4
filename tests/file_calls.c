/* Fails or ends the process at file calls below a directory; see file_calls.py.
 *
 * Loaded before the C library, so that it also sees calls that TensorFlow makes itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEAR = -1, KILL = 0 }; /* Other faults are numbers of errors. */
enum { CHANGES, READS };

static char below[PATH_MAX];
static int faulty_kind, fault;
static long first, last;
static atomic_long counts[2];

/* Counts from now on, and has the calls of a kind from one number to another one fail. */
void file_calls_begin(const char *directory, int kind, int what, long from, long to)
{
    faulty_kind = kind, fault = what, first = from, last = to;
    counts[CHANGES] = counts[READS] = 0;
    strncpy(below, directory, sizeof below - 1);
}

long file_calls_count(int kind) { return counts[kind]; }

static int is_below(int directory, const char *path)
{
    char link[64], place[PATH_MAX] = "";
    if (!*below)
        return 0;
    if (!path || *path != '/') {
        if (directory == AT_FDCWD)
            strcpy(link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        if (readlink(link, place, sizeof place - 1) < 0)
            return 0;
        path = place;
    }
    size_t length = strlen(below);
    return !strncmp(path, below, length) && (!path[length] || path[length] == '/');
}

static int end(void) { return kill(getpid(), SIGKILL); }

/* Whether a call is to fail now. */
static int fails(int kind, int directory, const char *path)
{
    int before = errno, is_counted = is_below(directory, path);
    errno = before;
    if (!is_counted)
        return 0;
    long number = ++counts[kind];
    if (kind != faulty_kind || number < first || number > last)
        return 0;
    if (fault <= 0)
        end();
    errno = fault;
    return 1;
}

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))
#define CHANGE(result, name, declared, passed, directory, path) \
    result name declared { return fails(CHANGES, directory, path) ? -1 : REAL(name) passed; }

CHANGE(int, mkdir, (const char *a, mode_t m), (a, m), AT_FDCWD, a)
CHANGE(int, mkdirat, (int d, const char *a, mode_t m), (d, a, m), d, a)
CHANGE(int, rmdir, (const char *a), (a), AT_FDCWD, a)
CHANGE(int, unlink, (const char *a), (a), AT_FDCWD, a)
CHANGE(int, unlinkat, (int d, const char *a, int f), (d, a, f), d, a)
CHANGE(int, rename, (const char *a, const char *b), (a, b), AT_FDCWD, b)
CHANGE(int, renameat, (int d, const char *a, int e, const char *b), (d, a, e, b), e, b)
CHANGE(int, linkat, (int d, const char *a, int e, const char *b, int f), (d, a, e, b, f), e, b)
CHANGE(int, truncate, (const char *a, off_t n), (a, n), AT_FDCWD, a)
CHANGE(int, ftruncate, (int d, off_t n), (d, n), d, NULL)
CHANGE(ssize_t, sendfile, (int d, int e, off_t *o, size_t n), (d, e, o, n), d, NULL)
CHANGE(ssize_t, copy_file_range, (int e, off_t *p, int d, off_t *o, size_t n, unsigned f), (e, p, d, o, n, f), d, NULL)
CHANGE(int, fsync, (int d), (d), d, NULL)
CHANGE(int, fdatasync, (int d), (d), d, NULL)
CHANGE(int, fflush, (FILE *f), (f), f ? fileno(f) : -1, NULL)
CHANGE(int, fclose, (FILE *f), (f), fileno(f), NULL)

/* A write may also be torn: half of it is done, then the process ends. */
#define WRITE(result, name, declared, whole, half, directory, failed) \
    result name declared \
    { \
        if (fault == TEAR && faulty_kind == CHANGES && counts[CHANGES] + 1 == first && \
            is_below(directory, NULL)) { \
            REAL(name) half; \
            fflush(NULL); \
            end(); \
        } \
        return fails(CHANGES, directory, NULL) ? failed : REAL(name) whole; \
    }

WRITE(ssize_t, write, (int d, const void *p, size_t n), (d, p, n), (d, p, n / 2), d, -1)
WRITE(ssize_t, pwrite, (int d, const void *p, size_t n, off_t o), (d, p, n, o), (d, p, n / 2, o), d, -1)
WRITE(size_t, fwrite, (const void *p, size_t s, size_t n, FILE *f), (p, s, n, f), (p, s, n / 2, f), fileno(f), 0)

#define READ(name, declared, passed) \
    ssize_t name declared { return fails(READS, d, NULL) ? -1 : REAL(name) passed; }

READ(read, (int d, void *p, size_t n), (d, p, n))
READ(pread, (int d, void *p, size_t n, off_t o), (d, p, n, o))

/* Opening is a change if it may create the file. */
#define OPEN(name, declared, directory, passed) \
    int name declared \
    { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = va_arg(more, mode_t); \
        va_end(more); \
        return fails(flags & O_CREAT ? CHANGES : READS, directory, a) ? -1 : REAL(name) passed; \
    }

OPEN(open, (const char *a, int flags, ...), AT_FDCWD, (a, flags, mode))
OPEN(openat, (int d, const char *a, int flags, ...), d, (d, a, flags, mode))

FILE *fopen(const char *a, const char *how)
{
    return fails(strchr(how, 'r') ? READS : CHANGES, AT_FDCWD, a) ? NULL : REAL(fopen)(a, how);
}

/* The same by the names that programs with large files use. */
#define SAME(name) extern __typeof__(name) name##64 __attribute__((alias(#name)));
SAME(open)
SAME(openat)
SAME(fopen)
SAME(pread)
SAME(pwrite)
SAME(truncate)
SAME(ftruncate)
