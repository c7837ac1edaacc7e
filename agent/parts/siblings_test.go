package parts

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/wake"
)

// leaseStore is the Leases of an API server.
type leaseStore struct {
	coordinationclient.LeaseInterface
	leases         []coordinationv1.Lease
	version        int
	reads, updates error // what it answers
}

func (f *leaseStore) List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	return &coordinationv1.LeaseList{Items: slices.Clone(f.leases)}, f.reads
}

func (f *leaseStore) Create(
	_ context.Context,
	l *coordinationv1.Lease,
	_ metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	f.version++
	l.ResourceVersion = strconv.Itoa(f.version)
	f.leases = append(f.leases, *l)
	return l, nil
}

func (f *leaseStore) Update(
	_ context.Context,
	l *coordinationv1.Lease,
	_ metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	if f.updates != nil {
		return nil, f.updates
	}
	i := slices.IndexFunc(f.leases, func(is coordinationv1.Lease) bool { return is.Name == l.Name })
	if f.leases[i].ResourceVersion != l.ResourceVersion {
		return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), l.Name, errors.New("it has changed"))
	}
	f.version++
	l.ResourceVersion = strconv.Itoa(f.version)
	f.leases[i] = *l
	return l, nil
}

// gatewayOn is the gateway of a node that renews its Lease.
type gatewayOn struct {
	*siblings
	triggers int
	kill     context.CancelFunc
}

// start starts the gateway of a node in a cluster where every gateway is active.
func (f *leaseStore) start(t *testing.T, node string) *gatewayOn {
	t.Helper()
	g := &gatewayOn{}
	g.siblings = &siblings{
		node:    node,
		leases:  f,
		log:     slog.New(slog.DiscardHandler),
		changed: func() { g.triggers++ },
		every:   renewEvery,
		wake:    wake.NewSignal(),
	}
	ctx, cancel := context.WithCancel(t.Context())
	g.kill = cancel
	g.follow(role.NewSnapshot[role.Object](node), true)
	go g.run(ctx)
	synctest.Wait()
	return g
}

func endpointOn(node, uid string) *submarinerv1.Endpoint {
	return &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "east-" + node + uid,
			Namespace: submarinerv1.OperatorNamespace,
			UID:       types.UID(uid),
		},
		Spec: submarinerv1.EndpointSpec{ClusterID: "east", Hostname: node},
	}
}

// inEast returns a snapshot of a node of cluster east, with Endpoints.
func inEast(node string, endpoints ...*submarinerv1.Endpoint) role.Snapshot {
	objs := []role.Object{&v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{ClusterID: "east"}}}
	for _, e := range endpoints {
		objs = append(objs, e)
	}
	return role.NewSnapshot(node, objs...)
}

// A gateway agent may write Endpoints of other clusters. Whoever has taken it over cannot pretend
// with one, without the label of copies, that the gateway of another node is there, or that it
// knows that it is replaced.
func TestHostileEndpointOfAnotherCluster(t *testing.T) {
	forged := endpointOn("b", "1")
	forged.Spec.ClusterID = "zz"
	forged.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrain: submarinerv1.Standby}
	snap := inEast("a", forged)
	s := &siblings{node: "a", wake: wake.NewSignal()}
	s.follow(snap, true)
	require.Equal(t, []string{"a"}, s.presentNodes())
	require.False(t, acceptsStandby(snap, "b"))
	require.True(t, acceptsStandby(inEast("a", members.AsStandby(endpointOn("b", "1"))), "b"))
}

// Each gateway renews its own Lease, and knows which others are there. A gateway that renews its
// Lease no longer is gone after siblingGone, and is back as soon as it renews it again.
func TestSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &leaseStore{}
		a := f.start(t, "a")
		require.Equal(t, []string{"a"}, a.presentNodes())
		b := f.start(t, "b")
		require.Equal(t, []string{"a", "b"}, b.presentNodes(), "it reads them at once")
		time.Sleep(renewEvery + time.Second)
		require.Equal(t, []string{"a", "b"}, a.presentNodes())
		require.Equal(t, 1, a.triggers)
		names := []string{f.leases[0].Name, f.leases[1].Name}
		require.Equal(t, []string{"submariner-gateway-lock-a", "submariner-gateway-lock-b"}, names)
		require.Equal(t, submarinerv1.LeaseHolder("b"), *f.leases[1].Spec.HolderIdentity)

		b.kill()
		time.Sleep(siblingGone - renewEvery)
		require.Equal(t, []string{"a", "b"}, a.presentNodes())
		time.Sleep(2 * renewEvery)
		require.Equal(t, []string{"a"}, a.presentNodes())
		require.Equal(t, 2, a.triggers)
		b = f.start(t, "b")
		time.Sleep(renewEvery)
		require.Equal(t, []string{"a", "b"}, a.presentNodes())
		a.kill()
		b.kill()
	})
}

// What a gateway cannot read, or what no gateway may be able to write, says nothing about the
// others. They have a whole siblingGone after an outage of the API server.
func TestSiblingsDuringAnOutage(t *testing.T) {
	for _, what := range []string{"reads", "updates"} {
		synctest.Test(t, func(t *testing.T) {
			f := &leaseStore{}
			a := f.start(t, "a")
			b := f.start(t, "b")
			defer a.kill()
			time.Sleep(renewEvery + time.Second)
			b.kill()
			fault := errors.New("the API server does not answer")
			if what == "reads" {
				f.reads = fault
			} else {
				f.updates = fault
			}
			time.Sleep(time.Hour)
			require.Equal(t, []string{"a", "b"}, a.presentNodes(), what)
			f.reads = nil
			f.updates = nil
			time.Sleep(siblingGone - renewEvery)
			require.Equal(t, []string{"a", "b"}, a.presentNodes(), what)
			time.Sleep(2 * renewEvery)
			require.Equal(t, []string{"a"}, a.presentNodes(), what)
		})
	}
}

// An Endpoint without a Lease counts as long as a Lease that is not renewed. A gateway whose
// Endpoint was deleted, and that writes another one, is there, even if it cannot renew its Lease.
func TestSiblingsEndpoints(t *testing.T) {
	s := &siblings{node: "a", wake: wake.NewSignal()}
	see := func(endpoints ...*submarinerv1.Endpoint) []string {
		s.follow(inEast("a", endpoints...), true)
		return s.presentNodes()
	}
	read := func(n int, leases ...coordinationv1.Lease) {
		for range n {
			s.read(leases)
		}
	}
	remote := endpointOn("far", "3")
	remote.Labels = map[string]string{submarinerv1.ClusterIDLabel: "west"}
	require.Equal(t, []string{"a", "b"}, see(endpointOn("b", "1"), remote))
	read(mostMisses)
	require.Equal(t, []string{"a", "b"}, see(endpointOn("b", "1")))
	read(1)
	require.Equal(t, []string{"a"}, see(endpointOn("b", "1")))

	holder := submarinerv1.LeaseHolder("b")
	stale := coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.NodeLease("b"), ResourceVersion: "7"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
	read(mostMisses+1, stale)
	require.Equal(t, []string{"a"}, see(endpointOn("b", "1")))
	require.Equal(t, []string{"a"}, see(), "deleted")
	read(1, stale)
	require.Equal(t, []string{"a"}, see(), "that it was deleted is no sign of life")
	see(endpointOn("b", "2"))
	read(1, stale)
	require.Equal(t, []string{"a", "b"}, see(endpointOn("b", "2")))

	forged := *stale.DeepCopy()
	forged.Name = submarinerv1.NodeLease("c")
	read(1, forged, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.NodeLease("d")}})
	require.Equal(t, []string{"a", "b"}, see(endpointOn("b", "2")), "only the Lease of a node tells about it")
}

// The Lease of a node is deleted with the node.
func TestLeaseOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &leaseStore{}
		a := f.start(t, "a")
		defer a.kill()
		a.follow(role.NewSnapshot("a", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}), true)
		time.Sleep(renewEvery)
		synctest.Wait()
		require.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", UID: "1"}},
			f.leases[0].OwnerReferences)
	})
}

// With one active gateway, no Lease of a node is read or renewed.
func TestSiblingsOfASingleActiveGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &leaseStore{}
		a := f.start(t, "a")
		b := f.start(t, "b")
		defer a.kill()
		b.kill()
		time.Sleep(renewEvery + time.Second)
		require.Equal(t, []string{"a", "b"}, a.presentNodes())
		version := f.version
		a.follow(role.NewSnapshot[role.Object]("a"), false)
		time.Sleep(time.Hour)
		require.Equal(t, version, f.version)
		a.follow(role.NewSnapshot[role.Object]("a"), true)
		synctest.Wait()
		require.Greater(t, f.version, version, "at once")
		require.Equal(t, []string{"a", "b"}, a.presentNodes(), "it starts anew")
	})
}
