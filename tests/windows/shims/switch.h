/* What a vSwitch does to a machine's adapters and routes. */
#ifndef SHIM_SWITCH_H
#define SHIM_SWITCH_H
#include <stddef.h>

/* The name of the adapter for a network: the one it names, or one with a vSwitch, or one with an
 * address. False if there is none. */
int choose_adapter(const char *wanted, char *name, size_t size);
/* Moves an adapter's configuration to its vSwitch or back. */
void move_addresses(const char *adapter, int to_switch);
/* The first address of the host on an adapter's vSwitch that others can reach; empty if there is none. */
void management_ip(const char *adapter, char *ip, size_t size);
#endif
