/* What a vSwitch does to a machine's adapters and routes. */
#define _WIN32_WINNT 0x0A00
#include <windows.h>
#include "switch.h"
#include "state.h"

static int is_host(const char *name)
{
    return !_strnicmp(name, "vEthernet (", 11);
}

static void host_name(char *to, size_t size, const char *adapter)
{
    snprintf(to, size, "vEthernet (%s)", adapter);
}

/* The name of the adapter for a network: the one it names, or one with a vSwitch, or one with an
 * address. False if there is none. */
int choose_adapter(const char *wanted, char *name, size_t size)
{
    char *all = read_state("adapters"), *rest = all, *line;
    int best = 0;
    struct adapter a;
    while ((line = next_line(&rest))) {
        if (!parse_adapter(line, &a) || is_host(a.name))
            continue;
        int rank = *wanted ? 3 * !_stricmp(a.name, wanted) : 1 + (*a.addresses != 0);
        if (rank > best) {
            best = rank;
            snprintf(name, size, "%s", a.name);
        }
    }
    free(all);
    return best > 0;
}

/* Routes are in `routes`: prefix, index, next hop, metric. They move; link-local ones, and Azure's, are removed. */
static void move_routes(const char *from, const char *to)
{
    char *all = read_state("routes"), *rest = all, *line;
    struct text kept = {0};
    add(&kept, "");
    while ((line = next_line(&rest))) {
        char *f[MAX_FIELDS], printed[256];
        split_fields(line, f);
        int moves = !strcmp(f[1], from);
        if (moves && (!strncmp(f[0], "169.254.", 8) || !strcmp(f[0], "168.63.129.16/32")))
            continue;
        snprintf(printed, sizeof printed, "%s\t%s\t%s\t%s\n", f[0], moves ? to : f[1], f[2], f[3]);
        add(&kept, printed);
    }
    write_state("routes", kept.at, "wb");
    free(kept.at);
    free(all);
}

/* Windows takes its time: the adapter comes, then DHCP gives its address, then that is probed for duplicates. */
static void arrive(const char *adapter, long away)
{
    char line[512];
    unsigned long long back = GetTickCount64() + away, here = back + setting("address-ms", 300);
    snprintf(line, sizeof line, "%s\t%llu\t%llu\t%llu\n", adapter, back, here, here + setting("dad-ms", 200));
    write_state("adapters.times", line, "ab");
}

/* Moves an adapter's configuration to its vSwitch or back. */
void move_addresses(const char *adapter, int to_switch)
{
    char host[256], index[32] = "", host_index[32] = "";
    host_name(host, sizeof host, adapter);
    char *all = read_state("adapters"), *rest = all, *line;
    struct text kept = {0};
    struct adapter a, physical = {0}, virtual = {0};
    add(&kept, "");
    while ((line = next_line(&rest))) {
        if (!parse_adapter(line, &a))
            continue;
        if (!_stricmp(a.name, adapter))
            physical = a;
        else if (!_stricmp(a.name, host))
            virtual = a;
        else
            print_adapter(&kept, &a);
    }
    if (physical.name && to_switch && !virtual.name) {
        virtual = physical;
        virtual.name = host;
        snprintf(index, sizeof index, "%s", physical.index);
        snprintf(host_index, sizeof host_index, "%ld", atol(index) + 40);
        virtual.index = host_index;
        virtual.description = "Hyper-V Virtual Ethernet Adapter";
        virtual.polls = setting("adapter-polls", 0);
        arrive(host, 0);
        physical.addresses = "";
        print_adapter(&kept, &physical);
        print_adapter(&kept, &virtual);
    } else if (physical.name && !to_switch && virtual.name) {
        snprintf(index, sizeof index, "%s", physical.index);
        snprintf(host_index, sizeof host_index, "%s", virtual.index);
        physical.addresses = virtual.addresses;
        physical.metric = virtual.metric;
        physical.polls = setting("adapter-polls", 0);
        arrive(physical.name, setting("adapter-back-ms", 200));
        print_adapter(&kept, &physical);
    }
    if (*index) {
        write_state("adapters", kept.at, "wb");
        move_routes(to_switch ? index : host_index, to_switch ? host_index : index);
    }
    free(kept.at);
    free(all);
}

/* The first address of the host on an adapter's vSwitch that others can reach. */
void management_ip(const char *adapter, char *ip, size_t size)
{
    char host[256];
    host_name(host, sizeof host, adapter);
    char *all = read_state("adapters"), *rest = all, *line;
    struct adapter a;
    *ip = 0;
    while ((line = next_line(&rest)))
        if (parse_adapter(line, &a) && !_stricmp(a.name, host) && a.polls == 0 &&
            GetTickCount64() >= times_of(a.name).preferred && strncmp(a.addresses, "169.254.", 8))
            snprintf(ip, size, "%.*s", (int)strcspn(a.addresses, "/,"), a.addresses);
    free(all);
}
