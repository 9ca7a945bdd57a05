#include "steer.h"
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static HANDLE asked_to_stop;
static volatile LONG is_deaf;

char *utf8(const WCHAR *text)
{
    int size = WideCharToMultiByte(CP_UTF8, 0, text, -1, NULL, 0, NULL, NULL);
    char *bytes = calloc(1, size + 1);
    WideCharToMultiByte(CP_UTF8, 0, text, -1, bytes, size, NULL, NULL);
    return bytes;
}

char *read_file(const char *path)
{
    /* Others may read, write, rename and delete the file meanwhile. */
    HANDLE file = CreateFileA(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                              OPEN_EXISTING, 0, NULL);
    if (file == INVALID_HANDLE_VALUE)
        return NULL;
    DWORD size = GetFileSize(file, NULL), done = 0;
    char *text = calloc(1, size + 1);
    ReadFile(file, text, size, &done, NULL);
    text[done] = 0;
    CloseHandle(file);
    return text;
}

void note(const char *name, const char *line)
{
    char path[MAX_PATH];
    CreateDirectoryA("C:\\test", NULL);
    snprintf(path, sizeof path, "C:\\test\\%s.log", name);
    HANDLE file = CreateFileA(path, FILE_APPEND_DATA, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                              OPEN_ALWAYS, 0, NULL);
    if (file == INVALID_HANDLE_VALUE)
        return;
    size_t size = strlen(line);
    char *whole = malloc(size + 2);
    memcpy(whole, line, size);
    whole[size] = '\n';
    DWORD written;
    /* One write, so that lines of two processes do not mix. */
    WriteFile(file, whole, (DWORD)size + 1, &written, NULL);
    CloseHandle(file);
    free(whole);
}

/* A text that grows. */
struct text {
    char *bytes;
    size_t used, size;
};

static void add(struct text *to, const char *bytes, size_t count)
{
    if (to->used + count + 1 > to->size) {
        to->size = (to->used + count + 1) * 2;
        to->bytes = realloc(to->bytes, to->size);
    }
    memcpy(to->bytes + to->used, bytes, count);
    to->used += count;
    to->bytes[to->used] = 0;
}

static void add_plain(struct text *to, const char *text)
{
    add(to, text, strlen(text));
}

static void add_json(struct text *to, const char *text)
{
    add_plain(to, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            char two[2] = { '\\', (char)c };
            add(to, two, 2);
        } else if (c < ' ') {
            char code[8];
            snprintf(code, sizeof code, "\\u%04x", c);
            add_plain(to, code);
        } else {
            add(to, text, 1);
        }
    }
    add_plain(to, "\"");
}

static void add_json_wide(struct text *to, const WCHAR *text)
{
    char *bytes = utf8(text);
    add_json(to, bytes);
    free(bytes);
}

static void tell_start(const char *name)
{
    struct text line = { 0 };
    char number[64];
    WCHAR path[1024];

    snprintf(number, sizeof number, "{\"event\":\"start\",\"pid\":%lu,\"program\":", GetCurrentProcessId());
    add_plain(&line, number);
    GetModuleFileNameW(NULL, path, 1024);
    add_json_wide(&line, path);
    add_plain(&line, ",\"args\":[");
    for (int i = 1; i < __argc; i++) {
        if (i > 1)
            add_plain(&line, ",");
        add_json(&line, __argv[i]);
    }
    add_plain(&line, "],\"dir\":");
    GetCurrentDirectoryW(1024, path);
    add_json_wide(&line, path);
    add_plain(&line, ",\"env\":{");
    WCHAR *all = GetEnvironmentStringsW();
    BOOL first = TRUE;
    for (WCHAR *entry = all; *entry; entry += wcslen(entry) + 1) {
        WCHAR *equals = wcschr(entry + 1, L'=');
        if (!equals || *entry == L'=')
            continue;
        if (!first)
            add_plain(&line, ",");
        first = FALSE;
        WCHAR *variable = _wcsdup(entry);
        variable[equals - entry] = 0;
        add_json_wide(&line, variable);
        add_plain(&line, ":");
        add_json_wide(&line, equals + 1);
        free(variable);
    }
    FreeEnvironmentStringsW(all);
    add_plain(&line, "}}");
    note(name, line.bytes);
    free(line.bytes);
}

int stopped(const char *name, const char *why, int code)
{
    char line[128];
    snprintf(line, sizeof line, "{\"event\":\"stop\",\"why\":\"%s\",\"code\":%d,\"pid\":%lu}", why, code,
             GetCurrentProcessId());
    note(name, line);
    return code;
}

/* The next line of the instructions, removed unless it is the last. */
static char *next_line(const char *name)
{
    char path[MAX_PATH], temporary[MAX_PATH];
    snprintf(path, sizeof path, "C:\\test\\%s.do", name);
    char *text = read_file(path);
    if (!text)
        return NULL;
    char *end = strchr(text, '\n');
    if (end && end[1]) {
        snprintf(temporary, sizeof temporary, "C:\\test\\%s.do-%lu", name, GetCurrentProcessId());
        FILE *rest = fopen(temporary, "wb");
        if (rest) {
            fputs(end + 1, rest);
            fclose(rest);
            MoveFileExA(temporary, path, MOVEFILE_REPLACE_EXISTING);
        }
    }
    if (end)
        *end = 0;
    return text;
}

struct orders started(const char *name)
{
    struct orders orders = { 0 };
    char *line = next_line(name);
    for (char *word = line ? strtok(line, " \r") : NULL; word; word = strtok(NULL, " \r")) {
        if (!strncmp(word, "exit=", 5)) {
            orders.ends = TRUE;
            orders.code = atoi(word + 5);
        } else if (!strncmp(word, "after=", 6))
            orders.after = (DWORD)atol(word + 6);
        else if (!strncmp(word, "ctrlc=", 6))
            orders.ctrl_c = atoi(word + 6);
        else if (!strncmp(word, "log=", 4))
            orders.log = atol(word + 4);
        else if (!strcmp(word, "deaf"))
            orders.deaf = TRUE;
        else if (!strcmp(word, "torn"))
            orders.torn = TRUE;
        else if (!strcmp(word, "child"))
            orders.child = TRUE;
        else if (!strcmp(word, "hang"))
            orders.hang = TRUE;
        else if (!strcmp(word, "late"))
            orders.late = TRUE;
        else if (!strcmp(word, "unready"))
            orders.unready = TRUE;
        else if (!strncmp(word, "writes=", 7))
            orders.writes = (DWORD)atol(word + 7);
    }
    free(line);
    /* Go writes lines without carriage returns. */
    _setmode(_fileno(stdout), _O_BINARY);
    _setmode(_fileno(stderr), _O_BINARY);
    tell_start(name);
    return orders;
}

static BOOL WINAPI on_control(DWORD kind)
{
    (void)kind;
    if (!is_deaf)
        SetEvent(asked_to_stop);
    return TRUE;
}

void for_ever(void)
{
    asked_to_stop = CreateEventA(NULL, TRUE, FALSE, NULL);
    is_deaf = TRUE;
    SetConsoleCtrlHandler(on_control, TRUE);
    Sleep(INFINITE);
}

static void start_child(void)
{
    WCHAR program[1024], line[1100];
    GetModuleFileNameW(NULL, program, 1024);
    swprintf(line, 1100, L"\"%ls\" --for-ever", program);
    STARTUPINFOW startup = { .cb = sizeof startup };
    PROCESS_INFORMATION child;
    if (CreateProcessW(program, line, NULL, NULL, TRUE, 0, NULL, NULL, &startup, &child)) {
        CloseHandle(child.hThread);
        CloseHandle(child.hProcess);
    }
}

/* Writes log lines of 100 bytes until this many bytes were written. */
static void write_log(const char *name, long long *written, long long until, BOOL torn)
{
    static unsigned long number;
    static char block[64 * 1024];
    HANDLE out = GetStdHandle(STD_OUTPUT_HANDLE);
    while (*written < until) {
        DWORD used = 0, done;
        while (used + 100 <= sizeof block && *written + used < until) {
            int size = snprintf(block + used, 101, "2026-11-21 08:00:00.000 [INFO][1] %s/log.go 7: line %010lu ", name,
                                ++number);
            memset(block + used + size, 'x', 99 - size);
            block[used + 99] = '\n';
            used += 100;
            if (torn)
                break;
        }
        if (torn) {
            WriteFile(out, block, 50, &done, NULL);
            Sleep(5);
            WriteFile(out, block + 50, used - 50, &done, NULL);
        } else if (!WriteFile(out, block, used, &done, NULL)) {
            return;
        }
        *written += used;
    }
}

int serve(const char *name, const struct orders *orders)
{
    char now[MAX_PATH];
    snprintf(now, sizeof now, "C:\\test\\%s.now", name);
    is_deaf = orders->deaf;
    asked_to_stop = CreateEventA(NULL, TRUE, FALSE, NULL);
    /* The parent may have disabled Ctrl-C, which is inherited. */
    SetConsoleCtrlHandler(NULL, FALSE);
    SetConsoleCtrlHandler(on_control, TRUE);
    if (orders->child)
        start_child();
    printf("%s is up\n", name);
    fflush(stdout);
    fprintf(stderr, "%s complains\n", name);
    fflush(stderr);

    ULONGLONG begun = GetTickCount64();
    long long written = 0;
    for (;;) {
        ULONGLONG elapsed = GetTickCount64() - begun;
        if (orders->ends && elapsed >= orders->after)
            return stopped(name, "exit", orders->code);
        char *code = read_file(now);
        if (code) {
            DeleteFileA(now);
            int number = atoi(code);
            free(code);
            return stopped(name, "now", number);
        }
        if (orders->log)
            write_log(name, &written, (long long)orders->log * (long long)(elapsed + 20) / 1000, orders->torn);
        if (WaitForSingleObject(asked_to_stop, 20) == WAIT_OBJECT_0)
            return stopped(name, "ctrl-c", orders->ctrl_c);
    }
}
