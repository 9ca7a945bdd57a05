/* A kubelet for a Windows on which kubelet's own program does not run for long: it is that program, C:\k\kubelet.exe,
 * with the same arguments and the same end, until there is a file C:\test\kubelet.rests. From then on it only runs. */
#include "steer.h"

/* The position after the first word of a command line. */
static const WCHAR *rest_of(const WCHAR *line)
{
    BOOL quoted = FALSE;
    for (; *line && (quoted || *line != L' '); line++)
        if (*line == L'"')
            quoted = !quoted;
    return line;
}

int main(void)
{
    STARTUPINFOW startup = {
        .cb = sizeof startup,
        .dwFlags = STARTF_USESTDHANDLES,
        .hStdInput = GetStdHandle(STD_INPUT_HANDLE),
        .hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE),
        .hStdError = GetStdHandle(STD_ERROR_HANDLE),
    };
    PROCESS_INFORMATION process;
    static WCHAR line[32768] = L"C:\\k\\kubelet.exe";
    DWORD code = 1;

    if (GetFileAttributesA("C:\\test\\kubelet.rests") != INVALID_FILE_ATTRIBUTES)
        for_ever();
    wcscat(line, rest_of(GetCommandLineW()));
    if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, &startup, &process))
        return 1;
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    return (int)code;
}
