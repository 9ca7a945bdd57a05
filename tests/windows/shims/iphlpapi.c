/* Wine's IP helper with its missing functions, and with a machine that the test defines.
 *
 * `routes`: prefix, index, next hop, metric with tabs between. They are added to Wine's table, or
 * replace it if the test has its own `adapters` (state.h has their format).
 * `iphlpapi.faults`: FUNCTION CODE in each line: that function returns CODE, each time.
 * Everything else is Wine's own: build.sh forwards it. */
#define _WIN32_WINNT 0x0A00
#include <winsock2.h>
#include <ws2ipdef.h>
#include <windows.h>
#include <iphlpapi.h>
#include <netioapi.h>
#include "state.h"

typedef DWORD(WINAPI *get_forward_table)(ADDRESS_FAMILY, PMIB_IPFORWARD_TABLE2 *);
typedef ULONG(WINAPI *get_adapters)(ULONG, ULONG, PVOID, PIP_ADAPTER_ADDRESSES, PULONG);
typedef void(WINAPI *free_table)(PVOID);

static void *original(const char *name)
{
    return (void *)GetProcAddress(LoadLibraryA("iphlporig.dll"), name);
}

static DWORD asked_fault(const char *function)
{
    char *all = read_state("iphlpapi.faults"), *rest = all, *line, name[64];
    DWORD code = 0;
    unsigned long given;
    while ((line = next_line(&rest)))
        if (sscanf(line, "%63s %lu", name, &given) == 2 && !strcmp(name, function))
            code = given;
    free(all);
    return code;
}

static ULONG parse_ip(const char *text)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    sscanf(text, "%u.%u.%u.%u", &a, &b, &c, &d);
    return a | b << 8 | c << 16 | d << 24;
}

static void print_ip(char *to, size_t size, ULONG ip)
{
    snprintf(to, size, "%lu.%lu.%lu.%lu", ip & 255, ip >> 8 & 255, ip >> 16 & 255, ip >> 24);
}

/* ---- routes ---- */

struct route {
    char prefix[32], next_hop[32];
    ULONG index, metric;
};

static int parse_route(char *line, struct route *route)
{
    char *f[MAX_FIELDS];
    split_fields(line, f);
    snprintf(route->prefix, sizeof route->prefix, "%s", f[0]);
    snprintf(route->next_hop, sizeof route->next_hop, "%s", f[2]);
    route->index = strtoul(f[1], NULL, 10);
    route->metric = strtoul(f[3], NULL, 10);
    return *f[0] != 0;
}

static void fill_route(const struct route *route, MIB_IPFORWARD_ROW2 *row)
{
    const char *slash = strchr(route->prefix, '/');
    memset(row, 0, sizeof *row);
    row->InterfaceIndex = route->index;
    row->DestinationPrefix.Prefix.Ipv4.sin_family = AF_INET;
    row->DestinationPrefix.Prefix.Ipv4.sin_addr.s_addr = parse_ip(route->prefix);
    row->DestinationPrefix.PrefixLength = slash ? atoi(slash + 1) : 32;
    row->NextHop.Ipv4.sin_family = AF_INET;
    row->NextHop.Ipv4.sin_addr.s_addr = parse_ip(route->next_hop);
    row->ValidLifetime = row->PreferredLifetime = 0xFFFFFFFF;
    row->Metric = route->metric;
    row->Protocol = MIB_IPPROTO_NETMGMT;
}

static struct route read_route(const MIB_IPFORWARD_ROW2 *row)
{
    struct route route = {{0}, {0}, row->InterfaceIndex, row->Metric};
    char ip[24];
    print_ip(ip, sizeof ip, row->DestinationPrefix.Prefix.Ipv4.sin_addr.s_addr);
    snprintf(route.prefix, sizeof route.prefix, "%s/%u", ip, row->DestinationPrefix.PrefixLength);
    print_ip(route.next_hop, sizeof route.next_hop, row->NextHop.Ipv4.sin_addr.s_addr);
    return route;
}

static int same_route(const struct route *a, const struct route *b)
{
    return !strcmp(a->prefix, b->prefix) && !strcmp(a->next_hop, b->next_hop) && a->index == b->index;
}

/* The routes without this one, and whether it was there. */
static int without(const struct route *route, struct text *left)
{
    char *all = read_state("routes"), *rest = all, *line;
    int found = 0;
    struct route have;
    add(left, "");
    while ((line = next_line(&rest))) {
        char *copy = strdup(line);
        if (parse_route(line, &have) && same_route(&have, route))
            found = 1;
        else {
            add(left, copy);
            add(left, "\n");
        }
        free(copy);
    }
    free(all);
    return found;
}

enum change { CREATE, SET, DELETE_ROUTE };

static DWORD change_route(const char *function, const MIB_IPFORWARD_ROW2 *row, enum change change)
{
    DWORD code = asked_fault(function);
    if (code)
        return code;
    if (!row || row->DestinationPrefix.Prefix.si_family != AF_INET)
        return ERROR_INVALID_PARAMETER;
    HANDLE lock = test_lock();
    struct route route = read_route(row);
    struct text left = {0};
    int there = without(&route, &left);
    if (change == CREATE && there)
        code = ERROR_OBJECT_ALREADY_EXISTS;
    else if (change != CREATE && !there)
        code = ERROR_NOT_FOUND;
    else {
        if (change != DELETE_ROUTE) {
            char line[128];
            snprintf(line, sizeof line, "%s\t%lu\t%s\t%lu\n", route.prefix, route.index, route.next_hop, route.metric);
            add(&left, line);
        }
        write_state("routes", left.at, "wb");
    }
    free(left.at);
    test_unlock(lock);
    return code;
}

__declspec(dllexport) DWORD WINAPI CreateIpForwardEntry2(const MIB_IPFORWARD_ROW2 *row)
{
    return change_route("CreateIpForwardEntry2", row, CREATE);
}

__declspec(dllexport) DWORD WINAPI SetIpForwardEntry2(const MIB_IPFORWARD_ROW2 *row)
{
    return change_route("SetIpForwardEntry2", row, SET);
}

__declspec(dllexport) DWORD WINAPI DeleteIpForwardEntry2(const MIB_IPFORWARD_ROW2 *row)
{
    return change_route("DeleteIpForwardEntry2", row, DELETE_ROUTE);
}

__declspec(dllexport) DWORD WINAPI GetIpForwardEntry2(MIB_IPFORWARD_ROW2 *row)
{
    HANDLE lock = test_lock();
    struct route wanted = read_route(row), have;
    char *all = read_state("routes"), *rest = all, *line;
    DWORD code = ERROR_NOT_FOUND;
    while ((line = next_line(&rest)))
        if (parse_route(line, &have) && same_route(&have, &wanted)) {
            fill_route(&have, row);
            code = 0;
        }
    free(all);
    test_unlock(lock);
    return code;
}

/* Every neighbour answers, unless `iphlpapi.faults` says otherwise. */
__declspec(dllexport) DWORD WINAPI ResolveIpNetEntry2(MIB_IPNET_ROW2 *row, const SOCKADDR_INET *source)
{
    return asked_fault("ResolveIpNetEntry2");
}

__declspec(dllexport) void WINAPI InitializeIpForwardEntry(MIB_IPFORWARD_ROW2 *row)
{
    memset(row, 0, sizeof *row);
    row->ValidLifetime = row->PreferredLifetime = row->Metric = 0xFFFFFFFF;
    row->Protocol = MIB_IPPROTO_NETMGMT;
}

/* The table is allocated where Wine's FreeMibTable frees it: on the process heap. */
__declspec(dllexport) DWORD WINAPI GetIpForwardTable2(ADDRESS_FAMILY family, PMIB_IPFORWARD_TABLE2 *table)
{
    DWORD code = asked_fault("GetIpForwardTable2");
    PMIB_IPFORWARD_TABLE2 wines = NULL;
    if (code)
        return code;
    code = ((get_forward_table)original("GetIpForwardTable2"))(family, &wines);
    if (family != AF_INET || (code && code != ERROR_NOT_FOUND)) {
        *table = wines;
        return code;
    }
    HANDLE lock = test_lock();
    char *all = read_state("routes"), *rest = all, *line;
    ULONG count = 0, most = 1 + (wines ? wines->NumEntries : 0);
    for (char *p = all; *p; p++)
        most += *p == '\n';
    PMIB_IPFORWARD_TABLE2 merged = HeapAlloc(GetProcessHeap(), HEAP_ZERO_MEMORY, sizeof *merged + most * sizeof(MIB_IPFORWARD_ROW2));
    if (wines && !has_state("adapters"))
        for (; count < wines->NumEntries; count++)
            merged->Table[count] = wines->Table[count];
    struct route route;
    while ((line = next_line(&rest)))
        if (count < most && parse_route(line, &route))
            fill_route(&route, &merged->Table[count++]);
    merged->NumEntries = count;
    free(all);
    test_unlock(lock);
    if (wines)
        ((free_table)original("FreeMibTable"))(wines);
    *table = merged;
    return 0;
}

/* ---- adapters ---- */

/* Allocates from the caller's buffer; continues to count if it is too small. */
struct arena {
    char *at;
    size_t used, size;
};

static void *take(struct arena *arena, size_t size)
{
    size_t at = arena->used;
    arena->used += (size + 7) & ~(size_t)7;
    if (!arena->at || arena->used > arena->size)
        return NULL;
    return memset(arena->at + at, 0, size);
}

static WCHAR *take_text(struct arena *arena, const char *text)
{
    int length = MultiByteToWideChar(CP_UTF8, 0, text, -1, NULL, 0);
    WCHAR *to = take(arena, length * sizeof(WCHAR));
    if (to)
        MultiByteToWideChar(CP_UTF8, 0, text, -1, to, length);
    return to;
}

static IP_ADAPTER_UNICAST_ADDRESS *take_addresses(struct arena *arena, char *list, NL_DAD_STATE state)
{
    IP_ADAPTER_UNICAST_ADDRESS *first = NULL, **link = &first;
    for (char *one = strtok(list, ","); one; one = strtok(NULL, ",")) {
        IP_ADAPTER_UNICAST_ADDRESS *address = take(arena, sizeof *address);
        SOCKADDR_IN *ip = take(arena, sizeof *ip);
        if (!address || !ip)
            continue;
        const char *slash = strchr(one, '/');
        address->Length = sizeof *address;
        address->Address.lpSockaddr = (SOCKADDR *)ip;
        address->Address.iSockaddrLength = sizeof *ip;
        address->DadState = state;
        address->OnLinkPrefixLength = slash ? atoi(slash + 1) : 32;
        address->ValidLifetime = address->PreferredLifetime = address->LeaseLifetime = 0xFFFFFFFF;
        ip->sin_family = AF_INET;
        ip->sin_addr.s_addr = parse_ip(one);
        *link = address;
        link = &address->Next;
    }
    return first;
}

static IP_ADAPTER_ADDRESSES *take_adapter(struct arena *arena, struct adapter *from)
{
    IP_ADAPTER_ADDRESSES *adapter = take(arena, sizeof *adapter);
    char guid[64];
    snprintf(guid, sizeof guid, "{00000000-0000-4000-8000-%012ld}", atol(from->index));
    char *name = take(arena, sizeof guid);
    WCHAR *alias = take_text(arena, from->name), *description = take_text(arena, from->description);
    WCHAR *suffix = take_text(arena, "");
    char none[1] = "";
    ULONGLONG now = GetTickCount64();
    struct times times = times_of(from->name);
    NL_DAD_STATE state = now < times.preferred ? IpDadStateTentative : IpDadStatePreferred;
    char *list = from->polls > 0 || now < times.here ? none : from->addresses;
    IP_ADAPTER_UNICAST_ADDRESS *addresses = take_addresses(arena, list, state);
    if (!arena->at || arena->used > arena->size)
        return NULL;
    strcpy(name, guid);
    adapter->Length = sizeof *adapter;
    adapter->IfIndex = atol(from->index);
    adapter->AdapterName = name;
    adapter->FriendlyName = alias;
    adapter->Description = description;
    adapter->DnsSuffix = suffix;
    adapter->FirstUnicastAddress = addresses;
    unsigned octet[6] = {0};
    sscanf(from->mac, "%x-%x-%x-%x-%x-%x", octet, octet + 1, octet + 2, octet + 3, octet + 4, octet + 5);
    for (int i = 0; i < 6; i++)
        adapter->PhysicalAddress[i] = octet[i];
    adapter->PhysicalAddressLength = 6;
    adapter->Flags = 0x80 | (*from->dhcp == '1' ? IP_ADAPTER_DHCP_ENABLED : 0);
    adapter->Mtu = 1500;
    adapter->IfType = IF_TYPE_ETHERNET_CSMACD;
    adapter->OperStatus = IfOperStatusUp;
    adapter->Ipv4Metric = atol(from->metric) ? atol(from->metric) : 25;
    adapter->Luid.Info.NetLuidIndex = adapter->IfIndex;
    adapter->Luid.Info.IfType = IF_TYPE_ETHERNET_CSMACD;
    return adapter;
}

__declspec(dllexport) ULONG WINAPI GetAdaptersAddresses(ULONG family, ULONG flags, PVOID reserved, PIP_ADAPTER_ADDRESSES to, PULONG size)
{
    if (!has_state("adapters"))
        return ((get_adapters)original("GetAdaptersAddresses"))(family, flags, reserved, to, size);
    if (asked_fault("GetAdaptersAddresses"))
        return asked_fault("GetAdaptersAddresses");
    HANDLE lock = test_lock();
    struct arena arena = {(char *)to, 0, *size};
    char *all = read_state("adapters"), *copy = strdup(all), *rest = copy, *line;
    IP_ADAPTER_ADDRESSES *last = NULL;
    struct adapter from;
    while ((line = next_line(&rest))) {
        if (!parse_adapter(line, &from) || has_switch(from.name) || GetTickCount64() < times_of(from.name).back)
            continue;
        IP_ADAPTER_ADDRESSES *adapter = take_adapter(&arena, &from);
        if (last && adapter)
            last->Next = adapter;
        last = adapter;
    }
    ULONG code = arena.used == 0 ? ERROR_NO_DATA : arena.used > *size || !to ? ERROR_BUFFER_OVERFLOW : 0;
    *size = (ULONG)arena.used;
    /* Each read of the table counts down the addresses that are still moving. */
    if (code == 0) {
        struct text left = {0};
        int moved = 0;
        add(&left, "");
        for (rest = all; (line = next_line(&rest));)
            if (parse_adapter(line, &from)) {
                moved |= from.polls > 0;
                from.polls -= from.polls > 0;
                print_adapter(&left, &from);
            }
        if (moved)
            write_state("adapters", left.at, "wb");
        free(left.at);
    }
    free(copy);
    free(all);
    test_unlock(lock);
    return code;
}

/* Rewrites the line of one adapter: its addresses (added to) or its metric. */
static DWORD change_adapter(ULONG index, const char *address, const char *metric)
{
    HANDLE lock = test_lock();
    char *all = read_state("adapters"), *rest = all, *line;
    struct text left = {0}, addresses = {0};
    struct adapter a;
    DWORD code = ERROR_NOT_FOUND;
    add(&left, "");
    while ((line = next_line(&rest))) {
        if (!parse_adapter(line, &a))
            continue;
        if (strtoul(a.index, NULL, 10) == index) {
            code = 0;
            if (address && strstr(a.addresses, address))
                code = ERROR_OBJECT_ALREADY_EXISTS;
            else if (address) {
                add(&addresses, a.addresses);
                add(&addresses, *a.addresses ? "," : "");
                add(&addresses, address);
                a.addresses = addresses.at;
            }
            if (metric)
                a.metric = (char *)metric;
        }
        print_adapter(&left, &a);
    }
    if (!code)
        write_state("adapters", left.at, "wb");
    free(left.at);
    free(addresses.at);
    free(all);
    test_unlock(lock);
    return code;
}

__declspec(dllexport) DWORD WINAPI CreateUnicastIpAddressEntry(const MIB_UNICASTIPADDRESS_ROW *row)
{
    DWORD code = asked_fault("CreateUnicastIpAddressEntry");
    char ip[24], address[32];
    print_ip(ip, sizeof ip, row->Address.Ipv4.sin_addr.s_addr);
    snprintf(address, sizeof address, "%s/%u", ip, row->OnLinkPrefixLength);
    return code ? code : change_adapter(row->InterfaceIndex, address, NULL);
}

__declspec(dllexport) DWORD WINAPI GetIpInterfaceEntry(MIB_IPINTERFACE_ROW *row)
{
    HANDLE lock = test_lock();
    char *all = read_state("adapters"), *rest = all, *line;
    struct adapter a;
    DWORD code = ERROR_NOT_FOUND;
    while ((line = next_line(&rest)))
        if (parse_adapter(line, &a) && !has_switch(a.name) && strtoul(a.index, NULL, 10) == row->InterfaceIndex) {
            row->UseAutomaticMetric = !strcmp(a.metric, "auto");
            row->Metric = row->UseAutomaticMetric ? 25 : atol(a.metric);
            row->SitePrefixLength = 64;
            code = 0;
        }
    free(all);
    test_unlock(lock);
    return code;
}

__declspec(dllexport) DWORD WINAPI SetIpInterfaceEntry(MIB_IPINTERFACE_ROW *row)
{
    DWORD code = asked_fault("SetIpInterfaceEntry");
    char metric[32] = "auto";
    if (code)
        return code;
    if (row->SitePrefixLength > 32)
        return ERROR_INVALID_PARAMETER;
    if (!row->UseAutomaticMetric)
        snprintf(metric, sizeof metric, "%lu", row->Metric);
    return change_adapter(row->InterfaceIndex, NULL, metric);
}
