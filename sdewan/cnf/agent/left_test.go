package agent

import (
	"testing"
	"time"

	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

func TestMemory(t *testing.T) {
	remote := func(name, subnet string) rest.Remote {
		return rest.Remote{
			Name:         name,
			Gateway:      "192.0.2.1",
			Auth:         "psk",
			PreSharedKey: "secret",
			LocalKey:     "secret",
			Connections:  []rest.Connection{{Name: "a", Type: "tunnel", RemoteSubnet: subnet}},
		}
	}
	var m memory
	start := time.Now()
	after := func(seconds int, stopped bool, remotes ...rest.Remote) (names []string) {
		t.Helper()
		c := rest.Config{Remotes: remotes}
		if stopped {
			c.Stopped = []string{"ipsec"}
		}
		for _, r := range m.note(c, start.Add(time.Duration(seconds)*time.Second), linger) {
			require.NotContains(t, r.PreSharedKey+r.LocalKey, "secret")
			names = append(names, r.Name+" "+r.Connections[0].RemoteSubnet)
		}
		return names
	}
	a := remote("a", "10.1.0.0/24")
	b := remote("b", "10.2.0.0/24")
	require.Empty(t, after(0, false, a, b))
	a.PreSharedKey = "other"
	require.Empty(t, after(1, false, a, b), "its networks are the same")
	require.Equal(t, []string{"b 10.2.0.0/24"}, after(2, false, a))
	require.Equal(t, 4*time.Second, m.next(start.Add(8*time.Second), resync))
	require.Equal(t, []string{"b 10.2.0.0/24", "a 10.1.0.0/24"}, after(5, false, remote("a", "10.3.0.0/24")),
		"its networks have changed")
	require.Equal(t, []string{"a 10.1.0.0/24"}, after(6, false, remote("a", "10.3.0.0/24"), b), "b is back")
	require.Equal(t, []string{"a 10.1.0.0/24"}, after(14, false, remote("a", "10.3.0.0/24"), b))
	require.Empty(t, after(15, false, remote("a", "10.3.0.0/24"), b))
	require.Equal(t, resync, m.next(start.Add(15*time.Second), resync))
	require.NotEmpty(t, after(16, false))
	require.Empty(t, after(17, true), "the service is stopped")
	require.Empty(t, after(18, false))
}
