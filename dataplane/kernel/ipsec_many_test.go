//go:build linux

package kernel

import (
	"fmt"
	"testing"
	"time"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// Connections are removed without reading all others for each of them, which would take seconds
// with hundreds. What is measured is compared with what the same machine takes for reading them.
func TestIPsecManyRemotes(t *testing.T) {
	a, _ := ipsecPair(t, nil)
	a.sync()
	const many, gone = 500, 100
	for i := range many {
		require.NoError(t, a.h.charon.LoadRemote(dataplane.IKERemote{
			Name:        fmt.Sprint("edge-", i),
			RemoteID:    fmt.Sprintf("edge-%d.test", i),
			PSK:         []byte("sesame"),
			IKE:         []string{"aes256gcm16-prfsha384-x25519"},
			IKELifetime: time.Hour,
			ESPLifetime: time.Hour,
			DPDDelay:    time.Minute,
			Children: []dataplane.IKEChild{
				{
					Name:     "a",
					Mode:     dataplane.TunnelMode,
					Start:    dataplane.StartNever,
					ESP:      []string{"aes128gcm16"},
					LocalTS:  a.tunnel().LocalTS,
					RemoteTS: a.tunnel().RemoteTS,
				},
			},
		}, 0, 0, false))
	}
	begun := time.Now()
	for range 10 {
		conns, err := a.h.charon.Connections()
		require.NoError(t, err)
		require.Len(t, conns, many+1)
	}
	reading := time.Since(begun) / 10
	begun = time.Now()
	for i := range gone {
		require.NoError(t, a.h.charon.UnloadRemote(fmt.Sprint("edge-", i), ""))
	}
	took := time.Since(begun)
	t.Logf("to read %d connections takes %v, to remove %d of them %v", many, reading, gone, took)
	conns, err := a.h.charon.Connections()
	require.NoError(t, err)
	require.Len(t, conns, many-gone+1, "those that are left, and the cable")
	require.Less(t, took, gone/2*reading)
}
