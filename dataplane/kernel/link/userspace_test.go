//go:build linux

package link

import (
	"os"
	"testing"

	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// What a node lacks for WireGuard is named.
func TestUserspaceMissing(t *testing.T) {
	ns := nstest.New(t, "node")
	path := os.Getenv("PATH")
	t.Setenv("PATH", "/nonexistent")
	require.EqualError(t, userspaceMissing(), "the wireguard kernel module, or wireguard-go in the image")
	t.Setenv("PATH", path)
	if WireGuardEngine().Name == userspace {
		require.NoError(t, userspaceMissing())
		ns.Private("/dev/net")
		var err error
		ns.Do(func() { err = userspaceMissing() })
		require.ErrorContains(t, err, "the wireguard kernel module, or /dev/net/tun for wireguard-go")
	}
}
