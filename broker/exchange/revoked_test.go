package exchange_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kubetest"
)

// A cluster that is revoked on the broker is gone from the others at once, although its own gateway
// goes on: it has no rights any more, and nobody accepts what it has signed.
func TestHostileRevokedCluster(t *testing.T) {
	server := kubetest.Shared(t)
	d := brokertest.Deploy(t, server)
	gate := kubetest.NewGate(t, server)
	east := newSite(t, d, gate, "east")
	west := newSite(t, d, gate, "west")
	for _, s := range []*site{east, west} {
		s.start()
		s.create(cluster(s.ns, s.id))
		s.create(endpoint(s.ns, s.id, "10-0-0-1"))
	}
	east.eventually("east", "west", eastCable, westCable)

	require.NoError(t,
		broker.Revoke(t.Context(), d.Admin, d.NS, []string{"default"}, "west", brokertest.Administrator(), time.Now()))
	revoked := time.Now()
	east.eventually("east", eastCable)
	t.Logf("the others have no copies %s after the command", time.Since(revoked))
	west.eventuallyHealthy(false)
	require.Eventually(t, func() bool {
		memory := exchange.NewMemory(east.ns)
		err := east.client.Get(t.Context(), client.ObjectKeyFromObject(memory), memory)
		return err == nil && strings.Contains(memory.Data["memory.json"], `"revoked":`)
	}, patience, 10*time.Millisecond, "it has seen the revocation: a broker can withhold one that it has not seen")

	t.Log("somebody with its key and with rights on the broker publishes for it")
	later := time.Now().UnixMilli() + 1000
	require.NoError(t, d.Admin.Delete(t.Context(), cluster(d.NS, "west")))
	require.NoError(t, d.Admin.Create(t.Context(), brokertest.SignAt(cluster(d.NS, "west"), "", later)))
	require.NoError(t, d.Admin.Create(t.Context(), brokertest.SignAt(endpoint(d.NS, "west", "10-0-0-1"), "", later)))
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(texts(east.ex.Status().Refused), "\n"),
			"the grant of cluster west is revoked")
	}, patience, 10*time.Millisecond)
	require.Equal(t, []string{"east", eastCable}, east.names())
	east.stop()
	west.stop()
}

// A cluster that has left is gone from the others, and stays so, although its gateway still runs,
// and although somebody with its key and with rights on the broker publishes for it.
func TestHostileClusterThatHasLeft(t *testing.T) {
	server := kubetest.Shared(t)
	d := brokertest.Deploy(t, server)
	gate := kubetest.NewGate(t, server)
	east := newSite(t, d, gate, "east")
	west := newSite(t, d, gate, "west")
	for _, s := range []*site{east, west} {
		s.start()
		s.create(cluster(s.ns, s.id))
		s.create(endpoint(s.ns, s.id, "10-0-0-1"))
	}
	east.eventually("east", "west", eastCable, westCable)
	west.eventually("east", "west", eastCable, westCable)

	leaving, err := brokertest.Key("west").SignLeaving(brokertest.Identity("west").Grant, time.Now().UnixMilli())
	require.NoError(t, err)
	without, _, err := broker.Leave(t.Context(), d.Admin, d.NS, []string{"default"}, "west", leaving)
	require.NoError(t, err)
	require.Empty(t, without)
	east.eventually("east", eastCable)
	west.create(endpoint(west.ns, "west", "10-0-0-2"))
	time.Sleep(time.Second) // several passes
	require.NoError(
		t,
		broker.RemoveMember(t.Context(), d.Admin, d.NS, []string{"default"}, "west",
			brokertest.Administrator().Public()),
	)
	c := cluster(d.NS, "west")
	require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKeyFromObject(c), c))
	require.True(t, exchange.IsRemoved(c), "the gateway has undone it")
	require.Eventually(t, func() bool {
		memory := exchange.NewMemory(east.ns)
		err := east.client.Get(t.Context(), client.ObjectKeyFromObject(memory), memory)
		return err == nil && strings.Contains(memory.Data["memory.json"], `"left":`)
	}, patience, 10*time.Millisecond)

	later := time.Now().UnixMilli() + 1000
	require.NoError(t, d.Admin.Delete(t.Context(), c))
	require.NoError(t, d.Admin.Create(t.Context(), brokertest.SignAt(cluster(d.NS, "west"), "", later)))
	require.NoError(t, d.Admin.Create(t.Context(), brokertest.SignAt(endpoint(d.NS, "west", "10-0-0-1"), "", later)))
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(texts(east.ex.Status().Refused), "\n"), "cluster west has left")
	}, patience, 10*time.Millisecond)
	require.Equal(t, []string{"east", eastCable}, east.names())
	east.stop()
	west.stop()
}
