package exchange_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
)

// A cluster that is in a clusterset comes into another one. It publishes the same signatures in
// both, so that others, which have seen the later ones in the clusterset that they leave again,
// accept what is in the other one.
func TestOneSignatureInAllClusterSets(t *testing.T) {
	side := func(objects ...client.Object) map[string]client.Object {
		out := map[string]client.Object{}
		for _, o := range objects {
			out[id(o)] = o
		}
		return out
	}
	own := func() []client.Object {
		return []client.Object{cluster("x", "east"), endpoint("x", "east", "10-0-0-1")}
	}
	at := now
	sync := func(w *world, id string) []exchange.Refusal {
		s := w.snapshot(id)
		s.Identity = brokertest.Identity(id)
		s.Now = at
		writes, refused, _ := exchange.Plan(exchange.Kinds(), s)
		w.apply(t, writes)
		return refused
	}
	east := &world{side(), map[string]map[string]client.Object{"default": side()}}
	for _, o := range own() {
		o = unlabelled(o)
		east.local[id(o)] = o
	}
	sync(east, "east")
	at = at.Add(time.Minute)
	removal, err := brokertest.Administrator().SignRevocation(
		trust.Revocation{Cluster: "east", Set: "lab", Serial: brokertest.Sequence - 1})
	require.NoError(t, err)
	east.sets["lab"] = side(exchange.Revoked("submariner-k8s-broker-lab", "east", removal)) // it was in it before
	// in the second it has seen what it has written in the first
	for range 2 {
		sync(east, "east")
	}
	for _, o := range own() {
		require.GreaterOrEqual(t, sequence(t, east.sets["lab"][id(o)]), at.UnixMilli(),
			"%s may have been deleted there", id(o))
	}
	west := &world{side(), map[string]map[string]client.Object{}}
	for name, objects := range east.sets {
		west.sets[name] = side(memberOf("submariner-k8s-broker-"+name, "west"))
		for _, o := range objects {
			west.sets[name][id(o)] = o.DeepCopyObject().(client.Object)
		}
	}
	require.Empty(t, texts(sync(west, "west")))
	delete(west.sets, "lab")
	require.Empty(t, texts(sync(west, "west")))
	for _, o := range own() {
		require.Equal(t, "default", west.local[id(o)].GetAnnotations()[submarinerv1.ClusterSetsAnnotation], id(o))
		require.Equal(t, east.sets["default"][id(o)].GetAnnotations()[submarinerv1.SignatureAnnotation],
			west.local[id(o)].GetAnnotations()[submarinerv1.SignatureAnnotation])
	}
}

func sequence(t *testing.T, o client.Object) int64 {
	t.Helper()
	s, err := trust.ReadStatement(o.GetAnnotations()[submarinerv1.SignatureAnnotation])
	require.NoError(t, err)
	return s.Sequence
}
