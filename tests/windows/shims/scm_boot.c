/* Inside Wine's services.exe: at boot it starts what a service depends on before it, and waits until that runs; a
 * service whose dependency fails is given up with error 1068; and recovery actions are taken. Wine's program calls
 * Windows through its import table, in which three functions are replaced. */
#include "scm.h"
#include <winternl.h>

NTSTATUS NTAPI NtQueryKey(HANDLE, int, void *, ULONG, ULONG *);

#define MOST 512
#define RUNS_WITHIN 60000
#define LOOK 20
#define WATCHED (MAXIMUM_WAIT_OBJECTS - 1)

/* ---- the order of the boot ---- */

static WCHAR (*order)[MAX_NAME];
static DWORD ordered;
static LSTATUS(WINAPI *enum_key)(HKEY, DWORD, LPWSTR, DWORD);

static void place(WCHAR (*all)[MAX_NAME], BOOL *placed, DWORD count, DWORD at)
{
    WCHAR *needs, *one;
    DWORD other;

    if (placed[at])
        return;
    placed[at] = TRUE;
    needs = service_value(all[at], L"DependOnService", NULL);
    for (one = needs; one && *one; one += wcslen(one) + 1)
        for (other = 0; other < count; other++)
            if (!lstrcmpiW(all[other], one))
                place(all, placed, count, other);
    free(needs);
    wcscpy(order[ordered++], all[at]);
}

static BOOL is_services_key(HKEY key)
{
    static const WCHAR end[] = L"\\Services";
    struct {
        ULONG length;
        WCHAR name[512];
    } info;
    ULONG size;
    size_t chars;

    if (NtQueryKey(key, 3 /* KeyNameInformation */, &info, sizeof info, &size))
        return FALSE;
    chars = info.length / sizeof(WCHAR);
    return chars >= wcslen(end) && !_wcsnicmp(info.name + chars - wcslen(end), end, wcslen(end));
}

/* Wine starts services in the order in which it finds their keys. */
static LSTATUS WINAPI ordered_enum_key(HKEY key, DWORD index, LPWSTR name, DWORD chars)
{
    if (!is_services_key(key))
        return enum_key(key, index, name, chars);
    if (!order) {
        WCHAR(*all)[MAX_NAME] = calloc(MOST, sizeof *all);
        BOOL *placed = calloc(MOST, sizeof *placed);
        DWORD count = 0, at;

        order = calloc(MOST, sizeof *order);
        while (count < MOST && !enum_key(key, count, all[count], MAX_NAME))
            count++;
        /* A service that was deleted while somebody had it open goes with the boot. */
        for (at = 0; at < count; at++)
            if ((placed[at] = service_number(all[at], L"DeleteFlag") != 0))
                RegDeleteTreeW(key, all[at]);
        for (at = 0; at < count; at++)
            place(all, placed, count, at);
        free(all);
        free(placed);
    }
    if (index >= ordered)
        return ERROR_NO_MORE_ITEMS;
    lstrcpynW(name, order[index], chars);
    return ERROR_SUCCESS;
}

/* It sorts them by their tags then. None has one, and its own sort mixes what is equal. */
static void __cdecl stable_sort(void *base, size_t count, size_t size, int(__cdecl *compare)(const void *, const void *))
{
    BYTE *all = base, *one = malloc(size);
    size_t at, to;

    for (at = 1; at < count; at++) {
        memcpy(one, all + at * size, size);
        for (to = at; to && compare(all + (to - 1) * size, one) > 0; to--)
            memcpy(all + to * size, all + (to - 1) * size, size);
        memcpy(all + to * size, one, size);
    }
    free(one);
}

/* ---- starts ---- */

static BOOL(WINAPI *create_process)(LPCWSTR, LPWSTR, LPSECURITY_ATTRIBUTES, LPSECURITY_ATTRIBUTES, BOOL, DWORD, LPVOID,
                                    LPCWSTR, LPSTARTUPINFOW, LPPROCESS_INFORMATION);

static HANDLE changed;
static CRITICAL_SECTION lock;
static struct {
    HANDLE process;
    DWORD pid;
} watched[WATCHED];
static DWORD watching;

/* The service that is being started: it has no process yet, and Wine starts one at a time. */
static BOOL starting(WCHAR name[MAX_NAME])
{
    DWORD count, at;
    ENUM_SERVICE_STATUS_PROCESSW *all = every_service(&count);

    name[0] = 0;
    for (at = 0; at < count; at++) {
        const SERVICE_STATUS_PROCESS *status = &all[at].ServiceStatusProcess;

        /* The process before may have crashed. */
        if (status->dwCurrentState == SERVICE_START_PENDING && (!status->dwProcessId || is_dead(status->dwProcessId)))
            lstrcpynW(name, all[at].lpServiceName, MAX_NAME);
    }
    free(all);
    return name[0] != 0;
}

/* Whether all that a service depends on runs by then. */
static BOOL needed_run(const WCHAR *name)
{
    WCHAR *needs = service_value(name, L"DependOnService", NULL), *one;
    ULONGLONG until = GetTickCount64() + RUNS_WITHIN;
    BOOL all = TRUE;

    for (one = needs; one && *one && all; one += wcslen(one) + 1) {
        SERVICE_STATUS_PROCESS status;

        while ((all = status_of(one, &status)) && status.dwCurrentState != SERVICE_RUNNING) {
            all = status.dwCurrentState == SERVICE_START_PENDING && GetTickCount64() < until;
            if (!all)
                break;
            Sleep(LOOK);
        }
    }
    free(needs);
    return all;
}

static BOOL WINAPI watched_create_process(LPCWSTR program, LPWSTR line, LPSECURITY_ATTRIBUTES one,
                                          LPSECURITY_ATTRIBUTES two, BOOL inherit, DWORD flags, LPVOID environment,
                                          LPCWSTR folder, LPSTARTUPINFOW startup, LPPROCESS_INFORMATION info)
{
    WCHAR name[MAX_NAME];

    if (starting(name) && !needed_run(name)) {
        note(GAVE_UP, name, L"1068");
        SetLastError(ERROR_SERVICE_DEPENDENCY_FAIL);
        return FALSE;
    }
    note(GAVE_UP, name, NULL);
    if (!create_process(program, line, one, two, inherit, flags, environment, folder, startup, info))
        return FALSE;
    EnterCriticalSection(&lock);
    if (watching < WATCHED &&
        DuplicateHandle(GetCurrentProcess(), info->hProcess, GetCurrentProcess(), &watched[watching].process, 0, FALSE,
                        DUPLICATE_SAME_ACCESS))
        watched[watching++].pid = info->dwProcessId;
    LeaveCriticalSection(&lock);
    SetEvent(changed);
    return TRUE;
}

/* ---- recovery ---- */

struct failure {
    WCHAR name[MAX_NAME];
    DWORD count;
    ULONGLONG last;
    SC_ACTION action;
    struct failure *next;
};

static struct failure *failures;

static DWORD WINAPI act(void *data)
{
    struct failure *failure = data;
    SC_ACTION action = failure->action;
    WCHAR *command;

    Sleep(action.Delay);
    switch (action.Type) {
    case SC_ACTION_RESTART:
        start(failure->name);
        break;
    case SC_ACTION_RUN_COMMAND:
        if ((command = service_value(failure->name, L"FailureCommand", NULL))) {
            STARTUPINFOW startup = { .cb = sizeof startup };
            PROCESS_INFORMATION info;

            if (create_process(NULL, command, NULL, NULL, FALSE, 0, NULL, NULL, &startup, &info)) {
                CloseHandle(info.hThread);
                CloseHandle(info.hProcess);
            }
            free(command);
        }
        break;
    default:
        break;
    }
    return 0;
}

/* Takes the next action of a service that failed. */
static void recover(const WCHAR *name)
{
    struct {
        DWORD reset, message, command, count, offset;
        SC_ACTION actions[];
    } *kept = service_value(name, L"FailureActions", NULL);
    struct failure *failure;
    ULONGLONG now = GetTickCount64();

    if (!kept || !kept->count || service_number(name, L"DeleteFlag")) {
        free(kept);
        return;
    }
    for (failure = failures; failure && lstrcmpiW(failure->name, name); failure = failure->next)
        ;
    if (!failure) {
        failure = calloc(1, sizeof *failure);
        lstrcpynW(failure->name, name, MAX_NAME);
        failure->next = failures;
        failures = failure;
    }
    if (kept->reset != INFINITE && now - failure->last >= kept->reset * 1000ull)
        failure->count = 0;
    failure->last = now;
    failure->action = kept->actions[min(failure->count, kept->count - 1)];
    failure->count++;
    free(kept);
    CloseHandle(CreateThread(NULL, 0, act, failure, 0, NULL));
}

/* A failure is an end without the report that it stopped, and, if the service is so configured, a report with an error.
 * The process itself has noted which service it is and what it reported. */
static void ended(DWORD pid)
{
    WCHAR number[16], name[MAX_NAME], how[16];

    swprintf(number, 16, L"%lu", pid);
    if (!noted(PIDS, number, name, MAX_NAME))
        return;
    note(PIDS, number, NULL);
    if (!noted(ENDS, number, how, 16) || (*how && service_number(name, L"FailureActionsOnNonCrashFailures")))
        recover(name);
    note(ENDS, number, NULL);
}

static DWORD WINAPI watch(void *unused)
{
    for (;;) {
        HANDLE handles[MAXIMUM_WAIT_OBJECTS] = { changed };
        DWORD at, count, pid;

        EnterCriticalSection(&lock);
        count = watching;
        for (at = 0; at < count; at++)
            handles[at + 1] = watched[at].process;
        LeaveCriticalSection(&lock);
        at = WaitForMultipleObjects(count + 1, handles, FALSE, INFINITE);
        if (at == WAIT_OBJECT_0 || at > WAIT_OBJECT_0 + count)
            continue;
        EnterCriticalSection(&lock);
        at -= WAIT_OBJECT_0 + 1;
        pid = watched[at].pid;
        CloseHandle(watched[at].process);
        watched[at] = watched[--watching];
        LeaveCriticalSection(&lock);
        ended(pid);
    }
    return 0;
}

/* ---- the import table ---- */

static void *replace_import(const char *dll, const char *function, void *ours)
{
    BYTE *base = (BYTE *)GetModuleHandleW(NULL);
    const IMAGE_NT_HEADERS *headers = (void *)(base + ((IMAGE_DOS_HEADER *)base)->e_lfanew);
    const IMAGE_IMPORT_DESCRIPTOR *from =
        (void *)(base + headers->OptionalHeader.DataDirectory[IMAGE_DIRECTORY_ENTRY_IMPORT].VirtualAddress);

    for (; from->Name; from++) {
        const IMAGE_THUNK_DATA *name = (void *)(base + from->OriginalFirstThunk);
        IMAGE_THUNK_DATA *place = (void *)(base + from->FirstThunk);

        if (lstrcmpiA((const char *)base + from->Name, dll))
            continue;
        for (; name->u1.AddressOfData; name++, place++)
            if (!strcmp(((IMAGE_IMPORT_BY_NAME *)(base + name->u1.AddressOfData))->Name, function)) {
                void *before = (void *)place->u1.Function;
                DWORD access;

                VirtualProtect(place, sizeof *place, PAGE_READWRITE, &access);
                place->u1.Function = (ULONG_PTR)ours;
                VirtualProtect(place, sizeof *place, access, &access);
                return before;
            }
    }
    return NULL;
}

void begin_in_services(void)
{
    InitializeCriticalSection(&lock);
    changed = CreateEventW(NULL, FALSE, FALSE, NULL);
    enum_key = replace_import("advapi32.dll", "RegEnumKeyW", ordered_enum_key);
    replace_import("ucrtbase.dll", "qsort", stable_sort);
    create_process = replace_import("kernel32.dll", "CreateProcessW", watched_create_process);
    CloseHandle(CreateThread(NULL, 0, watch, NULL, 0, NULL));
}
