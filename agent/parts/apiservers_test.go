package parts

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/wake"
)

// The addresses of API servers follow their names, and stay for a while, so that an answer with
// a part of them takes none away.
func TestAPIServers(t *testing.T) {
	names := map[string][]netip.Addr{}
	var failure error
	var listed []netip.Addr
	news := 0
	a := &apiServers{
		lookUp: func(_ context.Context, network, host string) ([]netip.Addr, error) {
			require.Equal(t, "ip", network)
			return names[host], failure
		},
		listed: func(context.Context) ([]netip.Addr, error) { return listed, failure },
		own:    "https://api.east.example:6443", log: slog.New(slog.DiscardHandler), trigger: func() { news++ },
		wake: wake.NewSignal(), seen: map[serverAddress]time.Time{},
	}
	sub := &v1alpha1.Submariner{
		Spec: v1alpha1.SubmarinerSpec{
			BrokerK8sApiServer: "hub.example:6443",
			ClusterCIDR:        "10.111.0.0/16",
			ServiceCIDR:        "10.101.0.0/16",
		},
	}
	observe := func() []submarinerv1.NeverRouted {
		t.Helper()
		s := role.NewSnapshot("gw", sub)
		require.NoError(t, a.Observe(&s))
		return s.Facts.NeverRouted
	}
	ip := netip.MustParseAddr
	now := time.Unix(1000, 0)
	s := role.NewSnapshot("gw", sub)
	require.ErrorIs(t, a.Observe(&s), ErrTooEarly)
	require.Len(t, a.wake, 1)

	names["api.east.example"] = []netip.Addr{
		ip("203.0.113.10"),
	}
	names["hub.example"] = []netip.Addr{
		ip("::ffff:203.0.113.20"),
		ip("127.0.0.1"),
	}
	listed = []netip.Addr{ip("192.0.2.10"), ip("10.101.0.1"), ip("2001:db8::1")}
	a.refresh(t.Context(), now)
	all := []submarinerv1.NeverRouted{
		{
			Network: "192.0.2.10/32",
			Reason:  ownServer,
		}, {Network: "203.0.113.10/32", Reason: ownServer}, {Network: "203.0.113.20/32", Reason: brokerServer},
	}
	require.Equal(t, all, observe(), "without our own Services, loopback and IPv6")
	require.Equal(t, 1, news)

	names["hub.example"] = []netip.Addr{ip("203.0.113.21")}
	a.refresh(t.Context(), now.Add(time.Minute))
	require.Equal(t, append(all, submarinerv1.NeverRouted{Network: "203.0.113.21/32", Reason: brokerServer}), observe())
	require.Equal(t, 2, news)
	a.refresh(t.Context(), now.Add(addressesKept))
	require.Equal(t, append(all[:2:2], submarinerv1.NeverRouted{Network: "203.0.113.21/32", Reason: brokerServer}),
		observe())
	require.Equal(t, 3, news)

	failure = errors.New("no answer")
	names = nil
	listed = nil
	a.refresh(t.Context(), now.Add(time.Hour))
	require.Len(t, observe(), 3, "what is known stays")
	require.Equal(t, 3, news)

	failure = nil
	for i := range 1000 {
		listed = append(listed, netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}))
	}
	a.refresh(t.Context(), now.Add(2*time.Hour))
	require.LessOrEqual(t, len(observe()), maxServerAddresses)
}
