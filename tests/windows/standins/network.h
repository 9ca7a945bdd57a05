#ifndef NETWORK_H
#define NETWORK_H
/* The kernel object behind Calico's TigeraCalicoCNINetworkMutex: github.com/juju/mutex puts its own word before. */
#define CALICO_MUTEX L"juju-mutex-TigeraCalicoCNINetworkMutex"

/* Makes or reuses the network of pods; false, said on stderr, when it cannot. */
int set_up_network(const char *backend, const char *vni, int whole);
#endif
