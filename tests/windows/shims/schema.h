/* The two schemas of HNS's objects: version 1 is flat, version 2 has its policies as type and settings. The keys of
 * version 2 are those of hcsshim's hcn package. */
#ifndef SHIM_SCHEMA_H
#define SHIM_SCHEMA_H
#include "json.h"

/* The whole object of version 1 as version 2 shows it. */
struct json *shown_by_v2(const char *table, const struct json *whole);
/* A request of version 2 as an object of version 1. */
struct json *asked_by_v2(const char *table, const struct json *request);
/* A policy's settings below its type, or flat, with the names of each version. */
struct json *policy_for_v2(const struct json *policy);
struct json *policy_for_v1(const struct json *policy);
#endif
