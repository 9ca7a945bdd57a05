/* The objects of HNS, in files below C:\test: a JSON object in each line, in the schema of v1 and without what HNS adds
 * by itself (shape.c). Both DLLs answer from here. */
#ifndef SHIM_HNS_H
#define SHIM_HNS_H
#include "json.h"

#define NETWORKS "hns.networks"
#define ENDPOINTS "hns.endpoints"
#define POLICY_LISTS "hns.policylists"
#define NAMESPACES "hns.namespaces"
#define ROUTES "hns.routes"

#define NETWORK_NOT_FOUND 0x803B0001UL
#define ENDPOINT_NOT_FOUND 0x803B0002UL
#define POLICY_NOT_FOUND 0x803B0008UL
#define INVALID_POLICY 0x803B000DUL
#define NETWORK_EXISTS 0x803B0010UL
#define ALREADY_ATTACHED 0x803B0014UL
#define REQUEST_UNSUPPORTED 0x803B0015UL
#define INVALID_JSON 0x803B001BUL
#define INVALID_REFERENCE 0x803B001CUL
#define PORT_EXISTS 0x803B0013UL
#define NAMESPACE_NOT_FOUND 0x803B0027UL
#define NOT_ATTACHED 0x803B0034UL
#define INVALID_PARAMETER 0x80070057UL
#define ELEMENT_NOT_FOUND 0x80070490UL

/* Keys of ours in a stored network, which HNS never shows. */
#define ON_ADAPTER "_adapter"
#define UNSEEN_BY_V2 "_unseenByV2"

/* An answer of HNS. */
struct said {
    struct json *output; /* the receiver frees it */
    unsigned long code;
    const char *words;   /* with HNS's own blank at their end */
    int failed, hresult; /* whether it fails, and by the call's own result */
};

/* A failure with HNS's own text for the code. */
struct said refusal(unsigned long code);

/* Every object of a table, in a list. */
struct json *read_table(const char *table);
void write_table(const char *table, const struct json *list);
/* The place of an object, by its id; -1 if it is not there. */
int place_of(const struct json *list, const char *id);

/* Makes an object. A `kept` of 0 answers without making it; `blind` makes a network that v2 does not show. */
struct said create_network(const struct json *request, int kept, int blind);
struct said create_endpoint(const struct json *request, int kept);
struct said create_other(const char *table, const struct json *request, int kept);
struct said delete_one(const char *table, const char *id, int kept);

/* Replaces the ACLs of an endpoint, as Felix does: all at once; its other policies are kept. */
struct said change_endpoint(const char *id, const struct json *request, int kept);
/* Attaches an endpoint to a container (by v1) or to the host, or detaches it. */
struct said attach_endpoint(const char *id, const struct json *request, int attach, int kept);
/* What a container network that starts to use an endpoint, or ends to, does to it. */
struct said join_namespace(const char *namespace, const char *endpoint, int join, int kept);

/* Takes an endpoint or container out of a stored namespace. */
void drop_resource(struct json *namespace, const char *id);

/* The whole object as v1 shows it, with everything that HNS adds. */
struct json *whole(const char *table, const struct json *stored);
/* A read of the networks: addresses that are on their way come nearer. */
void networks_were_read(void);

long counter(const char *name);
void set_counter(const char *name, long value);
/* A new GUID as HNS writes it. */
void new_guid(char guid[40]);
#endif
