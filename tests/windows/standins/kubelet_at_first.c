/* A kubelet for a Windows on which kubelet's own program does not run for long: it runs that program, C:\k\kubelet.exe,
 * with the same arguments, again whenever it fails, until there is a file C:\test\kubelet.rests. From then on it only
 * runs itself. To the service it is one process: what a kubelet that ends again and again means is another story. */
#include "start.h"
#include "steer.h"

int main(void)
{
    PROCESS_INFORMATION process;
    const WCHAR *arguments = next(GetCommandLineW());
    static WCHAR line[32768];
    DWORD code = 1;

    while (GetFileAttributesA("C:\\test\\kubelet.rests") == INVALID_FILE_ATTRIBUTES) {
        wcscpy(line, L"C:\\k\\kubelet.exe ");
        wcscat(line, arguments);
        if (!start(line, 0, &process))
            return 1;
        WaitForSingleObject(process.hProcess, INFINITE);
        GetExitCodeProcess(process.hProcess, &code);
        CloseHandle(process.hProcess);
        CloseHandle(process.hThread);
        if (code == 0)
            return 0;
        Sleep(500);
    }
    for_ever();
}
