package sites_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/cnf"
	"subctl/sdewan/rest"
	"subctl/sdewan/sites"
)

const company = `
hubs:
- {name: hq, address: 192.0.2.10, networks: [10.30.0.0/24, 10.31.0.0/24], purpose: hub}
branches:
- {name: berlin, networks: [192.168.1.0/24], policy: failover}
- {name: rome, networks: [192.168.2.0/24], namespace: branch}
betweenBranches: true
`

// tunnels returns the tunnels of each site, by the other end.
func tunnels(t *testing.T, text string) (sites.List, map[string]map[string]batch.IpsecSiteSpec) {
	t.Helper()
	l, err := sites.Parse([]byte(text))
	require.NoError(t, err)
	keys := map[sites.Pair]string{}
	for _, p := range l.Pairs() {
		keys[p] = "key of " + p.Hub + " and " + p.Branch
	}
	objects, err := l.Objects(keys)
	require.NoError(t, err)
	out := map[string]map[string]batch.IpsecSiteSpec{}
	for site, rules := range objects {
		out[site] = map[string]batch.IpsecSiteSpec{}
		for _, r := range rules {
			if tunnel, ok := r.(*batch.IpsecSite); ok {
				out[site][tunnel.Spec.RemoteID] = tunnel.Spec
			}
		}
		for p, key := range l.Keys(site, rules) {
			require.Equal(t, keys[p], key)
		}
	}
	return l, out
}

// Both ends of a tunnel have its key, each other's identities and networks, and one end begins.
func TestEndsMatch(t *testing.T) {
	l, ends := tunnels(t, company)
	require.Len(t, l.Pairs(), 2)
	for _, p := range l.Pairs() {
		hub := ends[p.Hub][p.Branch]
		branch := ends[p.Branch][p.Hub]
		require.Equal(t, hub.PreSharedKey, branch.PreSharedKey)
		require.Equal(t, hub.LocalID, branch.RemoteID)
		require.Equal(t, branch.LocalID, hub.RemoteID)
		require.Equal(t, hub.Connections[0].LocalSubnet, branch.Connections[0].RemoteSubnet)
		require.Equal(t, branch.Connections[0].LocalSubnet, hub.Connections[0].RemoteSubnet)
		require.Equal(t, "start", branch.Connections[0].Mode)
		require.Equal(t, "add", hub.Connections[0].Mode)
	}
	require.NotEqual(t, ends["hq"]["berlin"].PreSharedKey, ends["hq"]["rome"].PreSharedKey)
	require.Equal(t, batch.Subnets("10.30.0.0/24,10.31.0.0/24,192.168.2.0/24"),
		ends["berlin"]["hq"].Connections[0].RemoteSubnet, "and rome, through the hub")
}

// The CNF of each site can do what its rules say.
func TestPlans(t *testing.T) {
	l, err := sites.Parse([]byte(company))
	require.NoError(t, err)
	objects, err := l.Objects(map[sites.Pair]string{{Hub: "hq", Branch: "berlin"}: "a", {Hub: "hq", Branch: "rome"}: "b"})
	require.NoError(t, err)
	var world cnf.World
	text, err := os.ReadFile("../cnf/testdata/world.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, &world))
	for _, site := range l.Sites() {
		c := rest.Config{}
		for _, r := range objects[site.Name] {
			k, ok := sdewan.KindOf(r)
			require.True(t, ok)
			o, err := k.Render(r, nil)
			require.NoError(t, err)
			switch o := o.(type) {
			case *rest.Remote:
				c.Remotes = append(c.Remotes, *o)
			case *rest.Proposal:
				c.Proposals = append(c.Proposals, *o)
			}
		}
		world.IPsec.Name = "charon"
		state, report := cnf.Plan(c, world)
		require.Empty(t, report.String(), site.Name)
		require.Contains(t, state.String(), site.Name)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string][]string{
		"hubs: []":        {"hubs and branches must have a site each"},
		"hub: []":         {`unknown field "hub"`},
		"- hq":            {"not a list of sites"},
		"{hubs: [{}]}":    {"hubs[0]: name", "hubs[0]: address", "hubs[0]: networks must have"},
		"branches: [{}]}": {"not a list of sites"},
		`{hubs: [{name: a, address: 192.0.2.1, networks: [10.0.0.0/8]}, {name: b, address: b.example, networks: [10.1.0.0/16]}],
branches: [{name: a, address: 192.0.2.3, networks: [10.9.0.1/24, "fd00::/64", 0.0.0.0/0], policy: p}], betweenBranches: true}`: {
			"betweenBranches needs a single hub",
			"hubs[1]: networks: 10.1.0.0/16 overlaps 10.0.0.0/8 of hubs[0]",
			`branches[0]: name "a": another site has it`,
			"branches[0]: address is for hubs",
			`"10.9.0.1/24" must be an IPv4 network`,
			`"fd00::/64" must be an IPv4 network`,
			`"0.0.0.0/0" must be an IPv4 network`,
			`branches[0]: policy needs hubs with IPv4 addresses`,
		},
	} {
		_, err := sites.Parse([]byte(text))
		for _, w := range want {
			require.ErrorContains(t, err, w, text)
		}
	}
}
