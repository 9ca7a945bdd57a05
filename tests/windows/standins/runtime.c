/* What containerd does with pods. The test, which has the API server, says in C:\test\pods which pods the node has, UID
 * NAMESPACE/NAME in each line, and reads the addresses that they got in C:\test\attached, UID IP.
 *
 * While a CNI configuration is published, a pod gets a sandbox, and Calico's CNI plugin gives that an endpoint
 * (C:\test\cri.exe). Without one no pod gets a sandbox, and what a sandbox that ends has in HNS stays there (containerd
 * 8774). The first try for a pod fails, and its endpoint outlives its sandbox (microsoft/Windows-Containers 631), unless
 * there is a file C:\test\runtime.tidy. While there is a file C:\test\runtime.hold it does nothing. */
#include "steer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONF "C:\\Program Files\\containerd\\cni\\conf\\"
#define SAID "C:\\test\\cri-said"
#define MOST 8
#define LOOK 50

static struct pod {
    char uid[40], name[160], sandbox[65];
} running[MOST];
static int count;

static int is_there(const char *file)
{
    return GetFileAttributesA(file) != INVALID_FILE_ATTRIBUTES;
}

static int published(void)
{
    WIN32_FIND_DATAA found;
    HANDLE search = FindFirstFileA(CONF "*.conf*", &found);
    int is = 0;

    if (search == INVALID_HANDLE_VALUE)
        return 0;
    do {
        const char *end = strrchr(found.cFileName, '.');
        is |= !strcmp(end, ".conf") || !strcmp(end, ".conflist");
    } while (FindNextFileA(search, &found));
    FindClose(search);
    return is;
}

/* The id of a pod's sandbox, 64 hex digits: another one after each boot. */
static void sandbox_of(const char *uid, int number, char to[65])
{
    FILETIME begun, ended, kernel, user;
    char digits[33] = "";
    int at = 0;

    GetProcessTimes(GetCurrentProcess(), &begun, &ended, &kernel, &user);
    for (; *uid && at < 32; uid++)
        if (*uid != '-')
            digits[at++] = *uid;
    snprintf(to, 65, "%-32s%08lx%08lx%016d", digits, begun.dwHighDateTime, begun.dwLowDateTime, number);
    for (at = 0; to[at]; at++)
        if (to[at] == ' ')
            to[at] = '0';
}

/* Runs the CNI plugins for a sandbox; what they print is in the file SAID. */
static int plugins(const char *verb, const char *sandbox, const char *pod)
{
    SECURITY_ATTRIBUTES inherited = { .nLength = sizeof inherited, .bInheritHandle = TRUE };
    HANDLE said = CreateFileA(SAID, GENERIC_WRITE, FILE_SHARE_READ, &inherited, CREATE_ALWAYS, 0, NULL);
    STARTUPINFOA startup = { .cb = sizeof startup, .dwFlags = STARTF_USESTDHANDLES, .hStdOutput = said, .hStdError = said };
    PROCESS_INFORMATION process;
    char line[320];
    DWORD code = 1;

    snprintf(line, sizeof line, "C:\\test\\cri.exe %s %s %s", verb, sandbox, pod);
    if (CreateProcessA(NULL, line, NULL, NULL, TRUE, DETACHED_PROCESS, NULL, NULL, &startup, &process)) {
        WaitForSingleObject(process.hProcess, INFINITE);
        GetExitCodeProcess(process.hProcess, &code);
        CloseHandle(process.hProcess);
        CloseHandle(process.hThread);
    }
    CloseHandle(said);
    return code == 0;
}

/* The sandboxes that run, as the Host Compute Service lists them. */
static void write_systems(void)
{
    char text[MOST * 66] = "";

    for (int at = 0; at < count; at++)
        sprintf(text + strlen(text), "%s\n", running[at].sandbox);
    FILE *file = fopen("C:\\test\\hcs.systems", "wb");
    if (!file)
        return;
    fputs(text, file);
    fclose(file);
}

static void attach(const char *uid, const char *name)
{
    struct pod *pod = &running[count];
    char lost[65], line[128] = "";

    snprintf(pod->uid, sizeof pod->uid, "%s", uid);
    snprintf(pod->name, sizeof pod->name, "%s", name);
    sandbox_of(uid, 1, lost);
    sandbox_of(uid, 2, pod->sandbox);
    if (!is_there("C:\\test\\runtime.tidy") && !plugins("add", lost, name))
        return;
    if (!plugins("add", pod->sandbox, name))
        return;
    count++;
    write_systems();
    char *result = read_file(SAID), *ip = result ? strstr(result, "\"address\":\"") : NULL;
    if (ip)
        snprintf(line, sizeof line, "%s %.*s\n", uid, (int)strcspn(ip + 11, "/\""), ip + 11);
    free(result);
    FILE *file = fopen("C:\\test\\attached", "ab");
    if (file) {
        fputs(line, file);
        fclose(file);
    }
}

static int is_wanted(const char *wanted, const char *uid)
{
    const char *at = strstr(wanted, uid);
    return at && at[strlen(uid)] == ' ';
}

DWORD WINAPI play_runtime(void *unused)
{
    (void)unused;
    /* Sandboxes end with Windows. */
    write_systems();
    for (;; Sleep(LOOK)) {
        char *wanted = read_file("C:\\test\\pods"), *rest = wanted, *line;
        int is_published = published();

        if (!wanted || is_there("C:\\test\\runtime.hold")) {
            free(wanted);
            continue;
        }
        for (int at = count - 1; at >= 0; at--) {
            if (is_wanted(wanted, running[at].uid))
                continue;
            if (is_published)
                plugins("del", running[at].sandbox, running[at].name);
            running[at] = running[--count];
            write_systems();
        }
        for (; is_published && count < MOST && (line = strtok(rest, "\r\n")); rest = NULL) {
            char *name = strchr(line, ' ');
            int has = !name;
            if (name)
                *name++ = 0;
            for (int at = 0; at < count; at++)
                has |= !strcmp(running[at].uid, line);
            if (!has)
                attach(line, name);
        }
        free(wanted);
    }
    return 0;
}
