/* The instructions for every stand-in, and its log.
 *
 * A test writes C:\test\NAME.do, one instruction in each line. Each start of NAME removes the next line; the
 * last one stays and applies to all later starts. Words of a line:
 *   exit=CODE    end with CODE, at once or after=MS milliseconds
 *   deaf         ignore Ctrl-C
 *   ctrlc=CODE   end with CODE on Ctrl-C (else 0)
 *   log=BYTES    write this many bytes a second of log lines to stdout
 *   torn         write each log line in two halves
 *   child        start a child that never ends, ignores Ctrl-C and keeps stdout open
 *   hang         (node startup) never end
 *   late         (node startup) hang or fail only after the network is created, before its endpoint
 *   unready      (Felix) answer that it is not ready
 *   writes=MS    (node startup) leave the file with the node's name empty for this long
 * A running NAME that finds C:\test\NAME.now ends with the code in it.
 *
 * Each adds lines of JSON to C:\test\NAME.log: {"event":"start",…} with pid, program, args, dir and
 * env, and {"event":"stop","why":"exit"|"ctrl-c"|"now","code":N,"pid":N}. */
#ifndef STEER_H
#define STEER_H
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

struct orders {
    BOOL ends;
    int code;
    DWORD after;
    BOOL deaf;
    int ctrl_c;
    long log;
    BOOL torn;
    BOOL child;
    BOOL hang;
    BOOL late;
    BOOL unready;
    DWORD writes;
};

/* Reads the instructions for this start of NAME and logs the start. */
struct orders started(const char *name);

/* Logs that NAME stops, and returns the code. */
int stopped(const char *name, const char *why, int code);

/* Runs like a server until it must end; returns its exit code. */
int serve(const char *name, const struct orders *orders);

/* Appends one line to C:\test\NAME.log. */
void note(const char *name, const char *line);

/* A whole file, ended with 0; NULL if it cannot be read. The caller frees it. */
char *read_file(const char *path);

/* Converts a wide text to UTF-8; the caller frees it. */
char *utf8(const WCHAR *text);

/* The main loop of a child that never ends, started with the argument --for-ever. */
void for_ever(void);
#endif
