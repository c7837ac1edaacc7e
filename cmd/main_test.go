package cmd

import (
	"os"
	"testing"
)

// TestMain runs the tests without waiting for gateways, as none work behind their API servers, and
// without the network. Tests of waiting unset the variable.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"SUBCTL_WAIT": "false",
		// Commands that write a join file try its address. No test connects to the addresses of
		// examples, such as hub.example.com: their proxy does not answer. Loopback addresses are
		// reached without it.
		"HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": "",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
