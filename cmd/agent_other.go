//go:build !linux

package cmd

import (
	"context"
	"errors"
	"net"
	"runtime"

	"subctl/agent"
	cnf "subctl/sdewan/cnf/agent"
)

func newKernel() (agent.Kernel, error) {
	return agent.Kernel{}, errors.New("agents run on Linux nodes only, not on " + runtime.GOOS)
}

func newCNFKernel() (cnf.Kernel, error) {
	return cnf.Kernel{}, errors.New("CNFs run on Linux only, not on " + runtime.GOOS)
}

func listenCNF(context.Context, string) (net.Listener, error) {
	return nil, errors.New("CNFs run on Linux only, not on " + runtime.GOOS)
}
