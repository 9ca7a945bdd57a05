/* What Calico's node startup does with HNS: it creates or reuses the network `Calico` and its endpoint
 * `Calico_ep`, through the same DLLs and under the same mutex as the real one. */
#include "network.h"
#include "json.h"
#include "steer.h"
#include <objbase.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef HRESULT(WINAPI *hns_call)(LPCWSTR, LPCWSTR, LPCWSTR, LPWSTR *);

static hns_call hns(void)
{
    static hns_call call;
    if (!call) {
        HMODULE library = LoadLibraryExW(L"vmcompute.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
        if (library)
            call = (hns_call)(void *)GetProcAddress(library, "HNSCall");
        else
            fprintf(stderr, "cannot load vmcompute.dll: error %lu\n", GetLastError());
    }
    return call;
}

/* Calls HNS; its complete response, or NULL on failure. The caller frees it. */
static char *ask(const WCHAR *method, const char *path, const char *request)
{
    WCHAR wide_path[256], *wide_request, *response = NULL;
    hns_call call = hns();
    if (!call)
        return NULL;
    MultiByteToWideChar(CP_UTF8, 0, path, -1, wide_path, 256);
    int size = MultiByteToWideChar(CP_UTF8, 0, request, -1, NULL, 0);
    wide_request = calloc(size + 1, sizeof *wide_request);
    MultiByteToWideChar(CP_UTF8, 0, request, -1, wide_request, size);
    HRESULT result = call(method, wide_path, wide_request, &response);
    free(wide_request);
    char *answer = response ? utf8(response) : NULL;
    CoTaskMemFree(response);
    const char *success = answer ? json_member(answer, "Success") : NULL;
    if (result < 0 || !success || strncmp(success, "true", 4)) {
        fprintf(stderr, "hns: %ls %s: 0x%08lX %s\n", method, path, (unsigned long)result, answer ? answer : "");
        free(answer);
        return NULL;
    }
    return answer;
}

/* Whether version 2 shows a network too: Calico asks both, and goes on by version 2's (hcn.GetNetworkByID). */
static int seen_by_v2(const char *id)
{
    typedef HRESULT(WINAPI * enumerate)(LPCWSTR, LPWSTR *, LPWSTR *);
    HMODULE library = LoadLibraryExW(L"computenetwork.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
    enumerate call = library ? (enumerate)(void *)GetProcAddress(library, "HcnEnumerateNetworks") : NULL;
    WCHAR query[256], *found = NULL, *record = NULL;
    if (!call) {
        fprintf(stderr, "hcnEnumerateNetworks: error %lu\n", GetLastError());
        return 0;
    }
    _snwprintf(query, 256, L"{\"SchemaVersion\":{\"Major\":2,\"Minor\":0},\"Filter\":\"{\\\"ID\\\":\\\"%hs\\\"}\"}", id);
    HRESULT result = call(query, &found, &record);
    int seen = result >= 0 && !record && found && wcscmp(found, L"[]");
    if (!seen)
        fprintf(stderr, "Could not find Calico in V2\n");
    CoTaskMemFree(found);
    CoTaskMemFree(record);
    return seen;
}

/* The network or endpoint of that name in a list from HNS. */
static const char *named(const char *list, const char *name)
{
    const char *all = json_member(list, "Output"), *item;
    for (int i = 0; (item = json_item(all, i)); i++)
        if (json_is(json_member(item, "Name"), name))
            return item;
    return NULL;
}

static const char *first_subnet(const char *network)
{
    return json_item(json_member(network, "Subnets"), 0);
}

/* The n-th address of 10.0.0.0/8 and the like. */
static void address(const char *block, int n, char *to, size_t size)
{
    int a = 0, b = 0, c = 0, d = 0;
    sscanf(block, "%d.%d.%d.%d", &a, &b, &c, &d);
    snprintf(to, size, "%d.%d.%d.%d", a, b, c, d + n);
}

static int make(const char *block, const char *gateway, const char *vni, BOOL overlay)
{
    char request[512];
    if (overlay)
        snprintf(request, sizeof request,
                 "{\"Name\":\"Calico\",\"Type\":\"Overlay\",\"Subnets\":[{\"AddressPrefix\":\"%s\",\"GatewayAddress\":"
                 "\"%s\",\"Policies\":[{\"Type\":\"VSID\",\"VSID\":%s}]}]}",
                 block, gateway, vni);
    else
        snprintf(request, sizeof request,
                 "{\"Name\":\"Calico\",\"Type\":\"L2Bridge\",\"Subnets\":[{\"AddressPrefix\":\"%s\",\"GatewayAddress\":"
                 "\"%s\"}]}",
                 block, gateway);
    char *made = ask(L"POST", "/networks/", request);
    free(made);
    return made != NULL;
}

/* Waits for the host's address on the network, as long as Calico does. */
static int management_ip(BOOL overlay, char *id, char *ip, unsigned size)
{
    DWORD limit = overlay ? 5000 : 30000;
    for (DWORD waited = 0; waited <= limit; waited += 100) {
        char *list = ask(L"GET", "/networks/", "");
        if (!list)
            return 0;
        const char *network = named(list, "Calico");
        json_text(json_member(network, "ID"), id, size);
        json_text(json_member(network, "ManagementIP"), ip, size);
        free(list);
        if (*ip)
            return 1;
        Sleep(100);
    }
    fprintf(stderr, "no management IP within %lu ms\n", limit);
    return 0;
}

static int endpoint(const char *network, const char *ip, const char *provider, BOOL overlay)
{
    char request[512], path[128], id[64];
    char *list = ask(L"GET", "/endpoints/", "");
    if (!list)
        return 0;
    const char *found = named(list, "Calico_ep");
    if (found && json_is(json_member(found, "VirtualNetwork"), network) && json_is(json_member(found, "IPAddress"), ip)) {
        free(list);
        return 1;
    }
    json_text(json_member(found, "ID"), id, sizeof id);
    free(list);
    if (*id) {
        snprintf(path, sizeof path, "/endpoints/%s", id);
        free(ask(L"DELETE", path, ""));
    }
    snprintf(request, sizeof request,
             "{\"Name\":\"Calico_ep\",\"VirtualNetwork\":\"%s\",\"IPAddress\":\"%s\",\"IsRemoteEndpoint\":%s,"
             "\"MacAddress\":\"0E-2A-0A-F4-00-02\",\"Policies\":[{\"Type\":\"PA\",\"PA\":\"%s\"}]}",
             network, ip, overlay ? "true" : "false", provider);
    char *made = ask(L"POST", "/endpoints/", request);
    free(made);
    return made != NULL;
}

/* The annotations that startup writes to the Node: the test reads them from this file. */
static void tell_others(const char *provider)
{
    char mac[64] = "", line[160];
    char *list = ask(L"GET", "/networks/", "");
    if (!list)
        return;
    json_text(json_member(named(list, "Calico"), "DrMacAddress"), mac, sizeof mac);
    free(list);
    snprintf(line, sizeof line, "%s %s\n", mac, provider);
    FILE *file = fopen("C:\\test\\annotations.new", "wb");
    if (!file)
        return;
    fputs(line, file);
    fclose(file);
    MoveFileExA("C:\\test\\annotations.new", "C:\\test\\annotations", MOVEFILE_REPLACE_EXISTING);
}

int set_up_network(const char *backend, const char *vni, int whole)
{
    char block[64], gateway[64], ip[64], id[64] = "", provider[64] = "", path[128];
    BOOL overlay = !strcmp(backend, "vxlan");
    char *steered = read_file("C:\\test\\block");
    snprintf(block, sizeof block, "%s", steered ? strtok(steered, " \r\n") : "10.244.7.0/26");
    free(steered);
    address(block, 1, gateway, sizeof gateway);
    address(block, 2, ip, sizeof ip);

    HANDLE mutex = CreateMutexW(NULL, FALSE, CALICO_MUTEX);
    if (WaitForSingleObject(mutex, 90000) == WAIT_TIMEOUT) {
        fprintf(stderr, "timeout acquiring mutex\n");
        return 0;
    }
    char *list = ask(L"GET", "/networks/", "");
    int good = list != NULL;
    const char *known = list ? named(list, "Calico") : NULL;
    if (known) {
        const char *subnet = first_subnet(known);
        /* Its VSID is not compared, nor its type with windows-bgp (defect B11 of upstream). */
        BOOL kept = json_is(json_member(subnet, "AddressPrefix"), block) &&
                    json_is(json_member(subnet, "GatewayAddress"), gateway) &&
                    (!overlay || json_is(json_member(known, "Type"), "Overlay"));
        if (!kept) {
            json_text(json_member(known, "ID"), id, sizeof id);
            snprintf(path, sizeof path, "/networks/%s", id);
            free(ask(L"DELETE", path, ""));
            known = NULL;
        }
    }
    if (good && !known)
        good = make(block, gateway, vni, overlay);
    free(list);
    good = good && management_ip(overlay, id, provider, sizeof id);
    good = good && (!overlay || seen_by_v2(id));
    if (whole)
        good = good && endpoint(id, ip, provider, overlay);
    ReleaseMutex(mutex);
    CloseHandle(mutex);
    if (good && whole && overlay)
        tell_others(provider);
    return good;
}
