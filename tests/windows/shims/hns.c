#define _WIN32_WINNT 0x0A00
#include <windows.h>
#include <objbase.h>
#include "hns.h"
#include "switch.h"

/* Recorded texts, if one is known (tests/fixtures/hns/SOURCES.md: projectcalico/calico 5762, 4280 and 8465, microsoft/SDN
 * 269, moby/moby 40345, Azure/azure-container-networking 715); each ends with a blank. */
static const struct {
    unsigned long code;
    const char *words;
    int hresult; /* seen as the call's own result */
} TEXTS[] = {
    {NETWORK_NOT_FOUND, "Can't find the network. ", 0},
    {ENDPOINT_NOT_FOUND, "The endpoint was not found. ", 0},
    {0x803B0006UL, "An adapter was not found. ", 0},
    {POLICY_NOT_FOUND, "The policy was not found. ", 0},
    {INVALID_POLICY, "The provided policy configuration is invalid or missing parameters. ", 0},
    {NETWORK_EXISTS, "A network with this name already exists. ", 1},
    {PORT_EXISTS, "The specified port already exists. ", 0},
    {ALREADY_ATTACHED, "This endpoint is already attached to the switch. ", 1},
    {REQUEST_UNSUPPORTED, "The requested operation is not supported. ", 0},
    {INVALID_JSON, "Invalid JSON document. ", 0},
    {INVALID_REFERENCE, "Invalid JSON reference in the JSON document. A Reference is required", 0},
    {NAMESPACE_NOT_FOUND, "The network compartment is not found. ", 0},
    {NOT_ATTACHED, "Endpoint is not attached. ", 0},
    {INVALID_PARAMETER, "The parameter is incorrect. ", 0},
    {ELEMENT_NOT_FOUND, "Element not found. ", 0},
};

struct said refusal(unsigned long code)
{
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++)
        if (TEXTS[i].code == code)
            return (struct said){.failed = 1, .code = code, .words = TEXTS[i].words, .hresult = TEXTS[i].hresult};
    return (struct said){.failed = 1, .code = code, .words = "Unspecified error ", .hresult = 0};
}

static struct said done(struct json *output)
{
    return (struct said){.output = output};
}

/* ---- the tables ---- */

struct json *read_table(const char *table)
{
    char *all = read_state(table), *rest = all, *line;
    struct json *list = json_parse("[]"), *object;
    while ((line = next_line(&rest)))
        if ((object = json_parse(line)))
            json_add(list, object);
    free(all);
    return list;
}

/* An endpoint that is attached to the host, as Calico's own is on an l2bridge network, is an adapter of the machine:
 * Calico's startup looks for the one with its address (projectcalico/calico, cni-plugin/pkg/dataplane/windows). */
static void list_adapters_of(const struct json *endpoints)
{
    static const char *const kind = "Hyper-V Virtual Ethernet Adapter #2";
    char *all = read_state("adapters"), *rest = all, *line;
    struct json *networks = read_table(NETWORKS);
    struct text kept = {0};
    struct adapter a;
    add(&kept, "");
    while ((line = next_line(&rest)))
        if (parse_adapter(line, &a) && strcmp(a.description, kind))
            print_adapter(&kept, &a);
    free(all);
    for (int i = 0; i < endpoints->count; i++) {
        const struct json *endpoint = endpoints->items[i], *of = json_get(endpoint, "SharedContainers");
        int at = place_of(networks, json_text(endpoint, "VirtualNetwork"));
        if (json_number(endpoint, "State", 1) != 2 || (of && of->count) || json_get(endpoint, "Namespace") || at < 0)
            continue;
        const struct json *subnets = json_get(networks->items[at], "Subnets");
        const char *prefix = subnets && subnets->count ? json_text(subnets->items[0], "AddressPrefix") : "";
        char index[16], name[256], mac[32], address[64];
        snprintf(index, sizeof index, "%d", 90 + i);
        snprintf(name, sizeof name, "vEthernet (%s)", json_text(endpoint, "Name"));
        snprintf(mac, sizeof mac, "%s", json_text(endpoint, "MacAddress"));
        for (char *colon = mac; (colon = strchr(colon, ':'));)
            *colon = '-';
        snprintf(address, sizeof address, "%s%s", json_text(endpoint, "IPAddress"), strchr(prefix, '/') ? strchr(prefix, '/') : "");
        a = (struct adapter){index, name, mac, "0", "auto", (char *)kind, address, 0};
        print_adapter(&kept, &a);
    }
    json_free(networks);
    write_state("adapters", kept.at, "wb");
    free(kept.at);
}

void write_table(const char *table, const struct json *list)
{
    struct text text = {0};
    add(&text, "");
    for (int i = 0; i < list->count; i++) {
        json_print(&text, list->items[i]);
        add(&text, "\n");
    }
    write_state(table, text.at, "wb");
    free(text.at);
    if (!strcmp(table, ENDPOINTS))
        list_adapters_of(list);
}

int place_of(const struct json *list, const char *id)
{
    for (int i = 0; *id && i < list->count; i++)
        if (json_is(list->items[i], "ID", id))
            return i;
    return -1;
}

long counter(const char *name)
{
    char *text = read_state(name);
    long value = atol(text);
    free(text);
    return value;
}

void set_counter(const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld\n", value);
    write_state(name, text, "wb");
}

void new_guid(char guid[40])
{
    GUID id;
    WCHAR wide[64];
    CoCreateGuid(&id);
    StringFromGUID2(&id, wide, 64);
    snprintf(guid, 40, "%.36ls", wide + 1);
}

/* The request as it is stored: its id first, as HNS chose it, and the answer to it. */
static struct said store(const char *table, const struct json *request, struct json *more, int kept)
{
    char guid[40];
    new_guid(guid);
    struct json *made = json_made("{\"ID\":\"%s\"}", *json_text(request, "ID") ? json_text(request, "ID") : guid);
    const struct json *parts[] = {more, request};
    for (int part = 0; part < 2; part++)
        for (int i = 0; parts[part] && i < parts[part]->count; i++)
            json_default(made, parts[part]->keys[i], json_copy(parts[part]->items[i]));
    if (kept) {
        struct json *list = read_table(table);
        json_add(list, json_copy(made));
        write_table(table, list);
        json_free(list);
    }
    struct said said = done(whole(table, made));
    json_free(made);
    json_free(more);
    return said;
}

/* ---- networks ---- */

static int needs_switch(const struct json *network)
{
    static const char *kinds[] = {"overlay", "l2bridge", "l2tunnel", "transparent"};
    for (int i = 0; i < 4; i++)
        if (json_is(network, "Type", kinds[i]))
            return 1;
    return 0;
}

static int is_there(const char *name)
{
    struct json *networks = read_table(NETWORKS);
    int there = 0;
    for (int i = 0; i < networks->count; i++)
        there |= json_is(networks->items[i], "Name", name);
    json_free(networks);
    return there;
}

struct said create_network(const struct json *request, int kept, int blind)
{
    const char *name = json_text(request, "Name"), *wanted = json_text(request, "NetworkAdapterName");
    char adapter[256] = "";
    if (!*json_text(request, "Type"))
        return refusal(INVALID_PARAMETER);
    if (is_there(name))
        return refusal(NETWORK_EXISTS);
    long away = counter("hns.away");
    if (needs_switch(request) && away > 0) {
        set_counter("hns.away", away - 1);
        return refusal(ELEMENT_NOT_FOUND);
    }
    if (needs_switch(request) && !choose_adapter(wanted, adapter, sizeof adapter))
        return refusal(0x803B0006UL);
    if (*adapter && kept && !has_switch(adapter)) {
        move_addresses(adapter, 1);
        set_counter("hns.late", setting("management-ip-polls", 0));
    }
    struct json *more = json_parse("{}");
    /* HNS shows the adapter only if it was asked for it. */
    if (*adapter)
        json_put_text(more, ON_ADAPTER, adapter);
    if (blind)
        json_put(more, UNSEEN_BY_V2, json_parse("true"));
    /* HNS chooses it for each new overlay network, and keeps it while that exists. */
    if (json_is(request, "Type", "overlay")) {
        long drawn = counter("hns.macs") + 1;
        if (kept)
            set_counter("hns.macs", drawn);
        json_put(more, "DrMacAddress", json_made("\"00-15-5D-7B-%02lX-%02lX\"", drawn / 256 % 256, drawn % 256));
    }
    return store(NETWORKS, request, more, kept);
}

void drop_resource(struct json *namespace, const char *id)
{
    struct json *resources = json_get(namespace, "Resources");
    for (int i = resources ? resources->count - 1 : -1; i >= 0; i--)
        if (json_is(json_get(resources->items[i], "Data"), "Id", id))
            json_drop(resources, i);
}

/* What goes with a network, a namespace or an endpoint that was deleted. */
static void clean_up_after(const char *table, const char *id)
{
    struct json *endpoints = read_table(ENDPOINTS), *namespaces = read_table(NAMESPACES);
    if (!strcmp(table, NETWORKS)) {
        for (int i = endpoints->count - 1; i >= 0; i--)
            if (json_is(endpoints->items[i], "VirtualNetwork", id)) {
                for (int j = 0; j < namespaces->count; j++)
                    drop_resource(namespaces->items[j], json_text(endpoints->items[i], "ID"));
                json_drop(endpoints, i);
            }
        write_table(ENDPOINTS, endpoints);
        write_table(NAMESPACES, namespaces);
    } else if (!strcmp(table, NAMESPACES)) {
        for (int i = 0; i < endpoints->count; i++)
            if (json_is(json_get(endpoints->items[i], "Namespace"), "ID", id)) {
                json_put(endpoints->items[i], "Namespace", NULL);
                json_put(endpoints->items[i], "State", json_parse("4"));
            }
        write_table(ENDPOINTS, endpoints);
    } else if (!strcmp(table, ENDPOINTS)) {
        for (int i = 0; i < namespaces->count; i++)
            drop_resource(namespaces->items[i], id);
        write_table(NAMESPACES, namespaces);
    }
    json_free(endpoints);
    json_free(namespaces);
}

/* The adapter with a network's vSwitch; unchanged if it has none. */
static void adapter_of(const struct json *network, char *adapter, size_t size)
{
    if (!needs_switch(network))
        return;
    const char *own = json_text(network, ON_ADAPTER);
    choose_adapter(*own ? own : json_text(network, "NetworkAdapterName"), adapter, size);
}

struct said delete_one(const char *table, const char *id, int kept)
{
    struct json *list = read_table(table);
    int at = place_of(list, id), networks = !strcmp(table, NETWORKS), last = networks;
    if (at < 0) {
        json_free(list);
        return refusal(networks ? NETWORK_NOT_FOUND : strcmp(table, ENDPOINTS) ? ELEMENT_NOT_FOUND : ENDPOINT_NOT_FOUND);
    }
    char adapter[256] = "";
    if (networks)
        adapter_of(list->items[at], adapter, sizeof adapter);
    json_drop(list, at);
    for (int i = 0; networks && i < list->count; i++) {
        char other[256] = "";
        adapter_of(list->items[i], other, sizeof other);
        last &= !*other || _stricmp(adapter, other);
    }
    if (kept) {
        write_table(table, list);
        clean_up_after(table, id);
    }
    if (kept && *adapter && last) {
        move_addresses(adapter, 0);
        set_counter("hns.away", setting("adapter-away", 0));
    }
    json_free(list);
    return done(NULL);
}

/* ---- endpoints ---- */

struct said create_endpoint(const struct json *request, int kept)
{
    struct json *networks = read_table(NETWORKS);
    int at = place_of(networks, json_text(request, "VirtualNetwork"));
    if (at < 0) {
        json_free(networks);
        return refusal(NETWORK_NOT_FOUND);
    }
    struct json *more = json_made("{\"State\":1}");
    /* So HNS calls an endpoint that was given no name. */
    if (!*json_text(request, "Name"))
        json_put_text(more, "Name", "Ethernet");
    json_put_text(more, "VirtualNetworkName", json_text(networks->items[at], "Name"));
    json_put_text(more, "Type", json_text(networks->items[at], "Type"));
    json_free(networks);
    return store(ENDPOINTS, request, more, kept);
}

struct said create_other(const char *table, const struct json *request, int kept)
{
    return store(table, request, json_made("{\"State\":%d}", strcmp(table, POLICY_LISTS) ? 1 : 2), kept);
}

/* Changes an endpoint and answers with it. */
static struct said changed(struct json *list, int at, int kept)
{
    if (kept)
        write_table(ENDPOINTS, list);
    struct said said = done(whole(ENDPOINTS, list->items[at]));
    json_free(list);
    return said;
}

struct said change_endpoint(const char *id, const struct json *request, int kept)
{
    struct json *list = read_table(ENDPOINTS), *policies = json_parse("[]");
    int at = place_of(list, id);
    if (at < 0) {
        json_free(list);
        json_free(policies);
        return refusal(ENDPOINT_NOT_FOUND);
    }
    const struct json *from[] = {json_get(list->items[at], "Policies"), json_get(request, "Policies")};
    for (int asked = 0; asked < 2; asked++)
        for (int i = 0; from[asked] && i < from[asked]->count; i++)
            if (json_is(from[asked]->items[i], "Type", "ACL") == asked)
                json_add(policies, json_copy(from[asked]->items[i]));
    json_put(list->items[at], "Policies", policies);
    return changed(list, at, kept);
}

struct said attach_endpoint(const char *id, const struct json *request, int attach, int kept)
{
    struct json *list = read_table(ENDPOINTS);
    int at = place_of(list, id);
    if (at < 0) {
        json_free(list);
        return refusal(ENDPOINT_NOT_FOUND);
    }
    struct json *endpoint = list->items[at];
    int attached = json_number(endpoint, "State", 1) == 2 || json_number(endpoint, "State", 1) == 3;
    if (attach == attached) {
        json_free(list);
        return refusal(attach ? ALREADY_ATTACHED : NOT_ATTACHED);
    }
    json_put(endpoint, "State", json_made("%d", attach ? 2 : 4));
    struct json *containers = json_parse("[]");
    const struct json *container = json_get(request, "ContainerId");
    if (attach && container)
        json_add(containers, json_copy(container));
    json_put(endpoint, "SharedContainers", containers);
    return changed(list, at, kept);
}

struct said join_namespace(const char *namespace, const char *endpoint, int join, int kept)
{
    struct json *list = read_table(ENDPOINTS);
    int at = place_of(list, endpoint);
    if (at < 0) {
        json_free(list);
        return refusal(ENDPOINT_NOT_FOUND);
    }
    const char *now = json_text(json_get(list->items[at], "Namespace"), "ID");
    if (join ? *now != 0 : _stricmp(now, namespace) != 0) {
        json_free(list);
        return refusal(join ? ALREADY_ATTACHED : NOT_ATTACHED);
    }
    json_put(list->items[at], "Namespace",
             join ? json_made("{\"ID\":\"%s\",\"IsDefault\":false}", namespace) : NULL);
    /* An endpoint in a container's network is attached and shared (projectcalico/calico 11203). */
    json_put(list->items[at], "State", json_made("%d", join ? 3 : 4));
    return changed(list, at, kept);
}
