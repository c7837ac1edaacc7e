// Labkube is Kubernetes in one binary: a control plane in one process, kubelet, kube-proxy,
// containerd and ctr, linked unmodified from their Go modules. It knows nothing of the lab: command
// lab starts it, with what it should be in its first argument or in its own name (bin/ctr is a link
// to it).
//
// It is a binary of its own because it is 160 MB and takes minutes to compile cold; command lab is
// small and quick to change.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	commands := map[string]func(args []string) error{
		"control-plane": runControlPlane,
		"kubelet":       runKubelet,
		"kube-proxy":    runKubeProxy,
		"containerd":    runContainerd,
		"ctr":           runCtr,
	}
	args := os.Args
	if _, ok := commands[filepath.Base(args[0])]; !ok {
		args = args[1:]
	}
	if len(args) > 0 {
		if run, ok := commands[filepath.Base(args[0])]; ok {
			if err := run(args[1:]); err != nil {
				fmt.Fprintf(os.Stderr, "labkube %s: %v\n", filepath.Base(args[0]), err)
				os.Exit(1)
			}
			return
		}
	}
	var names []string
	for name := range commands {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "usage: labkube %s ...\n", strings.Join(names, "|"))
	os.Exit(2)
}
