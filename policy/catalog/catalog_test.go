package catalog_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/policy"
	"subctl/policy/catalog"
	"subctl/policy/catalogtest"
	"subctl/policy/impact"
)

// all are the drivers that clusters of tests offer.
const all = catalogtest.All

var (
	add    = catalogtest.Add
	made   = catalogtest.Made
	copied = catalogtest.Copied
	member = catalogtest.Member
	rules  = catalogtest.Rules
)

func TestOfMember(t *testing.T) {
	var o catalog.Objects
	add(&o, "east", "east", "site=two", "ipsec",
		func(e *submarinerv1.EndpointSpec) { e.Backend = "libreswan" })
	add(&o, "east", "east", "", "ipsec,wireguard") // two gateways
	add(&o, "liar", "forged", "", all)
	o.Clusters[0].Annotations = map[string]string{submarinerv1.ClusterSetsAnnotation: "blue,default"}
	o.Clusters = append(o.Clusters[:1], o.Clusters[2])
	sub := &v1alpha1.Submariner{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ClusterLabelsAnnotation: "env=lab"}},
		Spec: v1alpha1.SubmarinerSpec{
			ClusterID:   "west",
			ClusterSets: []string{"red", "blue"},
			CableDriver: "libreswan",
		},
	}
	c := catalog.OfMember(sub, o)
	require.Equal(t, []string{"blue", "red"}, c.Sets)
	require.Equal(t, []policy.Cluster{
		{ID: "east", Labels: map[string]string{"site": "two"}, Sets: []string{"blue", "default"}, Driver: "ipsec"},
		{ID: "west", Labels: map[string]string{"env": "lab"}, Sets: []string{"blue", "red"}, Driver: "ipsec"},
	}, c.Clusters)
	offered, hasGateway := c.Offers("east")
	require.Equal(t, []string{"ipsec"}, offered)
	require.True(t, hasGateway)
	_, hasGateway = c.Offers("west")
	require.False(t, hasGateway)
}

func TestOfBroker(t *testing.T) {
	base := catalog.Set{Name: "default", Namespace: "b"}
	blue := catalog.Set{Name: "blue", Namespace: "b-blue"}
	add(&base.Objects, "west", "west", "", all)
	add(&base.Objects, "east", "east", "", all)
	add(&blue.Objects, "west", "west", "", all)
	base.Policies = []v1alpha1.CablePolicies{*made("default", " |  | vxlan")}
	blue.Policies = []v1alpha1.CablePolicies{*copied("west", made("mine", " |  | ipsec"))}
	blue.Policies[0].Namespace = "b-blue"
	c := catalog.OfBroker(v1alpha1.BrokerSpec{}, []catalog.Set{base, blue})
	require.Equal(t, []string{"blue", "default"}, c.Sets)
	require.Equal(t, []string{"default", "blue"}, c.Clusters[1].Sets)
	require.Equal(t, submarinerv1.BrokerID, c.Maker(c.Policies[0]))
	require.Equal(t, []string{"blue"}, c.Policies[1].ClusterSets())
	require.Equal(t, []string{"default"}, c.Names(true))
	require.Empty(t, base.Policies[0].Labels, "what was read is left alone")

	p := &v1alpha1.CablePolicies{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	require.NoError(t, c.Place(p, "blue"))
	require.Equal(t, "b-blue", p.Namespace)
	require.EqualError(t, c.CheckTaken(p, true),
		"cable policy mine already exists, created by cluster west: change it there, or choose another name")
	p.Namespace = ""
	require.NoError(t, c.Place(p, ""))
	require.NoError(t, c.CheckTaken(p, false), "of another clusterset")
	require.Equal(t, []string{"default"}, c.SetsOf(p))
	require.EqualError(t, c.Place(p, "bleu"),
		`the broker has no clusterset "bleu": the clustersets are blue, default; did you mean "blue"?`)
	require.EqualError(t, member().Place(p, "defualt"),
		`cluster west is not in clusterset "defualt": it is in default; did you mean "default"?`)
}

// A policy that the clusters refuse decides nothing, and is listed with the reason.
func TestRefusedPolicy(t *testing.T) {
	set := catalog.Set{Name: "default", Namespace: "b", Refused: map[int]string{1: "it is not signed"}}
	add(&set.Objects, "west", "west", "", all)
	add(&set.Objects, "east", "east", "", all)
	set.Policies = []v1alpha1.CablePolicies{
		*made("default", " |  | vxlan"),
		*made("secure", "submariner-io/clusterID=west |  | ipsec"),
	}
	c := catalog.OfBroker(v1alpha1.BrokerSpec{}, []catalog.Set{set})
	l := c.List()
	require.Len(t, l.Rules, 2)
	require.Equal(t, catalog.StateOK, l.Rules[0].State)
	require.Len(t, l.Rules[0].Pairs, 1)
	require.Equal(t, []any{catalog.StateRefused, "the clusters refuse it: it is not signed", [][2]string{}},
		[]any{l.Rules[1].State, l.Rules[1].Message, l.Rules[1].Pairs})
	twin := set
	twin.Policies = append(slices.Clone(set.Policies), *copied("west", made("secure", " |  | vxlan")))
	var states []string
	for _, r := range catalog.OfBroker(v1alpha1.BrokerSpec{}, []catalog.Set{twin}).List().Rules {
		states = append(states, r.Policy+" "+r.State)
	}
	require.Equal(t, []string{"default ok", "secure refused", "secure ok"}, states,
		"a cluster may have a policy of the same name")
	three := []v1alpha1.CablePolicies{
		*made("default", " |  | vxlan"),
		*made("any", " |  | ipsec"),
		*made("some", " |  | wireguard"),
	}
	set.Policies = three[:1]
	set.Refused = nil
	before := catalog.OfBroker(v1alpha1.BrokerSpec{}, []catalog.Set{set})
	set.Policies = three
	set.Refused = map[int]string{1: "it is not signed", 2: "it is not signed"}
	require.Zero(t, impact.Of(before, catalog.OfBroker(v1alpha1.BrokerSpec{}, []catalog.Set{set})),
		"it shadows nothing, and nothing shadows it")
	set.Policies = []v1alpha1.CablePolicies{
		*made("default", " |  | vxlan"),
		*made("secure", "submariner-io/clusterID=west |  | ipsec"),
	}
	set.Refused = nil
	accepted := catalog.OfBroker(v1alpha1.BrokerSpec{}, []catalog.Set{set})
	require.Len(t, accepted.List().Rules[1].Pairs, 1, "accepted, it would decide")
}

// What a driver refuses is known from what gateways announce, and one pair of gateways is
// enough.
func TestCable(t *testing.T) {
	nat := func(e *submarinerv1.EndpointSpec) { e.NATEnabled = true }
	config := func(key, value string) func(*submarinerv1.EndpointSpec) {
		return func(e *submarinerv1.EndpointSpec) { e.BackendConfig[key] = value }
	}
	for _, test := range []struct {
		name, driver string
		east         []func(*submarinerv1.EndpointSpec) // one gateway each
		err, limit   string
	}{
		{"two gateways", "vxlan", []func(*submarinerv1.EndpointSpec){config("x", ""), config("x", "")}, "", ""},
		{
			"two gateways, for a driver of one", "wireguard",
			[]func(*submarinerv1.EndpointSpec){config("x", ""), config("x", "")},
			"",
			"cluster east has 2 active gateways, and wireguard connects to one gateway of a cluster: pods on the nodes of the other gateways lose this connection",
		},
		{
			"one gateway and a standby",
			"wireguard",
			[]func(*submarinerv1.EndpointSpec){
				config("x", ""),
				config(submarinerv1.BackendDrain, submarinerv1.Standby),
			},
			"",
			"",
		},
		{"plain", "vxlan", []func(*submarinerv1.EndpointSpec){config("x", "")}, "", ""},
		{"no gateway", "vxlan", nil, "", ""},
		{
			"translated",
			"vxlan",
			[]func(*submarinerv1.EndpointSpec){nat},
			"cluster east refuses: this cluster is behind NAT",
			"",
		},
		{"translated, encrypted", "wireguard", []func(*submarinerv1.EndpointSpec){nat}, "", ""},
		{"one of two is not translated", "vxlan", []func(*submarinerv1.EndpointSpec){nat, config("x", "")}, "", ""},
		{
			"other port",
			"vxlan",
			[]func(*submarinerv1.EndpointSpec){config("vxlan-port", "4599")},
			"cluster east refuses: cluster west uses UDP port 4501 for vxlan and this cluster uses 4599",
			"",
		},
		{
			"other VNI",
			"vxlan",
			[]func(*submarinerv1.EndpointSpec){config("vxlan-id", "7")},
			"cluster east refuses: cluster west uses VNI",
			"",
		},
		{
			"no key",
			"wireguard",
			[]func(*submarinerv1.EndpointSpec){config("publicKey", "")},
			"cluster west refuses: cluster east announces",
			"",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var o catalog.Objects
			add(&o, "", "west", "", all, config("vxlan-port", "4501"), config("vxlan-id", "1000"))
			add(&o, "east", "east", "", "")
			for i, change := range test.east {
				add(&o, "east", "east", "", all, config("vxlan-port", "4501"), config("vxlan-id", "1000"), change)
				o.Clusters = o.Clusters[:2]
				o.Endpoints[i+1].Name = fmt.Sprint(i)
			}
			c := catalog.OfMember(&v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{ClusterID: "west"}}, o)
			fresh := []*v1alpha1.CablePolicies{made("a", " |  | "+test.driver)}
			change := impact.Of(c, c.With(fresh))
			review := c.Review(fresh)[0]
			require.Equal(t, []string{"east - west"}, []string{review.Matched[0].String()})
			pair := review.Matched[0]
			driver, err := c.Cable(pair, c.With(fresh).Book().Decide(pair.X, pair.Y))
			if test.err == "" {
				require.NoError(t, err)
				require.Equal(t, test.driver, driver)
				require.Empty(t, review.Refused)
				limit := ""
				for _, l := range review.Limited {
					limit += l.Err.Error()
				}
				require.Equal(t, test.limit, limit)
				return
			}
			require.ErrorContains(t, err, test.err)
			require.ErrorContains(t, review.Refused[0].Err, test.err)
			if test.driver != "vxlan" { // else the same as before
				require.ErrorContains(t, change.Cables[0].Then.Err, test.err)
			}
		})
	}
}

// Where one of two clusters has several gateways, a combination takes the place of the driver that
// connects to one, and is what gateways are to use, if they offer it and can.
func TestStandIn(t *testing.T) {
	const everything = all + ",vxlan+wireguard,vxlan+ipsec"
	tells := func(siblings string, nat bool) func(*submarinerv1.EndpointSpec) {
		return func(e *submarinerv1.EndpointSpec) {
			e.NATEnabled = nat
			e.BackendConfig[submarinerv1.BackendSiblings] = siblings
		}
	}
	for name, test := range map[string]struct {
		driver, offers, siblings string
		nat                      bool
		want                     string
		why                      string
	}{
		"several": {
			"wireguard",
			everything,
			"true",
			false,
			"vxlan+wireguard",
			"wireguard connects to one gateway of a cluster, and cluster east has several: vxlan+wireguard is in its place",
		},
		"one":         {"wireguard", everything, "false", false, "wireguard", ""},
		"no limit":    {"vxlan", everything, "true", false, "vxlan", ""},
		"not offered": {"wireguard", all, "true", false, "wireguard", ""},
		"through NAT": {
			"wireguard",
			everything,
			"true",
			true,
			"vxlan+wireguard",
			"wireguard connects to one gateway of a cluster, and cluster east has several: vxlan+wireguard is in its place",
		},
		"it does not go": {"ipsec", everything, "true", true, "ipsec", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var o catalog.Objects
			add(&o, "", "west", "", everything, tells("false", false))
			add(&o, "east", "east", "", test.offers, tells(test.siblings, test.nat))
			o.Policies = append(o.Policies, *made("a", " |  | "+test.driver))
			c := catalog.OfMember(&v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{ClusterID: "west"}}, o)
			use := catalog.Use{
				Cluster:       "west",
				RemoteCluster: "east",
				CableDriver:   test.want,
				Policy:        "a",
				Status:        string(submarinerv1.Connected),
			}
			c.Uses = []catalog.Use{use}
			x, _ := c.Cluster("west")
			y, _ := c.Cluster("east")
			r := c.Explain(x, y)
			require.Equal(t, []string{test.want, test.why, ""}, []string{r.CableDriver, r.CableDriverReason, r.Error})
			require.False(t, r.Differs, "the gateways use what they should")
			require.Empty(t, c.List().Troubles)
			connections := c.Connections()
			require.Len(t, connections, 1)
			require.Equal(t, []string{test.want, test.want},
				[]string{connections[0].Cable.Driver, connections[0].Cable.Wanted})
			c.Uses[0].CableDriver = "vxlan+ipsec"
			require.True(t, c.Explain(x, y).Differs)
			c.Uses[0].DriverReason = "one of the gateways is a standby"
			require.False(t, c.Explain(x, y).Differs)
		})
	}
}

func TestReview(t *testing.T) {
	c := member(copied("east", made("b", "site=one,!x | site=cloud | wireguard")))
	r := c.Review([]*v1alpha1.CablePolicies{made("a", "site=one |  | ipsec")})[0]
	require.Equal(t, [][2][]string{{{"west"}, {"cloud", "east", "west"}}}, r.Selected)
	require.Equal(t, "[cloud - west east - west]", fmt.Sprint(r.Matched))
	require.Equal(t, "map[b:[cloud - west]]", fmt.Sprint(r.Lost))
	require.EqualError(t, r.Lacking["ipsec"]["west"], "cluster west does not offer ipsec")
	require.Empty(t, r.Refused)
}

// A policy is shared as a whole in all its clustersets: the review says whose ID it tells whom, and
// where it would not.
func TestDisclosure(t *testing.T) {
	hub := &catalog.Catalog{Keeper: "hub", Sets: []string{"a", "b", "c"}, Clusters: []policy.Cluster{
		{
			ID:   "both",
			Sets: []string{"a", "b"},
		},
		{ID: "east", Sets: []string{"a"}},
		{ID: "hub", Sets: []string{"a", "b", "c"}},
		{ID: "west", Sets: []string{"b"}},
	}}
	limited := func(set string, p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
		p.Labels = map[string]string{submarinerv1.ClusterSetLabel: set}
		return p
	}
	const id = submarinerv1.ClusterIDLabel
	for name, test := range map[string]struct {
		policy *v1alpha1.CablePolicies
		want   catalog.Disclosure
	}{
		"no cluster":      {made("p", "site=one |  | ipsec"), catalog.Disclosure{}},
		"its own cluster": {made("p", id+"=hub | "+id+" | ipsec"), catalog.Disclosure{}},
		"a spoke": {
			made("p", " | "+id+"=west | ipsec"),
			catalog.Disclosure{[]string{"west"}, []string{"a", "c"}, []string{"b"}},
		},
		"all but a spoke": {
			made("p", " | "+id+"!=west | ipsec"),
			catalog.Disclosure{[]string{"west"}, []string{"a", "c"}, []string{"b"}},
		},
		"a spoke, in its clusterset": {limited("b", made("p", " | "+id+"=west | ipsec")), catalog.Disclosure{}},
		"a spoke, in another": {
			limited("a", made("p", " | "+id+"=west | ipsec")),
			catalog.Disclosure{[]string{"west"}, []string{"a"}, []string{"b"}},
		},
		"two spokes": {
			made("p", " | "+id+"=west | ipsec", " | "+id+" in (east) | ipsec"),
			catalog.Disclosure{[]string{"east", "west"}, []string{"a", "b", "c"}, nil},
		},
		"a cluster of two clustersets": {
			made("p", " | "+id+"=both | ipsec"),
			catalog.Disclosure{[]string{"both"}, []string{"c"}, []string{"a", "b"}},
		},
		"a cluster that is to join": {
			made("p", " | "+id+"=north | ipsec"),
			catalog.Disclosure{[]string{"north"}, []string{"a", "b", "c"}, nil},
		},
		"the same, in its clusterset": {limited("c", made("p", " | "+id+"=north | ipsec")), catalog.Disclosure{}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, hub.Review([]*v1alpha1.CablePolicies{test.policy})[0].Disclosure)
		})
	}
	require.Zero(t, member().Review([]*v1alpha1.CablePolicies{made("p", " | "+id+"=north | ipsec")})[0].Disclosure,
		"there is one clusterset")
}

// A policy of a cluster removes no encryption from the pairs of others, and it is said so.
func TestThirdParties(t *testing.T) {
	secure := copied(submarinerv1.BrokerID, made("default", " |  | wireguard"))
	c := member(secure)
	fresh := []*v1alpha1.CablePolicies{made("a", "!x |  | vxlan")}
	r := c.Review(fresh)[0]
	require.Len(t, r.Matched, 3)
	require.Equal(t, "[cloud - east]", fmt.Sprint(r.SetAside))
	require.Empty(t, r.Lost)

	l := member(secure, made("a", "!x |  | vxlan")).List()
	require.Equal(t, [][2]string{{"cloud", "west"}, {"east", "west"}}, l.Rules[0].Pairs)
	require.Equal(t, [][2]string{{"cloud", "east"}}, l.Rules[0].SetAside)
	require.Equal(t, [][2]string{{"cloud", "east"}}, l.Rules[1].Pairs)
	require.Empty(t, l.Rules[1].SetAside)
	require.Empty(t, l.Troubles)

	t.Log("once the broker adopts it, it decides")
	set := catalog.Set{Name: "default"}
	set.Policies = []v1alpha1.CablePolicies{*made("a", " |  | vxlan")}
	adopted := catalog.OfBroker(v1alpha1.BrokerSpec{}, []catalog.Set{set})
	require.Equal(t, submarinerv1.BrokerID, adopted.Maker(adopted.Policies[0]))
}

// Where only the broker makes policies, those of clusters have no effect, and are listed as such.
func TestBrokerOnly(t *testing.T) {
	c := member(copied(submarinerv1.BrokerID, made("default", " |  | vxlan")), made("a", " |  | wireguard"),
		copied("east", made("b", " |  | wireguard")))
	c.BrokerOnly = true
	l := c.List()
	require.Empty(t, l.Rules[0].Pairs)
	require.Equal(t, "ignored", l.Rules[0].State)
	require.Contains(t, l.Rules[0].Message, "subctl cable-policy adopt")
	require.Equal(t, "ignored", l.Rules[1].State)
	require.Len(t, l.Rules[2].Pairs, 3)
	require.EqualError(t, c.CheckMakers(),
		"the broker accepts only its own cable policies (deploy-broker --policies-from broker): create the policy there, with --context CONTEXT or, if this cluster hosts the broker, with --broker")
	c.Keeper = submarinerv1.BrokerID
	require.NoError(t, c.CheckMakers())
}

// A policy with a mistake is listed as it is in force.
func TestList(t *testing.T) {
	mistaken := made("a", "site=one | site=two | gre")
	mistaken.Status.Rules = rules("site=one | site=two | wireguard")
	fresh := made("z", " |  | gre")
	fresh.Status = v1alpha1.CablePoliciesStatus{}
	c := member(mistaken, fresh)
	l := c.List()
	require.Len(t, l.Rules, 2)
	require.Equal(t, "wireguard", l.Rules[0].CableDriver)
	require.Equal(t, [][2]string{{"east", "west"}}, l.Rules[0].Pairs)
	require.Equal(t, "mistakes", l.Rules[0].State)
	require.Contains(t, l.Rules[0].Message,
		`the version shared before stays in force: spec[0].name: unknown cable driver "gre"`)
	require.Equal(t, "gre", l.Rules[1].CableDriver)
	require.Empty(t, l.Rules[1].Pairs)
	require.Equal(t, 2, l.Undecided)
	require.Len(t, l.Troubles, 2)
	require.Equal(t, "wireguard", c.Explain(c.Clusters[1], c.Clusters[2]).CableDriver)
	require.Equal(t, "wireguard", c.Rule(c.Explain(c.Clusters[1], c.Clusters[2])).CableDriver)
}
