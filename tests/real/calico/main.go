// Command calico stands in for Calico's own Windows programs, which come only in a release: calico-node.exe with Go
// flags up to v3.32, calico.exe with sub-commands from v3.33 on, and the CNI and IPAM plugins, by the name it is started
// with. It takes the real command lines, and refuses others as Go's parsers do. It asks HNS through hcsshim and the
// cluster through client-go, in the order in which Calico's own programs ask.
//
// What it does otherwise than the real ones: policies are not computed (pods get what an empty cluster gives them), BGP
// is not spoken, forwarding of adapters is not set (Calico calls PowerShell), and the contents of etcd are not read.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

func main() {
	name := strings.ToLower(filepath.Base(os.Args[0]))
	if own, err := os.Executable(); err == nil {
		name = strings.ToLower(filepath.Base(own))
	}
	args := os.Args[1:]
	switch {
	case len(args) == 1 && args[0] == "--for-ever":
		forEver()
	case os.Getenv("CNI_COMMAND") != "":
		os.Exit(plugin(name))
	case name == "calico-node.exe":
		os.Exit(nodeBinary(args))
	default:
		os.Exit(oneBinary(args))
	}
}

// calico-node.exe -startup -complete-startup, -felix, -confd -confd-confdir=DIR, -v
func nodeBinary(args []string) int {
	var isStartup, complete, isFelix, isConfd bool
	dir := ""
	for _, arg := range args {
		// Go accepts one dash or two.
		flag := arg
		if strings.HasPrefix(flag, "--") {
			flag = flag[1:]
		}
		value, hasDir := strings.CutPrefix(flag, "-confd-confdir=")
		switch {
		case flag == "-startup":
			isStartup = true
		case flag == "-complete-startup":
			complete = true
		case flag == "-felix":
			isFelix = true
		case flag == "-confd":
			isConfd = true
		case hasDir:
			dir = value
		case flag == "-v":
			fmt.Println(release())
			return 0
		default:
			return unknown(arg)
		}
	}
	switch {
	case isStartup:
		return startup(complete)
	case isFelix:
		return felix()
	case isConfd:
		return confd(dir)
	}
	fmt.Fprintln(os.Stderr, "no valid options provided")
	return 1
}

// calico.exe component node startup --complete-startup, component felix, component confd --confdir=DIR, version
func oneBinary(args []string) int {
	line := strings.Join(args, " ")
	dir, isConfd := strings.CutPrefix(line, "component confd --confdir=")
	switch {
	case line == "version":
		fmt.Println(release())
		return 0
	case line == "component node startup":
		return startup(false)
	case line == "component node startup --complete-startup":
		return startup(true)
	case line == "component felix":
		return felix()
	case isConfd:
		return confd(dir)
	}
	return unknown(line)
}

func unknown(what string) int {
	fmt.Fprintf(os.Stderr, "flag provided but not defined: %s\n", what)
	return 2
}

// The release, which a test appends to the program's file: calico-version=v1.2.3;
func release() string {
	const none = "v0.0.0-standin"
	own, err := os.Executable()
	if err != nil {
		return none
	}
	file, err := os.Open(own)
	if err != nil {
		return none
	}
	defer file.Close()
	tail := make([]byte, 64)
	about, err := file.Stat()
	if err != nil {
		return none
	}
	if _, err := file.ReadAt(tail, about.Size()-int64(len(tail))); err != nil {
		return none
	}
	_, said, marked := strings.Cut(string(tail), "calico-version=")
	version, _, ended := strings.Cut(said, ";")
	if !marked || !ended {
		return none
	}
	return version
}

func confd(dir string) int {
	templates := filepath.Join(dir, "conf.d")
	if _, err := os.Stat(templates); err != nil {
		logf("FATAL", "no %s", templates)
		return 1
	}
	// In its working folder, as in confd's own configuration.
	for _, name := range []string{"peerings.ps1", "blocks.ps1"} {
		if err := os.WriteFile(name, []byte("# rendered\n"), 0o644); err != nil {
			logf("ERROR", "%v", err)
		}
	}
	told := started("confd")
	announce("confd")
	return serve("confd", told)
}

var (
	// Where lines that are no errors go.
	logTo = os.Stdout
	// One line at a time.
	logging sync.Mutex
)

// A line as Calico's programs write it, to stderr for errors.
func logf(level, format string, values ...any) {
	logging.Lock()
	defer logging.Unlock()
	out := logTo
	if level == "ERROR" || level == "FATAL" {
		out = os.Stderr
	}
	fmt.Fprintf(out, "%s [%s][%d] %s\n", time.Now().Format("2006-01-02 15:04:05.000"), level, os.Getpid(),
		fmt.Sprintf(format, values...))
}
