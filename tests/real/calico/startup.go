package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	addressAnnotation   = "projectcalico.org/IPv4Address"
	tunnelAnnotation    = "projectcalico.org/IPv4VXLANTunnelAddr"
	tunnelMACAnnotation = "projectcalico.org/VXLANTunnelMACAddr"
)

// Node startup, to its end (projectcalico/calico, node/pkg/lifecycle/startup).
func startup(complete bool) int {
	told := started("startup")
	if told.hang && !told.late {
		select {}
	}
	time.Sleep(told.after)
	if told.ends && told.code != 0 && !told.late {
		logf("ERROR", "startup was told to fail")
		return stopped("startup", "exit", told.code)
	}
	if err := bringUp(told); err != nil {
		logf("FATAL", "%v", err)
		code := 1
		if told.late && told.code != 0 {
			code = told.code
		}
		return stopped("startup", "exit", code)
	}
	network := ""
	if complete {
		network = ", network is available"
	}
	logf("INFO", "Calico node started successfully%s", network)
	return stopped("startup", "exit", 0)
}

func bringUp(told orders) error {
	name, backend := os.Getenv("NODENAME"), os.Getenv("CALICO_NETWORKING_BACKEND")
	kube, err := datastore()
	if err != nil {
		return fmt.Errorf("failed to create Calico client: %w", err)
	}
	if _, err := kube.node(name); err != nil {
		return fmt.Errorf("failed to read Node %s from datastore: %w", name, err)
	}
	if backend != "none" && os.Getenv("IP") != "none" {
		address, err := ownAddress()
		if err != nil {
			return err
		}
		logf("INFO", "Using IPv4 address %s", address)
		annotations := map[string]string{addressAnnotation: address.String()}
		patch := map[string]any{"metadata": map[string]any{"annotations": annotations}}
		if err := kube.patchStatus(types.MergePatchType, "nodes", "", name, patch); err != nil {
			return fmt.Errorf("unable to set node resource configuration: %w", err)
		}
	}
	if err := writeNodename(name, told.writes); err != nil {
		return err
	}
	if backend == "none" {
		return nil
	}
	if err := setUpNetwork(kube, name, backend, told); err != nil {
		return fmt.Errorf("unable to ensure network for os: %w", err)
	}
	if err := kube.setNetworkAvailable(name); err != nil {
		return fmt.Errorf("unable to set NetworkUnavailable to False: %w", err)
	}
	return nil
}

// As os.WriteFile does: the file is empty first.
func writeNodename(name string, emptyFor time.Duration) error {
	path := os.Getenv("CALICO_NODENAME_FILE")
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	time.Sleep(emptyFor)
	_, err = file.WriteString(name)
	return err
}

// The address in IP, or the first one on an adapter that is not Calico's or Docker's.
func ownAddress() (*net.IPNet, error) {
	if fixed := os.Getenv("IP"); fixed != "" && fixed != "autodetect" {
		address, network, err := net.ParseCIDR(fixed)
		if err != nil {
			if address = net.ParseIP(fixed); address == nil {
				return nil, fmt.Errorf("invalid IPv4 address in IP: %s", fixed)
			}
			return &net.IPNet{IP: address.To4(), Mask: net.CIDRMask(32, 32)}, nil
		}
		return &net.IPNet{IP: address.To4(), Mask: network.Mask}, nil
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	// In reverse order, as the real one goes through them.
	for at := len(interfaces) - 1; at >= 0; at-- {
		if notForNodes.MatchString(interfaces[at].Name) {
			continue
		}
		addresses, err := interfaces[at].Addrs()
		if err != nil {
			return nil, err
		}
		for _, address := range addresses {
			if own, ok := address.(*net.IPNet); ok && own.IP.To4() != nil && own.IP.IsGlobalUnicast() {
				return &net.IPNet{IP: own.IP.To4(), Mask: own.Mask}, nil
			}
		}
	}
	return nil, errors.New("unable to auto-detect an IPv4 address")
}

// The host's block, the network on it, and the host's own endpoint.
func setUpNetwork(kube *cluster, name, backend string, told orders) error {
	block, err := hostBlock(kube, name)
	if err != nil {
		return err
	}
	logf("INFO", "Host's block is %s", block)
	release, err := lockNetwork()
	if err != nil {
		return err
	}
	defer release()
	switch backend {
	case "windows-bgp":
		network, err := ensureNetwork(networkName, "L2Bridge", block)
		if err != nil {
			return err
		}
		if err := stopLate(told); err != nil {
			return err
		}
		if err := ensureAttachedEndpoint(network, block); err != nil {
			return err
		}
		_, err = withManagementIP(network, networkName, 30*time.Second, time.Second)
		return err
	case "vxlan":
		vni, err := strconv.ParseUint(os.Getenv("VXLAN_VNI"), 10, 64)
		if err != nil {
			return err
		}
		network, err := ensureOverlay(networkName, block, vni)
		if err != nil {
			return err
		}
		if err := stopLate(told); err != nil {
			return err
		}
		if err := ensureRemoteEndpoint(network, block); err != nil {
			return err
		}
		for range 3 {
			if err = setTunnel(kube, name, block); err == nil {
				return nil
			}
			logf("WARNING", "Failed to set node's VXLAN tunnel IP, node may not receive traffic. May retry... %v", err)
			time.Sleep(time.Second)
		}
		return err
	}
	return fmt.Errorf("invalid networking backend %s", backend)
}

// A test may have it hang or fail between the network and its endpoint.
func stopLate(told orders) error {
	if !told.late {
		return nil
	}
	if told.hang {
		select {}
	}
	return errors.New("failed to create remote HNSEndpoint Calico_ep")
}

func setTunnel(kube *cluster, name string, block *net.IPNet) error {
	mac, err := routerMAC(networkName)
	if err != nil {
		return err
	}
	return kube.annotateNode(name, map[string]string{
		tunnelAnnotation: nth(block, 1).String(), tunnelMACAnnotation: mac.String(),
	})
}

func hostBlock(kube *cluster, name string) (*net.IPNet, error) {
	// Calico's client cannot list the blocks that it makes of podCIDRs (v3.31.7, v3.33).
	if os.Getenv("USE_POD_CIDR") == "true" {
		return nil, errors.New("Error ensure IPv4 block: operation List is not supported")
	}
	return kube.ensureBlock(name)
}
