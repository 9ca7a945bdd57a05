/* Performance counters, all zero: kubelet ends without them, and Wine has none. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <string.h>

#define MORE_DATA ((LONG)0x800007D2)

struct item {
    WCHAR *name;
    DWORD status;
    double value;
};

__declspec(dllexport) LONG WINAPI PdhOpenQuery(LPCWSTR source, DWORD_PTR user, HANDLE *query)
{
    (void)source, (void)user;
    *query = (HANDLE)1;
    return ERROR_SUCCESS;
}

__declspec(dllexport) LONG WINAPI PdhAddCounterW(HANDLE query, LPCWSTR path, DWORD_PTR user, HANDLE *counter)
{
    (void)query, (void)path, (void)user;
    *counter = (HANDLE)1;
    return ERROR_SUCCESS;
}

__declspec(dllexport) LONG WINAPI PdhAddEnglishCounterW(HANDLE query, LPCWSTR path, DWORD_PTR user, HANDLE *counter)
{
    return PdhAddCounterW(query, path, user, counter);
}

__declspec(dllexport) LONG WINAPI PdhCollectQueryData(HANDLE query)
{
    (void)query;
    return ERROR_SUCCESS;
}

__declspec(dllexport) LONG WINAPI PdhCloseQuery(HANDLE query)
{
    (void)query;
    return ERROR_SUCCESS;
}

__declspec(dllexport) LONG WINAPI PdhValidatePathW(LPCWSTR path)
{
    (void)path;
    return ERROR_SUCCESS;
}

__declspec(dllexport) LONG WINAPI PdhGetFormattedCounterValue(HANDLE counter, DWORD format, DWORD *type, void *value)
{
    (void)counter, (void)format, (void)type;
    memset(value, 0, 16);
    return ERROR_SUCCESS;
}

__declspec(dllexport) LONG WINAPI PdhGetFormattedCounterArrayW(HANDLE counter, DWORD format, DWORD *size, DWORD *count,
                                                               struct item *items)
{
    static WCHAR name[] = L"_Total";
    (void)counter, (void)format;
    DWORD had = *size;
    *size = sizeof *items;
    *count = 1;
    if (had < sizeof *items)
        return MORE_DATA;
    *items = (struct item){ .name = name };
    return ERROR_SUCCESS;
}
