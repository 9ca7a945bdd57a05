/* A Host Networking Service for tests, version 1: HNSCall over files below C:\test, in the form of recorded answers.
 * computenetwork.c is version 2, over the same files.
 *
 * hns.networks, hns.endpoints, hns.policylists, hns.namespaces, hns.routes: hns.h.
 * hcs.systems: the id of a running container in each line.
 * hns.version: MAJOR MINOR (13 2 if there is no file).
 * hns.log: every call, METHOD PATH in each line; those of version 2 have a verb (ENUMERATE, OPEN, …) and a path that
 *     begins with /v2/.
 * hns.faults: the faults; the first matching line applies; with blanks between
 *     SKIP TIMES METHOD PATH-PREFIX ACTION [VALUE] [TEXT]
 *   SKIP calls pass first, then TIMES calls fail (the line counts itself down; -1 is always).
 *   hresult CODE TEXT  a failed call, with TEXT as its response if there is one
 *   error CODE TEXT    success false with ErrorCode and TEXT (for example in another language)
 *   plain TEXT         success false without ErrorCode, as old builds
 *   delay MS           slow, then normal
 *   busy MS            slow, and every other call waits for it, as while HNS makes a vSwitch
 *   hang               never returns
 *   lose               normal, but the change is not saved
 *   blind              normal, but version 2 does not show the network that it makes (projectcalico/calico 9120)
 * settings: management-ip-polls=N  reads of the networks until a new vSwitch has its address
 *           adapter-polls=N        reads of the adapters until an address has moved
 *           adapter-back-ms=N      until an adapter that a vSwitch held is listed again (200 if not set)
 *           address-ms=N           until an adapter has its address then, as from DHCP (300)
 *           dad-ms=N               until that was probed for duplicates (200)
 *           adapter-away=N         refused creations after the last network was deleted (hcsshim 95)
 *
 * The first network that needs a vSwitch moves the adapter's addresses to `vEthernet (<adapter>)`
 * and removes its link-local routes and Azure's; with the last one the addresses return. */
#include "call.h"

/* The answer's text, which the caller frees. */
static char *envelope(const struct said *said)
{
    struct json *answer = json_made("{\"Success\":%s}", said->failed ? "false" : "true");
    if (said->failed) {
        json_put_text(answer, "Error", said->words);
        if (said->code)
            json_put(answer, "ErrorCode", json_made("%lu", said->code));
    } else if (said->output) {
        json_put(answer, "Output", json_copy(said->output));
    }
    char *text = json_printed(answer);
    json_free(answer);
    return text;
}

static const char *table_of(const char *path)
{
    if (!strncmp(path, "/networks", 9))
        return NETWORKS;
    if (!strncmp(path, "/endpoints", 10))
        return ENDPOINTS;
    return !strncmp(path, "/policylists", 12) ? POLICY_LISTS : NULL;
}

static struct said version(void)
{
    long major = 13, minor = 2;
    char *text = read_state("hns.version");
    sscanf(text, "%ld %ld", &major, &minor);
    free(text);
    return (struct said){.output = json_made("{\"Major\":%ld,\"Minor\":%ld}", major, minor)};
}

/* All objects of a table, or the one of this id. */
static struct said show(const char *table, const char *id)
{
    struct json *stored = read_table(table), *output = NULL;
    int at = place_of(stored, id);
    if (!*id) {
        output = json_parse("[]");
        for (int i = 0; i < stored->count; i++)
            json_add(output, whole(table, stored->items[i]));
    } else if (at >= 0) {
        output = whole(table, stored->items[at]);
    }
    if (!strcmp(table, NETWORKS))
        networks_were_read();
    json_free(stored);
    if (output)
        return (struct said){.output = output};
    return refusal(!strcmp(table, NETWORKS)    ? NETWORK_NOT_FOUND
                   : !strcmp(table, ENDPOINTS) ? ENDPOINT_NOT_FOUND
                                               : ELEMENT_NOT_FOUND);
}

static struct said change(const char *table, char *id, const struct json *request, const struct call *call)
{
    int kept = strcmp(call->action, "lose") != 0;
    char *what = strchr(id, '/');
    if (what)
        *what++ = 0;
    if (!strcmp(table, ENDPOINTS) && *id && what && (!strcmp(what, "attach") || !strcmp(what, "detach")))
        return attach_endpoint(id, request, *what == 'a', kept);
    if (what)
        return refusal(ELEMENT_NOT_FOUND);
    if (!strcmp(table, ENDPOINTS))
        return *id ? change_endpoint(id, request, kept) : create_endpoint(request, kept);
    if (*id)
        return refusal(INVALID_PARAMETER);
    if (!strcmp(table, NETWORKS))
        return create_network(request, kept, !strcmp(call->action, "blind"));
    return create_other(table, request, kept);
}

/* As kubelet asks for it. */
static struct said stats(const char *id)
{
    struct json *endpoints = read_table(ENDPOINTS);
    int there = place_of(endpoints, id) >= 0;
    json_free(endpoints);
    if (!there)
        return refusal(ENDPOINT_NOT_FOUND);
    return (struct said){.output = json_made("{\"BytesReceived\":0,\"BytesSent\":0,\"DroppedPacketsIncoming\":0,"
                                             "\"DroppedPacketsOutgoing\":0,\"EndpointId\":\"%s\",\"InstanceId\":\"%s\","
                                             "\"PacketsReceived\":0,\"PacketsSent\":0}",
                                             id, id)};
}

static struct said serve(const char *method, const char *path, const char *request, const struct call *call)
{
    if (!strcmp(path, "/globals/version"))
        return version();
    if (!strncmp(path, "/endpointstats/", 15))
        return stats(path + 15);
    const char *table = table_of(path);
    char *id = strchr(path + 1, '/');
    if (!table)
        return refusal(ELEMENT_NOT_FOUND);
    id = id ? id + 1 : "";
    if (!strcmp(method, "GET"))
        return show(table, id);
    if (!strcmp(method, "DELETE"))
        return *id ? delete_one(table, id, strcmp(call->action, "lose") != 0) : refusal(INVALID_PARAMETER);
    struct json *asked = json_parse(request);
    if (strcmp(method, "POST") || !asked || asked->kind != JSON_OBJECT) {
        json_free(asked);
        return refusal(asked ? INVALID_PARAMETER : INVALID_JSON);
    }
    struct said said = change(table, id, asked, call);
    json_free(asked);
    return said;
}

__declspec(dllexport) HRESULT WINAPI HNSCall(LPCWSTR method_w, LPCWSTR path_w, LPCWSTR request_w, LPWSTR *response)
{
    char *method = narrow(method_w), *path = narrow(path_w), *request = narrow(request_w);
    struct call call;
    struct said said;
    begin_call(&call, method, path);
    if (!faulty(&call, &said))
        said = serve(method, path, request, &call);
    end_call(&call);
    if (said.hresult) {
        give(response, call.action[0] ? said.words : "");
    } else {
        char *text = envelope(&said);
        give(response, text);
        free(text);
    }
    json_free(said.output);
    free(method);
    free(path);
    free(request);
    return said.hresult ? (HRESULT)said.code : S_OK;
}

/* The Host Compute Service's list of running systems, as hcsshim requests it. */
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
