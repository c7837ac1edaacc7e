package mesh

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/dataplane"
)

// A detour that the kernel refuses is reported. It is no failure of a cable, nor of the node.
func TestDetourRefused(t *testing.T) {
	detour := dataplane.Detour{Table: dataplane.CableTable, Dst: netip.MustParsePrefix("10.1.0.0/16"), Hop: 1}
	p := Plan{State: dataplane.State{detour.Key(): detour}, Traffic: Traffic{Using: map[string]Using{"west": {}}}}
	why := &dataplane.Failure{Key: detour.Key(), Err: errors.New("refused")}
	o := p.Outcome(time.Now(), nil, &dataplane.DriftError{Failures: []*dataplane.Failure{why}, Affected: map[dataplane.Key][]*dataplane.Failure{why.Key: {why}}})
	require.True(t, o.Contained)
	require.Empty(t, o.Broken)
	cs := conditions(nil, p, o)
	require.Equal(t, ConditionSynced, cs[0].Type)
	require.Equal(t, metav1.ConditionFalse, cs[0].Status)
	require.Equal(t, "no detour through another gateway: refused", cs[0].Message)
}
