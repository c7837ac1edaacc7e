package look

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/policy/catalog"
)

func TestStale(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		0:                 "",
		14 * time.Second:  "",
		-14 * time.Second: "",
		15 * time.Second:  "not updated since 2026-03-01T11:59:45Z",
		-10 * time.Minute: "not known to be up to date: its report is of the future, 2026-03-01T12:10:00Z, as the clock of its node is wrong",
	} {
		var gw submarinerv1.Gateway
		gw.SetReportedAt(now.Add(-ago))
		require.Equal(t, want, Stale(gw, now), ago)
	}
	require.NotEmpty(t, Stale(submarinerv1.Gateway{}, now))
}

// What a gateway reports counts as long as only its clock is wrong.
func TestAhead(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	gw := submarinerv1.Gateway{
		Status: submarinerv1.GatewayStatus{
			StatusFailure: "port 4500 is taken",
			Connections:   []submarinerv1.Connection{{Status: submarinerv1.Connected}},
		},
	}
	uses := func() []catalog.Use { return Site{Now: now, Gateways: []submarinerv1.Gateway{gw}}.uses() }
	gw.SetReportedAt(now.Add(14 * time.Second))
	require.False(t, Ahead(gw, now))
	gw.SetReportedAt(now.Add(time.Minute))
	const why = "not known to be up to date: its report is of the future, 2026-03-01T12:01:00Z, as the clock of its node is wrong"
	require.True(t, Ahead(gw, now))
	require.Equal(t, why+"; port 4500 is taken", GatewayFault(gw, now))
	require.Equal(t, []string{"connected", why}, []string{uses()[0].Status, uses()[0].Message})
	gw.SetReportedAt(now.Add(-time.Minute))
	require.False(t, Ahead(gw, now))
	require.Equal(t, "not updated since 2026-03-01T11:59:00Z", GatewayFault(gw, now))
	require.Equal(t, "error", uses()[0].Status)
}
