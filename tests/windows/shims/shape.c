/* What HNS adds to an object by itself: the keys of recorded answers (tests/fixtures/hns). The stored object has only
 * what it was asked for; the rest is derived from its id, so that every read gives the same. */
#define _WIN32_WINNT 0x0A00
#include <windows.h>
#include <ctype.h>
#include "hns.h"
#include "switch.h"

#define CHANGED 133212886189176072LL

/* A GUID, always the same for an object's id and a use. */
static const char *derived(char guid[40], const struct json *of, const char *use)
{
    unsigned long long hash[2] = {14695981039346656037ULL, 1099511628211ULL};
    const char *texts[] = {json_text(of, "ID"), "/", use};
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 3; i++)
            for (const char *p = texts[i]; *p; p++)
                hash[half] = (hash[half] ^ (unsigned char)toupper(*p)) * 1099511628211ULL;
    snprintf(guid, 40, "%08lX-%04X-4%03X-8%03X-%012llX", (unsigned long)(hash[0] >> 32), (unsigned)(hash[0] >> 16 & 0xFFFF),
             (unsigned)(hash[0] & 0xFFF), (unsigned)(hash[1] >> 48 & 0xFFF), hash[1] & 0xFFFFFFFFFFFFULL);
    return guid;
}

static struct json *health(void)
{
    return json_made("{\"LastErrorCode\":0,\"LastUpdateTime\":%lld}", CHANGED);
}

/* Every object has these. */
static void common(struct json *object)
{
    char guid[40], own[40];
    long major = 13, minor = 2;
    char *text = read_state("hns.version");
    sscanf(text, "%ld %ld", &major, &minor);
    free(text);
    json_default(object, "ActivityId", json_made("\"%s\"", derived(guid, object, "activity")));
    json_default(object, "AdditionalParams", json_parse("{}"));
    json_default(object, "Flags", json_parse("0"));
    json_default(object, "Health", health());
    json_default(object, "Policies", json_parse("[]"));
    json_default(object, "State", json_parse("1"));
    json_default(object, "Version", json_made("%lld", (long long)major << 32 | minor));
    json_default(object, "Resources",
                 json_made("{\"AdditionalParams\":{},\"AllocationOrder\":0,\"Allocators\":[],\"CompartmentOperationTime\":0,"
                           "\"Flags\":0,\"Health\":{\"LastErrorCode\":0,\"LastUpdateTime\":%lld},\"ID\":\"%s\","
                           "\"PortOperationTime\":0,\"State\":1,\"SwitchOperationTime\":0,\"VfpOperationTime\":0,"
                           "\"parentId\":\"%s\"}",
                           CHANGED, guid, derived(own, object, "parent")));
}

/* ---- networks ---- */

static void whole_subnet(struct json *subnet, const struct json *network, int nth)
{
    char guid[40], use[32];
    snprintf(use, sizeof use, "subnet %d", nth);
    json_default(subnet, "AdditionalParams", json_parse("{}"));
    json_default(subnet, "Flags", json_parse("0"));
    json_default(subnet, "Health", health());
    json_default(subnet, "ID", json_made("\"%s\"", derived(guid, network, use)));
    struct json *inner = json_made("[{\"AdditionalParams\":{},\"Flags\":3,\"ObjectType\":6,\"Policies\":[],\"State\":0}]");
    snprintf(use, sizeof use, "IP subnet %d", nth);
    json_put_text(inner->items[0], "ID", derived(guid, network, use));
    json_put_text(inner->items[0], "IpAddressPrefix", json_text(subnet, "AddressPrefix"));
    json_put(inner->items[0], "Health", health());
    json_default(subnet, "IpSubnets", inner);
    json_default(subnet, "ObjectType", json_parse("5"));
    json_default(subnet, "Policies", json_parse("[]"));
    json_default(subnet, "State", json_parse("0"));
}

/* An overlay network's allocation: its isolation on the switch. */
static void overlay_resources(struct json *network)
{
    char one[40], two[40], own[40];
    struct json *subnets = json_get(network, "Subnets"), *resources = json_get(network, "Resources");
    struct json *policies = subnets && subnets->count ? json_get(subnets->items[0], "Policies") : NULL;
    long vsid = policies && policies->count ? json_number(policies->items[0], "VSID", 0) : 0;
    const char *id = json_text(network, "ID");
    struct json *allocators = json_parse("[]");
    json_add(allocators,
             json_made("{\"AdditionalParams\":{},\"AllocationOrder\":0,\"Flags\":0,\"Health\":{\"LastErrorCode\":0,"
                       "\"LastUpdateTime\":%lld},\"ID\":\"%s\",\"IsPolicy\":false,\"Isolation_0\":%ld,\"PortId\":\"%s\","
                       "\"RDID\":\"%s\",\"State\":3,\"SwitchId\":\"%s\",\"Tag\":\"RDID\"}",
                       CHANGED, derived(one, network, "allocator"), vsid, derived(two, network, "port"), id,
                       derived(own, network, "switch")));
    json_put(resources, "Allocators", allocators);
    json_put(resources, "AllocationOrder", json_parse("1"));
}

static int endpoints_on(const struct json *network)
{
    struct json *all = read_table(ENDPOINTS);
    int count = 0;
    for (int i = 0; i < all->count; i++)
        count += json_is(all->items[i], "VirtualNetwork", json_text(network, "ID")) &&
                 !json_true(all->items[i], "IsRemoteEndpoint");
    json_free(all);
    return count;
}

static void whole_network(struct json *network)
{
    char guid[40], ip[64] = "", adapter[256] = "";
    const char *own = json_text(network, ON_ADAPTER);
    int overlay = json_is(network, "Type", "overlay"), count = endpoints_on(network);
    int on_switch = overlay || json_is(network, "Type", "l2bridge") || json_is(network, "Type", "l2tunnel") ||
                    json_is(network, "Type", "transparent");
    snprintf(adapter, sizeof adapter, "%s", *own ? own : json_text(network, "NetworkAdapterName"));
    if (on_switch && !*adapter)
        choose_adapter("", adapter, sizeof adapter);
    if (on_switch && counter("hns.late") == 0)
        management_ip(adapter, ip, sizeof ip);
    json_put(network, ON_ADAPTER, NULL);
    json_put(network, UNSEEN_BY_V2, NULL);
    if (*ip)
        json_put_text(network, "ManagementIP", ip);
    json_default(network, "CurrentEndpointCount", json_made("%d", count));
    json_default(network, "MaxConcurrentEndpoints", json_made("%d", count));
    json_default(network, "TotalEndpoints", json_made("%d", count));
    json_default(network, "IPv6", json_parse("false"));
    json_default(network, "LayeredOn", json_made("\"%s\"", derived(guid, network, "layer")));
    json_default(network, "MacPools",
                 json_made("[{\"EndMacAddress\":\"00-15-5D-%.2s-%.1sF-FF\",\"StartMacAddress\":\"00-15-5D-%.2s-%.1s0-00\"}]",
                           guid, guid + 2, guid, guid + 2));
    json_default(network, "Extensions",
                 json_made("[{\"Id\":\"E7C3B2F0-F3C5-48DF-AF2B-10FED6D72E7A\",\"IsEnabled\":false,\"Name\":\"Microsoft "
                           "Windows Filtering Platform\"},{\"Id\":\"F74F241B-440F-4433-BB28-00F89EAD20D8\",\"IsEnabled\":%s,"
                           "\"Name\":\"Microsoft Azure VFP Switch Extension\"},{\"Id\":\"430BDADD-BAB0-41AB-A369-"
                           "94B67FA5BE0A\",\"IsEnabled\":true,\"Name\":\"Microsoft NDIS Capture\"}]",
                           overlay ? "true" : "false"));
    if (overlay) {
        json_default(network, "DNSServerCompartment", json_parse("3"));
        json_default(network, "SwitchGuid", json_made("\"%s\"", derived(guid, network, "switch")));
    }
    if (json_is(network, "Type", "nat"))
        json_default(network, "NatName", json_made("\"NAT%s\"", derived(guid, network, "nat")));
    common(network);
    struct json *subnets = json_get(network, "Subnets");
    for (int i = 0; subnets && i < subnets->count; i++)
        whole_subnet(subnets->items[i], network, i);
    if (overlay)
        overlay_resources(network);
}

/* ---- endpoints and the rest ---- */

static void whole_endpoint(struct json *endpoint)
{
    char guid[40];
    struct json *networks = read_table(NETWORKS);
    int at = place_of(networks, json_text(endpoint, "VirtualNetwork"));
    struct json *subnets = at < 0 ? NULL : json_get(networks->items[at], "Subnets");
    if (subnets && subnets->count) {
        const char *slash = strchr(json_text(subnets->items[0], "AddressPrefix"), '/');
        const char *gateway = json_text(subnets->items[0], "GatewayAddress");
        json_default(endpoint, "PrefixLength", json_made("%d", slash ? atoi(slash + 1) : 32));
        if (!json_true(endpoint, "IsRemoteEndpoint") && *gateway && !json_get(endpoint, "GatewayAddress"))
            json_put_text(endpoint, "GatewayAddress", gateway);
    }
    if (at >= 0 && json_is(networks->items[at], "Type", "overlay"))
        json_default(endpoint, "EncapOverhead", json_parse("50"));
    json_free(networks);
    derived(guid, endpoint, "mac");
    json_default(endpoint, "MacAddress", json_made("\"00-15-5D-%.2s-%.2s-%.2s\"", guid, guid + 2, guid + 4));
    json_default(endpoint, "SharedContainers", json_parse("[]"));
    common(endpoint);
    struct json *policies = json_get(endpoint, "Policies");
    /* HNS shows the scope of an ACL; nobody asks for it. */
    for (int i = 0; i < policies->count; i++)
        if (json_is(policies->items[i], "Type", "ACL"))
            json_default(policies->items[i], "Scope", json_parse("0"));
}

struct json *whole(const char *table, const struct json *stored)
{
    struct json *object = json_copy(stored);
    if (!strcmp(table, NETWORKS))
        whole_network(object);
    else if (!strcmp(table, ENDPOINTS))
        whole_endpoint(object);
    else if (!strcmp(table, POLICY_LISTS)) {
        json_default(object, "IsApplied", json_parse("false"));
        common(object);
    }
    return object;
}

void networks_were_read(void)
{
    long late = counter("hns.late");
    if (late > 0)
        set_counter("hns.late", late - 1);
}
