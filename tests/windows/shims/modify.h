/* Changes of version 2: {"ResourceType", "RequestType", "Settings"}, hcsshim's Modify…SettingRequest. */
#ifndef SHIM_MODIFY_H
#define SHIM_MODIFY_H
#include "hns.h"

/* Changes the object of a table with this id. */
struct said modify(const char *table, const char *id, const struct json *request, int kept);
/* What HNS refuses of an endpoint or a load balancer that is asked for; `failed` is 0 if it takes it. */
struct said checked(const char *table, const struct json *v1);
#endif
