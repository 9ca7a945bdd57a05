package main

import (
	"encoding/json"
	"net"
	"strings"

	"github.com/Microsoft/hcsshim"
	"github.com/Microsoft/hcsshim/hcn"
)

// kube-proxy's kernelspace mode: it finds the network and its source address, and writes load balancers.

const (
	clusterIP  = "10.99.234.145"
	otherPodIP = "10.244.49.65"
)

func (asked *interview) kubeProxyFinds() {
	network, err := hcn.GetNetworkByName(networkName)
	if !asked.succeeds("proxy-network", "HcnEnumerateNetworks with the filter {Name}", err) {
		return
	}
	asked.equal("proxy-network-type", "Type, compared without case", "overlay", strings.ToLower(string(network.Type)))
	own, err := hcn.GetEndpointByName(endpointName)
	if asked.succeeds("proxy-source", "HcnEnumerateEndpoints with the filter {Name}", err) {
		asked.equal("proxy-source-vip", "the address of Calico_ep, --source-vip", "[{10.244.7.2 26}]", own.IpConfigurations)
		asked.equal("proxy-source-flags", "Flags: remote", hcn.EndpointFlagsRemoteEndpoint, own.Flags)
	}
	all, err := hcn.ListEndpoints()
	if asked.succeeds("proxy-endpoints", "HcnEnumerateEndpoints", err) {
		asked.equal("proxy-endpoints-count", "Calico_ep and the pod", 2, len(all))
	}
	// The filter has version 1's key (hcsshim, hcn/hcnendpoint.go).
	on, err := hcn.ListEndpointsOfNetwork(network.Id)
	if asked.succeeds("proxy-endpoints-of-network", "HcnEnumerateEndpoints with the filter {VirtualNetwork}", err) {
		asked.equal("proxy-endpoints-of-network-count", "Calico_ep and the pod", 2, len(on))
	}
	made, err := remote(network.Id, otherPodIP, net.ParseIP("10.20.30.10")).Create()
	if !asked.succeeds("proxy-remote", "HcnCreateEndpoint of another node's pod", err) {
		return
	}
	asked.equal("proxy-remote-flags", "Flags: remote", hcn.EndpointFlagsRemoteEndpoint, made.Flags)
	shown, err := hcsshim.GetHNSEndpointByID(made.Id)
	if asked.succeeds("proxy-remote-get", "GET /endpoints/<id>", err) {
		asked.equal("proxy-remote-v1", "IsRemoteEndpoint, State", "true Created", compact(shown.IsRemoteEndpoint)+" "+shown.State.String())
		// text/hns-endpoint-nat.15.0.txt: so HNS names an endpoint that was given none.
		asked.equal("proxy-remote-name", "Name, which was not asked for", "Ethernet", shown.Name)
	}
	asked.succeeds("proxy-remote-delete", "HcnDeleteEndpoint", made.Delete())
}

func (asked *interview) kubeProxyBalances() {
	pod := hcn.HostComputeEndpoint{Id: asked.node.pod}
	write := func(ends []hcn.HostComputeEndpoint, flags hcn.LoadBalancerFlags) (*hcn.HostComputeLoadBalancer, error) {
		return hcn.AddLoadBalancer(ends, flags, hcn.LoadBalancerPortMappingFlagsNone, "10.244.7.2", []string{clusterIP}, 6, 8080, 80)
	}
	_, err := write(nil, hcn.LoadBalancerFlagsDSR)
	// projectcalico/calico 5762
	asked.refuses("balancer-empty", "HcnCreateLoadBalancer without an endpoint", err, "hcnCreateLoadBalancer", "0x803b001c", "A Reference is required")
	made, err := write([]hcn.HostComputeEndpoint{pod}, hcn.LoadBalancerFlagsDSR)
	if !asked.succeeds("balancer-create", "HcnCreateLoadBalancer with DSR", err) {
		return
	}
	asked.node.balancer = made.Id
	asked.note("balancer-id", "the id in the answer", "a GUID", made.Id, len(made.Id) == 36)
	asked.equal("balancer-flags", "Flags: DSR", hcn.LoadBalancerFlagsDSR, made.Flags)
	// text/hns-policylist-ELB.9.2.server2019.txt, as kube-proxy logs it
	asked.equal("balancer-answer", "the answer", `["`+strings.ToLower(asked.node.pod)+`"] 10.244.7.2 ["10.99.234.145"] [{"Protocol":6,"InternalPort":8080,"ExternalPort":80}]`,
		compact(lower(made.HostComputeEndpoints))+" "+made.SourceVIP+" "+compact(made.FrontendVIPs)+" "+compact(made.PortMappings))
	_, err = write([]hcn.HostComputeEndpoint{pod}, hcn.LoadBalancerFlagsDSR)
	asked.note("balancer-twice", "the same again", "HCN_E_PORT_ALREADY_EXISTS", errorText(err), hcn.IsPortAlreadyExistsError(err))

	// text/hns-policylist-ELB-DSR.15.0.txt
	lists, err := hcsshim.HNSListPolicyListRequest()
	if asked.succeeds("balancer-v1", "GET /policylists/", err) && len(lists) == 1 {
		asked.equal("balancer-v1-references", "References", "/endpoints/"+strings.ToLower(asked.node.pod), strings.ToLower(strings.Join(lists[0].EndpointReferences, " ")))
		asked.equal("balancer-v1-policy", "the policy", []string{`{"ExternalPort":80,"InternalPort":8080,"IsDSR":true,"Protocol":6,"SourceVIP":"10.244.7.2","Type":"ELB","VIPs":["10.99.234.145"]}`},
			ofType(lists[0].Policies, "ELB"))
	}
	said := object("/policylists/" + made.Id)
	asked.shaped("balancer-v1-shape", "the keys of GET /policylists/<id>", said, map[string]string{
		"ActivityId": "text", "AdditionalParams": "object", "Flags": "number", "Health": "object", "ID": "text",
		"IsApplied": "bool", "Policies": "list", "References": "list", "Resources": "object", "State": "number", "Version": "number",
	})
	asked.equal("balancer-v1-state", "State", 2, said["State"])
	all, err := hcn.ListLoadBalancers()
	if asked.succeeds("balancer-list", "HcnEnumerateLoadBalancers", err) {
		asked.equal("balancer-list-count", "load balancers", 1, len(all))
	}
	made.PortMappings[0].InternalPort = 8081
	changed, err := made.Update(made.Id)
	if asked.succeeds("balancer-update", "HcnModifyLoadBalancer", err) {
		asked.equal("balancer-updated", "its internal port", 8081, changed.PortMappings[0].InternalPort)
	}
	asked.succeeds("balancer-delete", "HcnDeleteLoadBalancer", made.Delete())
	_, err = hcn.GetLoadBalancerByID(made.Id)
	asked.refuses("balancer-gone", "HcnEnumerateLoadBalancers with the filter {ID}", err, "not found")
	// kube-proxy takes this one for done.
	asked.refuses("balancer-delete-again", "HcnDeleteLoadBalancer again", made.Delete(), "0x490")
}

func errorText(err error) string {
	if err == nil {
		return "success"
	}
	return err.Error()
}

// What is not there, and what cannot be.
func (asked *interview) refusals() {
	const nothing = "11111111-2222-4333-8444-555555555555"
	_, err := hcsshim.GetHNSNetworkByID(nothing)
	// projectcalico/calico 5762 has the text, with its blank, and the code of it.
	asked.refuses("missing-network", "GET /networks/<id> of none", err, "hns failed with error : Can't find the network. ")
	said, err := call("DELETE", "/networks/"+nothing, "")
	if asked.succeeds("missing-network-raw", "DELETE /networks/<id> of none", err) {
		asked.equal("missing-network-code", "its answer", "false 2151350273", compact(said.Success)+" "+compact(said.ErrorCode))
	}
	_, err = (&hcsshim.HNSEndpoint{Id: nothing}).Delete()
	asked.refuses("missing-endpoint", "DELETE /endpoints/<id> of none", err, "hns failed with error : The endpoint was not found. ")
	asked.refuses("missing-network-v2", "HcnDeleteNetwork of none", (&hcn.HostComputeNetwork{Id: nothing}).Delete(), "hcnDeleteNetwork", "0x803b0001")
	_, err = (&hcsshim.HNSNetwork{Name: networkName, Type: "Overlay"}).Create()
	// moby/moby 40345: by the call's own result.
	asked.refuses("network-twice", "POST /networks/ of a name that is there", err, "hnsCall failed in Win32", "0x803b0010")
	_, err = (&hcsshim.HNSEndpoint{Name: "lost", VirtualNetwork: nothing}).Create()
	asked.refuses("endpoint-without-network", "POST /endpoints/ on a network that is not there", err, "hns failed with error")
	said, err = call("POST", "/networks/", "{")
	if asked.succeeds("no-json-raw", "POST /networks/ of no JSON", err) {
		asked.equal("no-json", "its answer", "false", compact(said.Success))
	}
}

// What only hcsshim's own users ask: networks and routes by version 2.
func (asked *interview) otherObjects() {
	wanted := &hcn.HostComputeNetwork{
		Name: "calico-nat", Type: hcn.NAT, SchemaVersion: hcn.V2SchemaVersion(),
		Ipams: []hcn.Ipam{{Type: "Static", Subnets: []hcn.Subnet{{IpAddressPrefix: "172.29.144.0/20",
			Routes: []hcn.Route{{NextHop: "172.29.144.1", DestinationPrefix: "0.0.0.0/0"}}}}}},
	}
	made, err := wanted.Create()
	if asked.succeeds("v2-network-create", "HcnCreateNetwork", err) {
		shown, err := hcsshim.GetHNSNetworkByID(made.Id)
		if asked.succeeds("v2-network-create-v1", "GET /networks/<id> of it", err) {
			asked.equal("v2-network-create-same", "its Type, in lower case, and subnet", "nat 172.29.144.0/20",
				strings.ToLower(shown.Type)+" "+shown.Subnets[0].AddressPrefix)
		}
		asked.succeeds("v2-network-delete", "HcnDeleteNetwork", made.Delete())
	}
	route := &hcn.HostComputeRoute{
		HostComputeEndpoints: []string{asked.node.endpoint}, SchemaVersion: hcn.V2SchemaVersion(),
		Setting: []hcn.SDNRoutePolicySetting{{DestinationPrefix: "10.96.0.0/12", NextHop: "10.244.7.1", NeedEncap: true}},
	}
	added, err := route.Create()
	if asked.succeeds("v2-route-create", "HcnCreateSdnRoute", err) {
		found, err := hcn.GetRouteByID(added.ID)
		if asked.succeeds("v2-route-get", "HcnEnumerateSdnRoutes with the filter {ID}", err) {
			asked.equal("v2-route-same", "its prefix", "10.96.0.0/12", found.Setting[0].DestinationPrefix)
		}
		asked.succeeds("v2-route-delete", "HcnDeleteSdnRoute", added.Delete())
	}
}

// Everything goes, as when Calico's startup finds another subnet.
func (asked *interview) end() {
	_, err := (&hcsshim.HNSEndpoint{Id: asked.node.endpoint}).Delete()
	asked.succeeds("end-endpoint", "DELETE /endpoints/<id>", err)
	said, err := call("DELETE", "/networks/"+asked.node.network, "")
	if asked.succeeds("end-network", "DELETE /networks/<id>", err) {
		var output json.RawMessage
		asked.equal("end-network-answer", "its answer", "true "+string(output), compact(said.Success)+" "+string(said.Output))
	}
	_, err = hcsshim.GetHNSNetworkByName(networkName)
	asked.refuses("end-network-gone", "the network Calico, in GET /networks/", err, "not found")
	_, err = hcn.GetNetworkByName(networkName)
	asked.refuses("end-network-gone-v2", "HcnEnumerateNetworks with the filter {Name}", err, "not found")
}
