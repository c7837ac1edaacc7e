package broker_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker/brokertest"
	"subctl/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// patience and tick are how long tests wait, and how often they look.
const patience, tick = brokertest.Patience, brokertest.Tick

var cluster, endpoint, shared = brokertest.Cluster, brokertest.Endpoint, brokertest.Policy

// deployed is a broker in a namespace of the test's own.
type deployed struct{ *brokertest.Broker }

// deploy makes a broker with the clustersets default and sets, whose members may create objects.
func deploy(t *testing.T, server *kubetest.Server, sets ...string) *deployed {
	t.Helper()
	d := deployReal(t, server, sets...)
	d.LetCreate(t)
	return d
}

// deployReal makes a broker whose members have the rights that they have.
func deployReal(t *testing.T, server *kubetest.Server, sets ...string) *deployed {
	t.Helper()
	return &deployed{brokertest.Deploy(t, server, sets...)}
}

// countNamed counts the objects of a list that are named after a cluster, or in its slots.
func countNamed(t *testing.T, list client.ObjectList, id string) int {
	t.Helper()
	n := 0
	require.NoError(t, meta.EachListItem(list, func(o runtime.Object) error {
		name := o.(client.Object).GetName()
		if name == id || strings.HasPrefix(name, "cluster-"+id) || strings.HasPrefix(name, id+".") {
			n++
		}
		return nil
	}))
	return n
}
