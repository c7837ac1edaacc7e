package cmd

import (
	"os"
	"testing"
)

// TestMain runs the tests without waiting for gateways, as none work behind their API servers. Tests
// of waiting unset the variable.
func TestMain(m *testing.M) {
	if err := os.Setenv("SUBCTL_WAIT", "false"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
