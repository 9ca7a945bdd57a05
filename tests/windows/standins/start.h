/* How a program starts another one, which gets its arguments as they were quoted. */
#ifndef START_H
#define START_H
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

/* The position after the next word of a command line and its blanks. */
static inline WCHAR *next(WCHAR *at)
{
    BOOL quoted = FALSE;
    for (; *at && (quoted || (*at != L' ' && *at != L'\t')); at++)
        if (*at == L'"')
            quoted = !quoted;
    while (*at == L' ' || *at == L'\t')
        at++;
    return at;
}

/* Starts a command line with the standard streams of this program. */
static inline BOOL start(WCHAR *line, DWORD flags, PROCESS_INFORMATION *process)
{
    STARTUPINFOW startup = {
        .cb = sizeof startup,
        .dwFlags = STARTF_USESTDHANDLES,
        .hStdInput = GetStdHandle(STD_INPUT_HANDLE),
        .hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE),
        .hStdError = GetStdHandle(STD_ERROR_HANDLE),
    };
    return CreateProcessW(NULL, line, NULL, NULL, TRUE, flags, NULL, NULL, &startup, process);
}
#endif
