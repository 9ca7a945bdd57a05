/* The clock, the time zone and the disk of a machine of the tests. Preloaded into every process of a
   Wine prefix; the file that CALICOCTL_TEST_MACHINE names has the offset of the wall clock in
   seconds (64 bits), whether drive C is full (64 bits) and, in the next 48 bytes, the time zone of
   processes that start. The folder C:\test is never full: it is not the machine's, but shared by
   tests and stand-ins.

   Child processes get their heap at a fixed address. Wine needs the page at 0x7ffe0000, and in one start
   of some 2,500 the heap was there: Wine then ends at once, without a message. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct told {
    long long offset;
    long long full;
    char zone[48];
};

static const volatile struct told *told;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CALICOCTL_TEST_MACHINE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map;

    /* It applies from the next exec on, and every Wine starts with one. */
    personality(personality(0xffffffff) | ADDR_NO_RANDOMIZE);
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0)
        return;
    map = mmap(NULL, sizeof(struct told), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (map == MAP_FAILED)
        return;
    told = map;
    if (told->zone[0])
        setenv("TZ", (const char *)told->zone, 1);
}

int clock_gettime(clockid_t id, struct timespec *time)
{
    int failed;

    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    failed = real(id, time);
    if (!failed && told && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        time->tv_sec += told->offset;
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (place)
        *place = now.tv_sec;
    return now.tv_sec;
}

/* Whether a file is on the full drive. */
static int full(int file)
{
    char link[32], path[4096];
    ssize_t length;

    if (!told || !told->full)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return strstr(path, "/drive_c/") && !strstr(path, "/drive_c/test/");
}

/* Forwards a write, unless the drive is full. */
#define WRITE(name, parameters, ...)                                             \
    ssize_t name parameters                                                      \
    {                                                                            \
        static ssize_t(*next) parameters;                                        \
                                                                                 \
        if (full(file)) {                                                        \
            errno = ENOSPC;                                                      \
            return -1;                                                           \
        }                                                                        \
        if (!next)                                                               \
            next = (ssize_t(*) parameters)dlsym(RTLD_NEXT, #name);               \
        return next(__VA_ARGS__);                                                \
    }

WRITE(write, (int file, const void *bytes, size_t size), file, bytes, size)
WRITE(pwrite, (int file, const void *bytes, size_t size, off_t at), file, bytes, size, at)
WRITE(pwrite64, (int file, const void *bytes, size_t size, off64_t at), file, bytes, size, at)
