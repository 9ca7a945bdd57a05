/* Runs a program and writes its exit code, all 32 bits of it, to a file:
 *
 *     run.exe alone|console FILE PROGRAM ARGUMENT…
 *
 * Wine's own exit code has 8 bits. And on a busy machine Wine kills a process that takes a second to
 * end after it set its code: this file still has the code.
 *
 * Alone the program gets no console, as under a scheduler: for each console Wine starts a program. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <stdio.h>
#include <string.h>

/* The position after the next word of a command line and its blanks. */
static WCHAR *next(WCHAR *at)
{
    BOOL quoted = FALSE;
    for (; *at && (quoted || (*at != L' ' && *at != L'\t')); at++)
        if (*at == L'"')
            quoted = !quoted;
    while (*at == L' ' || *at == L'\t')
        at++;
    return at;
}

int main(int argc, char **argv)
{
    STARTUPINFOW startup = {
        .cb = sizeof startup,
        .dwFlags = STARTF_USESTDHANDLES,
        .hStdInput = GetStdHandle(STD_INPUT_HANDLE),
        .hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE),
        .hStdError = GetStdHandle(STD_ERROR_HANDLE),
    };
    PROCESS_INFORMATION process;
    DWORD code = 0;
    if (argc < 4)
        return 2;
    /* Unchanged: the program sees its arguments quoted as its caller quoted them. */
    WCHAR *line = next(next(next(GetCommandLineW())));
    DWORD flags = strcmp(argv[1], "alone") ? 0 : DETACHED_PROCESS;
    if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, flags, NULL, NULL, &startup, &process)) {
        fprintf(stderr, "cannot run %ls: error %lu\n", line, GetLastError());
        return 1;
    }
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    FILE *file = fopen(argv[2], "wb");
    if (!file)
        return 1;
    fprintf(file, "%ld", (long)code);
    fclose(file);
    return 0;
}
