package exchange_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kubetest"
	"subctl/internal/measure"
	"subctl/internal/nstest"
)

// The leak matrix of the API: every member of a hub with spokes tries everything that an API server
// can do, with its own credentials, and whatever it can read is searched for other clusters. This
// file has the clusters and the rights, leaks_requests_test.go and leaks_attempts_test.go what they
// try, and leaks_content_test.go the search. agent/leaks_linux_test.go has the leak matrix of the
// kernels.

// setsOfMembers are the members of the broker: a hub with two spokes, and with a pair.
var setsOfMembers = map[string][]string{
	"the-hub": {"a", "b", "c"}, "spoke-east": {"a"}, "spoke-west": {"b"}, "pair-one": {"c"}, "pair-two": {"c"},
}

// right is something that a member may do on the broker.
type right struct {
	resources, verbs string // separated by spaces
	where            func(w *leakWorld, m *insider, ns string) bool
	what             func(w *leakWorld, m *insider, r request) bool
}

const exchanged = "clusters.submariner.io endpoints.submariner.io cablepolicies.submariner.io exportedservices.submariner.io"

// rights are all that a member may do. Everything else that the API server does for a member is a
// leak.
var rights = []right{
	{exchanged, "get list watch", inItsSets, anything},
	{exchanged, "update patch delete", inItsSets, itsObject},
	{"serviceaccounts", "get delete", inBase, itsIdentity},
	{"roles.rbac.authorization.k8s.io", "get delete", inItsSets, itsIdentity},
	{
		"selfsubjectaccessreviews.authorization.k8s.io selfsubjectrulesreviews.authorization.k8s.io selfsubjectreviews.authentication.k8s.io",
		"create",
		anywhere,
		anything,
	},
}

// rightsOfInvitee are all that the holder of a join file for one clusterset may do; what an
// admission policy lets it make is in broker.TestHostileInviteeOfAClusterSet.
var rightsOfInvitee = []right{
	rights[0], rights[4],
	{"brokers.submariner.io", "get list watch", inBase, anything},
	{"roles.rbac.authorization.k8s.io rolebindings.rbac.authorization.k8s.io", "get", inItsSets, anything},
}

func anywhere(*leakWorld, *insider, string) bool      { return true }
func anything(*leakWorld, *insider, request) bool     { return true }
func inBase(w *leakWorld, _ *insider, ns string) bool { return ns == w.NS }
func inItsSets(w *leakWorld, m *insider, ns string) bool {
	return slices.Contains(w.namespacesOf(m.sets), ns)
}

func itsIdentity(_ *leakWorld, m *insider, r request) bool { return r.name == broker.MemberName(m.id) }

func itsObject(_ *leakWorld, m *insider, r request) bool {
	return r.name == m.id || strings.HasPrefix(r.name, m.id+".")
}

// leakWorld is a broker with the members of setsOfMembers.
type leakWorld struct {
	*brokertest.Broker
	t       *testing.T
	members map[string]*insider
	api     []resource // everything that the API server serves
	names   map[string][]string
	objects map[string][]byte // what the administrator reads, by path
	like    map[string][]byte // the largest object of each kind
}

// insider is a member, or the holder of a join file.
type insider struct {
	*site
	id     string
	sets   []string
	rights []right
	http   *httpClient
	log    *nstest.Buffer
}

func (w *leakWorld) namespacesOf(sets []string) (out []string) {
	for _, set := range sets {
		out = append(out, broker.NamespaceIn(w.NS, set))
	}
	return out
}

// ids returns the IDs of the members, sorted.
func (w *leakWorld) ids() []string { return slices.Sorted(maps.Keys(w.members)) }

// strangers returns the members with which an insider has no clusterset in common.
func (w *leakWorld) strangers(m *insider) (out []string) {
	for _, id := range w.ids() {
		common := slices.ContainsFunc(setsOfMembers[id], func(set string) bool { return slices.Contains(m.sets, set) })
		if !common && id != m.id {
			out = append(out, id)
		}
	}
	return out
}

// marks returns what only objects of a member contain.
func marks(id string) []string {
	n := slices.Index(slices.Sorted(maps.Keys(setsOfMembers)), id)
	return []string{
		id, "uid-of-" + id, brokertest.Key(id).Public().String(), "key-of-" + id,
		"10.2" + string(
			'0'+rune(n)) + ".0.0/16", "10.3" + string('0'+rune(n)) + ".0.0/16", "198.51.100.10" + string('0'+rune(n)),
	}
}

// newLeakWorld returns members that have joined, and that know each other.
func newLeakWorld(t *testing.T) *leakWorld {
	t.Helper()
	server := kubetest.Shared(t)
	w := &leakWorld{Broker: brokertest.Deploy(t, server, "a", "b", "c"), t: t, members: map[string]*insider{}}
	gate := kubetest.NewGate(t, server)
	for id, sets := range setsOfMembers {
		m := &insider{
			site:   newSite(t, w.Broker, gate, id, sets...),
			id:     id,
			sets:   sets,
			rights: rights,
			log:    &nstest.Buffer{},
		}
		w.members[id] = m
		m.config.Log = slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		m.http = newHTTPClient(t, m.config.Broker)
		mark := marks(id)
		g := brokertest.Grant(id)
		g.Sets = sets
		g.Networks = []netip.Prefix{netip.MustParsePrefix(mark[4]), netip.MustParsePrefix(mark[5])}
		identity := exchange.Identity{
			Key:           brokertest.Key(id),
			Grant:         brokertest.Granted(g),
			Administrator: brokertest.Administrator().Public(),
		}
		m.config.Identity = func() (exchange.Identity, error) { return identity, nil }
		c := brokertest.Cluster("", id)
		e := brokertest.Endpoint("", id, "10-0-0-1")
		p := brokertest.Policy("", id, "policy-of-"+id)
		c.Spec.PublicKey = mark[3]
		c.Spec.ServiceCIDR = mark[4:5]
		c.Spec.ClusterCIDR = mark[5:6]
		e.Spec.Subnets = mark[4:6]
		e.Spec.PrivateIP = mark[6]
		e.Spec.BackendConfig["publicKey"] = mark[3]
		page := brokertest.Page("", id, 0)
		service := &page.Spec.Services[0]
		service.Name = id
		service.Address = netip.MustParsePrefix(mark[4]).Addr().Next().String()
		service.Endpoints = nil
		for _, o := range []client.Object{c, e, p, page} {
			m.create(o)
		}
		if id == "the-hub" {
			require.NoError(t, m.client.Create(t.Context(), policyForWest(m)))
		}
		m.start()
		t.Cleanup(func() { m.stop() })
	}
	for _, m := range w.members {
		want := map[string][]string{}
		for id, sets := range setsOfMembers {
			for _, set := range sets {
				if id != m.id && slices.Contains(m.sets, set) {
					want[id] = append(want[id], set)
				}
			}
		}
		m.eventuallyKnows(want)
	}
	w.discover()
	return w
}

// policyForWest returns a cable policy of the hub that names spoke-west. It is limited to a
// clusterset, as subctl cable-policy add advises.
func policyForWest(hub *insider) *v1alpha1.CablePolicies {
	return &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "to-west",
			Namespace: hub.ns,
			Labels:    map[string]string{submarinerv1.ClusterSetLabel: "b"},
		},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{{
			CableDriver: "vxlan",
			RightClusterSelector: v1alpha1.ClusterSelector{
				MatchLabels: map[string]string{submarinerv1.ClusterIDLabel: "spoke-west"},
			},
		}},
	}
}

// Members of a broker read, change and join nothing outside their clustersets.
func TestLeakMatrix(t *testing.T) {
	w := newLeakWorld(t)
	attempts := 0
	leaks := []string(nil)
	began := time.Now()
	for _, id := range w.ids() {
		m := w.members[id]
		tried := w.try(m)
		attempts = attempts + tried.attempts
		leaks = append(leaks, tried.leaks...)
		require.Empty(t, tried.unused(m.rights), "%s has not used a right: the test does not try what it should", id)
		for _, other := range w.strangers(m) {
			t.Logf("%s against %s: %d attempts", id, other, tried.against[other])
			require.Positive(t, tried.against[other])
		}
		leaks = append(leaks, w.searchHome(m)...)
		if id == "the-hub" {
			w.requireSeen(tried.read)
		}
	}
	tried := w.try(w.invitee())
	attempts = attempts + tried.attempts
	leaks = append(leaks, tried.leaks...)
	require.Empty(t, leaks)
	measure.Record(t, measure.Info("leak matrix, API: attempts", measure.Values{float64(attempts)}, ""),
		measure.AtMost("leak matrix, API: leaks", measure.Values{float64(len(leaks))}, 0, ""))
	t.Logf("the attempts took %s", time.Since(began).Round(time.Millisecond))

	t.Run("with a RoleBinding too many", func(t *testing.T) {
		west := w.members["spoke-west"]
		a := broker.NamespaceIn(w.NS, "a")
		b := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "cluster-spoke-west-" + broker.MemberRoleName},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: broker.MemberRoleName},
			Subjects: []rbacv1.Subject{
				{Kind: rbacv1.ServiceAccountKind, Name: broker.MemberName("spoke-west"), Namespace: w.NS},
			},
		}
		require.NoError(t, w.Admin.Create(t.Context(), b))
		list := request{
			verb:     "list",
			resource: "clusters.submariner.io",
			path:     "/apis/submariner.io/v1/namespaces/" + a + "/clusters",
		}
		brokertest.Eventually(t, func() bool { return !w.do(west, list).denied() })
		found := strings.Join(w.try(west).leaks, "\n")
		require.Contains(t, found, "spoke-west may list clusters.submariner.io in namespace "+a)
		require.Contains(t, found, "spoke-west may watch endpoints.submariner.io in namespace "+a)
		require.Contains(t, found, "spoke-west reads 10.2", "the networks of spoke-east")
		require.Contains(t, found, "of spoke-east")
		require.NoError(t, w.Admin.Delete(t.Context(), b))
		brokertest.Eventually(t, func() bool { return w.do(west, list).denied() })
	})

	t.Run("with a policy of all clustersets that names a cluster of one", func(t *testing.T) {
		hub := w.members["the-hub"]
		east := w.members["spoke-east"]
		p := policyForWest(hub)
		require.NoError(
			t,
			hub.client.Patch(
				t.Context(),
				p,
				client.RawPatch(types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, submarinerv1.ClusterSetLabel)),
			),
		)
		brokertest.Eventually(t, func() bool {
			return strings.Contains(strings.Join(w.searchHome(east), "\n"),
				"spoke-east reads spoke-west of spoke-west: *v1alpha1.CablePoliciesList in its own cluster")
		})
	})
}

// invitee returns the holder of a join file for a cluster that is to join clusterset a. It joins
// nowhere else.
func (w *leakWorld) invitee() *insider {
	w.t.Helper()
	object := &v1alpha1.Broker{}
	require.NoError(w.t,
		w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.NS, Name: v1alpha1.BrokerName}, object))
	f, err := broker.InviteCluster(w.t.Context(), w.Admin, object, broker.Invitation{
		URL:           w.Server.Config().Host,
		PSK:           make(broker.Secret, 48),
		Administrator: brokertest.Administrator(),
		TTL:           broker.MinTokenTTL,
	}, trust.Invitation{Cluster: "north", Gateways: 1, Sets: []string{"a"}}, time.Now())
	require.NoError(w.t, err)
	c := kubetest.Client(w.t, f.RESTConfig(false))
	brokertest.Eventually(w.t, func() bool {
		return c.List(w.t.Context(), &submarinerv1.ClusterList{},
			client.InNamespace(broker.NamespaceIn(w.NS, "a"))) == nil
	})
	for _, id := range append(w.ids(), "north") {
		for _, set := range []string{"default", "a", "b", "c"} {
			if id == "north" && set == "a" {
				continue
			}
			_, err := broker.AddMember(w.t.Context(), c, w.NS, id, "uid-north", broker.Reservation{Sets: []string{set}})
			require.True(w.t, apierrors.IsForbidden(err), "%s in %s: %v", id, set, err)
		}
	}
	require.NoError(
		w.t,
		client.IgnoreNotFound(
			broker.RemoveMember(w.t.Context(), w.Admin, w.NS, []string{"default", "a", "b", "c"}, "north",
				brokertest.Administrator().Public()),
		),
	)
	return &insider{
		id:     "north",
		sets:   []string{"a"},
		rights: rightsOfInvitee,
		http:   newHTTPClient(w.t, f.RESTConfig(false)),
	}
}
