/* Counts the write-class calls that a process makes under one folder, writes each down, and at the N-th one kills the
 * process with SIGKILL, or lets the call fail.
 *
 * Loaded with LD_PRELOAD. Either its environment arms it when the process starts:
 *
 *     KILLAT_UNDER   calls count whose path contains this text
 *     KILLAT_AT      the call at which it happens, from 1; 0 or absent: never
 *     KILLAT_TORN    1: the N-th call, if it writes bytes, writes half of them before the kill
 *     KILLAT_ERRNO   fail with this number instead of killing, from the N-th call on, as a disk that is full or has
 *                    turned read-only does; ENOSPC and EDQUOT leave calls alone that need no space
 *     KILLAT_TRACE   file for one line a call that succeeded: number, name, path, second path, detail; tabs between
 *     KILLAT_PARENT  1: a process that asks the kernel to tell it of its parent's death finds the parent dying just then
 *
 * or the process calls killat_arm() with the same values, and killat_count() for the calls so far.
 *
 * The kill comes before the call is made, so the N-th run of a series shows what the first N-1 calls left.
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
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char under[PATH_MAX];
static long at;
static int torn, failing, trace = -1;
static atomic_long calls;

void killat_arm(const char *folder, long number, int half, int code, const char *file)
{
    under[0] = 0;
    at = number;
    torn = half;
    failing = code;
    trace = file && *file ? open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    atomic_store(&calls, 0);
    snprintf(under, sizeof under, "%s", folder ? folder : "");
}

long killat_count(void)
{
    return atomic_load(&calls);
}

__attribute__((constructor)) static void from_environment(void)
{
    const char *folder = getenv("KILLAT_UNDER"), *number = getenv("KILLAT_AT"), *half = getenv("KILLAT_TORN");
    const char *code = getenv("KILLAT_ERRNO"), *file = getenv("KILLAT_TRACE");
    if (folder)
        killat_arm(folder, number ? atol(number) : 0, half ? atoi(half) : 0, code ? atoi(code) : 0, file);
}

/* Paths: what the call names, made absolute by the folder or file that a descriptor stands for. */

static void path_of(int fd, char *out)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, out, PATH_MAX - 1);
    out[length > 0 ? length : 0] = 0;
}

static void path_at(int folder, const char *path, char *out)
{
    char base[PATH_MAX] = "";
    if (path[0] != '/' && folder == AT_FDCWD && !getcwd(base, sizeof base))
        base[0] = 0;
    if (path[0] != '/' && folder != AT_FDCWD)
        path_of(folder, base);
    if (snprintf(out, PATH_MAX, "%s%s%s", base, base[0] ? "/" : "", path) >= PATH_MAX)
        out[PATH_MAX - 1] = 0;
}

/* Before a call: 0 goes on, -1 fails (errno is set), 1 is the torn write after which the process dies. */

enum { PLAIN, SPACE, BYTES };

static int before(int kind, const char *path, const char *second)
{
    if (!under[0] || !(strstr(path, under) || (second && strstr(second, under))))
        return 0;
    long number = atomic_fetch_add(&calls, 1) + 1;
    if (!at || number < at)
        return 0;
    if (failing) {
        if ((failing == ENOSPC || failing == EDQUOT) && kind == PLAIN)
            return 0;
        errno = failing;
        return -1;
    }
    if (number != at)
        return 0;
    if (torn && kind == BYTES)
        return 1;
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static ssize_t (*plain_write)(int, const void *, size_t);

static void after(const char *name, const char *path, const char *second, const char *detail)
{
    if (trace < 0 || !under[0] || !(strstr(path, under) || (second && strstr(second, under))))
        return;
    char line[3 * PATH_MAX];
    int saved = errno;
    int length = snprintf(line, sizeof line, "%ld\t%s\t%s\t%s\t%s\n", killat_count(), name, path, second ? second : "", detail);
    if (!plain_write)
        plain_write = dlsym(RTLD_NEXT, "write");
    if (plain_write(trace, line, length) != length)
        abort();
    errno = saved;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) \
        real = dlsym(RTLD_NEXT, name)

/* Opening: counts when it creates, cuts off, or opens for writing. */

static int open_counted(int (*real)(int, const char *, int, ...), int folder, const char *path, int flags, mode_t mode)
{
    char full[PATH_MAX];
    if ((flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC)))
        return real(folder, path, flags, mode);
    path_at(folder, path, full);
    int fresh = (flags & O_CREAT) && faccessat(folder, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
    if (before(fresh ? SPACE : PLAIN, full, NULL) < 0)
        return -1;
    int fd = real(folder, path, flags, mode);
    if (fd >= 0)
        after("open", full, NULL, fresh ? "new" : flags & O_TRUNC ? "truncated" : "there");
    return fd;
}

#define MODE_OF(flags) \
    mode_t mode = 0; \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

#define OPENAT(function) \
    int function(int folder, const char *path, int flags, ...) \
    { \
        MODE_OF(flags) \
        REAL(int, "openat", int, const char *, int, ...); \
        return open_counted(real, folder, path, flags, mode); \
    }

#define OPEN(function) \
    int function(const char *path, int flags, ...) \
    { \
        MODE_OF(flags) \
        REAL(int, "openat", int, const char *, int, ...); \
        return open_counted(real, AT_FDCWD, path, flags, mode); \
    }

OPENAT(openat)
OPENAT(openat64)
OPEN(open)
OPEN(open64)

/* Calls on a descriptor. */

#define ON_FD(type, function, kind, parameters, types, full_call, half_call) \
    type function parameters \
    { \
        char path[PATH_MAX]; \
        REAL(type, #function, types); \
        path_of(fd, path); \
        int verdict = before(kind, path, NULL); \
        if (verdict < 0) \
            return -1; \
        if (verdict > 0) { \
            type half = half_call; \
            (void)half; \
            die(); \
        } \
        type result = full_call; \
        if (result >= 0) \
            after(#function, path, NULL, ""); \
        return result; \
    }
#define TYPES(...) __VA_ARGS__

ON_FD(ssize_t, write, BYTES, (int fd, const void *data, size_t size), TYPES(int, const void *, size_t),
      real(fd, data, size), real(fd, data, size / 2))
ON_FD(ssize_t, pwrite, BYTES, (int fd, const void *data, size_t size, off_t offset),
      TYPES(int, const void *, size_t, off_t), real(fd, data, size, offset), real(fd, data, size / 2, offset))
ON_FD(ssize_t, pwrite64, BYTES, (int fd, const void *data, size_t size, off64_t offset),
      TYPES(int, const void *, size_t, off64_t), real(fd, data, size, offset), real(fd, data, size / 2, offset))
ON_FD(ssize_t, writev, BYTES, (int fd, const struct iovec *parts, int count), TYPES(int, const struct iovec *, int),
      real(fd, parts, count), real(fd, parts, count / 2))
ON_FD(ssize_t, sendfile, BYTES, (int fd, int from, off_t *offset, size_t size), TYPES(int, int, off_t *, size_t),
      real(fd, from, offset, size), real(fd, from, offset, size / 2))
ON_FD(ssize_t, sendfile64, BYTES, (int fd, int from, off64_t *offset, size_t size),
      TYPES(int, int, off64_t *, size_t), real(fd, from, offset, size), real(fd, from, offset, size / 2))
ON_FD(int, ftruncate, SPACE, (int fd, off_t size), TYPES(int, off_t), real(fd, size), 0)
ON_FD(int, ftruncate64, SPACE, (int fd, off64_t size), TYPES(int, off64_t), real(fd, size), 0)
ON_FD(int, fsync, PLAIN, (int fd), TYPES(int), real(fd), 0)
ON_FD(int, fdatasync, PLAIN, (int fd), TYPES(int), real(fd), 0)
ON_FD(int, fchmod, PLAIN, (int fd, mode_t mode), TYPES(int, mode_t), real(fd, mode), 0)

ssize_t copy_file_range(int from, off64_t *start, int fd, off64_t *offset, size_t size, unsigned flags)
{
    char path[PATH_MAX];
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
    path_of(fd, path);
    int verdict = before(BYTES, path, NULL);
    if (verdict < 0)
        return -1;
    ssize_t result = real(from, start, fd, offset, verdict > 0 ? size / 2 : size, flags);
    if (verdict > 0)
        die();
    if (result >= 0)
        after("copy_file_range", path, NULL, "");
    return result;
}

/* Calls on one path. */

#define ON_PATH(function, shown, kind, parameters, types, folder, detail, call) \
    int function parameters \
    { \
        char full[PATH_MAX]; \
        REAL(int, #function, types); \
        path_at(folder, path, full); \
        if (before(kind, full, NULL) < 0) \
            return -1; \
        int result = call; \
        if (result == 0) \
            after(shown, full, NULL, detail); \
        return result; \
    }

ON_PATH(mkdir, "mkdir", SPACE, (const char *path, mode_t mode), TYPES(const char *, mode_t), AT_FDCWD, "",
        real(path, mode))
ON_PATH(mkdirat, "mkdir", SPACE, (int folder, const char *path, mode_t mode), TYPES(int, const char *, mode_t), folder,
        "", real(folder, path, mode))
ON_PATH(rmdir, "rmdir", PLAIN, (const char *path), TYPES(const char *), AT_FDCWD, "", real(path))
ON_PATH(unlink, "unlink", PLAIN, (const char *path), TYPES(const char *), AT_FDCWD, "", real(path))
ON_PATH(unlinkat, flags & AT_REMOVEDIR ? "rmdir" : "unlink", PLAIN, (int folder, const char *path, int flags),
        TYPES(int, const char *, int), folder, "", real(folder, path, flags))
ON_PATH(chmod, "chmod", PLAIN, (const char *path, mode_t mode), TYPES(const char *, mode_t), AT_FDCWD, "",
        real(path, mode))
ON_PATH(fchmodat, "chmod", PLAIN, (int folder, const char *path, mode_t mode, int flags),
        TYPES(int, const char *, mode_t, int), folder, "", real(folder, path, mode, flags))
ON_PATH(truncate, "truncate", SPACE, (const char *path, off_t size), TYPES(const char *, off_t), AT_FDCWD, "",
        real(path, size))
ON_PATH(truncate64, "truncate", SPACE, (const char *path, off64_t size), TYPES(const char *, off64_t), AT_FDCWD, "",
        real(path, size))

/* Calls on two paths. */

static int two(const char *name, int kind, int from, const char *old, int to, const char *fresh, unsigned flags,
               int (*call)(int, const char *, int, const char *, unsigned))
{
    char source[PATH_MAX], target[PATH_MAX];
    path_at(from, old, source);
    path_at(to, fresh, target);
    if (before(kind, source, target) < 0)
        return -1;
    int result = call(from, old, to, fresh, flags);
    if (result == 0)
        after(name, source, target, "");
    return result;
}

static int call_rename(int from, const char *old, int to, const char *fresh, unsigned flags)
{
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    return real(from, old, to, fresh, flags);
}

static int call_link(int from, const char *old, int to, const char *fresh, unsigned flags)
{
    REAL(int, "linkat", int, const char *, int, const char *, int);
    return real(from, old, to, fresh, (int)flags);
}

static int call_symlink(int from, const char *old, int to, const char *fresh, unsigned flags)
{
    (void)from;
    (void)flags;
    REAL(int, "symlinkat", const char *, int, const char *);
    return real(old, to, fresh);
}

int rename(const char *old, const char *fresh)
{
    return two("rename", SPACE, AT_FDCWD, old, AT_FDCWD, fresh, 0, call_rename);
}

int renameat(int from, const char *old, int to, const char *fresh)
{
    return two("rename", SPACE, from, old, to, fresh, 0, call_rename);
}

int renameat2(int from, const char *old, int to, const char *fresh, unsigned flags)
{
    return two("rename", SPACE, from, old, to, fresh, flags, call_rename);
}

int link(const char *old, const char *fresh)
{
    return two("link", SPACE, AT_FDCWD, old, AT_FDCWD, fresh, 0, call_link);
}

int linkat(int from, const char *old, int to, const char *fresh, int flags)
{
    return two("link", SPACE, from, old, to, fresh, (unsigned)flags, call_link);
}

int symlink(const char *old, const char *fresh)
{
    return two("symlink", SPACE, AT_FDCWD, old, AT_FDCWD, fresh, 0, call_symlink);
}

int symlinkat(const char *old, int to, const char *fresh)
{
    return two("symlink", SPACE, AT_FDCWD, old, to, fresh, 0, call_symlink);
}

/* The moment between fork and prctl in a child: whoever dies then is not reported any more. */

int prctl(int option, ...)
{
    unsigned long values[4];
    va_list rest;
    va_start(rest, option);
    for (int i = 0; i < 4; i++)
        values[i] = va_arg(rest, unsigned long);
    va_end(rest);
    REAL(int, "prctl", int, ...);
    const char *wanted = getenv("KILLAT_PARENT");
    pid_t parent = getppid();
    if (option == PR_SET_PDEATHSIG && wanted && *wanted == '1') {
        kill(parent, SIGKILL);
        while (getppid() == parent)
            usleep(1000);
    }
    return real(option, values[0], values[1], values[2], values[3]);
}
