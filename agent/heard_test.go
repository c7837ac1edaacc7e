package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// The speaker deletes the Gateway of a gateway that is gone once it has not changed for a while. An
// agent that has just started does not know how old it is.
func TestGatewayThatDoesNotReport(t *testing.T) {
	w := gateway(t)
	gone := &submarinerv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "gone", Namespace: submarinerv1.OperatorNamespace},
	}
	require.NoError(t, w.Client.Create(t.Context(), gone))
	there := func() bool {
		return w.Client.Get(t.Context(), client.ObjectKeyFromObject(gone), &submarinerv1.Gateway{}) == nil
	}
	w.run(t)
	heard := w.heard["gone"]
	require.NotZero(t, heard)
	w.run(t)
	require.Equal(t, heard, w.heard["gone"])
	require.True(t, there())

	before := role.NewSnapshot("gw", gone)
	before.Now = time.Now().Add(-15 * time.Second)
	before.NoteReports(nil)
	next := w.restarted(t)
	next.run(t)
	require.True(t, there())
	next.heard = before.ReportTimes
	next.run(t)
	require.False(t, there())
}
