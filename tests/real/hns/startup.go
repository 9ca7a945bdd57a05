package main

import (
	"encoding/json"
	"net"
	"strings"
	"time"

	"github.com/Microsoft/hcsshim"
	"github.com/Microsoft/hcsshim/hcn"
)

// Calico's node startup: it makes or takes the pods' network and the host's endpoint on it.

const (
	networkName  = "Calico"
	endpointName = "Calico_ep"
	vni          = 4096
	hostMAC      = "0E-2A-0A-F4-07-02"
)

// What a node is made of, as the questions find it.
type node struct {
	network      string
	managementIP string
	endpoint     string
	namespace    string
	pod          string
	balancer     string
}

// kube-proxy and Calico ask for the features once; they come from the version (hcsshim, hcn/hcnsupport.go).
func (asked *interview) versions() {
	features, err := hcn.GetCachedSupportedFeatures()
	if !asked.succeeds("version", "GET /globals/version", err) {
		return
	}
	asked.equal("feature-v2", "is version 2 supported", true, features.Api.V2)
	asked.equal("feature-remote-subnet", "are remote subnets supported", true, features.RemoteSubnet)
	asked.equal("feature-host-route", "are host routes supported", true, features.HostRoute)
	asked.equal("feature-dsr", "is direct server return supported", true, features.DSR)
}

func (asked *interview) firstLook() {
	_, err := hcsshim.GetHNSNetworkByName(networkName)
	// hcsshim makes this text itself, from a list that is right.
	asked.refuses("startup-network-not-there", "the network Calico, in GET /networks/", err, "Network "+networkName+" not found")
	_, err = hcsshim.HNSListEndpointRequest()
	asked.succeeds("startup-endpoints-list", "GET /endpoints/", err)
	_, err = hcn.GetNetworkByName(networkName)
	asked.refuses("v2-network-not-there", "HcnEnumerateNetworks with the filter {Name}", err, "not found")
}

func (asked *interview) startup() {
	policy, _ := json.Marshal(map[string]any{"Type": "VSID", "VSID": vni})
	wanted := &hcsshim.HNSNetwork{
		Name: networkName,
		Type: "Overlay",
		Subnets: []hcsshim.Subnet{{
			AddressPrefix: "10.244.7.0/26", GatewayAddress: "10.244.7.1", Policies: []json.RawMessage{policy},
		}},
	}
	made, err := wanted.Create()
	if !asked.succeeds("network-post", "POST /networks/ of an overlay network", err) {
		return
	}
	asked.node.network = made.Id
	// tests/fixtures/hns: POST answers with the whole object. Calico continues by the id in it.
	asked.note("network-post-id", "the id in the answer", "a GUID", made.Id, len(made.Id) == 36)
	asked.equal("network-post-name", "the name in the answer", networkName, made.Name)
	asked.equal("network-post-policies", "the subnet's policy in the answer", `[{"Type":"VSID","VSID":4096}]`,
		subnetPolicies(made))

	// It polls every 500 ms for 5 s.
	found := made
	for tries := 0; tries < 10 && found.ManagementIP == ""; tries++ {
		time.Sleep(500 * time.Millisecond)
		if found, err = hcsshim.GetHNSNetworkByID(made.Id); err != nil {
			break
		}
	}
	if !asked.succeeds("network-get", "GET /networks/<id>", err) {
		return
	}
	asked.node.managementIP = found.ManagementIP
	asked.note("management-ip", "ManagementIP within 5 s", "an address", found.ManagementIP,
		net.ParseIP(found.ManagementIP) != nil)
	asked.equal("management-ip-interface", "an interface with that address", true, onAnInterface(found.ManagementIP))
	// Or it deletes the network and re-creates it.
	asked.equal("network-type", "Type", "Overlay", found.Type)
	asked.equal("network-subnet", "Subnets[0].AddressPrefix", "10.244.7.0/26", found.Subnets[0].AddressPrefix)
	asked.shaped("network-shape", "the keys of GET /networks/<id>", object("/networks/"+made.Id), map[string]string{
		// tests/fixtures/hns/v1-get-networks-overlay-External+nat.9.2.json, and the overlay of 15.0.
		"ID": "text", "Name": "text", "Type": "text", "ManagementIP": "text", "DrMacAddress": "text", "Flags": "number",
		"ActivityId": "text", "AdditionalParams": "object", "CurrentEndpointCount": "number", "Extensions": "list",
		"DNSServerCompartment": "number", "Health": "object", "IPv6": "bool", "LayeredOn": "text", "MacPools": "list",
		"MaxConcurrentEndpoints": "number", "Policies": "list", "Resources": "object", "State": "number",
		"Subnets": "list", "TotalEndpoints": "number", "Version": "number",
	})
	_, named := object("/networks/" + made.Id)["NetworkAdapterName"]
	// The same records: HNS names the adapter only if it was asked for it.
	asked.equal("network-adapter", "NetworkAdapterName, which was not asked for", false, named)
}

func subnetPolicies(network *hcsshim.HNSNetwork) string {
	if len(network.Subnets) != 1 {
		return "no subnet"
	}
	return "[" + strings.Join(ofType(network.Subnets[0].Policies, "VSID"), ",") + "]"
}

func onAnInterface(address string) bool {
	for tries := 0; tries < 10; tries++ {
		addresses, _ := net.InterfaceAddrs()
		for _, one := range addresses {
			if strings.HasPrefix(one.String(), address+"/") {
				return true
			}
		}
		time.Sleep(500 * time.Millisecond)
	}
	return false
}

// The same network by version 2, which startup and the CNI plugin need.
func (asked *interview) startupByV2() {
	found, err := hcn.GetNetworkByID(asked.node.network)
	if !asked.succeeds("v2-network-by-id", "HcnEnumerateNetworks with the filter {ID}, Open, Query, Close", err) {
		return
	}
	asked.equal("v2-network-name", "Name", networkName, found.Name)
	asked.equal("v2-network-type", "Type", hcn.Overlay, found.Type)
	asked.equal("v2-network-schema", "SchemaVersion", "{2 0}", found.SchemaVersion)
	asked.equal("v2-network-provider", "ProviderAddress, ManagementIP of version 1", asked.node.managementIP,
		setting(found.Policies, hcn.ProviderAddress, "ProviderAddress"))
	mac := setting(found.Policies, hcn.DrMacAddress, "Address")
	asked.equal("v2-network-dr-mac", "DrMacAddress, that of version 1", object("/networks/" + asked.node.network)["DrMacAddress"], mac)
	asked.equal("v2-network-subnet", "Ipams[0].Subnets[0]", "10.244.7.0/26 10.244.7.1 4096", subnet(found))
	asked.equal("v2-network-mac-pool", "ranges of MacPool", 1, len(found.MacPool.Ranges))

	request := hcn.PolicyNetworkRequest{Policies: []hcn.NetworkPolicy{{Type: hcn.HostRoute, Settings: []byte("{}")}}}
	asked.succeeds("v2-network-host-route", "HcnModifyNetwork Add HostRoute", found.AddPolicy(request))
	again, err := hcsshim.GetHNSNetworkByID(asked.node.network)
	if asked.succeeds("network-get-again", "GET /networks/<id>", err) {
		// text/hns-network-Calico-overlay.9.5.server2019.txt: {Type=HostRoute}
		asked.equal("network-host-route", "the policies that version 1 shows", `[{"Type":"HostRoute"}]`,
			ofType(again.Policies, "HostRoute"))
	}
}

// A setting of a network's policy.
func setting(policies []hcn.NetworkPolicy, kind hcn.NetworkPolicyType, key string) string {
	for _, policy := range policies {
		settings := map[string]any{}
		if policy.Type == kind && json.Unmarshal(policy.Settings, &settings) == nil {
			value, _ := settings[key].(string)
			return value
		}
	}
	return ""
}

func subnet(network *hcn.HostComputeNetwork) string {
	if len(network.Ipams) != 1 || len(network.Ipams[0].Subnets) != 1 || len(network.Ipams[0].Subnets[0].Routes) != 1 {
		return compact(network.Ipams)
	}
	found := network.Ipams[0].Subnets[0]
	for _, raw := range found.Policies {
		policy := struct{ Settings hcn.VsidPolicySetting }{}
		if json.Unmarshal(raw, &policy) == nil {
			return found.IpAddressPrefix + " " + found.Routes[0].NextHop + " " + compact(policy.Settings.IsolationId)
		}
	}
	return compact(found)
}

// `Calico_ep`, the host's address on the network: felix's and kube-proxy's source address.
func (asked *interview) hostEndpoint() {
	_, err := hcsshim.GetHNSEndpointByName(endpointName)
	asked.refuses("endpoint-not-there", "Calico_ep, in GET /endpoints/", err, "Endpoint "+endpointName+" not found")
	policy, _ := json.Marshal(map[string]string{"Type": "PA", "PA": asked.node.managementIP})
	wanted := &hcsshim.HNSEndpoint{
		Name: endpointName, VirtualNetwork: asked.node.network, IPAddress: net.ParseIP("10.244.7.2"),
		MacAddress: hostMAC, IsRemoteEndpoint: true, Policies: []json.RawMessage{policy},
	}
	made, err := wanted.Create()
	if !asked.succeeds("endpoint-post", "POST /endpoints/ of Calico_ep", err) {
		return
	}
	asked.node.endpoint = made.Id
	asked.note("endpoint-post-id", "the id in the answer", "a GUID", made.Id, len(made.Id) == 36)
	asked.equal("endpoint-post-network", "VirtualNetworkName in the answer", networkName, made.VirtualNetworkName)
	// tests/fixtures/hns/v1-endpoint-overlay-remote.5.1.json
	asked.equal("endpoint-post-state", "State in the answer: created", "Created", made.State)
	asked.equal("endpoint-post-pa", "its provider address", []string{compact(map[string]string{"Type": "PA", "PA": asked.node.managementIP})},
		ofType(made.Policies, "PA"))
	asked.shaped("endpoint-shape", "the keys of GET /endpoints/<id>", object("/endpoints/"+made.Id), map[string]string{
		"ActivityId": "text", "EncapOverhead": "number", "ID": "text", "IPAddress": "text", "IsRemoteEndpoint": "bool",
		"MacAddress": "text", "Name": "text", "Policies": "list", "PrefixLength": "number", "Resources": "object",
		"SharedContainers": "list", "State": "number", "Type": "text", "Version": "number", "VirtualNetwork": "text",
		"VirtualNetworkName": "text",
	})
	asked.succeeds("endpoint-attach", "POST /endpoints/<id>/attach to the host", made.HostAttach(1))
	attached, err := hcsshim.GetHNSEndpointByID(made.Id)
	if asked.succeeds("endpoint-get", "GET /endpoints/<id>", err) {
		asked.equal("endpoint-attached", "State: attached", "Attached", attached.State)
	}
	// projectcalico/calico 4280
	asked.refuses("endpoint-attach-again", "the same again", made.HostAttach(1), "hnsCall failed in Win32", "0x803b0014")
	found, err := hcn.GetNetworkByName(networkName)
	if asked.succeeds("v2-network-by-name", "HcnEnumerateNetworks with the filter {Name}", err) {
		asked.equal("v2-network-same", "it is the same network", true, strings.EqualFold(found.Id, asked.node.network))
	}
}
