package mesh_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

func TestRTT(t *testing.T) {
	var r role.RTT
	require.Nil(t, r.Reported())
	for _, ms := range []int{2, 4, 4, 4, 5, 5, 7, 9} {
		r.Add(time.Duration(ms) * time.Millisecond)
	}
	s := r.Reported()
	require.Equal(t, submarinerv1.LatencyRTT{Last: "9ms", Min: "2ms", Average: "5ms", Max: "9ms", StdDev: "2ms"}, *s)
}
