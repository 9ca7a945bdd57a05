// Command cri does for one pod what containerd does on Windows: it makes the pod's network namespace in HNS, and runs
// the CNI plugins of C:\Program Files\containerd\cni on it, by the library that containerd uses.
//
//	cri.exe add SANDBOX NAMESPACE/POD    prints the plugins' result
//	cri.exe del SANDBOX NAMESPACE/POD
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/Microsoft/hcsshim/hcn"
	"github.com/containernetworking/cni/libcni"
)

const (
	folder = `C:\Program Files\containerd\cni`
	kept   = `C:\test\cri`
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("cri.exe add|del SANDBOX NAMESPACE/POD")
	}
	sandbox := args[1]
	namespace, pod, _ := strings.Cut(args[2], "/")
	list, err := networks()
	if err != nil {
		return err
	}
	plugins := libcni.NewCNIConfigWithCacheDir([]string{filepath.Join(folder, "bin")}, kept, nil)
	of := &libcni.RuntimeConf{
		ContainerID: sandbox, IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", namespace}, {"K8S_POD_NAME", pod},
			{"K8S_POD_INFRA_CONTAINER_ID", sandbox},
		},
	}
	// As containerd's metadata does, a file says which namespace is the sandbox's.
	said := filepath.Join(kept, sandbox)
	if args[0] == "add" {
		made, err := hcn.NewNamespace(hcn.NamespaceTypeHostDefault).Create()
		if err != nil {
			return err
		}
		of.NetNS = made.Id
		if err := errors.Join(os.MkdirAll(kept, 0o755), os.WriteFile(said, []byte(made.Id), 0o644)); err != nil {
			return err
		}
		result, err := plugins.AddNetworkList(context.Background(), list, of)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(result)
	}
	id, err := os.ReadFile(said)
	if err != nil {
		return err
	}
	of.NetNS = string(id)
	if err := plugins.DelNetworkList(context.Background(), list, of); err != nil {
		return err
	}
	made, err := hcn.GetNamespaceByID(of.NetNS)
	if err != nil {
		return err
	}
	return errors.Join(made.Delete(), os.Remove(said))
}

// The first configuration in the folder.
func networks() (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(filepath.Join(folder, "conf"), []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no network config found")
	}
	if strings.HasSuffix(files[0], ".conflist") {
		return libcni.ConfListFromFile(files[0])
	}
	one, err := libcni.ConfFromFile(files[0])
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(one)
}
