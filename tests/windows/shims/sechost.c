/* The Service Control Manager as its callers see it. Wine's own starts a service without its dependencies, stops one on
 * which others depend, names no dependents, stores neither recovery actions nor changed dependencies, and says that a
 * service runs whose process died. This DLL stands before Wine's, in every process: what Wine does not do is done
 * here, by what Microsoft documents, and kept where Windows keeps it, below the service's key. scm_boot.c has what
 * happens in services.exe itself. */
#include "scm.h"

#define SERVICES L"SYSTEM\\CurrentControlSet\\Services\\"
#define NOTES L"SYSTEM\\CurrentControlSet\\Control\\ServiceNotes\\"
#define START_LIMIT 60000
#define LOOK 20

static CRITICAL_SECTION lock;

const struct original *wine(void)
{
    static struct original functions;
    static HMODULE module;

    if (!module) {
        HMODULE found = LoadLibraryA("sechorig.dll");
#define FIND(name) functions.name = (void *)GetProcAddress(found, #name)
        FIND(OpenSCManagerW);
        FIND(OpenServiceW);
        FIND(CreateServiceW);
        FIND(CloseServiceHandle);
        FIND(DeleteService);
        FIND(StartServiceW);
        FIND(ControlService);
        FIND(QueryServiceStatusEx);
        FIND(QueryServiceConfigW);
        FIND(QueryServiceConfig2W);
        FIND(ChangeServiceConfigW);
        FIND(ChangeServiceConfig2W);
        FIND(EnumServicesStatusExW);
        FIND(RegisterServiceCtrlHandlerExW);
        FIND(SetServiceStatus);
#undef FIND
        module = found;
    }
    return &functions;
}

BOOL WINAPI DllMain(HINSTANCE self, DWORD why, void *reserved)
{
    if (why == DLL_PROCESS_ATTACH) {
        WCHAR program[MAX_PATH], *name;

        DisableThreadLibraryCalls(self);
        InitializeCriticalSection(&lock);
        GetModuleFileNameW(NULL, program, MAX_PATH);
        name = wcsrchr(program, L'\\');
        if (name && !lstrcmpiW(name + 1, L"services.exe"))
            begin_in_services();
    }
    return TRUE;
}

static BOOL fail(DWORD error)
{
    SetLastError(error);
    return FALSE;
}

/* ---- a service's key ---- */

static HKEY service_key(const WCHAR *service, REGSAM access)
{
    WCHAR path[MAX_NAME + 64];
    HKEY key = NULL;

    swprintf(path, MAX_NAME + 64, L"%ls%ls", SERVICES, service);
    return RegOpenKeyExW(HKEY_LOCAL_MACHINE, path, 0, access, &key) ? NULL : key;
}

void *service_value(const WCHAR *service, const WCHAR *value, DWORD *size)
{
    HKEY key = service_key(service, KEY_READ);
    BYTE *data = NULL;
    DWORD length = 0;

    if (key && !RegQueryValueExW(key, value, NULL, NULL, NULL, &length) &&
        (data = calloc(1, length + 2 * sizeof(WCHAR))) &&
        RegQueryValueExW(key, value, NULL, NULL, data, &length)) {
        free(data);
        data = NULL;
    }
    if (key)
        RegCloseKey(key);
    if (size)
        *size = length;
    return data;
}

void set_service_value(const WCHAR *service, const WCHAR *value, DWORD type, const void *data, DWORD size)
{
    HKEY key = service_key(service, KEY_READ | KEY_WRITE);

    if (!key)
        return;
    if (data)
        RegSetValueExW(key, value, 0, type, data, size);
    else
        RegDeleteValueW(key, value);
    RegCloseKey(key);
}

DWORD service_number(const WCHAR *service, const WCHAR *value)
{
    DWORD size, number = 0, *found = service_value(service, value, &size);

    if (found && size == sizeof number)
        number = *found;
    free(found);
    return number;
}

/* Zero is no value, as before anybody set it. */
static void set_service_number(const WCHAR *service, const WCHAR *value, DWORD number)
{
    set_service_value(service, value, REG_DWORD, number ? &number : NULL, sizeof number);
}

static HKEY notes_of(const WCHAR *kind)
{
    WCHAR path[128];
    HKEY key = NULL;

    swprintf(path, 128, L"%ls%ls", NOTES, kind);
    RegCreateKeyExW(HKEY_LOCAL_MACHINE, path, 0, NULL, REG_OPTION_VOLATILE, KEY_READ | KEY_WRITE, NULL, &key, NULL);
    return key;
}

BOOL noted(const WCHAR *kind, const WCHAR *name, WCHAR *text, DWORD chars)
{
    HKEY key = notes_of(kind);
    DWORD size = chars * sizeof(WCHAR);
    BOOL found = key && !RegQueryValueExW(key, name, NULL, NULL, (BYTE *)text, &size);

    if (key)
        RegCloseKey(key);
    return found;
}

void note(const WCHAR *kind, const WCHAR *name, const WCHAR *text)
{
    HKEY key = notes_of(kind);

    if (!key)
        return;
    if (text)
        RegSetValueExW(key, name, 0, REG_SZ, (const BYTE *)text, (wcslen(text) + 1) * sizeof(WCHAR));
    else
        RegDeleteValueW(key, name);
    RegCloseKey(key);
}

/* ---- which service a handle is ---- */

static struct opened {
    SC_HANDLE handle;
    WCHAR name[MAX_NAME];
    struct opened *next;
} *opened;

static SC_HANDLE remember(SC_HANDLE handle, const WCHAR *name)
{
    struct opened *one;
    DWORD error = GetLastError();

    if (handle && (one = calloc(1, sizeof *one))) {
        one->handle = handle;
        lstrcpynW(one->name, name, MAX_NAME);
        EnterCriticalSection(&lock);
        one->next = opened;
        opened = one;
        LeaveCriticalSection(&lock);
    }
    SetLastError(error);
    return handle;
}

/* Empty for a handle that is no service's: the call with it fails in Wine. */
static void name_of(SC_HANDLE handle, WCHAR name[MAX_NAME])
{
    const struct opened *one;

    name[0] = 0;
    EnterCriticalSection(&lock);
    for (one = opened; one && one->handle != handle; one = one->next)
        ;
    if (one)
        lstrcpynW(name, one->name, MAX_NAME);
    LeaveCriticalSection(&lock);
}

__declspec(dllexport) SC_HANDLE WINAPI OpenServiceW(SC_HANDLE manager, LPCWSTR name, DWORD access)
{
    return remember(wine()->OpenServiceW(manager, name, access), name);
}

__declspec(dllexport) SC_HANDLE WINAPI CreateServiceW(SC_HANDLE manager, LPCWSTR name, LPCWSTR display, DWORD access,
                                                      DWORD type, DWORD start, DWORD error, LPCWSTR path,
                                                      LPCWSTR group, LPDWORD tag, LPCWSTR needs, LPCWSTR account,
                                                      LPCWSTR password)
{
    return remember(wine()->CreateServiceW(manager, name, display, access, type, start, error, path, group, tag, needs,
                                           account, password),
                    name);
}

__declspec(dllexport) BOOL WINAPI CloseServiceHandle(SC_HANDLE handle)
{
    struct opened **at, *gone = NULL;

    EnterCriticalSection(&lock);
    for (at = &opened; *at && (*at)->handle != handle; at = &(*at)->next)
        ;
    if (*at) {
        gone = *at;
        *at = gone->next;
    }
    LeaveCriticalSection(&lock);
    free(gone);
    return wine()->CloseServiceHandle(handle);
}

/* ---- status ---- */

BOOL is_dead(DWORD pid)
{
    HANDLE process = OpenProcess(SYNCHRONIZE, FALSE, pid);
    BOOL dead;

    if (!process)
        return GetLastError() == ERROR_INVALID_PARAMETER;
    dead = WaitForSingleObject(process, 0) == WAIT_OBJECT_0;
    CloseHandle(process);
    return dead;
}

static void correct(const WCHAR *name, SERVICE_STATUS_PROCESS *status)
{
    WCHAR why[16];

    if (status->dwCurrentState != SERVICE_STOPPED && status->dwProcessId && is_dead(status->dwProcessId)) {
        status->dwCurrentState = SERVICE_STOPPED;
        status->dwWin32ExitCode = ERROR_PROCESS_ABORTED;
        status->dwControlsAccepted = status->dwCheckPoint = status->dwWaitHint = status->dwProcessId = 0;
    }
    if (status->dwCurrentState == SERVICE_STOPPED && noted(GAVE_UP, name, why, 16))
        status->dwWin32ExitCode = ERROR_SERVICE_DEPENDENCY_FAIL;
}

__declspec(dllexport) BOOL WINAPI QueryServiceStatusEx(SC_HANDLE service, SC_STATUS_TYPE type, LPBYTE buffer,
                                                       DWORD size, LPDWORD needed)
{
    WCHAR name[MAX_NAME];
    BOOL done = wine()->QueryServiceStatusEx(service, type, buffer, size, needed);

    if (done && type == SC_STATUS_PROCESS_INFO) {
        name_of(service, name);
        correct(name, (SERVICE_STATUS_PROCESS *)buffer);
    }
    return done;
}

__declspec(dllexport) BOOL WINAPI QueryServiceStatus(SC_HANDLE service, LPSERVICE_STATUS status)
{
    SERVICE_STATUS_PROCESS whole;
    DWORD needed;
    BOOL done = QueryServiceStatusEx(service, SC_STATUS_PROCESS_INFO, (BYTE *)&whole, sizeof whole, &needed);

    if (done)
        memcpy(status, &whole, sizeof *status);
    return done;
}

BOOL status_of(const WCHAR *name, SERVICE_STATUS_PROCESS *status)
{
    SC_HANDLE manager = wine()->OpenSCManagerW(NULL, NULL, SC_MANAGER_CONNECT), service;
    DWORD needed;
    BOOL done = FALSE;

    if (!manager)
        return FALSE;
    if ((service = wine()->OpenServiceW(manager, name, SERVICE_QUERY_STATUS))) {
        done = wine()->QueryServiceStatusEx(service, SC_STATUS_PROCESS_INFO, (BYTE *)status, sizeof *status, &needed);
        wine()->CloseServiceHandle(service);
    }
    wine()->CloseServiceHandle(manager);
    if (done)
        correct(name, status);
    return done;
}

ENUM_SERVICE_STATUS_PROCESSW *every_service(DWORD *count)
{
    SC_HANDLE manager = wine()->OpenSCManagerW(NULL, NULL, SC_MANAGER_ENUMERATE_SERVICE);
    DWORD size = 256 * 1024, needed, resume = 0, at;
    ENUM_SERVICE_STATUS_PROCESSW *all = malloc(size);

    *count = 0;
    if (manager && all)
        wine()->EnumServicesStatusExW(manager, SC_ENUM_PROCESS_INFO, SERVICE_WIN32, SERVICE_STATE_ALL, (BYTE *)all,
                                      size, &needed, count, &resume, NULL);
    if (manager)
        wine()->CloseServiceHandle(manager);
    /* A service without a display name is displayed by its name. */
    for (at = 0; at < *count; at++)
        if (!all[at].lpDisplayName)
            all[at].lpDisplayName = all[at].lpServiceName;
    return all;
}

/* ---- dependencies ---- */

/* What a service depends on, in the form of ChangeServiceConfig: groups with a + before. The caller frees it. */
static WCHAR *dependencies(const WCHAR *service, DWORD *size)
{
    DWORD own = 0, at = 0;
    WCHAR *services = service_value(service, L"DependOnService", &own), *groups, *all, *one;

    groups = service_value(service, L"DependOnGroup", NULL);
    for (one = groups; one && *one; one += wcslen(one) + 1)
        own += (wcslen(one) + 2) * sizeof(WCHAR);
    all = calloc(1, own + 2 * sizeof(WCHAR));
    for (one = services; one && *one; one += wcslen(one) + 1)
        at += swprintf(all + at, MAX_NAME, L"%ls", one) + 1;
    for (one = groups; one && *one; one += wcslen(one) + 1)
        at += swprintf(all + at, MAX_NAME, L"+%ls", one) + 1;
    free(services);
    free(groups);
    *size = (at + 1) * sizeof(WCHAR);
    return all;
}

static void set_dependencies(const WCHAR *service, const WCHAR *needs)
{
    const WCHAR *one;
    int groups;

    for (groups = 0; groups < 2; groups++) {
        WCHAR list[4096] = { 0 };
        DWORD at = 0;

        for (one = needs; *one; one += wcslen(one) + 1)
            if ((*one == SC_GROUP_IDENTIFIERW) == groups)
                at += swprintf(list + at, 4096 - at - 1, L"%ls", one + groups) + 1;
        set_service_value(service, groups ? L"DependOnGroup" : L"DependOnService", REG_MULTI_SZ, at ? list : NULL,
                          (at + 1) * sizeof(WCHAR));
    }
}

/* Whether a service names another, or that one's group. */
static BOOL depends(const WCHAR *service, const WCHAR *on)
{
    DWORD size;
    WCHAR *all = dependencies(service, &size), *group = service_value(on, L"Group", NULL), *one;
    BOOL found = FALSE;

    for (one = all; *one && !found; one += wcslen(one) + 1)
        found = *one == SC_GROUP_IDENTIFIERW ? group && !lstrcmpiW(one + 1, group) : !lstrcmpiW(one, on);
    free(all);
    free(group);
    return found;
}

/* The services that depend on this one, also indirectly, each after those that depend on it: in the order of a stop. */
static DWORD gather(const WCHAR *name, ENUM_SERVICE_STATUS_PROCESSW *all, DWORD count, BOOL *seen, DWORD *list,
                    DWORD length)
{
    DWORD at;

    for (at = 0; at < count; at++) {
        if (seen[at] || !depends(all[at].lpServiceName, name))
            continue;
        seen[at] = TRUE;
        length = gather(all[at].lpServiceName, all, count, seen, list, length);
        list[length++] = at;
    }
    return length;
}

static BOOL is_in(const SERVICE_STATUS_PROCESS *status, DWORD state)
{
    return status->dwCurrentState == SERVICE_STOPPED ? state & SERVICE_INACTIVE : state & SERVICE_ACTIVE;
}

__declspec(dllexport) BOOL WINAPI EnumDependentServicesW(SC_HANDLE service, DWORD state, LPENUM_SERVICE_STATUSW out,
                                                         DWORD size, LPDWORD needed, LPDWORD returned)
{
    WCHAR name[MAX_NAME], *text;
    DWORD count, length, at, fits = 0, want = 0;
    ENUM_SERVICE_STATUS_PROCESSW *all = every_service(&count);
    BOOL *seen = calloc(count + 1, sizeof *seen);
    DWORD *list = calloc(count + 1, sizeof *list);

    for (at = 0; at < count; at++)
        correct(all[at].lpServiceName, &all[at].ServiceStatusProcess);
    name_of(service, name);
    length = gather(name, all, count, seen, list, 0);
    for (at = 0; at < length; at++) {
        const ENUM_SERVICE_STATUS_PROCESSW *one = &all[list[at]];
        if (is_in(&one->ServiceStatusProcess, state)) {
            list[fits++] = list[at];
            want += sizeof *out + (wcslen(one->lpServiceName) + wcslen(one->lpDisplayName) + 2) * sizeof(WCHAR);
        }
    }
    *needed = want;
    *returned = 0;
    if (want <= size) {
        *returned = fits;
        text = (WCHAR *)(out + fits);
        for (at = 0; at < fits; at++) {
            const ENUM_SERVICE_STATUS_PROCESSW *one = &all[list[at]];
            out[at].lpServiceName = wcscpy(text, one->lpServiceName);
            text += wcslen(text) + 1;
            out[at].lpDisplayName = wcscpy(text, one->lpDisplayName);
            text += wcslen(text) + 1;
            memcpy(&out[at].ServiceStatus, &one->ServiceStatusProcess, sizeof out[at].ServiceStatus);
        }
    }
    free(list);
    free(seen);
    free(all);
    return want <= size || fail(ERROR_MORE_DATA);
}

__declspec(dllexport) BOOL WINAPI ControlService(SC_HANDLE service, DWORD control, LPSERVICE_STATUS status)
{
    static ENUM_SERVICE_STATUSW nothing[1];
    SERVICE_STATUS_PROCESS now;
    WCHAR name[MAX_NAME];
    DWORD needed, returned;

    name_of(service, name);
    if (control == SERVICE_CONTROL_STOP && status_of(name, &now)) {
        if (now.dwCurrentState == SERVICE_STOPPED)
            return fail(ERROR_SERVICE_NOT_ACTIVE);
        if (!EnumDependentServicesW(service, SERVICE_ACTIVE, nothing, 0, &needed, &returned))
            return fail(ERROR_DEPENDENT_SERVICES_RUNNING);
    }
    return wine()->ControlService(service, control, status);
}

/* ---- start ---- */

DWORD start_dependencies(const WCHAR *name)
{
    DWORD size, error = 0;
    WCHAR *all = dependencies(name, &size), *one;

    for (one = all; *one && !error; one += wcslen(one) + 1) {
        SERVICE_STATUS_PROCESS status;
        ULONGLONG until = GetTickCount64() + START_LIMIT;

        /* A group is there as soon as one of it has started. None of the tests' services is in one. */
        if (*one == SC_GROUP_IDENTIFIERW)
            continue;
        if (!status_of(one, &status)) {
            error = ERROR_SERVICE_DEPENDENCY_DELETED;
            break;
        }
        if (status.dwCurrentState == SERVICE_STOPPED && start(one))
            error = ERROR_SERVICE_DEPENDENCY_FAIL;
        while (!error && status_of(one, &status) && status.dwCurrentState != SERVICE_RUNNING) {
            if (status.dwCurrentState == SERVICE_STOPPED || GetTickCount64() >= until)
                error = ERROR_SERVICE_DEPENDENCY_FAIL;
            Sleep(LOOK);
        }
    }
    free(all);
    return error;
}

/* Wine lets one service start at a time, and refuses a second one. */
static DWORD start_opened(SC_HANDLE service, DWORD count, LPCWSTR *arguments)
{
    ULONGLONG until = GetTickCount64() + START_LIMIT;

    while (!wine()->StartServiceW(service, count, arguments)) {
        DWORD error = GetLastError();
        if (error != ERROR_SERVICE_DATABASE_LOCKED || GetTickCount64() >= until)
            return error;
        Sleep(LOOK);
    }
    return 0;
}

DWORD start(const WCHAR *name)
{
    SC_HANDLE manager = wine()->OpenSCManagerW(NULL, NULL, SC_MANAGER_CONNECT), service = NULL;
    DWORD error = start_dependencies(name);

    if (!error && manager && (service = wine()->OpenServiceW(manager, name, SERVICE_START)))
        error = start_opened(service, 0, NULL);
    else if (!error)
        error = GetLastError();
    if (service)
        wine()->CloseServiceHandle(service);
    if (manager)
        wine()->CloseServiceHandle(manager);
    note(GAVE_UP, name, error == ERROR_SERVICE_DEPENDENCY_FAIL ? L"1068" : NULL);
    return error;
}

__declspec(dllexport) BOOL WINAPI StartServiceW(SC_HANDLE service, DWORD count, LPCWSTR *arguments)
{
    SERVICE_STATUS_PROCESS now;
    WCHAR name[MAX_NAME];
    DWORD error;

    name_of(service, name);
    if (service_number(name, L"Start") == SERVICE_DISABLED)
        return fail(ERROR_SERVICE_DISABLED);
    if (status_of(name, &now) && now.dwCurrentState != SERVICE_STOPPED)
        return fail(ERROR_SERVICE_ALREADY_RUNNING);
    error = start_dependencies(name);
    note(GAVE_UP, name, error == ERROR_SERVICE_DEPENDENCY_FAIL ? L"1068" : NULL);
    if (!error)
        error = start_opened(service, count, arguments);
    return !error || fail(error);
}

/* ---- configuration ---- */

__declspec(dllexport) BOOL WINAPI QueryServiceConfigW(SC_HANDLE service, LPQUERY_SERVICE_CONFIGW out, DWORD size,
                                                      LPDWORD needed)
{
    static const DWORD most = 8192;
    WCHAR name[MAX_NAME], *needs;
    QUERY_SERVICE_CONFIGW *whole = calloc(1, most);
    DWORD own = 0, more, error = 0;

    name_of(service, name);
    if (!wine()->QueryServiceConfigW(service, whole, most, &own))
        error = GetLastError();
    needs = dependencies(name, &more);
    own = (own + 7) & ~7u;
    *needed = own + more;
    if (!error && *needed > size)
        error = ERROR_INSUFFICIENT_BUFFER;
    if (!error) {
        ptrdiff_t moved = (BYTE *)out - (BYTE *)whole;
        memcpy(out, whole, own);
#define MOVE(field) out->field = out->field ? (WCHAR *)((BYTE *)out->field + moved) : NULL
        MOVE(lpBinaryPathName);
        MOVE(lpLoadOrderGroup);
        MOVE(lpServiceStartName);
        MOVE(lpDisplayName);
#undef MOVE
        out->lpDependencies = memcpy((BYTE *)out + own, needs, more);
    }
    free(needs);
    free(whole);
    return !error || fail(error);
}

/* Wine writes all of a service's key again, with the dependencies that it read at boot. */
__declspec(dllexport) BOOL WINAPI ChangeServiceConfigW(SC_HANDLE service, DWORD type, DWORD start, DWORD error,
                                                       LPCWSTR path, LPCWSTR group, LPDWORD tag, LPCWSTR needs,
                                                       LPCWSTR account, LPCWSTR password, LPCWSTR display)
{
    WCHAR name[MAX_NAME], *kept;
    DWORD size, code;
    BOOL done;

    name_of(service, name);
    kept = dependencies(name, &size);
    done = wine()->ChangeServiceConfigW(service, type, start, error, path, group, tag, NULL, account, password,
                                        display);
    code = GetLastError();
    set_dependencies(name, done && needs ? needs : kept);
    free(kept);
    return done || fail(code);
}

struct kept_actions {
    DWORD reset, message, command, count, offset;
    SC_ACTION actions[];
};

static void set_text(const WCHAR *service, const WCHAR *value, const WCHAR *text)
{
    /* NULL leaves it as it is, an empty one removes it. */
    if (text)
        set_service_value(service, value, REG_SZ, *text ? text : NULL, (wcslen(text) + 1) * sizeof(WCHAR));
}

static void set_actions(const WCHAR *service, const SERVICE_FAILURE_ACTIONSW *wanted)
{
    DWORD size = sizeof(struct kept_actions) + wanted->cActions * sizeof(SC_ACTION);
    struct kept_actions *kept = calloc(1, size);

    set_text(service, L"RebootMessage", wanted->lpRebootMsg);
    set_text(service, L"FailureCommand", wanted->lpCommand);
    if (wanted->lpsaActions) {
        kept->reset = wanted->dwResetPeriod;
        kept->count = wanted->cActions;
        kept->offset = sizeof *kept;
        memcpy(kept->actions, wanted->lpsaActions, wanted->cActions * sizeof(SC_ACTION));
        set_service_value(service, L"FailureActions", REG_BINARY, wanted->cActions ? kept : NULL, size);
    }
    free(kept);
}

__declspec(dllexport) BOOL WINAPI ChangeServiceConfig2W(SC_HANDLE service, DWORD level, LPVOID info)
{
    WCHAR name[MAX_NAME], *kept;
    DWORD size, code;
    BOOL done;

    name_of(service, name);
    switch (level) {
    case SERVICE_CONFIG_FAILURE_ACTIONS:
        set_actions(name, info);
        return TRUE;
    case SERVICE_CONFIG_DELAYED_AUTO_START_INFO:
        if (service_number(name, L"Start") != SERVICE_AUTO_START)
            return fail(ERROR_INVALID_PARAMETER);
        set_service_number(name, L"DelayedAutostart", *(const BOOL *)info);
        return TRUE;
    case SERVICE_CONFIG_FAILURE_ACTIONS_FLAG:
        set_service_number(name, L"FailureActionsOnNonCrashFailures", *(const BOOL *)info);
        return TRUE;
    case SERVICE_CONFIG_SERVICE_SID_INFO:
        set_service_number(name, L"ServiceSidType", *(const DWORD *)info);
        return TRUE;
    }
    kept = dependencies(name, &size);
    done = wine()->ChangeServiceConfig2W(service, level, info);
    code = GetLastError();
    set_dependencies(name, kept);
    free(kept);
    return done || fail(code);
}

static BOOL give_number(DWORD number, LPBYTE out, DWORD size, LPDWORD needed)
{
    *needed = sizeof number;
    if (size < sizeof number)
        return fail(ERROR_INSUFFICIENT_BUFFER);
    memcpy(out, &number, sizeof number);
    return TRUE;
}

static BOOL give_actions(const WCHAR *name, SERVICE_FAILURE_ACTIONSW *out, DWORD size, LPDWORD needed)
{
    struct kept_actions nothing = { 0 }, *kept = service_value(name, L"FailureActions", NULL);
    const struct kept_actions *from = kept ? kept : &nothing;
    WCHAR *texts[2] = { service_value(name, L"RebootMessage", NULL), service_value(name, L"FailureCommand", NULL) };
    DWORD actions = from->count * sizeof(SC_ACTION), at;
    BYTE *next = (BYTE *)(out + 1);

    *needed = sizeof *out + actions;
    for (at = 0; at < 2; at++)
        *needed += texts[at] ? (wcslen(texts[at]) + 1) * sizeof(WCHAR) : 0;
    if (size >= *needed) {
        memset(out, 0, sizeof *out);
        out->dwResetPeriod = from->reset;
        out->cActions = from->count;
        if (from->count) {
            out->lpsaActions = memcpy(next, from->actions, actions);
            next += actions;
        }
        for (at = 0; at < 2; at++)
            if (texts[at]) {
                *(at ? &out->lpCommand : &out->lpRebootMsg) = wcscpy((WCHAR *)next, texts[at]);
                next += (wcslen(texts[at]) + 1) * sizeof(WCHAR);
            }
    }
    free(texts[0]);
    free(texts[1]);
    free(kept);
    return size >= *needed || fail(ERROR_INSUFFICIENT_BUFFER);
}

__declspec(dllexport) BOOL WINAPI QueryServiceConfig2W(SC_HANDLE service, DWORD level, LPBYTE out, DWORD size,
                                                       LPDWORD needed)
{
    WCHAR name[MAX_NAME];

    name_of(service, name);
    switch (level) {
    case SERVICE_CONFIG_FAILURE_ACTIONS:
        return give_actions(name, (SERVICE_FAILURE_ACTIONSW *)out, size, needed);
    case SERVICE_CONFIG_DELAYED_AUTO_START_INFO:
        return give_number(service_number(name, L"DelayedAutostart"), out, size, needed);
    case SERVICE_CONFIG_FAILURE_ACTIONS_FLAG:
        return give_number(service_number(name, L"FailureActionsOnNonCrashFailures"), out, size, needed);
    case SERVICE_CONFIG_SERVICE_SID_INFO:
        return give_number(service_number(name, L"ServiceSidType"), out, size, needed);
    }
    return wine()->QueryServiceConfig2W(service, level, out, size, needed);
}

__declspec(dllexport) BOOL WINAPI DeleteService(SC_HANDLE service)
{
    DWORD yes = 1;
    WCHAR name[MAX_NAME];

    if (!wine()->DeleteService(service))
        return FALSE;
    /* Somebody has it open, the caller at least: Windows says so in the key, which goes with the last of them. */
    name_of(service, name);
    set_service_value(name, L"DeleteFlag", REG_DWORD, &yes, sizeof yes);
    return TRUE;
}

/* ---- a service's own process ---- */

static struct {
    SERVICE_STATUS_HANDLE handle;
    LPHANDLER_FUNCTION_EX handler;
    void *context;
    DWORD accepts;
} own;

/* Windows tells its services that it shuts down: run.exe says when. */
static DWORD WINAPI await_shutdown(void *unused)
{
    HANDLE event = CreateEventW(NULL, TRUE, FALSE, L"Global\\calicoctl-win-test-preshutdown");

    WaitForSingleObject(event, INFINITE);
    if (own.accepts & SERVICE_ACCEPT_PRESHUTDOWN)
        own.handler(SERVICE_CONTROL_PRESHUTDOWN, 0, NULL, own.context);
    return 0;
}

static void note_pid(const WCHAR *kind, const WCHAR *text)
{
    WCHAR pid[16];

    swprintf(pid, 16, L"%lu", GetCurrentProcessId());
    note(kind, pid, text);
}

__declspec(dllexport) SERVICE_STATUS_HANDLE WINAPI RegisterServiceCtrlHandlerExW(LPCWSTR name,
                                                                                 LPHANDLER_FUNCTION_EX handler,
                                                                                 LPVOID context)
{
    own.handler = handler;
    own.context = context;
    own.handle = wine()->RegisterServiceCtrlHandlerExW(name, handler, context);
    if (own.handle) {
        note_pid(ENDS, NULL);
        note_pid(PIDS, name);
        CloseHandle(CreateThread(NULL, 0, await_shutdown, NULL, 0, NULL));
    }
    return own.handle;
}

__declspec(dllexport) BOOL WINAPI SetServiceStatus(SERVICE_STATUS_HANDLE handle, LPSERVICE_STATUS status)
{
    if (handle == own.handle) {
        own.accepts = status->dwControlsAccepted;
        if (status->dwCurrentState == SERVICE_STOPPED)
            note_pid(ENDS, status->dwWin32ExitCode ? L"error" : L"");
    }
    return wine()->SetServiceStatus(handle, status);
}
