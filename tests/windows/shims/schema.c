#define _WIN32_WINNT 0x0A00
#include <windows.h>
#include "hns.h"
#include "schema.h"

/* What has another name in the two versions; everything else is called alike. The names of version 1 are recorded
 * (tests/fixtures/hns), those of version 2 are hcsshim's. */
static const struct {
    const char *type_v1, *type_v2, *key_v1, *key_v2;
} NAMES[] = {
    {"VSID", "VSID", "VSID", "IsolationId"},
    {"VLAN", "VLAN", "VLAN", "IsolationId"},
    {"PA", "ProviderAddress", "PA", "ProviderAddress"},
    {"OutBoundNAT", "OutBoundNAT", "ExceptionList", "Exceptions"},
    {"ROUTE", "SDNRoute", "", ""},
};

struct json *policy_for_v2(const struct json *policy)
{
    const char *type = json_text(policy, "Type"), *old = "", *new = "";
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (!_stricmp(type, NAMES[i].type_v1)) {
            type = NAMES[i].type_v2;
            old = NAMES[i].key_v1;
            new = NAMES[i].key_v2;
            break;
        }
    struct json *made = json_parse("{}"), *settings = json_parse("{}");
    json_put_text(made, "Type", type);
    for (int i = 0; i < policy->count; i++)
        if (strcmp(policy->keys[i], "Type"))
            json_put(settings, strcmp(policy->keys[i], old) ? policy->keys[i] : new, json_copy(policy->items[i]));
    json_put(made, "Settings", settings);
    return made;
}

struct json *policy_for_v1(const struct json *policy)
{
    const char *type = json_text(policy, "Type"), *old = "", *new = "";
    const struct json *settings = json_get(policy, "Settings");
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (!_stricmp(type, NAMES[i].type_v2)) {
            type = NAMES[i].type_v1;
            old = NAMES[i].key_v1;
            new = NAMES[i].key_v2;
            break;
        }
    struct json *made = json_parse("{}");
    json_put_text(made, "Type", type);
    for (int i = 0; settings && i < settings->count; i++)
        json_put(made, strcmp(settings->keys[i], new) ? settings->keys[i] : old, json_copy(settings->items[i]));
    return made;
}

static struct json *policies(const struct json *of, struct json *(*turn)(const struct json *))
{
    struct json *list = json_parse("[]");
    for (int i = 0; of && i < of->count; i++)
        json_add(list, turn(of->items[i]));
    return list;
}

static void put_copy(struct json *to, const char *name, const struct json *from, const char *key)
{
    const struct json *found = json_get(from, key);
    if (found)
        json_put(to, name, json_copy(found));
}

/* Lower case, as version 2 writes ids (the recorded load balancer). */
static void put_id(struct json *to, const char *name, const char *id)
{
    char low[64];
    snprintf(low, sizeof low, "%s", id);
    json_put_text(to, name, _strlwr(low));
}

static void schema_version(struct json *object)
{
    json_put(object, "SchemaVersion", json_parse("{\"Major\":2,\"Minor\":0}"));
}

/* "a,b" as a list, and back. */
static struct json *split(const char *text)
{
    struct json *list = json_parse("[]");
    while (*text) {
        char one[256];
        size_t length = strcspn(text, ",");
        snprintf(one, sizeof one, "%.*s", (int)length, text);
        struct json *holder = json_parse("{}");
        json_put_text(holder, "it", one);
        json_add(list, json_copy(json_get(holder, "it")));
        json_free(holder);
        text += length + (text[length] == ',');
    }
    return list;
}

static void put_joined(struct json *to, const char *name, const struct json *list)
{
    struct text text = {0};
    add(&text, "");
    for (int i = 0; list && i < list->count; i++) {
        if (i)
            add(&text, ",");
        add(&text, list->items[i]->text ? list->items[i]->text : "");
    }
    if (*text.at)
        json_put_text(to, name, text.at);
    free(text.at);
}

/* ---- networks ---- */

static struct json *network_for_v2(const struct json *v1)
{
    struct json *v2 = json_parse("{}"), *list = policies(json_get(v1, "Policies"), policy_for_v2);
    static const char *const AS_POLICY[][3] = {{"NetworkAdapterName", "NetAdapterName", "NetworkAdapterName"},
                                               {"DrMacAddress", "DrMacAddress", "Address"},
                                               {"ManagementIP", "ProviderAddress", "ProviderAddress"}};
    put_id(v2, "ID", json_text(v1, "ID"));
    json_put_text(v2, "Name", json_text(v1, "Name"));
    /* HNS leaves its zero out (hcsshim, hcn/hcnnetwork.go). */
    if (!json_is(v1, "Type", "nat"))
        json_put_text(v2, "Type", json_text(v1, "Type"));
    for (int i = 0; i < 3; i++) {
        const struct json *found = json_get(v1, AS_POLICY[i][0]);
        if (!found || (i > 0 && !json_is(v1, "Type", "overlay")))
            continue;
        struct json *policy = json_made("{\"Type\":\"%s\",\"Settings\":{}}", AS_POLICY[i][1]);
        json_put(json_get(policy, "Settings"), AS_POLICY[i][2], json_copy(found));
        json_add(list, policy);
    }
    json_put(v2, "Policies", list);
    struct json *ranges = json_parse("{}");
    put_copy(ranges, "Ranges", v1, "MacPools");
    json_put(v2, "MacPool", ranges);
    json_put(v2, "Dns", json_parse("{}"));
    struct json *subnets = json_parse("[]"), *from = json_get(v1, "Subnets");
    for (int i = 0; from && i < from->count; i++) {
        struct json *subnet = json_parse("{}");
        json_put_text(subnet, "IpAddressPrefix", json_text(from->items[i], "AddressPrefix"));
        json_put(subnet, "Policies", policies(json_get(from->items[i], "Policies"), policy_for_v2));
        if (*json_text(from->items[i], "GatewayAddress"))
            json_put(subnet, "Routes", json_made("[{\"NextHop\":\"%s\",\"DestinationPrefix\":\"0.0.0.0/0\"}]",
                                                 json_text(from->items[i], "GatewayAddress")));
        json_add(subnets, subnet);
    }
    struct json *ipam = json_parse("[{\"Type\":\"Static\"}]");
    json_put(ipam->items[0], "Subnets", subnets);
    json_put(v2, "Ipams", ipam);
    put_copy(v2, "Flags", v1, "Flags");
    schema_version(v2);
    return v2;
}

static struct json *network_for_v1(const struct json *v2)
{
    struct json *v1 = json_parse("{}"), *list = json_parse("[]"), *subnets = json_parse("[]");
    put_copy(v1, "Name", v2, "Name");
    json_put_text(v1, "Type", *json_text(v2, "Type") ? json_text(v2, "Type") : "nat");
    put_copy(v1, "Flags", v2, "Flags");
    const struct json *asked = json_get(v2, "Policies"), *ipams = json_get(v2, "Ipams");
    for (int i = 0; asked && i < asked->count; i++) {
        const struct json *settings = json_get(asked->items[i], "Settings");
        if (json_is(asked->items[i], "Type", "NetAdapterName"))
            put_copy(v1, "NetworkAdapterName", settings, "NetworkAdapterName");
        else
            json_add(list, policy_for_v1(asked->items[i]));
    }
    for (int i = 0; ipams && i < ipams->count; i++) {
        const struct json *from = json_get(ipams->items[i], "Subnets");
        for (int j = 0; from && j < from->count; j++) {
            struct json *subnet = json_parse("{}"), *routes = json_get(from->items[j], "Routes");
            put_copy(subnet, "AddressPrefix", from->items[j], "IpAddressPrefix");
            if (routes && routes->count)
                put_copy(subnet, "GatewayAddress", routes->items[0], "NextHop");
            json_put(subnet, "Policies", policies(json_get(from->items[j], "Policies"), policy_for_v1));
            json_add(subnets, subnet);
        }
    }
    json_put(v1, "Policies", list);
    json_put(v1, "Subnets", subnets);
    return v1;
}

/* ---- endpoints ---- */

static struct json *endpoint_for_v2(const struct json *v1)
{
    struct json *v2 = json_parse("{}"), *dns = json_parse("{}"), *ips = json_parse("[]");
    put_id(v2, "ID", json_text(v1, "ID"));
    json_put_text(v2, "Name", json_text(v1, "Name"));
    put_id(v2, "HostComputeNetwork", json_text(v1, "VirtualNetwork"));
    if (json_get(v1, "Namespace"))
        put_id(v2, "HostComputeNamespace", json_text(json_get(v1, "Namespace"), "ID"));
    json_put(v2, "Policies", policies(json_get(v1, "Policies"), policy_for_v2));
    if (*json_text(v1, "IPAddress")) {
        struct json *ip = json_parse("{}");
        put_copy(ip, "IpAddress", v1, "IPAddress");
        put_copy(ip, "PrefixLength", v1, "PrefixLength");
        json_add(ips, ip);
    }
    json_put(v2, "IpConfigurations", ips);
    put_copy(dns, "Domain", v1, "DNSDomain");
    if (*json_text(v1, "DNSSuffix"))
        json_put(dns, "Search", split(json_text(v1, "DNSSuffix")));
    if (*json_text(v1, "DNSServerList"))
        json_put(dns, "ServerList", split(json_text(v1, "DNSServerList")));
    json_put(v2, "Dns", dns);
    if (*json_text(v1, "GatewayAddress"))
        json_put(v2, "Routes", json_made("[{\"NextHop\":\"%s\",\"DestinationPrefix\":\"0.0.0.0/0\"}]",
                                         json_text(v1, "GatewayAddress")));
    put_copy(v2, "MacAddress", v1, "MacAddress");
    json_put(v2, "Flags", json_made("%d", json_true(v1, "IsRemoteEndpoint")));
    schema_version(v2);
    return v2;
}

static struct json *endpoint_for_v1(const struct json *v2)
{
    struct json *v1 = json_parse("{}"), *ips = json_get(v2, "IpConfigurations"), *routes = json_get(v2, "Routes");
    const struct json *dns = json_get(v2, "Dns");
    put_copy(v1, "Name", v2, "Name");
    put_copy(v1, "VirtualNetwork", v2, "HostComputeNetwork");
    json_put(v1, "Policies", policies(json_get(v2, "Policies"), policy_for_v1));
    if (ips && ips->count) {
        put_copy(v1, "IPAddress", ips->items[0], "IpAddress");
        put_copy(v1, "PrefixLength", ips->items[0], "PrefixLength");
    }
    put_joined(v1, "DNSSuffix", json_get(dns, "Search"));
    put_joined(v1, "DNSServerList", json_get(dns, "ServerList"));
    put_copy(v1, "DNSDomain", dns, "Domain");
    if (routes && routes->count)
        put_copy(v1, "GatewayAddress", routes->items[0], "NextHop");
    put_copy(v1, "MacAddress", v2, "MacAddress");
    if (json_number(v2, "Flags", 0) & 1)
        json_put(v1, "IsRemoteEndpoint", json_parse("true"));
    return v1;
}

/* ---- load balancers: policy lists of version 1 ---- */

static struct json *balancer_for_v2(const struct json *v1)
{
    struct json *v2 = json_parse("{}"), *ends = json_parse("[]"), *ports = json_parse("[]");
    const struct json *references = json_get(v1, "References"), *elb = json_get(v1, "Policies");
    put_id(v2, "ID", json_text(v1, "ID"));
    for (int i = 0; references && i < references->count; i++) {
        struct json *holder = json_parse("{}");
        const char *slash = strrchr(references->items[i]->text, '/');
        put_id(holder, "it", slash ? slash + 1 : references->items[i]->text);
        json_add(ends, json_copy(json_get(holder, "it")));
        json_free(holder);
    }
    json_put(v2, "HostComputeEndpoints", ends);
    json_put(v2, "Flags", json_parse("0"));
    for (int i = 0; elb && i < elb->count; i++) {
        const struct json *one = elb->items[i];
        struct json *port = json_parse("{}");
        put_copy(port, "Protocol", one, "Protocol");
        put_copy(port, "InternalPort", one, "InternalPort");
        put_copy(port, "ExternalPort", one, "ExternalPort");
        put_copy(port, "DistributionType", one, "DistributionType");
        put_copy(port, "Flags", one, "Flags");
        json_add(ports, port);
        put_copy(v2, "SourceVIP", one, "SourceVIP");
        put_copy(v2, "FrontendVIPs", one, "VIPs");
        if (json_true(one, "IsDSR"))
            json_put(v2, "Flags", json_parse("1"));
    }
    json_put(v2, "PortMappings", ports);
    schema_version(v2);
    return v2;
}

static struct json *balancer_for_v1(const struct json *v2)
{
    struct json *v1 = json_parse("{\"Policies\":[],\"References\":[]}");
    const struct json *ends = json_get(v2, "HostComputeEndpoints"), *ports = json_get(v2, "PortMappings");
    for (int i = 0; ends && i < ends->count; i++)
        json_add(json_get(v1, "References"), json_made("\"/endpoints/%s\"", ends->items[i]->text));
    for (int i = 0; ports && i < ports->count; i++) {
        struct json *elb = json_copy(ports->items[i]);
        json_put_text(elb, "Type", "ELB");
        put_copy(elb, "SourceVIP", v2, "SourceVIP");
        put_copy(elb, "VIPs", v2, "FrontendVIPs");
        if (json_number(v2, "Flags", 0) & 1)
            json_put(elb, "IsDSR", json_parse("true"));
        json_add(json_get(v1, "Policies"), elb);
    }
    return v1;
}

struct json *shown_by_v2(const char *table, const struct json *whole)
{
    if (!strcmp(table, NETWORKS))
        return network_for_v2(whole);
    if (!strcmp(table, ENDPOINTS))
        return endpoint_for_v2(whole);
    if (!strcmp(table, POLICY_LISTS))
        return balancer_for_v2(whole);
    /* Namespaces and routes are of version 2 alone. */
    struct json *v2 = json_copy(whole);
    put_id(v2, "ID", json_text(whole, "ID"));
    json_put(v2, "State", NULL);
    return v2;
}

struct json *asked_by_v2(const char *table, const struct json *request)
{
    if (!strcmp(table, NETWORKS))
        return network_for_v1(request);
    if (!strcmp(table, ENDPOINTS))
        return endpoint_for_v1(request);
    return !strcmp(table, POLICY_LISTS) ? balancer_for_v1(request) : json_copy(request);
}
