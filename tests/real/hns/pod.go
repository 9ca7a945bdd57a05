package main

import (
	"encoding/json"
	"net"
	"strings"

	"github.com/Microsoft/hcsshim"
	"github.com/Microsoft/hcsshim/hcn"
)

// Calico's CNI plugin and Felix: a pod comes, gets its rules, and goes.

const (
	sandbox = "d48c3e4703d9ac389f1ca7798e4d881df150f533d30b25bc77b088f8b3217429"
	podName = sandbox + "_" + networkName
	podIP   = "10.244.7.5"
	podMAC  = "0E-2A-0a-f4-07-05"
)

func settings(value any) json.RawMessage {
	return json.RawMessage(compact(value))
}

// Felix's route to another node's pods.
func (asked *interview) felixRoutes() {
	network, err := hcn.GetNetworkByName(networkName)
	if !asked.succeeds("felix-network", "HcnEnumerateNetworks with the filter {Name}", err) {
		return
	}
	route := hcn.PolicyNetworkRequest{Policies: []hcn.NetworkPolicy{{Type: hcn.RemoteSubnetRoute,
		Settings: settings(hcn.RemoteSubnetRoutePolicySetting{
			DestinationPrefix: "10.244.49.64/26", IsolationId: vni, ProviderAddress: "10.20.30.10",
			DistributedRouterMacAddress: "66-a5-cc-c1-86-97",
		})}}}
	asked.succeeds("felix-route-add", "HcnModifyNetwork Add RemoteSubnetRoute", network.AddPolicy(route))
	shown, err := hcsshim.GetHNSNetworkByID(asked.node.network)
	if asked.succeeds("felix-route-get", "GET /networks/<id>", err) {
		// text/hns-network-Calico-overlay.9.5.server2019.txt
		asked.equal("felix-route-flat", "the route as version 1 shows it",
			[]string{`{"DestinationPrefix":"10.244.49.64/26","DistributedRouterMacAddress":"66-a5-cc-c1-86-97",` +
				`"IsolationId":4096,"ProviderAddress":"10.20.30.10","Type":"RemoteSubnetRoute"}`},
			ofType(shown.Policies, "RemoteSubnetRoute"))
		asked.equal("felix-route-others", "the other policies are kept", 2, len(shown.Policies))
	}
	again, err := hcn.GetNetworkByName(networkName)
	if asked.succeeds("felix-route-v2", "HcnQueryNetworkProperties", err) {
		asked.equal("felix-route-v2-prefix", "the route as version 2 shows it", "10.244.49.64/26",
			setting(again.Policies, hcn.RemoteSubnetRoute, "DestinationPrefix"))
	}
	asked.succeeds("felix-route-remove", "HcnModifyNetwork Remove RemoteSubnetRoute", network.RemovePolicy(route))
	shown, err = hcsshim.GetHNSNetworkByID(asked.node.network)
	if asked.succeeds("felix-route-gone", "GET /networks/<id>", err) {
		asked.equal("felix-route-gone-flat", "version 1 shows no route", []string{}, ofType(shown.Policies, "RemoteSubnetRoute"))
	}
}

func (asked *interview) podAdded() {
	_, err := hcn.GetEndpointByName(podName)
	asked.refuses("add-endpoint-not-there", "HcnEnumerateEndpoints with the filter {Name}", err, "not found")
	// containerd makes the namespace (its CRI plugin, through hcsshim).
	namespace, err := hcn.NewNamespace(hcn.NamespaceTypeHost).Create()
	if !asked.succeeds("add-namespace", "HcnCreateNamespace", err) {
		return
	}
	asked.node.namespace = namespace.Id
	asked.equal("add-namespace-type", "its Type", hcn.NamespaceTypeHost, namespace.Type)

	network, err := hcn.GetNetworkByName(networkName)
	if !asked.succeeds("add-network", "HcnEnumerateNetworks with the filter {Name}", err) {
		return
	}
	// containerd/containerd 5729 has what Calico's plugin asks; SDNROUTE is written so there.
	wanted := &hcn.HostComputeEndpoint{
		Name: podName, HostComputeNetwork: network.Id, MacAddress: podMAC,
		Dns: hcn.Dns{
			Search:     []string{"default.svc.cluster.local", "svc.cluster.local", "cluster.local"},
			ServerList: []string{"10.96.0.10"}, Options: []string{"ndots:5"},
		},
		IpConfigurations: []hcn.IpConfig{{IpAddress: podIP}},
		Routes:           []hcn.Route{{NextHop: "10.244.7.1", DestinationPrefix: "0.0.0.0/0"}},
		Policies: []hcn.EndpointPolicy{
			{Type: hcn.OutBoundNAT, Settings: settings(hcn.OutboundNatPolicySetting{Exceptions: []string{"10.96.0.0/12", "10.244.0.0/16"}})},
			{Type: "SDNROUTE", Settings: settings(hcn.SDNRoutePolicySetting{DestinationPrefix: "10.96.0.0/12", NeedEncap: true})},
			{Type: hcn.NetworkProviderAddress, Settings: settings(hcn.ProviderAddressEndpointPolicySetting{ProviderAddress: asked.node.managementIP})},
		},
		SchemaVersion: hcn.V2SchemaVersion(),
	}
	placeholder := *wanted
	placeholder.Policies = []hcn.EndpointPolicy{{Type: "SDNROUTE",
		Settings: settings(hcn.SDNRoutePolicySetting{DestinationPrefix: "<your service cidr>", NeedEncap: true})}}
	_, err = placeholder.Create()
	// projectcalico/calico 8465
	asked.refuses("add-endpoint-policy", "HcnCreateEndpoint with a placeholder for a prefix", err, "hcnCreateEndpoint", "0x803b000d")
	made, err := wanted.Create()
	if !asked.succeeds("add-endpoint", "HcnCreateEndpoint", err) {
		return
	}
	asked.node.pod = made.Id
	asked.note("add-endpoint-id", "the id in the answer", "a GUID", made.Id, len(made.Id) == 36)
	asked.equal("add-endpoint-network", "HostComputeNetwork is the network's id", true,
		strings.EqualFold(made.HostComputeNetwork, asked.node.network))
	asked.equal("add-endpoint-ip", "IpConfigurations", "[{10.244.7.5 26}]", made.IpConfigurations)
	asked.equal("add-endpoint-routes", "Routes", "[{10.244.7.1 0.0.0.0/0 0}]", made.Routes)
	asked.equal("add-endpoint-dns", "Dns.ServerList", "[10.96.0.10]", made.Dns.ServerList)
	asked.podIsShown("add-created", "Created")

	asked.succeeds("add-attach", "HcnModifyNamespace Add {EndpointId}", hcn.AddNamespaceEndpoint(namespace.Id, made.Id))
	// projectcalico/calico 11203: an endpoint in a container's network is attached and shared.
	asked.podIsShown("add-attached", "AttachedSharing")
	ids, err := hcn.GetNamespaceEndpointIds(namespace.Id)
	if asked.succeeds("add-namespace-query", "HcnQueryNamespaceProperties", err) {
		asked.equal("add-namespace-resource", "its endpoint", []string{strings.ToLower(made.Id)}, lower(ids))
	}
	found, err := hcn.GetEndpointByID(made.Id)
	if asked.succeeds("add-endpoint-query", "HcnEnumerateEndpoints with the filter {ID}", err) {
		asked.equal("add-endpoint-namespace", "HostComputeNamespace", strings.ToLower(namespace.Id), strings.ToLower(found.HostComputeNamespace))
	}
	acl := hcn.PolicyEndpointRequest{Policies: []hcn.EndpointPolicy{{Type: hcn.ACL, Settings: settings(hcn.AclPolicySetting{
		Protocols: "256", Action: hcn.ActionTypeBlock, Direction: hcn.DirectionTypeIn, RuleType: hcn.RuleTypeSwitch, Priority: 65500,
	})}}}
	asked.succeeds("add-acl", "HcnModifyEndpoint Update ACL", made.ApplyPolicy(hcn.RequestTypeUpdate, acl))
	shown, err := hcsshim.GetHNSEndpointByID(made.Id)
	if asked.succeeds("add-acl-get", "GET /endpoints/<id>", err) {
		// Azure/azure-container-networking 1752
		asked.equal("add-acl-flat", "the ACL as version 1 shows it",
			[]string{`{"Action":"Block","Direction":"In","Priority":65500,"Protocols":"256","RuleType":"Switch","Scope":0,"Type":"ACL"}`},
			ofType(shown.Policies, "ACL"))
	}
}

// The pod's endpoint by version 1, as Felix looks for it.
func (asked *interview) podIsShown(id string, state string) {
	all, err := hcsshim.HNSListEndpointRequest()
	if !asked.succeeds(id+"-list", "GET /endpoints/", err) {
		return
	}
	for _, one := range all {
		if !strings.EqualFold(one.Id, asked.node.pod) {
			continue
		}
		asked.equal(id+"-state", "State", state, one.State)
		asked.equal(id+"-ip", "IPAddress", podIP, one.IPAddress)
		asked.equal(id+"-network", "VirtualNetworkName", networkName, one.VirtualNetworkName)
		asked.equal(id+"-remote", "IsRemoteEndpoint", false, one.IsRemoteEndpoint)
		// text/hns-endpoint-pod-Calico.9.5.server2019.partial.json.txt, and azure-container-networking 1752
		asked.equal(id+"-nat", "its NAT as version 1 shows it", []string{`{"ExceptionList":["10.96.0.0/12","10.244.0.0/16"],"Type":"OutBoundNAT"}`},
			ofType(one.Policies, "OutBoundNAT"))
		asked.equal(id+"-route", "its route as version 1 shows it", []string{`{"DestinationPrefix":"10.96.0.0/12","NeedEncap":true,"Type":"ROUTE"}`},
			ofType(one.Policies, "ROUTE"))
		asked.equal(id+"-pa", "its provider address as version 1 shows it", []string{compact(map[string]string{"PA": asked.node.managementIP, "Type": "PA"})},
			ofType(one.Policies, "PA"))
		asked.equal(id+"-dns", "DNSSuffix", "default.svc.cluster.local,svc.cluster.local,cluster.local", one.DNSSuffix)
		return
	}
	asked.note(id+"-found", "the pod's endpoint in GET /endpoints/", asked.node.pod, "it is not there", false)
}

// Felix posts the ACLs alone; every other policy stays.
func (asked *interview) felixRules() {
	rules, _ := json.Marshal(map[string]any{
		"Type": "ACL", "Id": "API0|allow", "Protocol": 6, "Action": "Allow", "Direction": "In", "RuleType": "Switch",
		"Priority": 1000, "LocalPorts": "80", "RemoteAddresses": "10.244.0.0/16",
	})
	endpoint := &hcsshim.HNSEndpoint{Id: asked.node.pod, Policies: []json.RawMessage{rules}}
	changed, err := endpoint.Update()
	if !asked.succeeds("felix-acl", `POST /endpoints/<id> of {"ID","Policies"}`, err) {
		return
	}
	asked.equal("felix-acl-answer", "the id in the answer", strings.ToLower(asked.node.pod), strings.ToLower(changed.Id))
	shown, err := hcsshim.GetHNSEndpointByID(asked.node.pod)
	if !asked.succeeds("felix-acl-get", "GET /endpoints/<id>", err) {
		return
	}
	asked.equal("felix-acl-replaced", "its ACLs", 1, len(ofType(shown.Policies, "ACL")))
	asked.equal("felix-acl-kept", "its other policies", 3, len(shown.Policies)-len(ofType(shown.Policies, "ACL")))
	asked.equal("felix-state", "State, of which Felix takes 2 and 3", "AttachedSharing", shown.State)
}

func (asked *interview) podDeleted() {
	found, err := hcn.GetEndpointByName(podName)
	if !asked.succeeds("del-endpoint", "HcnEnumerateEndpoints with the filter {Name}", err) {
		return
	}
	asked.succeeds("del-detach", "HcnModifyNamespace Remove {EndpointId}", hcn.RemoveNamespaceEndpoint(asked.node.namespace, found.Id))
	ids, err := hcn.GetNamespaceEndpointIds(asked.node.namespace)
	if asked.succeeds("del-namespace-query", "HcnQueryNamespaceProperties", err) {
		asked.equal("del-namespace-empty", "its endpoints", 0, len(ids))
	}
	asked.succeeds("del-delete", "HcnDeleteEndpoint", found.Delete())
	_, err = hcn.GetEndpointByName(podName)
	asked.refuses("del-gone", "HcnEnumerateEndpoints with the filter {Name}", err, "not found")
	_, err = hcsshim.GetHNSEndpointByID(found.Id)
	// Azure/azure-container-networking 715
	asked.refuses("del-gone-v1", "GET /endpoints/<id>", err, "hns failed with error : The endpoint was not found. ")
	// A sandbox that the runtime removed twice: the plugin takes "not found" for done.
	asked.refuses("del-again", "HcnDeleteEndpoint again", found.Delete(), "0x803b0002")
	namespace := &hcn.HostComputeNamespace{Id: asked.node.namespace}
	asked.succeeds("del-namespace", "HcnDeleteNamespace", namespace.Delete())
	_, err = hcn.GetNamespaceByID(asked.node.namespace)
	asked.refuses("del-namespace-gone", "HcnEnumerateNamespaces with the filter {ID}", err, "not found")
}

// kubelet's statistics of pods (its cri_stats_provider for Windows): every endpoint's, and the containers.
func (asked *interview) kubelet() {
	_, err := hcsshim.GetContainers(hcsshim.ComputeSystemQuery{Types: []string{"Container"}})
	asked.succeeds("kubelet-containers", "HcsEnumerateComputeSystems", err)
	all, err := hcsshim.HNSListEndpointRequest()
	if !asked.succeeds("kubelet-endpoints", "GET /endpoints/", err) {
		return
	}
	for _, one := range all {
		if strings.EqualFold(one.Id, asked.node.pod) {
			stats, err := hcsshim.GetHNSEndpointStats(one.Id)
			if asked.succeeds("kubelet-stats", "GET /endpointstats/<id>", err) {
				asked.equal("kubelet-stats-id", "EndpointId", strings.ToLower(one.Id), strings.ToLower(stats.EndpointID))
			}
		}
	}
}

func lower(texts []string) []string {
	for i, text := range texts {
		texts[i] = strings.ToLower(text)
	}
	return texts
}

// The endpoint of a pod of another node, as the clients make it.
func remote(network, address string, providerAddress net.IP) *hcn.HostComputeEndpoint {
	return &hcn.HostComputeEndpoint{
		HostComputeNetwork: network, MacAddress: "02-11-0a-f4-31-41", Flags: hcn.EndpointFlagsRemoteEndpoint,
		IpConfigurations: []hcn.IpConfig{{IpAddress: address}},
		Policies: []hcn.EndpointPolicy{{Type: hcn.NetworkProviderAddress,
			Settings: settings(hcn.ProviderAddressEndpointPolicySetting{ProviderAddress: providerAddress.String()})}},
		SchemaVersion: hcn.V2SchemaVersion(),
	}
}
