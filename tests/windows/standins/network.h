#ifndef NETWORK_H
#define NETWORK_H
/* The kernel object behind Calico's TigeraCalicoCNINetworkMutex: github.com/juju/mutex adds its own prefix. */
#define CALICO_MUTEX L"juju-mutex-TigeraCalicoCNINetworkMutex"

/* Creates or reuses the pods' network; on failure prints to stderr and returns false. */
int set_up_network(const char *backend, const char *vni, int whole);
#endif
