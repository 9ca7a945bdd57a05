package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// The Kubernetes datastore, with the group of Calico's resources.
type cluster struct {
	client dynamic.Interface
	calico schema.GroupVersion
}

// Opens what a kubeconfig names. group is CALICO_API_GROUP; without it the v3 group is used if it is served and the v1
// one is not.
func openCluster(kubeconfig, group string) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	// As libcalico-go sets them.
	config.QPS, config.Burst = 40, 40
	config.WarningHandler = noWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	v1 := schema.GroupVersion{Group: "crd.projectcalico.org", Version: "v1"}
	v3 := schema.GroupVersion{Group: "projectcalico.org", Version: "v3"}
	found := &cluster{client, v1}
	if group == v3.String() {
		found.calico = v3
	} else if group == "" {
		// A group that is not served is a 404, also where one object is asked for.
		_, err := found.list("clusterinformations")
		if apierrors.IsNotFound(err) {
			found.calico = v3
			_, err = found.list("clusterinformations")
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

type noWarnings struct{}

func (noWarnings) HandleWarningHeader(int, string, string) {}

func (c *cluster) isV3() bool {
	return c.calico.Version == "v3"
}

func (c *cluster) kind(plural string) dynamic.ResourceInterface {
	return c.client.Resource(c.calico.WithResource(plural))
}

func (c *cluster) core(plural, namespace string) dynamic.ResourceInterface {
	return c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: plural}).Namespace(namespace)
}

func (c *cluster) list(plural string) ([]unstructured.Unstructured, error) {
	found, err := c.kind(plural).List(context.TODO(), metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", plural, err)
	}
	return found.Items, nil
}

func (c *cluster) create(plural, kind, name string, spec map[string]any) error {
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "spec": spec}}
	object.SetGroupVersionKind(c.calico.WithKind(kind))
	_, err := c.kind(plural).Create(context.TODO(), object, metav1.CreateOptions{})
	return err
}

func (c *cluster) node(name string) (*unstructured.Unstructured, error) {
	return c.core("nodes", "").Get(context.TODO(), name, metav1.GetOptions{})
}

func (c *cluster) patchStatus(kind types.PatchType, plural, namespace, name string, patch any) error {
	bytes, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = c.core(plural, namespace).Patch(context.TODO(), name, kind, bytes, metav1.PatchOptions{}, "status")
	return err
}

// Takes annotations of Calico's into the Node, if they are not there: an update, which the server refuses if somebody
// else has changed the Node meanwhile.
func (c *cluster) annotateNode(name string, annotations map[string]string) error {
	node, err := c.node(name)
	if err != nil {
		return err
	}
	all, changed := node.GetAnnotations(), false
	if all == nil {
		all = map[string]string{}
	}
	for key, value := range annotations {
		changed = changed || all[key] != value
		all[key] = value
	}
	if !changed {
		return nil
	}
	node.SetAnnotations(all)
	_, err = c.core("nodes", "").UpdateStatus(context.TODO(), node, metav1.UpdateOptions{})
	return err
}

// Says on the Node that it has its network.
func (c *cluster) setNetworkAvailable(name string) error {
	now := time.Now().UTC().Format(time.RFC3339)
	condition := map[string]any{
		"type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp",
		"message": "Calico is running on this node", "lastTransitionTime": now, "lastHeartbeatTime": now,
	}
	patch := map[string]any{"status": map[string]any{"conditions": []any{condition}}}
	return c.patchStatus(types.StrategicMergePatchType, "nodes", "", name, patch)
}

// The datastore that the environment names. With etcd there is none to read here: its members are asked for a
// connection.
func datastore() (*cluster, error) {
	kind := os.Getenv("CALICO_DATASTORE_TYPE")
	if kind == "" {
		kind = os.Getenv("DATASTORE_TYPE")
	}
	if kind == "etcdv3" {
		return nil, errors.New("this stand-in does not read etcd")
	}
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		return nil, errors.New("no KUBECONFIG")
	}
	return openCluster(kubeconfig, os.Getenv("CALICO_API_GROUP"))
}

// A field of an object, as text; empty if it is not there.
func text(object *unstructured.Unstructured, path ...string) string {
	found, _, _ := unstructured.NestedString(object.Object, path...)
	return found
}

// An object's spec, to be changed and set again.
func spec(object *unstructured.Unstructured) map[string]any {
	found, _, _ := unstructured.NestedMap(object.Object, "spec")
	return found
}

// The n-th address of a network.
func nth(network *net.IPNet, n int) net.IP {
	address := append(net.IP{}, network.IP.To4()...)
	address[3] += byte(n)
	return address
}
