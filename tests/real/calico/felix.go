package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Microsoft/hcsshim"
	"github.com/Microsoft/hcsshim/hcn"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// Adapters whose address is never the node's.
var notForNodes = regexp.MustCompile(`.*cbr.*|.*[Dd]ocker.*|.*\(nat\).*|.*Calico.*_ep|Loopback.*`)

var errUnknownEndpoint = errors.New("failed to look up HNS endpoint for workload")

// Felix: routes to the pods of other nodes, and rules of the pods here (projectcalico/calico, felix/dataplane/windows).
func felix() int {
	told := started("felix")
	announce("felix")
	worker := &felixWorker{node: os.Getenv("FELIX_FELIXHOSTNAME"), dirty: make(chan struct{}, 1)}
	worker.serveHealth(told.unready)
	go worker.run()
	return serve("felix", told)
}

type felixWorker struct {
	node  string
	kube  *cluster
	ready atomic.Bool
	dirty chan struct{}
}

// Its health endpoint. A Felix that is not ready is live.
func (f *felixWorker) serveHealth(unready bool) {
	if !strings.EqualFold(os.Getenv("FELIX_HEALTHENABLED"), "true") {
		return
	}
	address := net.JoinHostPort("127.0.0.1", os.Getenv("FELIX_HEALTHPORT"))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		logf("ERROR", "Health endpoint failed, trying to restart it... %v", err)
		return
	}
	handler := http.NewServeMux()
	handler.HandleFunc("/liveness", func(http.ResponseWriter, *http.Request) {})
	handler.HandleFunc("/readiness", func(answer http.ResponseWriter, _ *http.Request) {
		if unready || !f.ready.Load() {
			answer.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	go func() { _ = http.Serve(listener, handler) }()
}

// Follows the datastore, and applies what changed. What fails is tried again.
func (f *felixWorker) run() {
	for {
		kube, err := datastore()
		if err == nil {
			f.kube = kube
			break
		}
		logf("ERROR", "Failed to connect to datastore: %v", err)
		time.Sleep(time.Second)
	}
	here := metav1.ListOptions{FieldSelector: "spec.nodeName=" + f.node}
	go f.follow(f.kube.core("nodes", ""), metav1.ListOptions{})
	go f.follow(f.kube.core("pods", ""), here)
	go f.follow(f.kube.kind("ipamblocks"), metav1.ListOptions{})
	for {
		var again <-chan time.Time
		err := f.apply(here)
		if err != nil {
			logf("WARNING", "%v", err)
			again = time.After(time.Second)
		}
		// Ready after the first update, also where a pod's endpoint is not there (felix/dataplane/windows).
		if err == nil || errors.Is(err, errUnknownEndpoint) {
			f.ready.Store(true)
		}
		select {
		case <-f.dirty:
		case <-again:
		}
	}
}

// Says that something has to be applied.
func (f *felixWorker) touch() {
	select {
	case f.dirty <- struct{}{}:
	default:
	}
}

// Follows a kind: what is there, and every event, is one to apply.
func (f *felixWorker) follow(kind dynamic.ResourceInterface, options metav1.ListOptions) {
	for ; ; time.Sleep(time.Second) {
		all, err := kind.List(context.TODO(), options)
		if err != nil {
			logf("WARNING", "Failed to list: %v", err)
			continue
		}
		f.touch()
		from := options
		from.ResourceVersion = all.GetResourceVersion()
		watch, err := kind.Watch(context.TODO(), from)
		if err != nil {
			logf("WARNING", "Failed to watch: %v", err)
			continue
		}
		for range watch.ResultChan() {
			f.touch()
		}
	}
}

func (f *felixWorker) apply(here metav1.ListOptions) error {
	pattern, err := regexp.Compile(os.Getenv("KUBE_NETWORK"))
	if err != nil {
		return err
	}
	if err := f.applyRoutes(pattern); err != nil {
		return err
	}
	return f.applyRules(pattern, here)
}

// A route of the network for each block of another node.
func (f *felixWorker) applyRoutes(pattern *regexp.Regexp) error {
	wanted, err := f.routes()
	if err != nil {
		return err
	}
	networks, err := hcn.ListNetworks()
	if err != nil {
		return fmt.Errorf("failed to look up HNS networks: %w", err)
	}
	var network *hcn.HostComputeNetwork
	for at := range networks {
		if pattern.MatchString(networks[at].Name) {
			network = &networks[at]
			break
		}
	}
	if network == nil {
		return fmt.Errorf("didn't find any HNS networks matching regular expression %s", pattern)
	}
	if network.Type != hcn.Overlay {
		return nil
	}
	for _, policy := range network.Policies {
		there := hcn.RemoteSubnetRoutePolicySetting{}
		if policy.Type != hcn.RemoteSubnetRoute {
			continue
		}
		if err := json.Unmarshal(policy.Settings, &there); err != nil {
			return err
		}
		if wanted[there] {
			delete(wanted, there)
		} else if err := network.RemovePolicy(routeRequest(there)); err != nil {
			return fmt.Errorf("failed to remove unwanted VXLAN route policy: %w", err)
		}
	}
	for route := range wanted {
		if err := network.AddPolicy(routeRequest(route)); err != nil {
			return fmt.Errorf("failed to add VXLAN route policy: %w", err)
		}
	}
	return nil
}

func routeRequest(route hcn.RemoteSubnetRoutePolicySetting) hcn.PolicyNetworkRequest {
	settings, _ := json.Marshal(route)
	return hcn.PolicyNetworkRequest{Policies: []hcn.NetworkPolicy{{Type: hcn.RemoteSubnetRoute, Settings: settings}}}
}

func (f *felixWorker) routes() (map[hcn.RemoteSubnetRoutePolicySetting]bool, error) {
	vni, err := strconv.ParseUint(os.Getenv("FELIX_VXLANVNI"), 10, 64)
	if err != nil {
		vni = defaultVNI
	}
	nodes, err := f.kube.core("nodes", "").List(context.TODO(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	blocks, err := f.kube.list("ipamblocks")
	if err != nil {
		return nil, err
	}
	routes := map[hcn.RemoteSubnetRoutePolicySetting]bool{}
	for _, node := range nodes.Items {
		about := node.GetAnnotations()
		address, _, err := net.ParseCIDR(about[addressAnnotation])
		mac, _ := net.ParseMAC(about[tunnelMACAnnotation])
		if node.GetName() == f.node || err != nil || mac == nil {
			continue
		}
		for _, block := range blocks {
			if text(&block, "spec", "affinity") == "host:"+node.GetName() {
				routes[hcn.RemoteSubnetRoutePolicySetting{
					// HNS takes 16 bits.
					IsolationId: uint16(vni), ProviderAddress: address.String(),
					DistributedRouterMacAddress: strings.ReplaceAll(mac.String(), ":", "-"),
					DestinationPrefix:           text(&block, "spec", "cidr"),
				}] = true
			}
		}
	}
	return routes, nil
}

// What an empty cluster's policies give to each pod here: all is allowed by the namespace's profile.
func (f *felixWorker) applyRules(pattern *regexp.Regexp, here metav1.ListOptions) error {
	pods, err := f.kube.core("pods", "").List(context.TODO(), here)
	if err != nil {
		return err
	}
	addresses := map[string]bool{}
	for _, pod := range pods.Items {
		if address := podAddress(&pod); address != "" {
			addresses[address] = true
		}
	}
	if len(addresses) == 0 {
		return nil
	}
	endpoints, err := hcsshim.HNSListEndpointRequest()
	if err != nil {
		return fmt.Errorf("failed to list HNS endpoints: %w", err)
	}
	for _, endpoint := range endpoints {
		ours := pattern.MatchString(endpoint.VirtualNetworkName) && !endpoint.IsRemoteEndpoint
		state := endpoint.State.String()
		live := state == "Attached" || state == "AttachedSharing"
		address := endpoint.IPAddress.String()
		if !ours || !live || !addresses[address] {
			continue
		}
		delete(addresses, address)
		if hasRules(endpoint.Policies) {
			continue
		}
		// HNS gets the id and the rules alone: they replace those that are there.
		alone := &hcsshim.HNSEndpoint{Id: endpoint.Id}
		if err := alone.ApplyACLPolicy(rule(hcsshim.In), rule(hcsshim.Out)); err != nil {
			return fmt.Errorf("failed to apply rules to endpoint %s: %w", endpoint.Name, err)
		}
	}
	for address := range addresses {
		return fmt.Errorf("%w %s", errUnknownEndpoint, address)
	}
	return nil
}

// The address of a pod that is not the node's own.
func podAddress(pod *unstructured.Unstructured) string {
	onHost, _, _ := unstructured.NestedBool(pod.Object, "spec", "hostNetwork")
	phase := text(pod, "status", "phase")
	if onHost || phase == "Succeeded" || phase == "Failed" {
		return ""
	}
	return text(pod, "status", "podIP")
}

const profileRule = "allow by profile"

func rule(direction hcsshim.DirectionType) *hcsshim.ACLPolicy {
	return &hcsshim.ACLPolicy{
		Type: hcsshim.ACL, Id: profileRule, Protocol: 256, Action: hcsshim.Allow, Direction: direction,
		RuleType: hcsshim.Switch, Priority: 1000,
	}
}

func hasRules(policies []json.RawMessage) bool {
	for _, raw := range policies {
		policy := struct{ Id string }{}
		if json.Unmarshal(raw, &policy) == nil && policy.Id == profileRule {
			return true
		}
	}
	return false
}
