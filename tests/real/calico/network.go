package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/Microsoft/hcsshim"
	"github.com/Microsoft/hcsshim/hcn"
	"github.com/juju/clock"
	"github.com/juju/mutex"
)

// What node startup and the CNI plugin do with HNS, call by call (projectcalico/calico,
// cni-plugin/pkg/dataplane/windows).

// The network that startup makes, and the host's endpoint on it.
const (
	networkName  = "Calico"
	endpointName = networkName + "_ep"
)

const defaultVNI = 4096

// One process at a time changes HNS: startup, and each call of the CNI plugin.
func lockNetwork() (func(), error) {
	held, err := mutex.Acquire(mutex.Spec{
		Name: "TigeraCalicoCNINetworkMutex", Clock: clock.WallClock,
		Delay: 50 * time.Millisecond, Timeout: 90 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("unable to acquire lock: %w", err)
	}
	return held.Release, nil
}

// The overlay network of a block, made or found: by its type and its subnet, whatever its VSID.
func ensureOverlay(name string, block *net.IPNet, vni uint64) (*hcsshim.HNSNetwork, error) {
	if vni == 0 {
		vni = defaultVNI
	}
	if vni < defaultVNI {
		return nil, errors.New("Windows does not support VXLANVNI < 4096")
	}
	vsid := json.RawMessage(fmt.Sprintf(`{"Type":"VSID","VSID":%d}`, vni))
	network, err := ensureNetwork(name, "Overlay", block, vsid)
	if err != nil {
		return nil, err
	}
	second, err := hcn.GetNetworkByID(network.Id)
	if err != nil {
		return nil, fmt.Errorf("Could not find %s in V2: %w", name, err)
	}
	for _, policy := range second.Policies {
		if policy.Type == hcn.HostRoute {
			return network, nil
		}
	}
	route := hcn.PolicyNetworkRequest{Policies: []hcn.NetworkPolicy{{Type: hcn.HostRoute, Settings: []byte("{}")}}}
	if err := second.AddPolicy(route); err != nil {
		logf("WARNING", "Error adding policy to network: %v", err)
	}
	return network, nil
}

func ensureNetwork(name, kind string, block *net.IPNet, policies ...json.RawMessage) (*hcsshim.HNSNetwork, error) {
	gateway := nth(block, 1).String()
	found, _ := hcsshim.GetHNSNetworkByName(name)
	if found != nil {
		// For a bridge the type is not compared (defect B11 of calico-for-windows.md).
		for _, subnet := range found.Subnets {
			if subnet.AddressPrefix == block.String() && subnet.GatewayAddress == gateway &&
				(kind != "Overlay" || found.Type == kind) {
				logf("INFO", "Found existing HNS network %s", name)
				return found, nil
			}
		}
		if _, err := found.Delete(); err != nil {
			return nil, fmt.Errorf("unable to delete existing network %s: %w", name, err)
		}
		logf("INFO", "Deleted stale HNS network %s", name)
	}
	wanted := hcsshim.HNSNetwork{Name: name, Type: kind, Subnets: []hcsshim.Subnet{
		{AddressPrefix: block.String(), GatewayAddress: gateway, Policies: policies},
	}}
	request, err := json.Marshal(wanted)
	if err != nil {
		return nil, err
	}
	made, err := hcsshim.HNSNetworkRequest("POST", "", string(request))
	if err != nil {
		return nil, fmt.Errorf("failed to create HNSNetwork %s: %w", name, err)
	}
	logf("INFO", "Created HNS network %s on %s", name, block)
	if kind != "Overlay" {
		return made, nil
	}
	return withManagementIP(made, name, 5*time.Second, 500*time.Millisecond)
}

// Waits for the network's ManagementIP, and then for an interface that holds it.
func withManagementIP(network *hcsshim.HNSNetwork, name string, limit, pause time.Duration) (*hcsshim.HNSNetwork, error) {
	var last error
	shown := func() bool {
		found, err := hcsshim.HNSNetworkRequest("GET", network.Id, "")
		if last = err; err == nil {
			network = found
		}
		return err == nil && network.ManagementIP != ""
	}
	if !within(limit, pause, shown) {
		return nil, fmt.Errorf("timeout, failed to get management IP from HNSNetwork %s: %v", name, last)
	}
	held := func() bool {
		_, last = holder(net.ParseIP(network.ManagementIP))
		return last == nil
	}
	if !within(limit, pause, held) {
		return nil, fmt.Errorf("timeout, failed to get net interface for HNSNetwork %s (%s): %v", name,
			network.ManagementIP, last)
	}
	return network, nil
}

func within(limit, pause time.Duration, holds func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(pause) {
		if holds() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// The interface whose subnet contains an address.
func holder(address net.IP) (*net.Interface, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, one := range interfaces {
		addresses, err := one.Addrs()
		if err != nil {
			return nil, err
		}
		for _, own := range addresses {
			if subnet, ok := own.(*net.IPNet); ok && subnet.Contains(address) {
				return &one, nil
			}
		}
	}
	return nil, fmt.Errorf("couldn't find an interface matching management IP %s", address)
}

// `Calico_ep` on an overlay network: remote, with the address of the adapter below. It is not attached.
func ensureRemoteEndpoint(network *hcsshim.HNSNetwork, block *net.IPNet) error {
	found, err := hcsshim.GetHNSEndpointByName(endpointName)
	if err == nil && strings.EqualFold(found.VirtualNetwork, network.Id) {
		for _, raw := range found.Policies {
			policy := struct{ Type, PA string }{}
			if json.Unmarshal(raw, &policy) == nil && policy.Type == "PA" && policy.PA == network.ManagementIP {
				return nil
			}
		}
	}
	if found != nil {
		if _, err := found.Delete(); err != nil {
			return fmt.Errorf("failed to delete existing remote HNSEndpoint %s: %w", endpointName, err)
		}
	}
	mac := ""
	if below, err := holder(net.ParseIP(network.ManagementIP)); err == nil {
		mac = below.HardwareAddr.String()
	}
	provider := json.RawMessage(fmt.Sprintf(`{"Type":"PA","PA":"%s"}`, network.ManagementIP))
	wanted := &hcsshim.HNSEndpoint{
		Name: endpointName, IPAddress: nth(block, 2), MacAddress: mac, VirtualNetwork: network.Id,
		IsRemoteEndpoint: true, Policies: []json.RawMessage{provider},
	}
	if _, err := wanted.Create(); err != nil {
		return fmt.Errorf("failed to create remote HNSEndpoint %s: %w", endpointName, err)
	}
	return nil
}

// `Calico_ep` on a bridge: attached to the host, which has its address then.
func ensureAttachedEndpoint(network *hcsshim.HNSNetwork, block *net.IPNet) error {
	address := nth(block, 2)
	found, _ := hcsshim.GetHNSEndpointByName(endpointName)
	if found != nil && !found.IPAddress.Equal(address) {
		if _, err := found.Delete(); err != nil {
			return err
		}
		found = nil
	}
	if found != nil && strings.EqualFold(found.VirtualNetwork, network.Id) {
		return nil
	}
	if found == nil {
		wanted := &hcsshim.HNSEndpoint{Name: endpointName, IPAddress: address, VirtualNetwork: network.Id}
		made, err := wanted.Create()
		if err != nil {
			return fmt.Errorf("unable to create bridge endpoint %s: %w", endpointName, err)
		}
		found = made
	}
	if err := found.HostAttach(1); err != nil {
		return fmt.Errorf("unable to hot attach bridge endpoint %s to host compartment: %w", endpointName, err)
	}
	return nil
}

// The MAC address of this host's distributed router, as version 2 of HNS shows it.
func routerMAC(name string) (net.HardwareAddr, error) {
	first, err := hcsshim.GetHNSNetworkByName(name)
	if err != nil {
		return nil, err
	}
	second, err := hcn.GetNetworkByName(name)
	if err != nil {
		return nil, err
	}
	if err := hcn.RemoteSubnetSupported(); err != nil {
		return nil, err
	}
	found := struct{ Address, ProviderAddress string }{}
	for _, policy := range second.Policies {
		if policy.Type == hcn.DrMacAddress || policy.Type == hcn.ProviderAddress {
			if err := json.Unmarshal(policy.Settings, &found); err != nil {
				return nil, fmt.Errorf("failed to unmarshal settings: %w", err)
			}
		}
	}
	if found.ProviderAddress == "" || found.ProviderAddress != first.ManagementIP {
		return nil, fmt.Errorf("cannot find network with management IP %s: its provider address is %q",
			first.ManagementIP, found.ProviderAddress)
	}
	return net.ParseMAC(found.Address)
}
