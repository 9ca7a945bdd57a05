/* Runs a program and writes its exit code, all 32 bits of it, to a file:
 *
 *     run.exe alone|console|session FILE PROGRAM ARGUMENT…
 *
 * Wine's own exit code has 8 bits. And on a busy machine Wine kills a process that takes a second to
 * end after it set its code: this file still has the code.
 *
 * Alone the program gets no console, as under a scheduler: for each console Wine starts a program. In a session it is
 * in a job that none of its processes may leave and that ends with it, as under WinRM: what it started ends then.
 *
 *     run.exe preshutdown
 *
 * tells the services that Windows shuts down, as Windows does before it ends them: sechost.dll delivers it. It waits
 * until each that asks to be told has stopped, at most as long as that one may take. */
#include "start.h"
#include <stdio.h>
#include <string.h>

/* How long a service may take to stop then, in milliseconds. */
static DWORD time_of(SC_HANDLE service)
{
    SERVICE_PRESHUTDOWN_INFO info = { 0 };
    DWORD needed;

    QueryServiceConfig2W(service, SERVICE_CONFIG_PRESHUTDOWN_INFO, (BYTE *)&info, sizeof info, &needed);
    return info.dwPreshutdownTimeout;
}

static int shut_down(void)
{
    HANDLE event = CreateEventW(NULL, TRUE, FALSE, L"Global\\calicoctl-win-test-preshutdown");
    SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_CONNECT | SC_MANAGER_ENUMERATE_SERVICE);
    static BYTE buffer[256 * 1024];
    const ENUM_SERVICE_STATUS_PROCESSW *all = (void *)buffer;
    DWORD needed, count = 0, resume = 0, late = 0;
    ULONGLONG begun = GetTickCount64();

    if (!EnumServicesStatusExW(manager, SC_ENUM_PROCESS_INFO, SERVICE_WIN32, SERVICE_ACTIVE, buffer, sizeof buffer,
                               &needed, &count, &resume, NULL))
        return 1;
    SetEvent(event);
    for (DWORD at = 0; at < count; at++) {
        SERVICE_STATUS status = { 0 };
        SC_HANDLE service;

        if (!(all[at].ServiceStatusProcess.dwControlsAccepted & SERVICE_ACCEPT_PRESHUTDOWN))
            continue;
        service = OpenServiceW(manager, all[at].lpServiceName, SERVICE_QUERY_STATUS | SERVICE_QUERY_CONFIG);
        while (QueryServiceStatus(service, &status) && status.dwCurrentState != SERVICE_STOPPED &&
               GetTickCount64() - begun < time_of(service))
            Sleep(20);
        late += status.dwCurrentState != SERVICE_STOPPED;
    }
    return late != 0;
}

int main(int argc, char **argv)
{
    PROCESS_INFORMATION process;
    DWORD code = 0;
    if (argc == 2 && !strcmp(argv[1], "preshutdown"))
        return shut_down();
    if (argc < 4)
        return 2;
    /* Unchanged: the program sees its arguments quoted as its caller quoted them. */
    WCHAR *line = next(next(next(GetCommandLineW())));
    DWORD flags = strcmp(argv[1], "alone") ? 0 : DETACHED_PROCESS;
    HANDLE job = NULL;
    if (!strcmp(argv[1], "session")) {
        JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {
            .BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
        };
        job = CreateJobObjectW(NULL, NULL);
        if (!SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits))
            return 1;
        flags = DETACHED_PROCESS | CREATE_SUSPENDED;
    }
    if (!start(line, flags, &process)) {
        fprintf(stderr, "cannot run %ls: error %lu\n", line, GetLastError());
        return 1;
    }
    if (job && (!AssignProcessToJobObject(job, process.hProcess) || ResumeThread(process.hThread) == (DWORD)-1))
        return 1;
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    FILE *file = fopen(argv[2], "wb");
    if (!file)
        return 1;
    fprintf(file, "%ld", (long)code);
    fclose(file);
    /* What is left of the session ends here. */
    if (job)
        CloseHandle(job);
    return 0;
}
