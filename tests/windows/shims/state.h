/* What the test DLLs share: files below C:\test that a test reads and writes, one record in each line, and
 * one lock for them. Services do not inherit a test's environment, so files are the only way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST_DIR "C:\\test\\"
#define MAX_FIELDS 12

static HANDLE test_lock(void)
{
    HANDLE mutex = CreateMutexA(NULL, FALSE, "Global\\calicoctl-win-test-state");
    WaitForSingleObject(mutex, INFINITE);
    return mutex;
}

static void test_unlock(HANDLE mutex)
{
    ReleaseMutex(mutex);
    CloseHandle(mutex);
}

/* The whole file with a zero at its end; an empty text if there is none. */
static char *read_state(const char *name)
{
    char path[MAX_PATH];
    snprintf(path, sizeof path, TEST_DIR "%s", name);
    FILE *file = fopen(path, "rb");
    if (!file)
        return calloc(1, 1);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, size + 1);
    if (fread(text, 1, size, file) != (size_t)size)
        text[0] = 0;
    fclose(file);
    return text;
}

static int has_state(const char *name)
{
    char path[MAX_PATH];
    snprintf(path, sizeof path, TEST_DIR "%s", name);
    return GetFileAttributesA(path) != INVALID_FILE_ATTRIBUTES;
}

static void put_text(const char *path, const char *text, const char *mode)
{
    FILE *file = fopen(path, mode);
    if (file) {
        fputs(text, file);
        fclose(file);
    }
}

/* With mode "ab" at the file's end. With "wb" in place of the file, whole or not at all: what Windows keeps in a
 * database does not become empty in a power cut. */
static void write_state(const char *name, const char *text, const char *mode)
{
    char path[MAX_PATH], beside[MAX_PATH];
    CreateDirectoryA("C:\\test", NULL);
    snprintf(path, sizeof path, TEST_DIR "%s", name);
    snprintf(beside, sizeof beside, TEST_DIR "%s.new", name);
    put_text(*mode == 'w' ? beside : path, text, mode);
    if (*mode == 'w' && !MoveFileExA(beside, path, MOVEFILE_REPLACE_EXISTING))
        put_text(path, text, mode);
}

/* Splits the next line off; null at the end. Skips empty lines and those with #. */
static char *next_line(char **rest)
{
    while (**rest) {
        char *line = *rest, *end = line + strcspn(line, "\n");
        *rest = *end ? end + 1 : end;
        *end = 0;
        if (end > line && end[-1] == '\r')
            end[-1] = 0;
        if (*line && *line != '#')
            return line;
    }
    return NULL;
}

/* Splits a line at its tabs. Missing fields are empty. */
static void split_fields(char *line, char *fields[MAX_FIELDS])
{
    static char nothing[1];
    for (int i = 0; i < MAX_FIELDS; i++) {
        fields[i] = line ? line : nothing;
        if (line && (line = strchr(line, '\t')))
            *line++ = 0;
    }
}

/* A text that grows. */
struct text {
    char *at;
    size_t length;
};

static void add(struct text *text, const char *more)
{
    size_t length = strlen(more);
    text->at = realloc(text->at, text->length + length + 1);
    memcpy(text->at + text->length, more, length + 1);
    text->length += length;
}

/* The value of `key=VALUE` in the file `settings`, or the given default. */
static long setting(const char *key, long otherwise)
{
    char *all = read_state("settings"), *rest = all, *line;
    while ((line = next_line(&rest)))
        if (!strncmp(line, key, strlen(key)) && line[strlen(key)] == '=')
            otherwise = strtol(line + strlen(key) + 1, NULL, 0);
    free(all);
    return otherwise;
}

/* The adapters of the machine, `adapters`, one in each line:
 * index, name, mac, dhcp (0|1), metric (auto|number), description, addresses (a/b,a/b), polls
 * with tabs between. `polls` is how often the table is read before the addresses appear. One with a vSwitch has no IP, and
 * Windows does not list it. `adapters.times`: name, back, here, preferred, in milliseconds since the host's start: until
 * then the adapter is not listed, has no addresses, and these are still being probed for duplicates (DAD). */
struct adapter {
    char *index, *name, *mac, *dhcp, *metric, *description, *addresses;
    long polls;
};

struct times {
    unsigned long long back, here, preferred;
};

static int parse_adapter(char *line, struct adapter *adapter)
{
    char *f[MAX_FIELDS];
    split_fields(line, f);
    *adapter = (struct adapter){f[0], f[1], f[2], f[3], f[4], f[5], f[6], atol(f[7])};
    return *f[0] && *f[1];
}

static struct times times_of(const char *adapter)
{
    char *all = read_state("adapters.times"), *rest = all, *line, *f[MAX_FIELDS];
    struct times times = {0};
    while ((line = next_line(&rest))) {
        split_fields(line, f);
        if (!_stricmp(f[0], adapter))
            times = (struct times){strtoull(f[1], NULL, 10), strtoull(f[2], NULL, 10), strtoull(f[3], NULL, 10)};
    }
    free(all);
    return times;
}

/* Whether an adapter has a vSwitch: then the host's side of it has the addresses. */
static int has_switch(const char *adapter)
{
    char host[256], *all = read_state("adapters"), *rest = all, *line;
    struct adapter a;
    int there = 0;
    snprintf(host, sizeof host, "vEthernet (%s)", adapter);
    while ((line = next_line(&rest)))
        there |= parse_adapter(line, &a) && !_stricmp(a.name, host);
    free(all);
    return there;
}

static void print_adapter(struct text *to, const struct adapter *a)
{
    char polls[32];
    const char *fields[] = {a->index, a->name, a->mac, a->dhcp, a->metric, a->description, a->addresses};
    for (int i = 0; i < 7; i++) {
        add(to, fields[i]);
        add(to, "\t");
    }
    snprintf(polls, sizeof polls, "%ld\n", a->polls);
    add(to, polls);
}
