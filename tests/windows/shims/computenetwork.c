/* A Host Networking Service for tests, version 2: the functions of computenetwork.dll that hcsshim 0.14 imports, over
 * the files of version 1. Faults are version 1's (vmcompute.c), with the methods ENUMERATE, CREATE, OPEN, MODIFY, QUERY
 * and DELETE and the paths /v2/networks, /v2/endpoints, /v2/namespaces, /v2/loadbalancers and /v2/routes.
 *
 * A failure is the call's result, and a record {"Success":false,"Error","ErrorCode"} of it; on success there is no
 * record, since hcsshim treats any text as a failure. */
#include "call.h"
#include "modify.h"
#include "schema.h"

/* What a handle is of. */
struct opened {
    const char *table;
    char id[40];
};

static const char *path_of(const char *table)
{
    if (!strcmp(table, POLICY_LISTS))
        return "/v2/loadbalancers";
    return !strcmp(table, NETWORKS)     ? "/v2/networks"
           : !strcmp(table, ENDPOINTS)  ? "/v2/endpoints"
           : !strcmp(table, NAMESPACES) ? "/v2/namespaces"
                                        : "/v2/routes";
}

static unsigned long missing(const char *table)
{
    return !strcmp(table, NETWORKS)    ? NETWORK_NOT_FOUND
           : !strcmp(table, ENDPOINTS) ? ENDPOINT_NOT_FOUND
                                       : ELEMENT_NOT_FOUND;
}

static void guid_text(const GUID *guid, char text[40])
{
    WCHAR wide[64];
    StringFromGUID2(guid, wide, 64);
    snprintf(text, 40, "%.36ls", wide + 1);
}

static int is_guid(const char *text)
{
    return strlen(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-';
}

/* Ends a call: its record and its result. */
static HRESULT ended(struct call *call, struct said *said, LPWSTR *record)
{
    end_call(call);
    if (record)
        *record = NULL;
    json_free(said->output);
    if (!said->failed)
        return S_OK;
    if (strcmp(call->action, "hresult")) {
        struct json *text = json_made("{\"Success\":false}");
        json_put_text(text, "Error", said->words);
        if (said->code)
            json_put(text, "ErrorCode", json_made("%lu", said->code));
        char *printed = json_printed(text);
        give(record, printed);
        free(printed);
        json_free(text);
    }
    return said->code ? (HRESULT)said->code : E_FAIL;
}

static void begin(struct call *call, const char *method, const char *table, const char *id)
{
    char path[128];
    snprintf(path, sizeof path, "%s%s%s", path_of(table), *id ? "/" : "", id);
    begin_call(call, method, path);
}

/* Whether an object is what a query's filter asks for; its keys are version 1's. */
static int fits(const struct json *whole, const char *query)
{
    struct json *asked = json_parse(query), *filter = json_parse(json_text(asked, "Filter"));
    int good = 1;
    for (int i = 0; filter && i < filter->count; i++)
        good &= filter->items[i]->kind == JSON_TEXT && json_is(whole, filter->keys[i], filter->items[i]->text);
    json_free(asked);
    json_free(filter);
    return good;
}

static HRESULT enumerate(const char *table, LPCWSTR query_w, LPWSTR *found, LPWSTR *record)
{
    struct call call;
    struct said said = {0};
    char *query = narrow(query_w);
    begin(&call, "ENUMERATE", table, "");
    if (!faulty(&call, &said)) {
        struct json *list = read_table(table), *ids = json_parse("[]");
        for (int i = 0; i < list->count; i++) {
            struct json *object = whole(table, list->items[i]);
            if (is_guid(json_text(object, "ID")) && !json_true(list->items[i], UNSEEN_BY_V2) && fits(object, query))
                json_add(ids, json_copy(json_get(object, "ID")));
            json_free(object);
        }
        char *text = json_printed(ids);
        give(found, text);
        free(text);
        json_free(ids);
        json_free(list);
    }
    free(query);
    return ended(&call, &said, record);
}

static void open_handle(void **handle, const char *table, const char *id)
{
    struct opened *made = malloc(sizeof *made);
    made->table = table;
    snprintf(made->id, sizeof made->id, "%s", id);
    *handle = made;
}

static HRESULT open(const char *table, const GUID *guid, void **handle, LPWSTR *record)
{
    struct call call;
    struct said said = {0};
    char id[40];
    guid_text(guid, id);
    begin(&call, "OPEN", table, id);
    if (!faulty(&call, &said)) {
        struct json *list = read_table(table);
        int at = place_of(list, id);
        if (at < 0 || json_true(list->items[at], UNSEEN_BY_V2))
            said = refusal(missing(table));
        else
            open_handle(handle, table, id);
        json_free(list);
    }
    return ended(&call, &said, record);
}

static struct json *with_more(const char *table, struct json *v1, const GUID *guid)
{
    char id[40];
    guid_text(guid, id);
    if (strcmp(id, "00000000-0000-0000-0000-000000000000"))
        json_put_text(v1, "ID", id);
    if (!strcmp(table, NAMESPACES)) {
        struct json *all = read_table(NAMESPACES);
        json_put(v1, "NamespaceId", json_made("%d", all->count + 2));
        json_default(v1, "Resources", json_parse("[]"));
        json_free(all);
    }
    return v1;
}

static HRESULT create(const char *table, const struct opened *network, const GUID *guid, LPCWSTR settings_w, void **handle,
                      LPWSTR *record)
{
    struct call call;
    struct said said = {0};
    char *settings = narrow(settings_w);
    begin(&call, "CREATE", table, "");
    struct json *request = json_parse(settings);
    if (!faulty(&call, &said) && !request)
        said = refusal(INVALID_JSON);
    if (!said.failed) {
        struct json *v1 = with_more(table, asked_by_v2(table, request), guid);
        int kept = strcmp(call.action, "lose") != 0;
        if (network)
            json_put_text(v1, "VirtualNetwork", network->id);
        said = checked(table, v1);
        if (!said.failed)
            said = !strcmp(table, NETWORKS)    ? create_network(v1, kept, !strcmp(call.action, "blind"))
                   : !strcmp(table, ENDPOINTS) ? create_endpoint(v1, kept)
                                               : create_other(table, v1, kept);
        if (!said.failed)
            open_handle(handle, table, json_text(said.output, "ID"));
        json_free(v1);
    }
    json_free(request);
    free(settings);
    return ended(&call, &said, record);
}

static HRESULT change(struct opened *of, LPCWSTR settings_w, LPWSTR *record)
{
    struct call call;
    struct said said = {0};
    char *settings = narrow(settings_w);
    begin(&call, "MODIFY", of->table, of->id);
    struct json *request = json_parse(settings);
    if (!faulty(&call, &said))
        said = request ? modify(of->table, of->id, request, strcmp(call.action, "lose") != 0) : refusal(INVALID_JSON);
    json_free(request);
    free(settings);
    return ended(&call, &said, record);
}

/* A query that does not name version 2 is answered in version 1's schema (the recorded transparent networks). */
static HRESULT query(struct opened *of, LPCWSTR query_w, LPWSTR *properties, LPWSTR *record)
{
    struct call call;
    struct said said = {0};
    char *text = narrow(query_w);
    begin(&call, "QUERY", of->table, of->id);
    if (!faulty(&call, &said)) {
        struct json *list = read_table(of->table), *asked = json_parse(text);
        int at = place_of(list, of->id);
        if (at < 0)
            said = refusal(missing(of->table));
        else {
            struct json *v1 = whole(of->table, list->items[at]);
            int second = json_number(json_get(asked, "SchemaVersion"), "Major", 1) == 2;
            struct json *shown = second ? shown_by_v2(of->table, v1) : json_copy(v1);
            char *printed = json_printed(shown);
            give(properties, printed);
            free(printed);
            json_free(shown);
            json_free(v1);
        }
        json_free(list);
        json_free(asked);
    }
    free(text);
    return ended(&call, &said, record);
}

static HRESULT delete(const char *table, const GUID *guid, LPWSTR *record)
{
    struct call call;
    struct said said = {0};
    char id[40];
    guid_text(guid, id);
    begin(&call, "DELETE", table, id);
    if (!faulty(&call, &said))
        said = delete_one(table, id, strcmp(call.action, "lose") != 0);
    return ended(&call, &said, record);
}

#define EXPORT __declspec(dllexport) HRESULT WINAPI

#define FUNCTIONS(One, Many, table)                                                                                      \
    EXPORT HcnEnumerate##Many(LPCWSTR asked, LPWSTR *found, LPWSTR *record)                                              \
    {                                                                                                                    \
        return enumerate(table, asked, found, record);                                                                   \
    }                                                                                                                    \
    EXPORT HcnOpen##One(const GUID *id, void **handle, LPWSTR *record)                                                   \
    {                                                                                                                    \
        return open(table, id, handle, record);                                                                          \
    }                                                                                                                    \
    EXPORT HcnModify##One(void *handle, LPCWSTR settings, LPWSTR *record)                                                \
    {                                                                                                                    \
        return change(handle, settings, record);                                                                         \
    }                                                                                                                    \
    EXPORT HcnQuery##One##Properties(void *handle, LPCWSTR asked, LPWSTR *properties, LPWSTR *record)                    \
    {                                                                                                                    \
        return query(handle, asked, properties, record);                                                                 \
    }                                                                                                                    \
    EXPORT HcnDelete##One(const GUID *id, LPWSTR *record)                                                                \
    {                                                                                                                    \
        return delete (table, id, record);                                                                               \
    }                                                                                                                    \
    EXPORT HcnClose##One(void *handle)                                                                                   \
    {                                                                                                                    \
        free(handle);                                                                                                    \
        return S_OK;                                                                                                     \
    }

#define CREATION(One, table)                                                                                             \
    EXPORT HcnCreate##One(const GUID *id, LPCWSTR settings, void **handle, LPWSTR *record)                               \
    {                                                                                                                    \
        return create(table, NULL, id, settings, handle, record);                                                        \
    }

FUNCTIONS(Network, Networks, NETWORKS)
FUNCTIONS(Endpoint, Endpoints, ENDPOINTS)
FUNCTIONS(Namespace, Namespaces, NAMESPACES)
FUNCTIONS(LoadBalancer, LoadBalancers, POLICY_LISTS)
FUNCTIONS(SdnRoute, SdnRoutes, ROUTES)
CREATION(Network, NETWORKS)
CREATION(Namespace, NAMESPACES)
CREATION(LoadBalancer, POLICY_LISTS)
CREATION(SdnRoute, ROUTES)

EXPORT HcnCreateEndpoint(void *network, const GUID *id, LPCWSTR settings, void **handle, LPWSTR *record)
{
    return create(ENDPOINTS, network, id, settings, handle, record);
}
