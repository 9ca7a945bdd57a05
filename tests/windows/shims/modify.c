#define _WIN32_WINNT 0x0A00
#include <windows.h>
#include "modify.h"
#include "schema.h"

/* ---- policies of a network or an endpoint ---- */

static int same(const struct json *one, const struct json *other)
{
    char *a = json_printed(one), *b = json_printed(other);
    int equal = !strcmp(a, b);
    free(a);
    free(b);
    return equal;
}

/* Removes the policies that equal one, or have its type. Returns how many. */
static int drop_policies(struct json *list, const struct json *like, int by_type)
{
    int dropped = 0;
    for (int i = list->count - 1; i >= 0; i--)
        if (by_type ? json_is(list->items[i], "Type", json_text(like, "Type")) : same(list->items[i], like)) {
            json_drop(list, i);
            dropped++;
        }
    return dropped;
}

static struct said change_policies(const char *table, const char *id, const struct json *request, int kept)
{
    const struct json *asked = json_get(json_get(request, "Settings"), "Policies");
    const char *verb = json_text(request, "RequestType");
    int update = !strcmp(verb, "Update"), add = update || !strcmp(verb, "Add");
    struct json *list = read_table(table), *object = list->items[place_of(list, id)];
    struct said said = {0};
    json_default(object, "Policies", json_parse("[]"));
    struct json *policies = json_get(object, "Policies");
    if (!add && strcmp(verb, "Remove"))
        said = refusal(REQUEST_UNSUPPORTED);
    for (int i = 0; update && asked && i < asked->count; i++) {
        struct json *flat = policy_for_v1(asked->items[i]);
        drop_policies(policies, flat, 1);
        json_free(flat);
    }
    for (int i = 0; !said.failed && asked && i < asked->count; i++) {
        struct json *flat = policy_for_v1(asked->items[i]);
        int dropped = drop_policies(policies, flat, 0);
        if (add)
            json_add(policies, json_copy(flat));
        else if (!dropped)
            said = refusal(POLICY_NOT_FOUND);
        json_free(flat);
    }
    if (!said.failed && kept)
        write_table(table, list);
    json_free(list);
    return said;
}

/* ---- namespaces ---- */

static struct said change_namespace(const char *id, const struct json *request, int kept)
{
    const struct json *settings = json_get(request, "Settings");
    int endpoint = json_is(request, "ResourceType", "Endpoint"), add = json_is(request, "RequestType", "Add");
    const char *what = json_text(settings, endpoint ? "EndpointId" : "ContainerId");
    struct said said = {0};
    if (endpoint) {
        said = join_namespace(id, what, add, kept);
        json_free(said.output);
        said.output = NULL;
        if (said.failed)
            return said;
    }
    struct json *list = read_table(NAMESPACES), *namespace = list->items[place_of(list, id)];
    drop_resource(namespace, what);
    json_default(namespace, "Resources", json_parse("[]"));
    if (add)
        json_add(json_get(namespace, "Resources"), json_made("{\"Type\":\"%s\",\"Data\":{\"Id\":\"%s\"}}",
                                                             endpoint ? "Endpoint" : "Container", what));
    if (kept)
        write_table(NAMESPACES, list);
    json_free(list);
    return said;
}

/* ---- what is refused ---- */

/* projectcalico/calico 8465: a placeholder where a prefix belongs. */
static int is_prefix(const char *text)
{
    return strchr("0123456789abcdefABCDEF:", *text) && strchr(text, '/');
}

static struct said checked_endpoint(const struct json *v1)
{
    const struct json *policies = json_get(v1, "Policies");
    for (int i = 0; policies && i < policies->count; i++) {
        const struct json *policy = policies->items[i], *exceptions = json_get(policy, "ExceptionList");
        if (json_is(policy, "Type", "ROUTE") && !is_prefix(json_text(policy, "DestinationPrefix")))
            return refusal(INVALID_POLICY);
        for (int j = 0; exceptions && j < exceptions->count; j++)
            if (!is_prefix(exceptions->items[j]->text))
                return refusal(INVALID_POLICY);
    }
    return (struct said){0};
}

/* Whether two policy lists balance the same address, protocol and port. */
static int clash(const struct json *one, const struct json *other)
{
    const struct json *a = json_get(one, "Policies"), *b = json_get(other, "Policies");
    for (int i = 0; a && i < a->count; i++)
        for (int j = 0; b && j < b->count; j++) {
            const struct json *vips = json_get(a->items[i], "VIPs"), *other_vips = json_get(b->items[j], "VIPs");
            if (vips && other_vips && same(vips, other_vips) &&
                json_number(a->items[i], "ExternalPort", 0) == json_number(b->items[j], "ExternalPort", 0) &&
                json_number(a->items[i], "Protocol", 0) == json_number(b->items[j], "Protocol", 0))
                return 1;
        }
    return 0;
}

static struct said checked_balancer(const struct json *v1)
{
    struct json *endpoints = read_table(ENDPOINTS), *lists = read_table(POLICY_LISTS);
    const struct json *references = json_get(v1, "References");
    /* projectcalico/calico 5762: without an endpoint. */
    struct said said = references->count ? (struct said){0} : refusal(INVALID_REFERENCE);
    for (int i = 0; i < references->count; i++)
        if (place_of(endpoints, strrchr(references->items[i]->text, '/') + 1) < 0)
            said = refusal(ENDPOINT_NOT_FOUND);
    for (int i = 0; i < lists->count; i++)
        if (clash(v1, lists->items[i]))
            said = refusal(PORT_EXISTS);
    json_free(endpoints);
    json_free(lists);
    return said;
}

struct said checked(const char *table, const struct json *v1)
{
    if (!strcmp(table, ENDPOINTS))
        return checked_endpoint(v1);
    return strcmp(table, POLICY_LISTS) ? (struct said){0} : checked_balancer(v1);
}

/* Replaces a load balancer or a route by another of its id. */
static struct said replace(const char *table, const char *id, const struct json *request, int kept)
{
    struct json *list = read_table(table), *made = asked_by_v2(table, request);
    int at = place_of(list, id);
    json_put(made, "ID", json_copy(json_get(list->items[at], "ID")));
    json_put(made, "State", json_parse("2"));
    json_free(list->items[at]);
    list->items[at] = made;
    if (kept)
        write_table(table, list);
    json_free(list);
    return (struct said){0};
}

struct said modify(const char *table, const char *id, const struct json *request, int kept)
{
    struct json *list = read_table(table);
    int there = place_of(list, id) >= 0, policy = json_is(request, "ResourceType", "Policy");
    json_free(list);
    if (!there)
        return refusal(!strcmp(table, NETWORKS)    ? NETWORK_NOT_FOUND
                       : !strcmp(table, ENDPOINTS) ? ENDPOINT_NOT_FOUND
                                                   : ELEMENT_NOT_FOUND);
    if (!strcmp(table, NAMESPACES))
        return change_namespace(id, request, kept);
    if (!strcmp(table, NETWORKS) || !strcmp(table, ENDPOINTS))
        return policy ? change_policies(table, id, request, kept) : refusal(REQUEST_UNSUPPORTED);
    return replace(table, id, request, kept);
}
