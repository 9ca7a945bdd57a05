/* Stands in for a program that others look for by its name and that just runs: kubelet.exe. What it is
 * called is its name in C:\test. */
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
    struct orders orders = started(name);
    return serve(name, &orders);
}
