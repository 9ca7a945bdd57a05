/* A Host Networking Service for tests: HNSCall over files below C:\test.
 *
 * hns.networks, hns.endpoints, hns.policylists: a JSON object a line, as it is shown.
 * hcs.systems: the id of a container that runs, a line.
 * hns.version: MAJOR MINOR (13 2 when there is none).
 * hns.log: every call, METHOD PATH a line.
 * hns.faults: what is to go wrong, the first line that fits; with blanks between
 *     SKIP TIMES METHOD PATH-PREFIX ACTION [VALUE] [TEXT]
 *   SKIP calls pass first, then TIMES calls fail (the line counts itself down; -1 is always).
 *   hresult CODE TEXT  a failed call, TEXT as its answer if there is one
 *   error CODE TEXT    success false with ErrorCode and TEXT (as a machine of another language)
 *   plain TEXT         success false without ErrorCode, as old builds
 *   delay MS           slow, then as usual
 *   hang               never returns
 *   lose               as usual, but the change is not kept
 * settings: management-ip-polls=N  looks at the networks until a new vSwitch tells its address
 *           adapter-polls=N        looks at the adapters until an address has moved
 *           adapter-away=N         creations refused after the last network went (hcsshim 95)
 *
 * The first network that needs a vSwitch moves the adapter's addresses to `vEthernet (<adapter>)`
 * and takes its link-local routes; with the last one they go back. */
#define _WIN32_WINNT 0x0A00
#include <windows.h>
#include <objbase.h>
#include "state.h"

/* One value of an object, as it stands there; null when the key is not at its top. */
static char *json_get(const char *object, const char *key)
{
    int depth = 0;
    for (const char *p = object; *p; p++) {
        if (*p == '{' || *p == '[')
            depth++;
        else if (*p == '}' || *p == ']')
            depth--;
        else if (*p == '"') {
            const char *begin = ++p;
            for (; *p && *p != '"'; p++)
                if (*p == '\\' && p[1])
                    p++;
            if (!*p)
                break;
            size_t length = p - begin;
            const char *colon = p + 1 + strspn(p + 1, " \t");
            if (depth != 1 || *colon != ':' || length != strlen(key) || strncmp(begin, key, length))
                continue;
            const char *value = colon + 1 + strspn(colon + 1, " \t"), *end = value;
            int inner = 0, quoted = 0;
            for (; *end; end++) {
                if (*end == '"')
                    quoted = !quoted;
                else if (*end == '\\' && quoted && end[1])
                    end++;
                else if (!quoted && (*end == '{' || *end == '['))
                    inner++;
                else if (!quoted && (*end == '}' || *end == ']' || *end == ',') && inner == 0)
                    break;
                else if (!quoted && (*end == '}' || *end == ']'))
                    inner--;
            }
            char *found = calloc(1, end - value + 1);
            memcpy(found, value, end - value);
            return found;
        }
    }
    return NULL;
}

/* A text value without its quotes; an empty one when there is none. */
static char *json_text(const char *object, const char *key)
{
    char *value = json_get(object, key);
    if (!value || *value != '"') {
        free(value);
        return calloc(1, 1);
    }
    size_t length = strlen(value);
    while (length > 1 && value[length - 1] != '"')
        length--;
    value[length - 1] = 0;
    memmove(value, value + 1, strlen(value));
    return value;
}

static int same(const char *object, const char *key, const char *wanted)
{
    char *value = json_text(object, key);
    int equal = !_stricmp(value, wanted);
    free(value);
    return equal;
}

static char *answer(const char *output)
{
    struct text text = {0};
    add(&text, "{\"Success\":true,\"Output\":");
    add(&text, output);
    add(&text, "}");
    return text.at;
}

static char *refusal(unsigned long code, const char *words)
{
    struct text text = {0};
    char number[64];
    add(&text, "{\"Success\":false,\"Error\":\"");
    add(&text, words);
    snprintf(number, sizeof number, code ? "\",\"ErrorCode\":%lu}" : "\"}", code);
    add(&text, number);
    return text.at;
}

/* ---- adapters and what a vSwitch does to them ---- */

static int needs_switch(const char *network)
{
    static const char *kinds[] = {"overlay", "l2bridge", "l2tunnel", "transparent"};
    for (int i = 0; i < 4; i++)
        if (same(network, "Type", kinds[i]))
            return 1;
    return 0;
}

static int is_host(const char *name)
{
    return !_strnicmp(name, "vEthernet (", 11);
}

static void host_name(char *to, size_t size, const char *adapter)
{
    snprintf(to, size, "vEthernet (%s)", adapter);
}

/* The name of the adapter for a network: the one it names, or one with a vSwitch, or one with an
 * address. False when there is none. */
static int choose_adapter(const char *wanted, char *name, size_t size)
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

/* Routes stand in `routes`: prefix, index, next hop, metric. They move, or go with link-local. */
static void move_routes(const char *from, const char *to)
{
    char *all = read_state("routes"), *rest = all, *line;
    struct text kept = {0};
    add(&kept, "");
    while ((line = next_line(&rest))) {
        char *f[MAX_FIELDS], printed[256];
        split_fields(line, f);
        int moves = !strcmp(f[1], from);
        if (moves && !strncmp(f[0], "169.254.", 8))
            continue;
        snprintf(printed, sizeof printed, "%s\t%s\t%s\t%s\n", f[0], moves ? to : f[1], f[2], f[3]);
        add(&kept, printed);
    }
    write_state("routes", kept.at, "wb");
    free(kept.at);
    free(all);
}

/* Moves an adapter's configuration to its vSwitch or back. */
static void move_addresses(const char *adapter, int to_switch)
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
        physical.addresses = "";
        print_adapter(&kept, &physical);
        print_adapter(&kept, &virtual);
    } else if (physical.name && !to_switch && virtual.name) {
        snprintf(index, sizeof index, "%s", physical.index);
        snprintf(host_index, sizeof host_index, "%s", virtual.index);
        physical.addresses = virtual.addresses;
        physical.metric = virtual.metric;
        physical.polls = setting("adapter-polls", 0);
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
static void management_ip(const char *adapter, char *ip, size_t size)
{
    char host[256];
    host_name(host, sizeof host, adapter);
    char *all = read_state("adapters"), *rest = all, *line;
    struct adapter a;
    *ip = 0;
    while ((line = next_line(&rest)))
        if (parse_adapter(line, &a) && !_stricmp(a.name, host) && a.polls == 0 && strncmp(a.addresses, "169.254.", 8))
            snprintf(ip, size, "%.*s", (int)strcspn(a.addresses, "/,"), a.addresses);
    free(all);
}

static long counter(const char *name)
{
    char *text = read_state(name);
    long value = atol(text);
    free(text);
    return value;
}

static void set_counter(const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld\n", value);
    write_state(name, text, "wb");
}

/* ---- the tables ---- */

static const char *table_of(const char *path)
{
    if (!strncmp(path, "/networks", 9))
        return "hns.networks";
    if (!strncmp(path, "/endpoints", 10))
        return "hns.endpoints";
    return !strncmp(path, "/policylists", 12) ? "hns.policylists" : NULL;
}

static char *list(const char *table)
{
    char *all = read_state(table), *rest = all, *line;
    struct text out = {0};
    int networks = !strcmp(table, "hns.networks");
    long late = networks ? counter("hns.late") : 0;
    add(&out, "[");
    while ((line = next_line(&rest))) {
        if (out.length > 1)
            add(&out, ",");
        char ip[64] = "";
        if (networks && needs_switch(line) && late == 0) {
            char *adapter = json_text(line, "NetworkAdapterName");
            management_ip(adapter, ip, sizeof ip);
            free(adapter);
        }
        if (networks && *line == '{') {
            add(&out, "{\"ManagementIP\":\"");
            add(&out, ip);
            add(&out, "\",");
            line++;
        }
        add(&out, line);
    }
    add(&out, "]");
    if (late > 0)
        set_counter("hns.late", late - 1);
    free(all);
    char *text = answer(out.at);
    free(out.at);
    return text;
}

/* What is kept: what was asked for, with an id and the keys that HNS adds. */
static void keep(const char *table, const char *request, const char *more)
{
    GUID id;
    WCHAR wide[64];
    char guid[64];
    struct text line = {0};
    CoCreateGuid(&id);
    StringFromGUID2(&id, wide, 64);
    snprintf(guid, sizeof guid, "%.36ls", wide + 1);
    add(&line, "{\"ID\":\"");
    add(&line, guid);
    add(&line, "\",");
    add(&line, more);
    add(&line, request + 1);
    add(&line, "\n");
    write_state(table, line.at, "ab");
    free(line.at);
}

static char *create_network(const char *request, int kept)
{
    char *name = json_text(request, "Name"), *wanted = json_text(request, "NetworkAdapterName");
    char *all = read_state("hns.networks"), *rest = all, *line, *said = NULL, adapter[256] = "", more[512];
    while (!said && (line = next_line(&rest)))
        if (same(line, "Name", name))
            said = refusal(0x803B0010UL, "The network already exists. ");
    long away = counter("hns.away");
    if (!said && needs_switch(request) && away > 0) {
        set_counter("hns.away", away - 1);
        said = refusal(0x80070490UL, "Element not found. ");
    }
    if (!said && needs_switch(request) && !choose_adapter(wanted, adapter, sizeof adapter))
        said = refusal(0x803B0006UL, "The adapter was not found. ");
    if (!said && *adapter && kept) {
        char host[256];
        int there = 0;
        host_name(host, sizeof host, adapter);
        char *adapters = read_state("adapters");
        struct adapter a;
        for (char *at = adapters; (line = next_line(&at));)
            there |= parse_adapter(line, &a) && !_stricmp(a.name, host);
        free(adapters);
        if (!there) {
            move_addresses(adapter, 1);
            set_counter("hns.late", setting("management-ip-polls", 0));
        }
    }
    if (!said) {
        /* Drawn by HNS for each overlay network that is made, and kept as long as that is there. */
        char mac[64] = "", *kind = json_text(request, "Type");
        if (!_stricmp(kind, "overlay")) {
            long drawn = counter("hns.macs") + 1;
            if (kept)
                set_counter("hns.macs", drawn);
            snprintf(mac, sizeof mac, "\"DrMacAddress\":\"00-15-5D-7B-%02lX-%02lX\",", drawn / 256 % 256, drawn % 256);
        }
        free(kind);
        snprintf(more, sizeof more,
                 "%s\"ActivityId\":\"0\",\"Extensions\":[{\"Id\":\"E9B59CFA-2BE1-4B21-828F-B6FBDBDDC017\","
                 "\"IsEnabled\":true}],\"Health\":{\"LastErrorCode\":0},\"State\":1,%s%s%s",
                 mac, *adapter && !*wanted ? "\"NetworkAdapterName\":\"" : "", *wanted ? "" : adapter,
                 *adapter && !*wanted ? "\"," : "");
        if (kept)
            keep("hns.networks", request, more);
        said = answer(request);
    }
    free(all);
    free(name);
    free(wanted);
    return said;
}

static char *delete_one(const char *table, const char *id, int kept)
{
    char *all = read_state(table), *rest = all, *line, adapter[256] = "";
    struct text left = {0};
    int found = 0, others = 0;
    add(&left, "");
    while ((line = next_line(&rest))) {
        int hit = same(line, "ID", id), network = !strcmp(table, "hns.networks") && needs_switch(line);
        if (hit && network) {
            char *own = json_text(line, "NetworkAdapterName");
            snprintf(adapter, sizeof adapter, "%s", own);
            free(own);
        }
        others += network && !hit;
        found |= hit;
        if (!hit) {
            add(&left, line);
            add(&left, "\n");
        }
    }
    if (found && kept) {
        write_state(table, left.at, "wb");
        if (*adapter && !others) {
            move_addresses(adapter, 0);
            set_counter("hns.away", setting("adapter-away", 0));
        }
    }
    free(left.at);
    free(all);
    if (found)
        return strdup("{\"Success\":true}");
    return strcmp(table, "hns.networks") ? refusal(0x803B0002UL, "The endpoint was not found. ")
                                         : refusal(0x803B0001UL, "The network was not found. ");
}

/* The policies of an object, each with a comma behind it: its ACLs, or all others. */
static const char *policies(struct text *out, const char *object, int acls)
{
    static const char *const KEY = "\"Policies\":[";
    const char *at = strstr(object, KEY);
    if (!at)
        return object + 1;
    for (at += strlen(KEY); *at && *at != ']';) {
        const char *start = at;
        int depth = 0;
        do {
            depth += (*at == '{') - (*at == '}');
            at++;
        } while (*at && depth > 0);
        char *policy = _strdup(start);
        policy[at - start] = 0;
        char *type = json_text(policy, "Type");
        if (*policy == '{' && acls == !strcmp(type, "ACL")) {
            add(out, policy);
            add(out, ",");
        }
        free(type);
        free(policy);
    }
    return *at ? at + 1 : at;
}

/* As Felix posts it: {"ID","Policies":[ACL…]}. All ACLs at once; what else is on the endpoint stays. */
static char *change_endpoint(const char *id, const char *request, int kept)
{
    char *all = read_state("hns.endpoints"), *rest = all, *line;
    struct text left = {0};
    int found = 0;
    add(&left, "");
    while ((line = next_line(&rest))) {
        if (!same(line, "ID", id)) {
            add(&left, line);
        } else {
            struct text changed = {0};
            found = 1;
            add(&changed, "");
            const char *behind = policies(&changed, line, 0);
            policies(&changed, request, 1);
            if (changed.length)
                changed.at[changed.length - 1] = 0;
            const char *before = strstr(line, "\"Policies\":[");
            char *head = _strdup(line);
            head[before ? before - line : 1] = 0;
            add(&left, head);
            add(&left, "\"Policies\":[");
            add(&left, changed.at);
            add(&left, before ? "]" : "],");
            add(&left, behind);
            free(head);
            free(changed.at);
        }
        add(&left, "\n");
    }
    if (found && kept)
        write_state("hns.endpoints", left.at, "wb");
    free(left.at);
    free(all);
    return found ? answer(request) : refusal(0x803B0002UL, "The endpoint was not found. ");
}

static char *serve(const char *method, const char *path, const char *request, int kept)
{
    const char *table = table_of(path), *id = strchr(path + 1, '/');
    if (!strcmp(path, "/globals/version")) {
        long major = 13, minor = 2;
        char *text = read_state("hns.version"), output[64];
        sscanf(text, "%ld %ld", &major, &minor);
        free(text);
        snprintf(output, sizeof output, "{\"Major\":%ld,\"Minor\":%ld}", major, minor);
        return answer(output);
    }
    if (!table)
        return refusal(0x80070490UL, "Element not found. ");
    id = id ? id + 1 : "";
    if (!strcmp(method, "GET") && !*id)
        return list(table);
    if (!strcmp(method, "DELETE") && *id)
        return delete_one(table, id, kept);
    if (!strcmp(method, "POST") && !strcmp(table, "hns.endpoints") && *id && *request == '{')
        return change_endpoint(id, request, kept);
    if (!strcmp(method, "POST") && !strcmp(table, "hns.networks") && *request == '{')
        return create_network(request, kept);
    if (!strcmp(method, "POST") && *request == '{') {
        if (kept)
            keep(table, request, "\"State\":1,");
        return answer(request);
    }
    return refusal(0x80070057UL, "The parameter is incorrect. ");
}

/* ---- faults ---- */

struct fault {
    char action[16], rest[512];
};

static int next_fault(const char *method, const char *path, struct fault *fault)
{
    char *all = read_state("hns.faults"), *rest = all, *line;
    struct text left = {0};
    int found = 0;
    add(&left, "");
    while ((line = next_line(&rest))) {
        long skip = 0, times = 0;
        char verb[16] = "", prefix[128] = "", action[16] = "", printed[1024];
        int at = 0;
        sscanf(line, "%ld %ld %15s %127s %15s %n", &skip, &times, verb, prefix, action, &at);
        int fits = !found && times != 0 && !_stricmp(verb, method) && !strncmp(path, prefix, strlen(prefix));
        const char *tail = at ? line + at : "";
        if (fits && skip > 0)
            skip--;
        else if (fits) {
            found = 1;
            times -= times > 0;
            snprintf(fault->action, sizeof fault->action, "%s", action);
            snprintf(fault->rest, sizeof fault->rest, "%s", tail);
        }
        snprintf(printed, sizeof printed, "%ld %ld %s %s %s %s\n", skip, times, verb, prefix, action, tail);
        add(&left, printed);
    }
    if (*all)
        write_state("hns.faults", left.at, "wb");
    free(left.at);
    free(all);
    return found;
}

static char *narrow(LPCWSTR text)
{
    int size = WideCharToMultiByte(CP_UTF8, 0, text ? text : L"", -1, NULL, 0, NULL, NULL);
    char *to = calloc(1, size);
    WideCharToMultiByte(CP_UTF8, 0, text ? text : L"", -1, to, size, NULL, NULL);
    return to;
}

static void give(LPWSTR *response, const char *text)
{
    if (!response || !*text)
        return;
    int size = MultiByteToWideChar(CP_UTF8, 0, text, -1, NULL, 0);
    *response = CoTaskMemAlloc(size * sizeof(WCHAR));
    MultiByteToWideChar(CP_UTF8, 0, text, -1, *response, size);
}

__declspec(dllexport) HRESULT WINAPI HNSCall(LPCWSTR method_w, LPCWSTR path_w, LPCWSTR request_w, LPWSTR *response)
{
    char *method = narrow(method_w), *path = narrow(path_w), *request = narrow(request_w), *said = NULL;
    struct fault fault = {"", ""};
    HRESULT result = S_OK;
    struct text log = {0};
    HANDLE lock = test_lock();
    add(&log, method);
    add(&log, " ");
    add(&log, path);
    add(&log, "\n");
    write_state("hns.log", log.at, "ab");
    next_fault(method, path, &fault);
    char *words = fault.rest;
    unsigned long code = 0;
    if (!strcmp(fault.action, "hresult") || !strcmp(fault.action, "error")) {
        code = strtoul(fault.rest, &words, 0);
        words += strspn(words, " ");
    }
    if (!strcmp(fault.action, "hang") || !strcmp(fault.action, "delay")) {
        test_unlock(lock);
        Sleep(*fault.action == 'h' ? INFINITE : strtoul(fault.rest, NULL, 0));
        lock = test_lock();
    }
    if (!strcmp(fault.action, "hresult")) {
        result = (HRESULT)code;
        said = strdup(words);
    } else if (!strcmp(fault.action, "error"))
        said = refusal(code, words);
    else if (!strcmp(fault.action, "plain"))
        said = refusal(0, words);
    else
        said = serve(method, path, request, strcmp(fault.action, "lose"));
    test_unlock(lock);
    give(response, said);
    free(log.at);
    free(said);
    free(method);
    free(path);
    free(request);
    return result;
}

/* The Host Compute Service's list of what runs, as hcsshim asks for it. */
__declspec(dllexport) HRESULT WINAPI HcsEnumerateComputeSystems(LPCWSTR query, LPWSTR *systems, LPWSTR *result)
{
    HANDLE lock = test_lock();
    char *all = read_state("hcs.systems"), *rest = all, *line;
    struct text out = {0};
    add(&out, "[");
    while ((line = next_line(&rest))) {
        add(&out, out.length > 1 ? ",{\"Id\":\"" : "{\"Id\":\"");
        add(&out, line);
        add(&out, "\",\"SystemType\":\"Container\",\"Owner\":\"containerd-shim-runhcs-v1.exe\",\"State\":\"Running\"}");
    }
    add(&out, "]");
    test_unlock(lock);
    if (result)
        *result = NULL;
    give(systems, out.at);
    free(out.at);
    free(all);
    return S_OK;
}
