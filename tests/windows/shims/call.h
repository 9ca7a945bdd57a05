/* What every call of HNS has in common, by v1 or v2: the log, the faults, and texts in and out. */
#ifndef SHIM_CALL_H
#define SHIM_CALL_H
#define _WIN32_WINNT 0x0A00
#include <windows.h>
#include <objbase.h>
#include "hns.h"

struct call {
    HANDLE lock;
    char action[16], rest[512]; /* of the fault for it; empty without one */
};

/* Logs the call, takes the lock, and hangs, delays or is busy if the fault for it says so. */
void begin_call(struct call *call, const char *method, const char *path);
/* The fault's own answer instead of ours. False if there is none. */
int faulty(const struct call *call, struct said *said);
void end_call(struct call *call);

/* UTF-8, which the caller frees. */
char *narrow(LPCWSTR text);
/* A text from CoTaskMemAlloc, as HNS gives it. Nothing for an empty one. */
void give(LPWSTR *response, const char *text);
#endif
