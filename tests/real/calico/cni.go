package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/Microsoft/hcsshim/hcn"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniv1 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/hns"
	"github.com/containernetworking/plugins/pkg/ipam"
	k8stypes "k8s.io/apimachinery/pkg/types"
)

// The CNI plugin, and the IPAM plugin that it runs (projectcalico/calico, cni-plugin/pkg). What HNS is asked for an
// endpoint is in the library that Calico's plugin links too.

// What they read of their configuration, beside what that library reads.
type cniConf struct {
	types.NetConf
	Mode             string `json:"mode"`
	MACPrefix        string `json:"vxlan_mac_prefix"`
	VNI              uint64 `json:"vxlan_vni"`
	SingleNetwork    bool   `json:"windows_use_single_network"`
	LoopbackDSR      bool   `json:"windows_loopback_DSR"`
	NoDefaultDenyAll bool   `json:"windows_disable_default_deny_all_policy"`
	Nodename         string `json:"nodename"`
	NodenameFile     string `json:"nodename_file"`
	APIGroup         string `json:"calico_api_group"`
	Kubernetes       struct {
		Kubeconfig string `json:"kubeconfig"`
	} `json:"kubernetes"`
	hns hns.NetConf
}

type podArgs struct {
	types.CommonArgs
	K8S_POD_NAME      types.UnmarshallableString
	K8S_POD_NAMESPACE types.UnmarshallableString
}

func plugin(name string) int {
	// Its stdout is the result.
	logTo = os.Stderr
	functions := skel.CNIFuncs{Add: add, Del: del}
	if strings.HasPrefix(name, "calico-ipam") {
		functions = skel.CNIFuncs{Add: ipamAdd, Del: ipamDel}
	}
	failed := skel.PluginMainFuncsWithError(functions, version.PluginSupports("0.3.1", "1.0.0"), "Calico")
	if failed == nil {
		return 0
	}
	_ = failed.Print()
	return 1
}

func readConf(stdin []byte) (*cniConf, error) {
	found := &cniConf{}
	if err := json.Unmarshal(stdin, found); err != nil {
		return nil, fmt.Errorf("failed to load netconf: %w", err)
	}
	if err := json.Unmarshal(stdin, &found.hns); err != nil {
		return nil, fmt.Errorf("failed to load netconf: %w", err)
	}
	if found.Nodename == "" {
		name, err := os.ReadFile(found.NodenameFile)
		if err != nil {
			return nil, fmt.Errorf("%w: check that the calico/node container is running", err)
		}
		found.Nodename = strings.TrimSpace(string(name))
	}
	return found, nil
}

func (conf *cniConf) cluster() (*cluster, error) {
	if conf.Kubernetes.Kubeconfig == "" {
		return nil, errors.New("no configuration has been provided, try setting KUBERNETES_MASTER environment variable")
	}
	return openCluster(conf.Kubernetes.Kubeconfig, conf.APIGroup)
}

// The handle of a pod's address.
func (conf *cniConf) handle(args *skel.CmdArgs) string {
	return conf.Name + "." + args.ContainerID
}

func add(args *skel.CmdArgs) error {
	conf, err := readConf(args.StdinData)
	if err != nil {
		return err
	}
	kube, err := conf.cluster()
	if err != nil {
		return err
	}
	assigned, err := ipam.ExecAdd(conf.IPAM.Type, args.StdinData)
	if err != nil {
		return err
	}
	result, err := cniv1.NewResultFromResult(assigned)
	if err != nil {
		return err
	}
	if len(result.IPs) == 0 {
		return errors.New("IPAM plugin returned missing IP config")
	}
	result.DNS = conf.hns.DNS
	if given := conf.hns.RuntimeConfig.DNS; len(given.Nameservers) > 0 {
		result.DNS = types.DNS{Nameservers: given.Nameservers, Search: given.Search}
	}
	if err := conf.network(kube, args, result); err != nil {
		_ = ipam.ExecDel(conf.IPAM.Type, args.StdinData)
		return err
	}
	pod := podArgs{}
	if err := types.LoadArgs(args.Args, &pod); err != nil {
		return err
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		"cni.projectcalico.org/podIP":       result.IPs[0].Address.IP.String() + "/32",
		"cni.projectcalico.org/containerID": args.ContainerID,
	}}}
	namespace, name := string(pod.K8S_POD_NAMESPACE), string(pod.K8S_POD_NAME)
	if err := kube.patchStatus(k8stypes.MergePatchType, "pods", namespace, name, patch); err != nil {
		return fmt.Errorf("failed to update annotations of pod %s/%s: %w", namespace, name, err)
	}
	return types.PrintResult(result, conf.CNIVersion)
}

// The pod's endpoint on the host's network, closed until Felix has its rules.
func (conf *cniConf) network(kube *cluster, args *skel.CmdArgs, result *cniv1.Result) error {
	address := result.IPs[0].Address
	subnet := &net.IPNet{IP: address.IP.Mask(address.Mask), Mask: address.Mask}
	policies, err := conf.policies(kube, address.IP)
	if err != nil {
		return err
	}
	release, err := lockNetwork()
	if err != nil {
		return err
	}
	defer release()
	name := conf.Name
	if !conf.SingleNetwork {
		name += "-" + strings.ReplaceAll(subnet.IP.String(), ".", "-")
	}
	wanted := &hcn.HostComputeEndpoint{
		Name: hns.ConstructEndpointName(args.ContainerID, args.Netns, conf.Name),
		Dns: hcn.Dns{
			Domain: result.DNS.Domain, Search: result.DNS.Search, ServerList: result.DNS.Nameservers,
			Options: result.DNS.Options,
		},
		IpConfigurations: []hcn.IpConfig{{IpAddress: address.IP.String()}},
		SchemaVersion:    hcn.SchemaVersion{Major: 2},
	}
	var network string
	gateway := nth(subnet, 2)
	if conf.Mode == "vxlan" {
		found, err := ensureOverlay(name, subnet, conf.VNI)
		if err != nil {
			return err
		}
		if err := ensureRemoteEndpoint(found, subnet); err != nil {
			return err
		}
		ip := address.IP.To4()
		wanted.MacAddress = fmt.Sprintf("%s-%02x-%02x-%02x-%02x", conf.MACPrefix, ip[0], ip[1], ip[2], ip[3])
		policies = append(policies, policy(hcn.NetworkProviderAddress,
			hcn.ProviderAddressEndpointPolicySetting{ProviderAddress: found.ManagementIP}))
		network, gateway = found.Id, nth(subnet, 1)
	} else {
		found, err := ensureNetwork(name, "L2Bridge", subnet)
		if err != nil {
			return err
		}
		if err := ensureAttachedEndpoint(found, subnet); err != nil {
			return err
		}
		policies = append(policies, policy(hcn.SDNRoute,
			hcn.SDNRoutePolicySetting{DestinationPrefix: found.ManagementIP + "/32", NeedEncap: true}))
		network = found.Id
	}
	if conf.LoopbackDSR {
		policies = append(policies, policy(hcn.OutBoundNAT,
			hcn.OutboundNatPolicySetting{Destinations: []string{address.IP.String()}}))
	}
	wanted.HostComputeNetwork, wanted.Policies = network, policies
	wanted.Routes = []hcn.Route{{NextHop: gateway.String(), DestinationPrefix: "0.0.0.0/0"}}
	made, err := hns.AddHcnEndpoint(wanted.Name, network, args.Netns, func() (*hcn.HostComputeEndpoint, error) {
		return wanted, nil
	})
	if err != nil {
		return fmt.Errorf("unable to create container hns endpoint %s: %w", wanted.Name, err)
	}
	if conf.NoDefaultDenyAll {
		return nil
	}
	return made.ApplyPolicy(hcn.RequestTypeUpdate, hcn.PolicyEndpointRequest{
		Policies: []hcn.EndpointPolicy{policy(hcn.ACL, hcn.AclPolicySetting{
			RuleType: hcn.RuleTypeSwitch, Action: hcn.ActionTypeBlock, Direction: hcn.DirectionTypeIn,
			Protocols: "256", Priority: 65500,
		})},
	})
}

func policy(kind hcn.EndpointPolicyType, settings any) hcn.EndpointPolicy {
	raw, _ := json.Marshal(settings)
	return hcn.EndpointPolicy{Type: kind, Settings: raw}
}

// The policies of the configuration, whose values have the form of version 1. What goes to a pool is not translated.
func (conf *cniConf) policies(kube *cluster, address net.IP) ([]hcn.EndpointPolicy, error) {
	pools, err := kube.list("ippools")
	if err != nil {
		return nil, fmt.Errorf("failed to look up IPAM pools: %w", err)
	}
	var cidrs []string
	natOutgoing := true
	for _, pool := range pools {
		cidr := text(&pool, "spec", "cidr")
		cidrs = append(cidrs, cidr)
		if _, network, err := net.ParseCIDR(cidr); err == nil && network.Contains(address) {
			natOutgoing, _ = spec(&pool)["natOutgoing"].(bool)
		}
	}
	var all []hcn.EndpointPolicy
	for _, given := range conf.hns.Policies {
		value := struct {
			Type              string
			ExceptionList     []string
			DestinationPrefix string
			NeedEncap         bool
		}{}
		if given.Name != "EndpointPolicy" || json.Unmarshal(given.Value, &value) != nil {
			continue
		}
		switch strings.ToUpper(value.Type) {
		case "OUTBOUNDNAT":
			if natOutgoing {
				all = append(all, policy(hcn.OutBoundNAT,
					hcn.OutboundNatPolicySetting{Exceptions: append(value.ExceptionList, cidrs...)}))
			}
		case "SDNROUTE":
			// The type is handed on as it is written.
			all = append(all, policy(hcn.EndpointPolicyType(value.Type),
				hcn.SDNRoutePolicySetting{DestinationPrefix: value.DestinationPrefix, NeedEncap: value.NeedEncap}))
		}
	}
	return all, nil
}

func del(args *skel.CmdArgs) error {
	conf, err := readConf(args.StdinData)
	if err != nil {
		return err
	}
	// What is not there is gone already.
	if err := hns.RemoveHcnEndpoint(hns.ConstructEndpointName(args.ContainerID, args.Netns, conf.Name)); err != nil {
		logf("WARNING", "Failed to find or delete endpoint, assuming it's already been cleaned up: %v", err)
	}
	return ipam.ExecDel(conf.IPAM.Type, args.StdinData)
}

func ipamAdd(args *skel.CmdArgs) error {
	conf, err := readConf(args.StdinData)
	if err != nil {
		return err
	}
	kube, err := conf.cluster()
	if err != nil {
		return err
	}
	block, err := kube.ensureBlock(conf.Nodename)
	if err != nil {
		return err
	}
	pod := podArgs{}
	if err := types.LoadArgs(args.Args, &pod); err != nil {
		return err
	}
	address, err := kube.allocate(block, conf.handle(args), map[string]any{
		"namespace": string(pod.K8S_POD_NAMESPACE), "node": conf.Nodename, "pod": string(pod.K8S_POD_NAME),
	})
	if err != nil {
		return err
	}
	result := &cniv1.Result{
		CNIVersion: cniv1.ImplementedSpecVersion,
		IPs:        []*cniv1.IPConfig{{Address: net.IPNet{IP: address, Mask: block.Mask}}},
	}
	return types.PrintResult(result, conf.CNIVersion)
}

func ipamDel(args *skel.CmdArgs) error {
	conf, err := readConf(args.StdinData)
	if err != nil {
		return err
	}
	kube, err := conf.cluster()
	if err != nil {
		return err
	}
	return kube.release(conf.handle(args))
}
