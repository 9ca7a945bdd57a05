package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Calico IPAM as far as a Windows host needs it: one block, and addresses of it.

// The handle of a block's first three addresses and its last one on a Windows host.
const reservedHandle = "windows-reserved-ipam-handle"

// The host's block: the one that it has, or the first free one of a pool.
func (c *cluster) ensureBlock(node string) (*net.IPNet, error) {
	plural := "ipamconfigs"
	if c.isV3() {
		plural = "ipamconfigurations"
	}
	config, err := c.kind(plural).Get(context.TODO(), "default", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	strict := false
	if config != nil {
		strict, _, _ = unstructured.NestedBool(config.Object, "spec", "strictAffinity")
	}
	if !strict {
		return nil, errors.New("global strict affinity should not be false for Windows node")
	}
	affinities, err := c.list("blockaffinities")
	if err != nil {
		return nil, err
	}
	blocks, err := c.list("ipamblocks")
	if err != nil {
		return nil, err
	}
	var taken []*net.IPNet
	there := map[string]bool{}
	for _, block := range blocks {
		there[text(&block, "spec", "cidr")] = true
		taken = appendNetwork(taken, &block)
	}
	for _, affinity := range affinities {
		// A text in the one group, a boolean in the other.
		deleted, _, _ := unstructured.NestedFieldNoCopy(affinity.Object, "spec", "deleted")
		if text(&affinity, "spec", "node") == node && text(&affinity, "spec", "state") == "confirmed" &&
			fmt.Sprint(deleted) != "true" {
			cidr := text(&affinity, "spec", "cidr")
			_, own, err := net.ParseCIDR(cidr)
			if err == nil && !there[cidr] {
				err = c.createBlock(node, own)
			}
			return own, err
		}
		taken = appendNetwork(taken, &affinity)
	}
	pools, err := c.list("ippools")
	if err != nil {
		return nil, err
	}
	free, err := freeBlock(pools, taken)
	if err != nil {
		return nil, err
	}
	return free, c.claim(node, free)
}

func appendNetwork(all []*net.IPNet, object *unstructured.Unstructured) []*net.IPNet {
	if _, network, err := net.ParseCIDR(text(object, "spec", "cidr")); err == nil {
		return append(all, network)
	}
	return all
}

// The first free block of a pool for all nodes.
func freeBlock(pools []unstructured.Unstructured, taken []*net.IPNet) (*net.IPNet, error) {
	usable := false
	for _, pool := range pools {
		_, network, err := net.ParseCIDR(text(&pool, "spec", "cidr"))
		disabled, _, _ := unstructured.NestedBool(pool.Object, "spec", "disabled")
		selector := text(&pool, "spec", "nodeSelector")
		if err != nil || network.IP.To4() == nil || disabled || selector != "" && selector != "all()" {
			continue
		}
		usable = true
		size, _, _ := unstructured.NestedInt64(pool.Object, "spec", "blockSize")
		if size == 0 {
			size = 26
		}
		block := &net.IPNet{IP: network.IP.To4(), Mask: net.CIDRMask(int(size), 32)}
		for ; network.Contains(block.IP); block = next(block) {
			if !overlaps(block, taken) {
				return block, nil
			}
		}
	}
	if usable {
		return nil, errors.New("no free IPAM block in any Calico pool")
	}
	return nil, errors.New("no configured Calico pools for this node")
}

func overlaps(block *net.IPNet, others []*net.IPNet) bool {
	for _, other := range others {
		if other.Contains(block.IP) || block.Contains(other.IP) {
			return true
		}
	}
	return false
}

// The block after this one.
func next(block *net.IPNet) *net.IPNet {
	address := append(net.IP{}, block.IP...)
	ones, _ := block.Mask.Size()
	for rest, at := 1<<(32-ones), 3; rest > 0 && at >= 0; at-- {
		rest += int(address[at])
		address[at] = byte(rest)
		rest >>= 8
	}
	return &net.IPNet{IP: address, Mask: block.Mask}
}

func (c *cluster) claim(node string, block *net.IPNet) error {
	var deleted any = "false"
	if c.isV3() {
		deleted = false
	}
	spec := map[string]any{
		"cidr": block.String(), "node": node, "state": "confirmed", "deleted": deleted, "type": "host",
	}
	if err := c.create("blockaffinities", "BlockAffinity", node+"-"+dashed(block), spec); err != nil {
		return fmt.Errorf("claim a block's affinity: %w", err)
	}
	return c.createBlock(node, block)
}

func (c *cluster) createBlock(node string, block *net.IPNet) error {
	ones, bits := block.Mask.Size()
	size := 1 << (bits - ones)
	allocations, unallocated := make([]any, size), []any{}
	for at := range size {
		if at < 3 || at == size-1 {
			allocations[at] = int64(0)
		} else {
			unallocated = append(unallocated, int64(at))
		}
	}
	spec := map[string]any{
		"cidr": block.String(), "affinity": "host:" + node, "strictAffinity": true, "deleted": false,
		"allocations": allocations, "unallocated": unallocated,
		"attributes": []any{map[string]any{
			"handle_id": reservedHandle, "secondary": map[string]any{"note": "windows host rsvd"},
		}},
	}
	if err := c.create("ipamblocks", "IPAMBlock", dashed(block), spec); err != nil {
		return fmt.Errorf("create a block: %w", err)
	}
	return nil
}

// A block's name: `192-168-20-64-26`.
func dashed(block *net.IPNet) string {
	return strings.NewReplacer(".", "-", "/", "-").Replace(block.String())
}

// Takes the next free address of the host's block for a pod.
func (c *cluster) allocate(block *net.IPNet, handle string, attributes map[string]any) (net.IP, error) {
	found, err := c.kind("ipamblocks").Get(context.TODO(), dashed(block), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	spec := spec(found)
	unallocated, _ := spec["unallocated"].([]any)
	allocations, _ := spec["allocations"].([]any)
	known, _ := spec["attributes"].([]any)
	if len(unallocated) == 0 {
		return nil, errors.New("cannot allocate new block due to per host block limit")
	}
	at, ok := unallocated[0].(int64)
	if !ok || int(at) >= len(allocations) {
		return nil, fmt.Errorf("block %s has no address %v", block, unallocated[0])
	}
	allocations[at] = int64(len(known))
	spec["allocations"], spec["unallocated"] = allocations, unallocated[1:]
	spec["attributes"] = append(known, map[string]any{"handle_id": handle, "secondary": attributes})
	found.Object["spec"] = spec
	if _, err := c.kind("ipamblocks").Update(context.TODO(), found, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	return nth(block, int(at)), nil
}

// Frees the addresses of a handle. Nothing there is as good.
func (c *cluster) release(handle string) error {
	blocks, err := c.list("ipamblocks")
	if err != nil {
		return err
	}
	for _, block := range blocks {
		spec := spec(&block)
		allocations, _ := spec["allocations"].([]any)
		unallocated, _ := spec["unallocated"].([]any)
		known, _ := spec["attributes"].([]any)
		changed := false
		for at, allocated := range allocations {
			index, ok := allocated.(int64)
			if !ok || int(index) >= len(known) {
				continue
			}
			if attribute, _ := known[index].(map[string]any); attribute["handle_id"] == handle {
				allocations[at], changed = nil, true
				unallocated = append(unallocated, int64(at))
			}
		}
		if !changed {
			continue
		}
		// The attribute stays, as it has an index; the real one moves the others.
		spec["allocations"], spec["unallocated"] = allocations, unallocated
		block.Object["spec"] = spec
		if _, err := c.kind("ipamblocks").Update(context.TODO(), &block, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
