//go:build !linux

package cmd

import (
	"errors"
	"runtime"

	"subctl/agent"
)

func newKernel() (agent.Node, error) {
	return agent.Node{}, errors.New("agents run on Linux nodes only, not on " + runtime.GOOS)
}
