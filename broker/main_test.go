package broker_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// patience is how long tests wait for what takes well under a second on an idle
// machine.
const patience = 30 * time.Second

// tick is how often they look.
const tick = 20 * time.Millisecond

// deployed is a broker in a namespace of the test's own.
type deployed struct {
	server *kubetest.Server
	admin  client.Client
	ns     string
}

// deploy makes a broker with the clustersets default and sets.
func deploy(t *testing.T, server *kubetest.Server, sets ...string) *deployed {
	t.Helper()
	d := &deployed{server: server, admin: server.Client(t), ns: server.Namespace(t, "broker")}
	objects, err := broker.Render(broker.Options{Namespace: d.ns, Sets: sets, Components: []string{broker.Connectivity}, CableDriver: "vxlan"})
	require.NoError(t, err)
	require.NoError(t, broker.Preflight(t.Context(), d.admin, objects))
	require.NoError(t, broker.Apply(t.Context(), d.admin, objects))
	t.Cleanup(func() { removeClusterScoped(t, d) })
	d.awaitPolicies(t)
	return d
}

// awaitPolicies waits until the API server has read the new policies.
func (d *deployed) awaitPolicies(t *testing.T) {
	t.Helper()
	probe := d.join(t, "probe", "uid-probe")
	require.Eventually(t, func() bool {
		err := probe.Create(t.Context(), cluster(d.ns, "foreign"), client.DryRunAll)
		return err != nil
	}, patience, tick)
	require.NoError(t, broker.RemoveMember(t.Context(), d.admin, []string{d.ns}, "probe"))
	joiner, _ := d.joiner(t)
	require.Eventually(t, func() bool {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: d.ns}}
		return joiner.Create(t.Context(), sa, client.DryRunAll) != nil
	}, patience, tick)
}

// join makes a member and returns its client.
func (d *deployed) join(t *testing.T, id, uid string) client.Client {
	t.Helper()
	cred, err := broker.AddMember(t.Context(), d.admin, d.ns, id, uid)
	require.NoError(t, err)
	return kubetest.Client(t, d.server.As(string([]byte(cred.Token))))
}

func cluster(ns, id string) *submarinerv1.Cluster {
	return &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: ns, Labels: map[string]string{submarinerv1.ClusterIDLabel: id}},
		Spec: submarinerv1.ClusterSpec{
			ClusterID: id, ColorCodes: []string{"blue"}, GlobalCIDR: []string{},
			ServiceCIDR: []string{"10.1.0.0/16"}, ClusterCIDR: []string{"10.2.0.0/16"},
		},
	}
}

func endpoint(ns, id, address string) *submarinerv1.Endpoint {
	cable := "submariner-cable-" + id + "-" + address
	return &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: id + "-" + cable, Namespace: ns, Labels: map[string]string{submarinerv1.ClusterIDLabel: id}},
		Spec: submarinerv1.EndpointSpec{
			ClusterID: id, CableName: cable, Hostname: "gw", Subnets: []string{"10.2.0.0/16"},
			PrivateIP: "192.0.2.1", Backend: "vxlan", BackendConfig: map[string]string{"udp-port": "4500"},
		},
	}
}

// countNamed counts the objects of a list that are named after a cluster.
func countNamed(t *testing.T, list client.ObjectList, id string) int {
	t.Helper()
	n := 0
	require.NoError(t, meta.EachListItem(list, func(o runtime.Object) error {
		name := o.(client.Object).GetName()
		if name == id || strings.HasPrefix(name, "cluster-"+id) || strings.HasPrefix(name, id+"-submariner-cable") {
			n++
		}
		return nil
	}))
	return n
}
