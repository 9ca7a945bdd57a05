#include "call.h"

/* ---- faults: a line each in hns.faults; vmcompute.c has the words ---- */

static int next_fault(const char *method, const char *path, struct call *fault)
{
    char *all = read_state("hns.faults"), *rest = all, *line;
    struct text left = {0};
    int found = 0;
    add(&left, "");
    while ((line = next_line(&rest))) {
        long skip = 0, times = 0;
        char verb[16] = "", prefix[128] = "", action[16] = "", printed[1024];
        int at = 0;
        sscanf(line, "%ld %ld %15s %127s %15s %n", &skip, &times, verb, prefix, action, &at);
        int fits = !found && times != 0 && !_stricmp(verb, method) && !strncmp(path, prefix, strlen(prefix));
        const char *tail = at ? line + at : "";
        if (fits && skip > 0)
            skip--;
        else if (fits) {
            found = 1;
            times -= times > 0;
            snprintf(fault->action, sizeof fault->action, "%s", action);
            snprintf(fault->rest, sizeof fault->rest, "%s", tail);
        }
        snprintf(printed, sizeof printed, "%ld %ld %s %s %s %s\n", skip, times, verb, prefix, action, tail);
        add(&left, printed);
    }
    if (*all)
        write_state("hns.faults", left.at, "wb");
    free(left.at);
    free(all);
    return found;
}

void begin_call(struct call *call, const char *method, const char *path)
{
    struct text log = {0};
    *call = (struct call){test_lock(), "", ""};
    add(&log, method);
    add(&log, " ");
    add(&log, path);
    add(&log, "\n");
    write_state("hns.log", log.at, "ab");
    free(log.at);
    next_fault(method, path, call);
    int hangs = !strcmp(call->action, "hang"), busy = !strcmp(call->action, "busy");
    test_unlock(call->lock);
    if (hangs || !strcmp(call->action, "delay"))
        Sleep(hangs ? INFINITE : strtoul(call->rest, NULL, 0));
    /* Every caller waits while HNS is busy, no matter what it asks. */
    HANDLE turn = CreateMutexA(NULL, FALSE, "Global\\calicoctl-win-test-busy");
    WaitForSingleObject(turn, INFINITE);
    if (busy)
        Sleep(strtoul(call->rest, NULL, 0));
    call->lock = test_lock();
    ReleaseMutex(turn);
    CloseHandle(turn);
}

int faulty(const struct call *call, struct said *said)
{
    char *words = (char *)call->rest;
    if (!strcmp(call->action, "plain")) {
        *said = (struct said){.failed = 1, .words = words};
        return 1;
    }
    int hresult = !strcmp(call->action, "hresult");
    if (!hresult && strcmp(call->action, "error"))
        return 0;
    unsigned long code = strtoul(words, &words, 0);
    words += strspn(words, " ");
    *said = (struct said){.failed = 1, .code = code, .words = words, .hresult = hresult};
    return 1;
}

void end_call(struct call *call)
{
    test_unlock(call->lock);
}

char *narrow(LPCWSTR text)
{
    int size = WideCharToMultiByte(CP_UTF8, 0, text ? text : L"", -1, NULL, 0, NULL, NULL);
    char *to = calloc(1, size);
    WideCharToMultiByte(CP_UTF8, 0, text ? text : L"", -1, to, size, NULL, NULL);
    return to;
}

void give(LPWSTR *response, const char *text)
{
    if (!response || !text || !*text)
        return;
    int size = MultiByteToWideChar(CP_UTF8, 0, text, -1, NULL, 0);
    *response = CoTaskMemAlloc(size * sizeof(WCHAR));
    MultiByteToWideChar(CP_UTF8, 0, text, -1, *response, size);
}
