// Command runtime is a container runtime for the kubelets of the tests: it serves the CRI by Kubernetes' own fake, which
// keeps pods and containers in memory and runs nothing. It ends when its stdin does.
//
//	runtime SOCKET            on a socket, for kubelets here
//	runtime SOCKET ADDRESS    there, and on a TCP address, for kubelets that cannot dial a socket
package main

import (
	"fmt"
	"io"
	"net"
	"os"

	"k8s.io/cri-client/pkg/fake"
)

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "runtime SOCKET [ADDRESS]")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(socket string, addresses []string) error {
	runtime := fake.NewFakeRemoteRuntime()
	if err := runtime.Start("unix://" + socket); err != nil {
		return err
	}
	defer runtime.Stop()
	for _, address := range addresses {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		go func() {
			for {
				near, err := listener.Accept()
				if err != nil {
					return
				}
				go forward(near, socket)
			}
		}()
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func forward(near net.Conn, socket string) {
	defer near.Close()
	far, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer far.Close()
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	}()
	_, _ = io.Copy(near, far)
}
