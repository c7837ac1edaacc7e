//go:build linux

package kernel

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// cnfState returns an object of every kind that a CNF may hold.
func cnfState(t testing.TB) dataplane.State {
	return state(
		t,
		ruleset("a-name"),
		dataplane.Multipath{
			Table: 41,
			Dst:   cidr("0.0.0.0/0"),
			Hops:  []dataplane.Hop{{Via: ip("172.18.0.1"), Dev: "eth0", Weight: 1}},
		},
		dataplane.Multipath{
			Table: 254,
			Dst:   cidr("10.20.0.0/16"),
			Hops:  []dataplane.Hop{{Dev: "eth0", Weight: 1}},
			Src:   ip("172.18.0.2"),
		},
		dataplane.Arrival{Priority: 1001, Dev: "eth0", Table: 41},
		dataplane.MarkRule{Priority: 2001, Mark: 0x100, Mask: 0x3f00, Table: 41},
		dataplane.PolicyRule{Priority: 3001, Mark: 0x100, Mask: 0x3f00, Action: dataplane.ActionUnreachable},
		dataplane.PolicyRule{Priority: 2061, Mark: 0x3d00, Mask: 0x3f00, Action: dataplane.ActionBlackhole},
		dataplane.PolicyRule{Priority: 999, Src: cidr("10.0.0.1/32"), Table: 40},
		dataplane.PolicyRule{Priority: 999, Src: cidr("10.0.0.2/32"), Table: 40},
		dataplane.PolicyRule{
			Priority: 7000,
			Not:      true,
			Src:      cidr("10.0.0.0/8"),
			Dst:      cidr("192.0.2.0/24"),
			Mark:     1,
			Mask:     0xff,
			Table:    1234,
		},
		dataplane.Rule{Priority: 100, Table: 254},
	)
}

func ruleset(note string) dataplane.Ruleset {
	return dataplane.Ruleset{
		Family: "inet", Table: dataplane.CNFRules.Name,
		Sets: []dataplane.RuleSet{{Name: "sticky_a", Type: "ipv4_addr", Flags: "dynamic,timeout", Size: 100}},
		Chains: []dataplane.RuleChain{
			{Name: "fw_input", Type: "filter", Hook: "input", Rules: []dataplane.TextRule{
				{
					Text: `iifname "eth0" jump zone_lan`,
					Note: note,
				}, {Text: "ip saddr { 10.0.0.0/8, 192.0.2.1 } tcp dport 80 drop"},
			}},
			{Name: "nat_prerouting", Type: "nat", Hook: "prerouting", Priority: -100},
			{
				Name: "zone_lan",
				Rules: []dataplane.TextRule{
					{Text: "update @sticky_a { ip saddr timeout 600s }"},
					{Text: "accept", Note: "end"},
				},
			},
		},
	}
}

// What a CNF holds is observed as it was put, and nothing of it is left.
func TestRoundTripCNF(t *testing.T) {
	ns, h := node(t, dataplane.CNFOwner)
	before := traces(ns)
	want := cnfState(t)
	require.Len(t, settle(t, ns, h, want), len(want))
	require.Equal(t, len(want), len(look(t, ns, h)))
	for k, o := range look(t, ns, h) {
		require.True(t, want[k].Equal(o), "%v\n%v", want[k], o)
	}
	require.Empty(t, settle(t, ns, h, want))
	settle(t, ns, h, nil)
	require.Empty(t, look(t, ns, h))
	require.ElementsMatch(t, before, traces(ns))
}

// Check says what nft(8) and the kernel would refuse, of a table that is there and of a new one,
// and changes nothing.
func TestCheckRuleset(t *testing.T) {
	ns, h := node(t, dataplane.CNFOwner)
	good := ruleset("a-name")
	bad := func(text string) dataplane.Ruleset {
		r := ruleset("another")
		r.Chains = slices.Clone(r.Chains)
		r.Chains[2].Rules = []dataplane.TextRule{{Text: text, Note: "one"}}
		return r
	}
	for range 2 { // without the table, and with it
		before := ns.Run("nft list ruleset")
		ns.Do(func() {
			require.NoError(t, h.Check(t.Context(), nil))
			require.NoError(t, h.Check(t.Context(), good))
			require.ErrorContains(t, h.Check(t.Context(), bad("no such words")), "syntax error")
			require.Error(t, h.Check(t.Context(), bad("jump nowhere")), "which only the kernel notices")
		})
		require.Equal(t, before, ns.Run("nft list ruleset"))
		ns.Do(func() { require.NoError(t, h.Apply(t.Context(), dataplane.Op{New: good})) })
	}
}

// What String prints, given to a shell, makes the same table, except for the digests in comments.
func TestRulesetString(t *testing.T) {
	ns, h := node(t, dataplane.CNFOwner)
	list := func() string { return digests.ReplaceAllString(ns.Run("nft list ruleset"), "") }
	settle(t, ns, h, state(t, ruleset("a-name")))
	ours := list()
	ns.Run("nft delete table inet subctl-cnf")
	ns.Run(strings.ReplaceAll(ruleset("a-name").String(), "\t", " "))
	require.Equal(t, sorted(ours), sorted(list()))
	require.NotEqual(t, state(t, ruleset("a-name")), look(t, ns, h), "rules without a digest are foreign")
	require.NotEmpty(t, settle(t, ns, h, state(t, ruleset("a-name"))))
	require.Empty(t, settle(t, ns, h, state(t, ruleset("a-name"))))
}

// Other programs' objects beside those of a CNF are not seen, and stay.
func TestOwnersCNF(t *testing.T) {
	ns, h := node(t, dataplane.CNFOwner)
	ns.Run("set -e\n" + others + cnfOthers)
	before := traces(ns)
	require.Empty(t, look(t, ns, h))
	settle(t, ns, h, cnfState(t))
	require.Subset(t, traces(ns), before)
	require.Empty(t, settle(t, ns, h, cnfState(t)))
	settle(t, ns, h, nil)
	require.ElementsMatch(t, before, traces(ns))
}

// Whatever another program does to a CNF's objects, Watch notices and one Sync repairs, and
// elements of sets stay unless the set is gone.
func TestDriftCNF(t *testing.T) {
	ns, h := node(t, dataplane.CNFOwner)
	want := cnfState(t)
	settle(t, ns, h, want)
	const table = "inet subctl-cnf"
	requireRepaired(t, ns, h, want, map[string]string{
		"rule deleted": "nft delete rule " + table + " zone_lan handle $(nft -a list chain " + table +
			" zone_lan | grep -o 'handle [0-9]*$' | tail -1 | cut -d' ' -f2)",
		"rule added":    "nft add rule " + table + " zone_lan drop",
		"rule inserted": "nft insert rule " + table + ` fw_input drop comment '"a-name #aabbccddeeff"'`,
		"rule replaced": "nft replace rule " + table + " zone_lan handle $(nft -a list chain " + table +
			" zone_lan | grep -o 'handle [0-9]*$' | tail -1 | cut -d' ' -f2) drop",
		"chain flushed":     "nft flush chain " + table + " fw_input",
		"chain added":       "nft add chain " + table + " more",
		"chain with a hook": "nft 'add chain " + table + " more { type filter hook output priority 3; }'",
		"policy changed":    "nft 'chain " + table + " fw_input { policy drop; }'",
		"chain of another": "nft flush chain " + table + " nat_prerouting && nft delete chain " + table +
			" nat_prerouting && nft 'add chain " + table +
			" nat_prerouting { type filter hook prerouting priority -100; }'",
		"table dormant": "nft 'add table " + table + " { flags dormant; }'",
		"table deleted": "nft delete table " + table,
		"set added":     "nft 'add set " + table + " more { type ipv4_addr; }'",
		"set of another type": "nft flush chain " + table + " zone_lan && nft delete set " + table +
			" sticky_a && nft 'add set " + table + " sticky_a { type inet_service; }'",
		"route deleted":        "ip route del default table 41",
		"route of main":        "ip route del 10.20.0.0/16",
		"route added":          "ip route add 10.21.0.0/16 dev eth0 proto 172",
		"rule of main":         "ip rule del pref 100",
		"one of several":       "ip rule del pref 999 from 10.0.0.1",
		"action changed":       "ip rule del pref 2061 && ip rule add pref 2061 fwmark 0x3d00/0x3f00 unreachable protocol 172",
		"not is gone":          "ip rule del pref 7000 && ip rule add pref 7000 from 10.0.0.0/8 to 192.0.2.0/24 fwmark 1/0xff lookup 1234 protocol 172",
		"rule added elsewhere": "ip rule add pref 20000 lookup 7 protocol 172",
	})
}

// requireRepaired requires that Watch notices each damage, a command, and that one Sync repairs it.
func requireRepaired(t *testing.T, ns *nstest.NS, h *Host, want dataplane.State, damages map[string]string) {
	t.Helper()
	var signals <-chan struct{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ns.Do(func() {
		var err error
		signals, err = WatchNetwork(ctx, 10*time.Millisecond)
		require.NoError(t, err)
	})
	calm(signals, news)
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			calm(signals, 50*time.Millisecond)
			ns.Run(damage)
			select {
			case <-signals:
			case <-time.After(10 * time.Second):
				require.Fail(t, "Watch did not notice")
			}
			require.NotEmpty(t, settle(t, ns, h, want), "Observe must see it")
			for k, o := range look(t, ns, h) {
				require.True(t, want[k].Equal(o), "%v\n%v", want[k], o)
			}
			require.Empty(t, settle(t, ns, h, want))
		})
	}
}

// Sets keep their elements whatever changes in chains.
func TestSetsKeepElements(t *testing.T) {
	ns, h := node(t, dataplane.CNFOwner)
	r := ruleset("a-name")
	settle(t, ns, h, state(t, r))
	ns.Run("nft 'add element inet subctl-cnf sticky_a { 192.0.2.7 timeout 1h }'")
	for i := range 3 {
		r.Chains[0].Rules = append(r.Chains[0].Rules[:1:1],
			dataplane.TextRule{Text: fmt.Sprintf("tcp dport %d accept", 80+i)},
			r.Chains[0].Rules[len(r.Chains[0].Rules)-1])
		settle(t, ns, h, state(t, r))
		require.Contains(t, ns.Run("nft list set inet subctl-cnf sticky_a"), "192.0.2.7")
	}
}

// Names of users' objects cannot become rules of a CNF.
func TestHostileNotes(t *testing.T) {
	ns, h := node(t, dataplane.CNFOwner)
	for _, note := range []string{
		`x" ; drop`,
		"x\nadd rule inet subctl-cnf zone_lan drop",
		`\" drop #`,
		strings.Repeat("ä", 100),
		"a\x00b",
		"$(reboot)",
		"x #aabbccddeeff",
		"'",
		"}",
	} {
		want := state(t, ruleset(note))
		settle(t, ns, h, want)
		require.Empty(t, settle(t, ns, h, want), "%q", note)
		require.NotContains(t, ns.Run("nft list chain inet subctl-cnf zone_lan"), "drop")
	}
}

// cnfOthers are objects of other programs in the namespace of a CNF.
const cnfOthers = `
nft add table ip subctl-cnf && nft 'add chain ip subctl-cnf a { type filter hook input priority 0; }' && nft add rule ip subctl-cnf a accept
nft add table inet subctl-cnf2 && nft add chain inet subctl-cnf2 zone_lan && nft add rule inet subctl-cnf2 zone_lan accept
ip route add 10.30.0.0/16 dev eth0
ip route add 10.30.0.0/16 dev eth0 table 41
ip rule add pref 2002 fwmark 0x200/0x3f00 lookup 42
ip rule add pref 999 from 10.0.0.3 lookup 40
`

var digests = regexp.MustCompile(` ?#[0-9a-f]{12}`)

// emptyComments are what is left of the comments of rules and sets without their digests.
var emptyComments = regexp.MustCompile(`(?m) comment ""|^\s*comment ""\n`)

func sorted(text string) []string {
	lines := strings.Split(emptyComments.ReplaceAllString(text, ""), "\n")
	slices.Sort(lines)
	return lines
}
