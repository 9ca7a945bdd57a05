// Command hns asks the Host Networking Service all that Calico, kubelet and kube-proxy ask it, through hcsshim, the
// client that they link, and prints a row of JSON for each question. It ends with 1 if an answer is not as real HNS
// gives it, and with 2 if it cannot begin.
//
// It makes a network and deletes it again: on a machine whose networking matters, do not run it.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/Microsoft/hcsshim"
	"github.com/sirupsen/logrus"
)

// What is asked, in the order of a node's life.
var steps = []func(*interview){
	(*interview).versions,
	(*interview).firstLook,
	(*interview).startup,
	(*interview).startupByV2,
	(*interview).hostEndpoint,
	(*interview).felixRoutes,
	(*interview).podAdded,
	(*interview).felixRules,
	(*interview).kubelet,
	(*interview).kubeProxyFinds,
	(*interview).kubeProxyBalances,
	(*interview).podDeleted,
	(*interview).refusals,
	(*interview).otherObjects,
	(*interview).end,
}

func main() {
	logrus.SetOutput(io.Discard)
	if found, err := hcsshim.GetHNSNetworkByName(networkName); err == nil {
		fmt.Fprintf(os.Stderr, "there is a network %s already (%s): this would change it\n", networkName, found.Id)
		os.Exit(2)
	}
	asked := &interview{}
	for _, step := range steps {
		asked.whole(step)
	}
	printed := json.NewEncoder(os.Stdout)
	printed.SetEscapeHTML(false)
	failed := false
	for _, row := range asked.rows {
		if err := printed.Encode(row); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		failed = failed || !row.OK
	}
	if failed {
		os.Exit(1)
	}
}
