/* The Restart Manager, as much of it as says who has a file open. Wine's own has no answer. This one looks at
   the handles of every process, so that what it says is true of the prefix. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <winternl.h>
#include <restartmanager.h>
#include <stdlib.h>
#include <wchar.h>

#define SYSTEM_EXTENDED_HANDLES 64
#define MISMATCH ((NTSTATUS)0xC0000004)
#define SESSIONS 64
#define ERROR_MAX_SESSIONS_REACHED 353

struct handle {
    void *object;
    ULONG_PTR pid, handle;
    ULONG access;
    USHORT trace, type;
    ULONG attributes, reserved;
};

struct handles {
    ULONG_PTR count, reserved;
    struct handle all[];
};

static struct session {
    BOOL taken;
    UINT count;
    wchar_t **files;
} sessions[SESSIONS];

static CRITICAL_SECTION lock;

BOOL WINAPI DllMain(HINSTANCE self, DWORD why, void *reserved)
{
    if (why == DLL_PROCESS_ATTACH)
        InitializeCriticalSection(&lock);
    return TRUE;
}

static const wchar_t *plain(const wchar_t *path)
{
    return wcsncmp(path, L"\\\\?\\", 4) ? path : path + 4;
}

static struct session *of(DWORD number)
{
    return number && number <= SESSIONS && sessions[number - 1].taken ? &sessions[number - 1] : NULL;
}

__declspec(dllexport) DWORD WINAPI RmStartSession(DWORD *number, DWORD flags, WCHAR *key)
{
    DWORD at;

    EnterCriticalSection(&lock);
    for (at = 0; at < SESSIONS && sessions[at].taken; at++)
        ;
    if (at < SESSIONS)
        sessions[at].taken = TRUE;
    LeaveCriticalSection(&lock);
    if (at == SESSIONS)
        return ERROR_MAX_SESSIONS_REACHED;
    *number = at + 1;
    wsprintfW(key, L"%032lx", *number);
    return ERROR_SUCCESS;
}

__declspec(dllexport) DWORD WINAPI RmEndSession(DWORD number)
{
    struct session *session = of(number);
    UINT at;

    if (!session)
        return ERROR_INVALID_HANDLE;
    for (at = 0; at < session->count; at++)
        free(session->files[at]);
    free(session->files);
    memset(session, 0, sizeof *session);
    return ERROR_SUCCESS;
}

__declspec(dllexport) DWORD WINAPI RmRegisterResources(DWORD number, UINT files, LPCWSTR *names, UINT applications,
                                                       RM_UNIQUE_PROCESS *processes, UINT services, LPCWSTR *others)
{
    struct session *session = of(number);
    UINT at;

    if (!session)
        return ERROR_INVALID_HANDLE;
    session->files = realloc(session->files, (session->count + files + 1) * sizeof *session->files);
    for (at = 0; at < files; at++)
        session->files[session->count++] = wcsdup(plain(names[at]));
    return ERROR_SUCCESS;
}

static struct handles *every_handle(void)
{
    ULONG size = 1 << 20;
    struct handles *all = malloc(size);

    while (NtQuerySystemInformation(SYSTEM_EXTENDED_HANDLES, all, size, NULL) == MISMATCH)
        all = realloc(all, size *= 2);
    return all;
}

/* Whether a handle of another process is one of the session's files. */
static BOOL is_one(const struct session *session, HANDLE process, HANDLE theirs)
{
    wchar_t path[4096];
    HANDLE ours;
    BOOL found = FALSE;
    UINT at;

    if (!DuplicateHandle(process, theirs, GetCurrentProcess(), &ours, 0, FALSE, DUPLICATE_SAME_ACCESS))
        return FALSE;
    if (GetFileType(ours) == FILE_TYPE_DISK && GetFinalPathNameByHandleW(ours, path, 4096, 0))
        for (at = 0; at < session->count && !found; at++)
            found = !lstrcmpiW(plain(path), session->files[at]);
    CloseHandle(ours);
    return found;
}

__declspec(dllexport) DWORD WINAPI RmGetList(DWORD number, UINT *needed, UINT *room, RM_PROCESS_INFO *list, DWORD *why)
{
    const struct session *session = of(number);
    struct handles *all;
    HANDLE process = NULL;
    ULONG_PTR pid = 0, last = 0, at;

    if (!session)
        return ERROR_INVALID_HANDLE;
    *needed = *why = 0;
    all = every_handle();
    for (at = 0; at < all->count; at++) {
        const struct handle *one = &all->all[at];

        if (one->pid != pid) {
            if (process)
                CloseHandle(process);
            pid = one->pid;
            process = OpenProcess(PROCESS_DUP_HANDLE | PROCESS_QUERY_LIMITED_INFORMATION, FALSE, pid);
        }
        if (!process || pid == last || !is_one(session, process, (HANDLE)one->handle))
            continue;
        last = pid;
        if (*needed < *room) {
            FILETIME ended, kernel, user;
            RM_PROCESS_INFO *info = &list[*needed];

            memset(info, 0, sizeof *info);
            info->Process.dwProcessId = pid;
            GetProcessTimes(process, &info->Process.ProcessStartTime, &ended, &kernel, &user);
            info->ApplicationType = RmConsole;
            info->AppStatus = RmStatusRunning;
        }
        ++*needed;
    }
    if (process)
        CloseHandle(process);
    free(all);
    if (*needed > *room)
        return ERROR_MORE_DATA;
    *room = *needed;
    return ERROR_SUCCESS;
}
