/* What the two halves of the Service Control Manager's rules share. */
/* These functions are ours. */
#define _ADVAPI32_
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <stdlib.h>
#include <wchar.h>

#define MAX_NAME 260

/* Wine's own functions: the DLL that ours replaces, under another name. */
struct original {
    SC_HANDLE(WINAPI *OpenSCManagerW)(LPCWSTR, LPCWSTR, DWORD);
    SC_HANDLE(WINAPI *OpenServiceW)(SC_HANDLE, LPCWSTR, DWORD);
    SC_HANDLE(WINAPI *CreateServiceW)(SC_HANDLE, LPCWSTR, LPCWSTR, DWORD, DWORD, DWORD, DWORD, LPCWSTR, LPCWSTR,
                                      LPDWORD, LPCWSTR, LPCWSTR, LPCWSTR);
    BOOL(WINAPI *CloseServiceHandle)(SC_HANDLE);
    BOOL(WINAPI *DeleteService)(SC_HANDLE);
    BOOL(WINAPI *StartServiceW)(SC_HANDLE, DWORD, LPCWSTR *);
    BOOL(WINAPI *ControlService)(SC_HANDLE, DWORD, LPSERVICE_STATUS);
    BOOL(WINAPI *QueryServiceStatusEx)(SC_HANDLE, SC_STATUS_TYPE, LPBYTE, DWORD, LPDWORD);
    BOOL(WINAPI *QueryServiceConfigW)(SC_HANDLE, LPQUERY_SERVICE_CONFIGW, DWORD, LPDWORD);
    BOOL(WINAPI *QueryServiceConfig2W)(SC_HANDLE, DWORD, LPBYTE, DWORD, LPDWORD);
    BOOL(WINAPI *ChangeServiceConfigW)(SC_HANDLE, DWORD, DWORD, DWORD, LPCWSTR, LPCWSTR, LPDWORD, LPCWSTR, LPCWSTR,
                                       LPCWSTR, LPCWSTR);
    BOOL(WINAPI *ChangeServiceConfig2W)(SC_HANDLE, DWORD, LPVOID);
    BOOL(WINAPI *EnumServicesStatusExW)(SC_HANDLE, SC_ENUM_TYPE, DWORD, DWORD, LPBYTE, DWORD, LPDWORD, LPDWORD,
                                        LPDWORD, LPCWSTR);
    SERVICE_STATUS_HANDLE(WINAPI *RegisterServiceCtrlHandlerExW)(LPCWSTR, LPHANDLER_FUNCTION_EX, LPVOID);
    BOOL(WINAPI *SetServiceStatus)(SERVICE_STATUS_HANDLE, LPSERVICE_STATUS);
};

const struct original *wine(void);

/* A value of a service's key, with two zeros at its end; NULL if there is none. The caller frees it. */
void *service_value(const WCHAR *service, const WCHAR *value, DWORD *size);
void set_service_value(const WCHAR *service, const WCHAR *value, DWORD type, const void *data, DWORD size);
DWORD service_number(const WCHAR *service, const WCHAR *value);

/* Notes until the next boot, for other processes: below a volatile key. */
#define GAVE_UP L"GaveUp"
#define PIDS L"Pids"
#define ENDS L"Ends"
BOOL noted(const WCHAR *kind, const WCHAR *name, WCHAR *text, DWORD chars);
/* NULL removes it. */
void note(const WCHAR *kind, const WCHAR *name, const WCHAR *text);

/* The status of a service; FALSE if there is none. One whose process died is stopped, with error 1067. */
BOOL status_of(const WCHAR *name, SERVICE_STATUS_PROCESS *status);

BOOL is_dead(DWORD pid);

/* Every service that is a program, with its status as Wine has it. The caller frees it. */
ENUM_SERVICE_STATUS_PROCESSW *every_service(DWORD *count);

/* Starts what a service depends on and waits for it. Returns Windows's error: 1068 or 1075. */
DWORD start_dependencies(const WCHAR *name);

/* Starts a service after what it depends on. Returns Windows's error. */
DWORD start(const WCHAR *name);

/* In services.exe itself: the order of the boot, and recovery actions. */
void begin_in_services(void);
