/* A kubelet for a Windows on which kubelet's own program does not run for long: it is that program, C:\k\kubelet.exe,
 * with the same arguments and the same end, until there is a file C:\test\kubelet.rests. From then on it only runs. */
#include "start.h"
#include "steer.h"

int main(void)
{
    PROCESS_INFORMATION process;
    static WCHAR line[32768] = L"C:\\k\\kubelet.exe ";
    DWORD code = 1;

    if (GetFileAttributesA("C:\\test\\kubelet.rests") != INVALID_FILE_ATTRIBUTES)
        for_ever();
    wcscat(line, next(GetCommandLineW()));
    if (!start(line, 0, &process))
        return 1;
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    return (int)code;
}
