/* Stands in for a program that others find by its name and that just runs: kubelet.exe. Its own name
 * is its name in C:\test. With --read FILE it holds that file open, as a log shipper does: others may read and write
 * it, and neither rename nor delete it. With --lock FILE nobody else may open it. */
#include "steer.h"
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    char path[1024];
    if (argc == 2 && !strcmp(argv[1], "--for-ever"))
        for_ever();
    GetModuleFileNameA(NULL, path, sizeof path);
    char *name = strrchr(path, '\\') ? strrchr(path, '\\') + 1 : path;
    char *end = strrchr(name, '.');
    if (end)
        *end = 0;
    int locks = argc == 3 && !strcmp(argv[1], "--lock");
    DWORD shared = locks ? 0 : FILE_SHARE_READ | FILE_SHARE_WRITE;
    if (argc == 3 && (locks || !strcmp(argv[1], "--read")) &&
        CreateFileA(argv[2], GENERIC_READ, shared, NULL, OPEN_EXISTING, 0, NULL) == INVALID_HANDLE_VALUE) {
        fprintf(stderr, "cannot read %s: error %lu\n", argv[2], GetLastError());
        return 1;
    }
    struct orders orders = started(name);
    return serve(name, &orders);
}
