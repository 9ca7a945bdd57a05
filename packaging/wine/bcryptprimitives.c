/* Rust's standard library takes its random numbers from ProcessPrng, which Wine 8 does not have.
   RtlGenRandom (exported as SystemFunction036) does the same. */
#include <windows.h>

BOOLEAN WINAPI SystemFunction036(PVOID buffer, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length)
{
    return SystemFunction036(buffer, (ULONG)length);
}
