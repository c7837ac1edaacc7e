// Kubectl is Kubernetes' kubectl, linked unmodified from its Go modules. It is a binary of its own
// because tests start it thousands of times, and labkube takes nearly twice as long to start.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		os.Exit(1) // kubectl has said why
	}
}
