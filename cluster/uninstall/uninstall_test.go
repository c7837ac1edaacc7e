package uninstall_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/cluster/uninstall"
	"subctl/internal/progress"
	"subctl/services"
)

// joinedCluster is a cluster as join and agents leave it, on a fake API server.
type joinedCluster struct {
	c, hub  client.WithWatch
	agents  bool     // agents clean their nodes when the Submariner object is deleted
	deaf    []string // nodes whose Gateway nobody writes
	connect error
	said    bytes.Buffer
}

func newJoined(t *testing.T, extra ...client.Object) *joinedCluster {
	t.Helper()
	sub := clustertest.Submariner()
	objs := append(clustertest.Render(t, sub), secretsOf(t)...)
	n1 := clustertest.Node("n1", "10.89.1.1", submarinerv1.GatewayNodeLabel)
	n2 := clustertest.Node("n2", "10.89.1.2", submarinerv1.GatewayNodeLabel)
	n1.Annotations = map[string]string{cluster.LabelledByAnnotation: cluster.ManagedBy, "example.com/rack": "7"}
	n1.Labels["example.com/zone"] = "a"
	n2.Annotations = map[string]string{submarinerv1.DrainAnnotation: "5m0s", submarinerv1.WeightAnnotation: "50"}
	objs = append(
		objs,
		&n1,
		&n2, // n2 was labelled by a person
		&submarinerv1.RouteAgent{
			ObjectMeta: clustertest.In("n1"),
		},
		&submarinerv1.RouteAgent{ObjectMeta: clustertest.In("n2")},
		&submarinerv1.RouteAgent{
			ObjectMeta: clustertest.In("long-gone"),
		},
		clustertest.Gateway("active", "cannot delete vxlan-tunnel"),
	)
	j := &joinedCluster{agents: true}
	j.c = interceptor.NewClient(clustertest.Client(t, append(objs, extra...)...), interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if _, ok := obj.(*v1alpha1.Submariner); ok && j.agents {
				j.clean(t, c)
			}
			return c.Delete(ctx, obj, opts...)
		},
	})
	j.hub = clustertest.Client(
		t,
		&corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker", Name: broker.MemberName("west")},
		},
		&submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker", Name: "west"}},
	)
	return j
}

func secretsOf(t *testing.T) []client.Object {
	t.Helper()
	var out []client.Object
	for _, name := range []string{cluster.BrokerSecret, cluster.PSKSecret, cluster.ClusterKeySecret} {
		s := &corev1.Secret{ObjectMeta: clustertest.In(name)}
		s.Labels = map[string]string{cluster.ManagedByLabel: cluster.ManagedBy}
		out = append(out, s)
	}
	i := brokertest.Identity("west")
	granted := brokertest.Grant("west")
	granted.Sets = []string{submarinerv1.DefaultClusterSet}
	signing := &corev1.Secret{ObjectMeta: clustertest.In(cluster.TrustSecret), Data: map[string][]byte{
		cluster.KeySigning:       i.Key.Seed(),
		cluster.KeyAdministrator: []byte(i.Administrator.String()),
		cluster.KeyGrant:         []byte(brokertest.Granted(granted)),
	}}
	signing.Labels = map[string]string{cluster.ManagedByLabel: cluster.ManagedBy}
	return append(out, signing)
}

// clean does what the agents of n1 and n2 do.
func (j *joinedCluster) clean(t *testing.T, c client.Client) {
	done := []metav1.Condition{{Type: submarinerv1.ConditionClean, Status: metav1.ConditionTrue, Reason: "Uninstalled"}}
	agents := &submarinerv1.RouteAgentList{}
	require.NoError(t, c.List(t.Context(), agents))
	for _, a := range agents.Items {
		if a.Name != "long-gone" {
			a.Status.Conditions = done
			require.NoError(t, c.Update(t.Context(), &a))
		}
	}
	gateways := &submarinerv1.GatewayList{}
	require.NoError(t, c.List(t.Context(), gateways))
	for _, g := range gateways.Items {
		if slices.Contains(j.deaf, g.Name) {
			continue
		}
		g.Status.Conditions = done
		require.NoError(t, c.Update(t.Context(), &g))
	}
}

func (j *joinedCluster) uninstall(t *testing.T, force ...uninstall.Obstacle) error {
	t.Helper()
	return j.uninstallUntil(t.Context(), t, force...)
}

// uninstallUntil ends when ctx is done.
func (j *joinedCluster) uninstallUntil(ctx context.Context, t *testing.T, force ...uninstall.Obstacle) error {
	t.Helper()
	remains, err := uninstall.ReadRemains(t.Context(), j.c)
	require.NoError(t, err)
	u := &uninstall.Operation{
		Cluster: cluster.Side{
			Client: j.c,
		}, Report: progress.New(&j.said), Force: force, Timeout: 100 * time.Millisecond,
		Connect: func(context.Context, *rest.Config) (client.Client, error) {
			if j.connect != nil {
				return nil, j.connect
			}
			return j.hub, nil
		},
	}
	return u.Run(ctx, remains)
}

func exists(t *testing.T, c client.Client, obj client.Object) bool {
	t.Helper()
	err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
	require.NoError(t, client.IgnoreNotFound(err))
	return err == nil
}

func (j *joinedCluster) remains(t *testing.T) *uninstall.Remains {
	t.Helper()
	r, err := uninstall.ReadRemains(t.Context(), j.c)
	require.NoError(t, err)
	return r
}

func TestUninstall(t *testing.T) {
	j := newJoined(t)
	require.NoError(t, j.uninstall(t))
	require.True(t, j.remains(t).Empty(), j.remains(t).Lines(j.c))
	left := &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker", Name: "west"}}
	require.True(t, exists(t, j.hub, left))
	l, err := brokertest.Administrator().Public().Leaving(left.Annotations[submarinerv1.LeavingAnnotation])
	require.NoError(t, err)
	granted := brokertest.Grant("west")
	granted.Sets = nil // the statement names none
	require.Equal(t, granted, l.Grant)
	require.Contains(t, j.said.String(), `the grant of cluster "west" is revoked`)
	require.False(
		t,
		exists(
			t,
			j.hub,
			&corev1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker", Name: "cluster-west"},
			},
		),
	)
	n1 := &corev1.Node{}
	n2 := &corev1.Node{}
	require.NoError(t, j.c.Get(t.Context(), client.ObjectKey{Name: "n1"}, n1))
	require.NoError(t, j.c.Get(t.Context(), client.ObjectKey{Name: "n2"}, n2))
	require.Equal(t, map[string]string{"example.com/zone": "a", corev1.LabelOSStable: "linux"}, n1.Labels)
	require.Equal(t, map[string]string{"example.com/rack": "7"}, n1.Annotations)
	require.Equal(t, map[string]string{submarinerv1.WeightAnnotation: "50"}, n2.Annotations,
		"the drain ends, and the weight is the user's")
	require.Equal(t, "true", n2.Labels[submarinerv1.GatewayNodeLabel], "a person set it")
}

func TestUninstallKeepsWhatIsOfOthers(t *testing.T) {
	notes := &corev1.ConfigMap{ObjectMeta: clustertest.In("notes")}
	hub := &v1alpha1.Broker{
		ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker", Name: "submariner-broker"},
	}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: cluster.PSKSecret}}
	j := newJoined(t, notes, hub, other)
	require.NoError(t, j.uninstall(t))
	for _, obj := range []client.Object{
		notes,
		hub,
		other,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}},
	} {
		require.True(t, exists(t, j.c, obj), "%T %s is gone", obj, obj.GetName())
	}
	require.Contains(t, j.said.String(), "namespace submariner-operator is kept: it contains ConfigMap notes")
	require.Contains(t, j.said.String(),
		"the CustomResourceDefinitions are kept: this cluster hosts a broker (Broker submariner-k8s-broker/submariner-broker)")
	require.Contains(t, j.said.String(),
		"nothing of subctl is left in this cluster except namespace submariner-operator and the CustomResourceDefinitions with the ClusterRoles of their users\n")
	require.True(t, j.remains(t).Empty(), "what stays is not ours")
}

// Annotations with global addresses go, which the globalnet agent has left, and no others. They
// stay in a cluster that never had the agent.
func TestUninstallRemovesAnnotations(t *testing.T) {
	for _, has := range []bool{false, true} {
		m := metav1.ObjectMeta{
			Namespace:   "elsewhere",
			Name:        "web",
			Annotations: map[string]string{submarinerv1.GlobalIPAnnotation: "242.1.0.9", "example.com/mine": "kept"},
		}
		pod := &corev1.Pod{ObjectMeta: m}
		service := &corev1.Service{ObjectMeta: *m.DeepCopy()}
		objs := []client.Object{pod, service}
		if has {
			right := &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{
					Name:   cluster.GlobalnetName,
					Labels: map[string]string{cluster.ManagedByLabel: cluster.ManagedBy},
				},
			}
			objs = append(objs, right) // an uninstall was interrupted
		}
		j := newJoined(t, objs...)
		require.Equal(t, has,
			slices.Contains(j.remains(t).Lines(j.c), "remove annotation submariner.io/GlobalIp of pods and Services"))
		require.NoError(t, j.uninstall(t))
		for _, o := range []client.Object{pod, service} {
			require.NoError(t, j.c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
			_, kept := o.GetAnnotations()[submarinerv1.GlobalIPAnnotation]
			require.Equal(t, !has, kept)
			require.Equal(t, "kept", o.GetAnnotations()["example.com/mine"])
		}
		require.True(t, j.remains(t).Empty())
	}
}

// What the globalnet agent has made goes although the agent is down, and the CRDs stay because of
// an object of a user.
func TestUninstallWithoutTheGlobalnetAgent(t *testing.T) {
	theirs := &submarinerv1.GlobalIngressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "theirs"}}
	made := []client.Object{
		&submarinerv1.GlobalIngressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "web"}},
		&submarinerv1.ClusterGlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: "n1-cluster-egress.submariner.io"}},
	}
	for _, o := range made {
		o.SetLabels(map[string]string{cluster.ManagedByLabel: cluster.ManagedBy})
	}
	j := newJoined(t, append(made, theirs)...)
	require.Contains(t, j.remains(t).Lines(j.c), "delete 2 objects that the globalnet agent has made")
	require.NoError(t, j.uninstall(t))
	for _, obj := range made {
		require.False(t, exists(t, j.c, obj), "%T %s is left", obj, obj.GetName())
	}
	require.True(t, exists(t, j.c, theirs))
	require.True(t, j.remains(t).Empty(), "what stays is not ours")
}

// What stands for imported Services is deleted in all namespaces, even if the agent does not run,
// and nothing that others import.
func TestUninstallDeletesImports(t *testing.T) {
	at := func(name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}
	}
	ours := map[string]string{cluster.ManagedByLabel: cluster.ManagedBy, mcsv1alpha1.LabelServiceName: "web"}
	slices := map[string]string{discoveryv1.LabelManagedBy: services.ManagedBy}
	made := []client.Object{
		&mcsv1alpha1.ServiceImport{ObjectMeta: at("web", ours)}, &corev1.Service{ObjectMeta: at("derived-web", ours)},
		&discoveryv1.EndpointSlice{ObjectMeta: at("derived-web-1", slices)},
	}
	stay := []client.Object{
		&mcsv1alpha1.ServiceImport{ObjectMeta: at("theirs", nil)}, &corev1.Service{ObjectMeta: at("theirs", nil)},
		&discoveryv1.EndpointSlice{ObjectMeta: at("theirs", nil)},
	}
	definition, err := cluster.ServiceImports()
	require.NoError(t, err)
	j := newJoined(t, append(append(made, stay...), definition)...)
	require.Contains(t, j.remains(t).Lines(j.c), "delete 3 objects that stand for imported Services")
	require.NoError(t, j.uninstall(t))
	for _, o := range made {
		require.False(t, exists(t, j.c, o), "%T is left", o)
	}
	for _, o := range append(stay, definition) {
		require.True(t, exists(t, j.c, o), "%T", o)
	}
}

// Other clusters have to know that exports end before cables do. If the agent of service discovery
// does not run, they are not waited for.
func TestUninstallWithdrawsExportsFirst(t *testing.T) {
	for _, runs := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) { uninstallsAnExporter(t, runs) })
	}
}

func uninstallsAnExporter(t *testing.T, agentRuns bool) {
	page := &v1alpha1.ExportedServices{
		ObjectMeta: clustertest.In(v1alpha1.ExportedServicesName("west", 0)),
		Spec: v1alpha1.ExportedServicesSpec{
			ClusterID: "west", Pages: 1, Services: []v1alpha1.ExportedService{{Namespace: "shop", Name: "web"}},
		},
	}
	j := newJoined(t, page)
	var withdrawn, deleted time.Time
	j.c = interceptor.NewClient(j.c, interceptor.Funcs{
		Patch: func(
			ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption,
		) error {
			if err := c.Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			sub, is := o.(*v1alpha1.Submariner)
			if !agentRuns || !is || sub.Spec.ServiceDiscoveryEnabled || sub.DeletionTimestamp != nil {
				return nil
			}
			withdrawn = time.Now()
			require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(page), page))
			page.Spec.Services = nil
			return c.Update(ctx, page)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if _, is := o.(*v1alpha1.Submariner); is {
				deleted = time.Now()
				require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(page), page))
				require.Equal(t, agentRuns, len(page.Spec.Services) == 0)
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	begin := time.Now()
	require.NoError(t, j.uninstall(t))
	if agentRuns {
		require.GreaterOrEqual(t, deleted.Sub(withdrawn), 2*time.Second, "kube-proxies follow within 2 s")
		require.Contains(t, j.said.String(), "the exported Services are withdrawn")
	} else {
		require.Less(t, deleted.Sub(begin), 15*time.Second)
		require.Contains(t, j.said.String(), "does not withdraw the exported Services")
	}
	require.True(t, j.remains(t).Empty())
}

// Whoever interrupts the withdrawal, and stays, has service discovery as before.
func TestUninstallInterruptedWithdrawal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := &v1alpha1.ExportedServices{ObjectMeta: clustertest.In(v1alpha1.ExportedServicesName("west", 0))}
		page.Spec.Services = []v1alpha1.ExportedService{{Namespace: "shop", Name: "web"}}
		j := newJoined(t, page)
		before := j.remains(t).Submariner
		before.Spec.ServiceDiscoveryEnabled = true
		require.NoError(t, j.c.Update(t.Context(), before))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.Error(t, j.uninstallUntil(ctx, t))
		after := j.remains(t).Submariner
		require.Nil(t, after.DeletionTimestamp)
		require.True(t, after.Spec.ServiceDiscoveryEnabled)
	})
}

func TestUninstallWaitsForTheNodes(t *testing.T) {
	j := newJoined(t)
	j.agents = false
	err := j.uninstall(t)
	require.EqualError(t, err, "waiting for the agents to clean the nodes: out of time:\n"+
		"  node n1: the route agent has not reported that it is clean\n"+
		"  node n2: the route agent has not reported that it is clean\n"+
		"  node n1: the gateway has not reported that it is clean: cannot delete vxlan-tunnel\n"+
		"repair them and run the same command again, or continue with --force=nodes")
	r := j.remains(t)
	require.NotNil(t, r.Submariner.DeletionTimestamp)
	require.Len(t, r.Namespaced, 14, "the agents must still be there")

	j.clean(t, j.c) // repaired
	require.NoError(t, j.uninstall(t))
	require.True(t, j.remains(t).Empty())
}

// Whoever interrupts it is told what is not done, as when the time is out; to continue without
// waiting is not what they want, even with force.
func TestUninstallInterrupted(t *testing.T) {
	j := newJoined(t)
	j.agents = false
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	err := j.uninstallUntil(ctx, t, uninstall.Obstacles()...)
	require.ErrorContains(t, err,
		"waiting for the agents to clean the nodes: interrupted:\n  node n1: the route agent has not reported that it is clean\n")
	require.ErrorContains(t, err, "run the same command again")
	require.Len(t, j.remains(t).Namespaced, 14, "the agents must still be there")
}

func TestUninstallByForce(t *testing.T) {
	j := newJoined(t)
	j.agents = false
	j.connect = errors.New("no route to host")
	require.EqualError(
		t,
		j.uninstall(t),
		"removing this cluster from the broker at hub.example.org:6443: no route to host: nothing was changed; "+
			"try again when the broker can be reached, or leave the objects of this cluster there with --force=broker",
	)
	require.ErrorContains(t, j.uninstall(t, uninstall.Nodes, uninstall.Policies),
		"no route to host: nothing was changed")
	require.Nil(t, j.remains(t).Submariner.DeletionTimestamp)
	require.ErrorContains(t, j.uninstall(t, uninstall.Broker), "waiting for the agents to clean the nodes: out of time")
	require.NoError(t, j.uninstall(t, uninstall.Obstacles()...))
	require.True(t, j.remains(t).Empty())
	require.Contains(t, j.said.String(), `the grant of cluster "west" is not revoked: the broker was not reached: `)
	require.Contains(t, j.said.String(), "run on the cluster of the broker: subctl revoke west\n")
	require.Contains(t, j.said.String(),
		"nothing of subctl is left in this cluster except devices, routes and rules on n1, n2 until a restart\n",
		"only what was checked counts as done")
}

func TestUninstallOfAMemberThatTheBrokerForgot(t *testing.T) {
	j := newJoined(t)
	j.connect = apierrors.NewUnauthorized("who?")
	require.NoError(t, j.uninstall(t))
	require.True(t, j.remains(t).Empty())
	require.Contains(t, j.said.String(), "run on the cluster of the broker: subctl revoke west --force\n")
}

// For some seconds after a revocation, the broker accepts the token of the cluster, and refuses
// everything.
func TestUninstallRightAfterARevocation(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{}, "west", errors.New("no rights"))
	void := apierrors.NewUnauthorized("who?")
	for name, rights := range map[string]struct {
		first int // requests until the rights end
		err   error
	}{
		"refused": {0, refused}, "refused, then unknown": {2, void}, "revoked meanwhile": {3, refused},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoined(t)
			n := 0
			answer := func(do func() error) error {
				if n++; n > rights.first {
					return rights.err
				}
				return do()
			}
			j.hub = interceptor.NewClient(j.hub, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object,
					opts ...client.GetOption,
				) error {
					return answer(func() error { return c.Get(ctx, key, obj, opts...) })
				},
				Update: func(ctx context.Context, c client.WithWatch, obj client.Object,
					opts ...client.UpdateOption,
				) error {
					return answer(func() error { return c.Update(ctx, obj, opts...) })
				},
				Delete: func(ctx context.Context, c client.WithWatch, obj client.Object,
					opts ...client.DeleteOption,
				) error {
					return answer(func() error { return c.Delete(ctx, obj, opts...) })
				},
				DeleteAllOf: func(ctx context.Context, c client.WithWatch, obj client.Object,
					opts ...client.DeleteAllOfOption,
				) error {
					return answer(func() error { return c.DeleteAllOf(ctx, obj, opts...) })
				},
			})
			require.NoError(t, j.uninstall(t))
			require.True(t, j.remains(t).Empty())
		})
	}
}

// A grant that the administrator has renewed on the broker, and that no gateway has taken over yet,
// is void, too, and nothing is left in its clustersets. What somebody else has written there
// changes nothing.
func TestUninstallAfterTheGrantWasRenewed(t *testing.T) {
	j := newJoined(t)
	account := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: "submariner-k8s-broker", Name: broker.MemberName("west")}
	require.NoError(t, j.hub.Get(t.Context(), key, account))
	renewed := brokertest.Grant("west")
	renewed.Serial = renewed.Serial + 1
	renewed.Sets = []string{"default", "prod"}
	brokertest.Annotate(account, submarinerv1.GrantAnnotation, brokertest.Granted(renewed))
	require.NoError(t, j.hub.Update(t.Context(), account))
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker-prod", Name: broker.MemberName("west")},
	}
	require.NoError(t, j.hub.Create(t.Context(), role))
	require.NoError(
		t,
		j.hub.Create(t.Context(),
			&submarinerv1.Cluster{
				ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker-prod", Name: "west"},
			}),
	)

	require.NoError(t, j.uninstall(t))
	for _, ns := range []string{"submariner-k8s-broker", "submariner-k8s-broker-prod"} {
		left := &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "west"}}
		require.True(t, exists(t, j.hub, left), ns)
		l, err := brokertest.Administrator().Public().Leaving(left.Annotations[submarinerv1.LeavingAnnotation])
		require.NoError(t, err, ns)
		require.Equal(t, renewed.Serial, l.Grant.Serial, ns)
	}
	require.False(t, exists(t, j.hub, role))
	require.Contains(t, j.said.String(), `the grant of cluster "west" is revoked`)

	j = newJoined(t)
	require.NoError(t, j.hub.Get(t.Context(), key, account))
	renewed.Key = brokertest.Key("other").Public()
	brokertest.Annotate(account, submarinerv1.GrantAnnotation, brokertest.Granted(renewed))
	require.NoError(t, j.hub.Update(t.Context(), account))
	require.NoError(t, j.uninstall(t))
	left := &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker", Name: "west"}}
	require.True(t, exists(t, j.hub, left))
	l, err := brokertest.Administrator().Public().Leaving(left.Annotations[submarinerv1.LeavingAnnotation])
	require.NoError(t, err)
	require.Equal(t, brokertest.Grant("west").Serial, l.Grant.Serial, "the grant of another key")
}

// The clustersets to leave are those of the newest grant, which a gateway has taken over, and not
// those that the cluster has once joined. A clusterset in which the cluster has no rights any more
// is reported, and does not stop the others.
func TestUninstallAfterMembershipChanged(t *testing.T) {
	j := newJoined(t)
	account := &corev1.ServiceAccount{}
	require.NoError(
		t,
		j.hub.Get(t.Context(), client.ObjectKey{Namespace: "submariner-k8s-broker", Name: broker.MemberName("west")},
			account),
	)
	renewed := brokertest.Grant("west")
	renewed.Serial = renewed.Serial + 1
	renewed.Sets = []string{"gone", "prod"}
	token := brokertest.Granted(renewed)
	brokertest.Annotate(account, submarinerv1.GrantAnnotation, token)
	require.NoError(t, j.hub.Update(t.Context(), account))
	memory, err := json.Marshal(exchange.Memory{Administrator: brokertest.Administrator().Public(), Grant: token})
	require.NoError(t, err)
	require.NoError(
		t,
		j.c.Update(
			t.Context(),
			&corev1.ConfigMap{
				ObjectMeta: clustertest.In(exchange.MemoryName),
				Data:       map[string]string{"memory.json": string(memory)},
			},
		),
	)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker-prod", Name: broker.MemberName("west")},
	}
	require.NoError(t, j.hub.Create(t.Context(), role))
	require.NoError(
		t,
		j.hub.Create(t.Context(),
			&submarinerv1.Cluster{
				ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker-prod", Name: "west"},
			}),
	)
	j.hub = interceptor.NewClient(
		j.hub,
		interceptor.Funcs{
			Get: func(
				ctx context.Context,
				c client.WithWatch,
				key client.ObjectKey,
				obj client.Object,
				opts ...client.GetOption,
			) error {
				if _, is := obj.(*submarinerv1.Cluster); is && key.Namespace != "submariner-k8s-broker-prod" {
					return apierrors.NewForbidden(schema.GroupResource{Group: "submariner.io", Resource: "clusters"},
						key.Name, errors.New("no rights"))
				}
				return c.Get(ctx, key, obj, opts...)
			},
		},
	)

	require.NoError(t, j.uninstall(t))
	require.False(t, exists(t, j.hub, role), "rights that remain would pass to the next cluster with this ID")
	require.False(t, exists(t, j.hub, account))
	require.Contains(t, j.said.String(),
		`cluster "west" has no rights in clusterset gone any more: if the clusterset exists, the administrator of the broker removes what is left there, with: subctl clusterset remove gone west`)
	require.Contains(t, j.said.String(), `the grant of cluster "west" is revoked`)
}

// A broker that does not answer when the newest grant is read leaves everything as it is: the grant
// of the cluster may be another one.
func TestUninstallWhenTheGrantCannotBeRead(t *testing.T) {
	j := newJoined(t)
	down := true
	j.hub = interceptor.NewClient(
		j.hub,
		interceptor.Funcs{
			Get: func(
				ctx context.Context,
				c client.WithWatch,
				key client.ObjectKey,
				obj client.Object,
				opts ...client.GetOption,
			) error {
				if _, is := obj.(*corev1.ServiceAccount); is && down {
					return apierrors.NewTimeoutError("the API server does not answer", 1)
				}
				return c.Get(ctx, key, obj, opts...)
			},
		},
	)
	account := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker", Name: broker.MemberName("west")},
	}
	require.ErrorContains(t, j.uninstall(t), "reading the newest grant of cluster west from the broker: ")
	require.NotContains(t, j.said.String(), "is removed from the broker")
	down = false
	require.True(t, exists(t, j.hub, account))
	require.NoError(t, j.uninstall(t))
	require.False(t, exists(t, j.hub, account))
	require.Contains(t, j.said.String(), `the grant of cluster "west" is revoked`)
}

// Without its key, or without an object on the broker, a cluster cannot revoke its grant. It leaves
// nevertheless, with a message.
func TestUninstallWithoutRevoking(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(j *joinedCluster) error
		why  string
	}{
		"no signing key": {func(j *joinedCluster) error {
			return j.c.Delete(t.Context(), &corev1.Secret{ObjectMeta: clustertest.In(cluster.TrustSecret)})
		}, "reading the signing key: "},
		"no Cluster": {func(j *joinedCluster) error {
			return j.hub.Delete(t.Context(), &submarinerv1.Cluster{
				ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker", Name: "west"},
			})
		}, "the broker has no Cluster object of it in namespace submariner-k8s-broker"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoined(t)
			require.NoError(t, c.lose(j))
			require.NoError(t, j.uninstall(t))
			require.True(t, j.remains(t).Empty())
			require.Contains(t, j.said.String(), `the grant of cluster "west" is not revoked: `+c.why)
			require.Contains(t, j.said.String(), "run on the cluster of the broker: subctl revoke west --force\n")
			require.Contains(t, j.said.String(), `cluster "west" is removed from the broker`)
		})
	}
}

// A node that is down cannot be cleaned: the rest is done, and the exit code says
// that something is left.
func TestUninstallWithANodeDown(t *testing.T) {
	j := newJoined(t)
	j.agents = false
	j.clean(t, j.c)
	down := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n3", Labels: map[string]string{corev1.LabelOSStable: "linux"}},
	}
	require.NoError(t, j.c.Create(t.Context(), down))
	require.NoError(t, j.c.Create(t.Context(), &submarinerv1.RouteAgent{ObjectMeta: clustertest.In("n3")}))
	// Its kubelet does not end the pod, and the namespace waits for it.
	pod := &corev1.Pod{ObjectMeta: clustertest.In("submariner-routeagent-x"), Spec: corev1.PodSpec{NodeName: "n3"}}
	pod.Labels = map[string]string{cluster.ManagedByLabel: cluster.ManagedBy}
	require.NoError(t, j.c.Create(t.Context(), pod))
	require.EqualError(
		t,
		j.uninstall(t),
		"nodes that the agents could not clean may still have devices, routes and rules: "+
			"restart n3; or join again, and uninstall while all nodes are Ready",
	)
	require.Contains(t, j.said.String(), "node n3 is not Ready, so its agents cannot clean it")
	require.False(t, exists(t, j.c, pod))
	require.NotContains(t, j.said.String(), "✓ the nodes are clean")
	require.Contains(t, j.said.String(),
		"nothing of subctl is left in this cluster except devices, routes and rules on n3 until a restart\n")
	require.True(t, j.remains(t).Empty())
}

// Somebody has deleted the namespace: the reports of agents are gone with it, and the agents, too,
// before they have cleaned. A report that is missing does not tell that a node is clean then.
func TestUninstallAfterTheNamespaceWasDeleted(t *testing.T) {
	j := newJoined(t)
	j.agents = false
	in := client.InNamespace(cluster.Namespace)
	for _, reports := range []client.Object{&submarinerv1.RouteAgent{}, &submarinerv1.Gateway{}} {
		require.NoError(t, j.c.DeleteAllOf(t.Context(), reports, in))
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}}
	require.NoError(
		t,
		j.c.Patch(
			t.Context(),
			ns,
			client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"finalizers":["example.com/stuck"]}}`)),
		),
	)
	require.NoError(t, j.c.Delete(t.Context(), ns))
	require.ErrorContains(t, j.uninstall(t), "waiting until submariner-operator is deleted")
	require.NotContains(t, j.said.String(), "✓ the nodes are clean")
	require.Contains(t, j.said.String(),
		"the agents of node n1 were deleted with namespace submariner-operator, and have not reported that the node is clean\n")
	require.Contains(t, j.said.String(), "the agents of node n2 were deleted")

	j = newJoined(t) // the same without a namespace that is being deleted: no agent has ever run there
	for _, reports := range []client.Object{&submarinerv1.RouteAgent{}, &submarinerv1.Gateway{}} {
		require.NoError(t, j.c.DeleteAllOf(t.Context(), reports, in))
	}
	require.NoError(t, j.uninstall(t))
	require.Contains(t, j.said.String(), "✓ the nodes are clean")
}

func TestUninstallLeavesUpstreamAlone(t *testing.T) {
	c := clustertest.Client(t, &v1alpha1.Submariner{ObjectMeta: clustertest.In("submariner")})
	_, err := uninstall.ReadRemains(t.Context(), c)
	require.EqualError(t, err, "this cluster was not joined by subctl "+
		"(Submariner submariner-operator/submariner has no label app.kubernetes.io/managed-by=subctl): uninstall it with the tool that joined it")
}

// Nobody writes the Gateway of a node that is no gateway any more, or is gone.
func TestUninstallAfterAGatewayWasUnlabelled(t *testing.T) {
	stale := func(name string) client.Object {
		g := clustertest.Gateway("passive", "")
		g.SetName(name)
		return g
	}
	n3 := clustertest.Node("n3", "10.89.1.3")
	j := newJoined(t, stale("n3"), stale("long-gone"), &n3, &submarinerv1.RouteAgent{ObjectMeta: clustertest.In("n3")})
	j.deaf = []string{"n3", "long-gone"}
	require.NoError(t, j.uninstall(t), j.said.String())
	require.True(t, j.remains(t).Empty(), j.remains(t).Lines(j.c))

	again := newJoined(t)
	again.deaf = []string{"n1"} // n1 is labelled: its gateway must say so
	require.ErrorContains(t, again.uninstall(t), "node n1: the gateway has not reported that it is clean")
}

// Others may use ServiceExports, too: their kind is kept while there are any, and the user is told.
func TestUninstallKeepsServiceExports(t *testing.T) {
	def, err := cluster.ServiceExports()
	require.NoError(t, err)
	j := newJoined(t, def, &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	const kept = "CustomResourceDefinition serviceexports.multicluster.x-k8s.io, as ServiceExport shop/web exists"
	require.Contains(t, j.remains(t).Lines(j.c), "keep "+kept)
	require.NoError(t, j.uninstall(t))
	require.True(t, exists(t, j.c, def))
	require.Contains(t, j.said.String(), "nothing of subctl is left in this cluster except "+kept+"\n")
}

// What tools put into every namespace does not keep the namespace of the agents: it belongs to
// nobody there, and the tool would put it there again.
func TestUninstallDeletesReplicasWithTheNamespace(t *testing.T) {
	in := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace}
	}
	copied := in("company-ca")
	copied.Annotations = map[string]string{"reflector.v1.k8s.emberstack.com/reflects": "ops/company-ca"}
	j := newJoined(t,
		&corev1.Secret{ObjectMeta: in("regcred"), Type: corev1.SecretTypeDockerConfigJson},
		&corev1.Secret{ObjectMeta: copied},
		&corev1.ConfigMap{ObjectMeta: in("istio-ca-root-cert")})
	require.NoError(t, j.uninstall(t), j.said.String())
	require.True(t, j.remains(t).Empty())
	require.False(t, exists(t, j.c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}}))
}
