/* What every stand-in can be told to do, and how it says what it did.
 *
 * A test writes C:\test\NAME.do, one order a line. Each start of NAME takes the next line away; the
 * last one stays and holds for all later starts. Words of a line:
 *   exit=CODE    end with CODE, at once or after=MS milliseconds
 *   deaf         take no notice of Ctrl-C
 *   ctrlc=CODE   end with CODE on Ctrl-C (else 0)
 *   log=BYTES    write so many bytes a second of log lines to stdout
 *   torn         write each log line in two halves
 *   child        start a child that never ends, hears no Ctrl-C and holds on to stdout
 *   hang         (node startup) do not answer at all
 *   late         (node startup) do so, or fail, only when the network is made: before its endpoint
 *   unready      (Felix) answer that it is not ready
 *   writes=MS    (node startup) leave the file with the node's name empty for so long
 * A running NAME that finds C:\test\NAME.now ends with the code that stands in it.
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

/* Takes the orders for this start of NAME and says that it started. */
struct orders started(const char *name);

/* Says that NAME stops, and gives the code back. */
int stopped(const char *name, const char *why, int code);

/* Runs as a server does, until ordered or asked to stop; its exit code. */
int serve(const char *name, const struct orders *orders);

/* Adds one line to C:\test\NAME.log. */
void note(const char *name, const char *line);

/* A whole file, ended with 0; NULL when it cannot be read. The caller frees it. */
char *read_file(const char *path);

/* What a wide text is in UTF-8; the caller frees it. */
char *utf8(const WCHAR *text);

/* What a child that never ends runs, when it was started with the argument --for-ever. */
void for_ever(void);
#endif
