/* Stands in for calico-node.exe (Go flags, up to v3.32), for calico.exe (sub-commands, from v3.33) and
 * for the CNI plugins, by the name it is started with. Accepts the real command lines, and refuses
 * others like Go's parsers. */
#include <winsock2.h>
#include "network.h"
#include "steer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef CALICO_VERSION
#define CALICO_VERSION "v0.0.0-standin"
#endif

/* A test appends the release to the program's file: calico-version=v1.2.3; */
static void say_version(void)
{
    static const char mark[] = "calico-version=";
    char path[1024], tail[64] = "";
    GetModuleFileNameA(NULL, path, sizeof path);
    FILE *file = fopen(path, "rb");
    if (file && !fseek(file, 1 - (long)sizeof tail, SEEK_END))
        tail[fread(tail, 1, sizeof tail - 1, file)] = 0;
    if (file)
        fclose(file);
    for (size_t at = 0; at + sizeof mark < sizeof tail; at++) {
        char *end, *text = tail + at + sizeof mark - 1;
        if (!memcmp(tail + at, mark, sizeof mark - 1) && (end = strchr(text, ';'))) {
            *end = 0;
            puts(text);
            return;
        }
    }
    puts(CALICO_VERSION);
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

static BOOL exists(const char *path)
{
    return GetFileAttributesA(path) != INVALID_FILE_ATTRIBUTES;
}

/* Like Go's os.WriteFile: the file is empty first. */
static void write_nodename(DWORD empty_for)
{
    const char *path = variable("CALICO_NODENAME_FILE");
    if (!*path)
        return;
    FILE *file = fopen(path, "wb");
    if (!file) {
        fprintf(stderr, "cannot write %s\n", path);
        return;
    }
    Sleep(empty_for);
    fputs(variable("NODENAME"), file);
    fclose(file);
}

/* Node startup (reference 7.3, 7.4). */
static int startup(BOOL complete)
{
    struct orders orders = started("startup");
    const char *kubeconfig = variable("KUBECONFIG"), *backend = variable("CALICO_NETWORKING_BACKEND");
    if (orders.hang && !orders.late)
        Sleep(INFINITE);
    if (orders.after)
        Sleep(orders.after);
    if (orders.ends && orders.code && !orders.late) {
        fprintf(stderr, "[ERROR] startup was told to fail\n");
        return stopped("startup", "exit", orders.code);
    }
    if (!strcmp(variable("CALICO_DATASTORE_TYPE"), "kubernetes") && !exists(kubeconfig)) {
        fprintf(stderr, "[FATAL] cannot read the kubeconfig `%s`\n", kubeconfig);
        return stopped("startup", "exit", 1);
    }
    write_nodename(orders.writes);
    if ((!strcmp(backend, "vxlan") || !strcmp(backend, "windows-bgp")) &&
        !set_up_network(backend, variable("VXLAN_VNI"), !orders.late)) {
        fprintf(stderr, "[FATAL] cannot set up the network\n");
        return stopped("startup", "exit", 1);
    }
    if (orders.late) {
        if (orders.hang)
            Sleep(INFINITE);
        fprintf(stderr, "[FATAL] failed to create remote HNSEndpoint Calico_ep\n");
        return stopped("startup", "exit", orders.code ? orders.code : 1);
    }
    printf("[INFO] Calico node started successfully%s\n", complete ? ", network is available" : "");
    return stopped("startup", "exit", 0);
}

static BOOL unready;

/* Felix's health endpoint: it answers each request with one status, and closes. A Felix that is not ready is live. */
static DWORD WINAPI answer_health(void *listener)
{
    for (;;) {
        char question[1024] = "";
        SOCKET client = accept((SOCKET)(ULONG_PTR)listener, NULL, NULL);
        if (client == INVALID_SOCKET)
            return 1;
        recv(client, question, sizeof question - 1, 0);
        const char *answer = unready && strncmp(question, "GET /liveness ", 14)
                                 ? "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
                                 : "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        send(client, answer, (int)strlen(answer), 0);
        shutdown(client, SD_SEND);
        closesocket(client);
    }
}

static void serve_health(void)
{
    WSADATA data;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    if (_stricmp(variable("FELIX_HEALTHENABLED"), "true") || WSAStartup(MAKEWORD(2, 2), &data))
        return;
    at.sin_port = htons((unsigned short)atoi(variable("FELIX_HEALTHPORT")));
    /* Not inherited: a child that outlives this one would hold the port. */
    SOCKET listener = WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, 0, WSA_FLAG_NO_HANDLE_INHERIT);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 8))
        fprintf(stderr, "[ERROR] Health endpoint failed, trying to restart it: error %d\n", WSAGetLastError());
    else
        CloseHandle(CreateThread(NULL, 0, answer_health, (void *)(ULONG_PTR)listener, 0, NULL));
}

static int component(const char *name)
{
    struct orders orders = started(name);
    unready = orders.unready;
    if (!strcmp(name, "felix"))
        serve_health();
    return serve(name, &orders);
}

static int confd(const char *dir)
{
    char templates[1024];
    snprintf(templates, sizeof templates, "%s\\conf.d", dir);
    if (!exists(templates)) {
        fprintf(stderr, "[FATAL] no %s\n", templates);
        return 1;
    }
    return component("confd");
}

static const char *after(const char *text, const char *start)
{
    size_t size = strlen(start);
    return strncmp(text, start, size) ? NULL : text + size;
}

static int unknown(const char *what)
{
    fprintf(stderr, "flag provided but not defined: %s\n", what);
    return 2;
}

/* calico-node.exe -startup -complete-startup, -felix, -confd -confd-confdir=DIR, -v */
static int node_binary(int argc, char **argv)
{
    BOOL is_startup = FALSE, complete = FALSE, felix = FALSE, is_confd = FALSE;
    const char *dir = "";
    for (int i = 1; i < argc; i++) {
        /* Go accepts one dash or two. */
        const char *flag = argv[i] + (argv[i][0] == '-' && argv[i][1] == '-'), *value;
        if (!strcmp(flag, "-startup"))
            is_startup = TRUE;
        else if (!strcmp(flag, "-complete-startup"))
            complete = TRUE;
        else if (!strcmp(flag, "-felix"))
            felix = TRUE;
        else if (!strcmp(flag, "-confd"))
            is_confd = TRUE;
        else if ((value = after(flag, "-confd-confdir=")))
            dir = value;
        else if (!strcmp(flag, "-v")) {
            say_version();
            return 0;
        } else
            return unknown(argv[i]);
    }
    if (is_startup)
        return startup(complete);
    if (felix)
        return component("felix");
    if (is_confd)
        return confd(dir);
    fputs("no valid options provided\n", stderr);
    return 1;
}

/* calico.exe component node startup --complete-startup, component felix, component confd --confdir=DIR, version */
static int mono_binary(int argc, char **argv)
{
    const char *dir;
    if (argc == 2 && !strcmp(argv[1], "version")) {
        say_version();
        return 0;
    }
    if (argc < 3 || strcmp(argv[1], "component"))
        return unknown(argc > 1 ? argv[1] : "(none)");
    if (argc >= 4 && !strcmp(argv[2], "node") && !strcmp(argv[3], "startup")) {
        if (argc > 5 || (argc == 5 && strcmp(argv[4], "--complete-startup")))
            return unknown(argv[4]);
        return startup(argc == 5);
    }
    if (argc == 3 && !strcmp(argv[2], "felix"))
        return component("felix");
    if (argc == 4 && !strcmp(argv[2], "confd") && (dir = after(argv[3], "--confdir=")))
        return confd(dir);
    return unknown(argv[2]);
}

int main(int argc, char **argv)
{
    char path[1024];
    GetModuleFileNameA(NULL, path, sizeof path);
    const char *name = strrchr(path, '\\') ? strrchr(path, '\\') + 1 : path;
    if (argc == 2 && !strcmp(argv[1], "--for-ever"))
        for_ever();
    if (*variable("CNI_COMMAND")) {
        puts("{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"0.3.1\",\"1.0.0\"]}");
        return 0;
    }
    if (!_stricmp(name, "calico-node.exe"))
        return node_binary(argc, argv);
    return mono_binary(argc, argv);
}
