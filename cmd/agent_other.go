//go:build !linux

package cmd

import (
	"errors"
	"runtime"

	"subctl/agent"
)

func newKernel() (agent.Kernel, error) {
	return agent.Kernel{}, errors.New("agents run on Linux nodes only, not on " + runtime.GOOS)
}
