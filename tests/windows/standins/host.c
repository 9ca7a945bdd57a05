/* Stands in for services of other products: containerd (`containerd.exe --run-service`, runtime.c), and any other with its
 * name as the argument. Runs until it is stopped. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <stdio.h>
#include <string.h>

static SERVICE_STATUS status = { .dwServiceType = SERVICE_WIN32_OWN_PROCESS };
static SERVICE_STATUS_HANDLE handle;
static HANDLE asked_to_stop;

static void now(DWORD state)
{
    status.dwCurrentState = state;
    status.dwControlsAccepted = state == SERVICE_RUNNING ? SERVICE_ACCEPT_STOP | SERVICE_ACCEPT_SHUTDOWN : 0;
    SetServiceStatus(handle, &status);
}

static DWORD WINAPI on_control(DWORD control, DWORD kind, void *data, void *context)
{
    (void)kind, (void)data, (void)context;
    if (control == SERVICE_CONTROL_STOP || control == SERVICE_CONTROL_SHUTDOWN) {
        now(SERVICE_STOP_PENDING);
        SetEvent(asked_to_stop);
    }
    return NO_ERROR;
}

DWORD WINAPI play_runtime(void *unused);

static BOOL is_runtime;

static void WINAPI run(DWORD argc, LPWSTR *argv)
{
    (void)argc;
    if (is_runtime)
        CloseHandle(CreateThread(NULL, 0, play_runtime, NULL, 0, NULL));
    asked_to_stop = CreateEventW(NULL, TRUE, FALSE, NULL);
    handle = RegisterServiceCtrlHandlerExW(argv[0], on_control, NULL);
    now(SERVICE_RUNNING);
    WaitForSingleObject(asked_to_stop, INFINITE);
    now(SERVICE_STOPPED);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        puts("containerd github.com/containerd/containerd v1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da");
        return 0;
    }
    is_runtime = argc == 2 && !strcmp(argv[1], "--run-service");
    SERVICE_TABLE_ENTRYW table[] = { { (WCHAR[]){ 0 }, run }, { NULL, NULL } };
    return StartServiceCtrlDispatcherW(table) ? 0 : (int)GetLastError();
}
