package parts

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	clusternetworks "subctl/cluster/networks"
	"subctl/internal/wake"
)

// Only the speaker looks for networks; a failure changes nothing.
func TestNetworkWatch(t *testing.T) {
	asked := 0
	triggered := 0
	answer := clusternetworks.Found{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.203.0.0/24")}, From: "the API"}
	var failure error
	w := &networkWatch{log: slog.New(slog.DiscardHandler), trigger: func() { triggered++ }, wake: wake.NewSignal()}
	w.find = func(context.Context) (pods, services clusternetworks.Found, err error) {
		asked++
		return clusternetworks.Found{}, answer, failure
	}
	observe := func(speaker bool) (s role.Snapshot) {
		s.Standing.Speaker = speaker
		require.NoError(t, w.Observe(&s))
		return s
	}
	observe(false)
	w.refresh(t.Context())
	require.Zero(t, asked)

	require.Empty(t, observe(true).FoundServices)
	w.refresh(t.Context())
	require.Equal(t, role.FoundNetworks{CIDRs: answer.CIDRs, From: "the API"}, observe(true).FoundServices)
	require.Equal(t, 1, triggered)

	w.refresh(t.Context())
	failure = errors.New("the API server is away")
	answer = clusternetworks.Found{}
	w.refresh(t.Context())
	require.NotEmpty(t, observe(true).FoundServices)
	require.Equal(t, 1, triggered)
}
