package look

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
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
