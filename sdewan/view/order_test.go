package view

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/dataplane"
	"subctl/sdewan"
)

func aRule(name, src, dest, target string, second int) *batch.FirewallRule {
	return &batch.FirewallRule{
		ObjectMeta: metaOf(name, "one", second),
		Spec: batch.FirewallRuleSpec{
			Src:     batch.ZoneName(src),
			Dest:    batch.ZoneName(dest),
			Target:  target,
			SetMark: "0x1",
		},
	}
}

func aForwarding(name, src, dest string, second int) *batch.FirewallForwarding {
	return &batch.FirewallForwarding{
		ObjectMeta: metaOf(name, "one", second),
		Spec:       batch.FirewallForwardingSpec{Src: batch.ZoneName(src), Dest: batch.ZoneName(dest)},
	}
}

// aSite has rules of all kinds that decide about packets. The older a rule, the later it decides,
// wherever kinds and zones count more than age.
func aSite() *View {
	lan := &batch.FirewallZone{
		ObjectMeta: metaOf("lan", "one", 1),
		Spec:       batch.FirewallZoneSpec{Network: []batch.NetworkName{"lan"}},
	}
	wan := &batch.FirewallZone{
		ObjectMeta: metaOf("wan", "one", 2),
		Spec:       batch.FirewallZoneSpec{Network: []batch.NetworkName{"wan1"}, Masq: "1"},
	}
	web := &batch.CNFService{
		ObjectMeta: metaOf("service", "one", 3),
		Spec:       batch.CNFServiceSpec{Port: "80", DPort: "8080"},
	}
	dnat := &batch.FirewallDNAT{
		ObjectMeta: metaOf("dnat", "one", 4),
		Spec:       batch.FirewallDNATSpec{Src: "wan", SrcDPort: "80", DestIP: "192.168.1.1", Proto: "tcp"},
	}
	snat := &batch.FirewallSNAT{
		ObjectMeta: metaOf("snat", "one", 5),
		Spec:       batch.FirewallSNATSpec{Dest: "wan", SrcIP: "192.168.1.2", SrcDIP: "1.2.3.4"},
	}
	host := &batch.IpsecHost{ObjectMeta: metaOf("host", "one", 40)}
	host.Spec.IpsecRemote = batch.IpsecRemote{Remote: "192.0.2.10", Auth: "psk", PreSharedKey: "correct-horse"}
	host.Spec.Connections = []batch.IpsecHostConnection{
		{
			IpsecConnection: batch.IpsecConnection{
				Name:          "a",
				Mode:          "start",
				RemoteSubnet:  "10.30.0.0/24",
				LocalFirewall: "yes",
			},
		},
	}
	v := &View{CNFs: []CNF{aCNF("x", "one")}, Rules: []sdewan.Rule{
		lan,
		wan,
		aForwarding("out", "lan", "wan", 6),
		aForwarding("in", "wan", "lan", 7),
		aForwarding("all", "*", "wan", 8),
		aRule("pass", "lan", "wan", "", 9),
		aRule("local", "lan", "", "", 10),
		aRule("own", "", "wan", "", 11),
		aRule("anypass", "*", "*", "", 12),
		aRule("anylocal", "*", "", "", 13),
		aRule("anyown", "", "", "", 14),
		aRule("guest", "lan", "*", "", 15),
		aRule("back", "wan", "lan", "", 16),
		aRule("mark", "lan", "*", "MARK", 17),
		aRule("mark2", "*", "*", "MARK", 18),
		aRule("markin", "*", "", "MARK", 19),
		aRule("raw", "lan", "", "NOTRACK", 20),
		snat,
		dnat,
		host,
		web,
	}}
	v.services = map[sdewan.Rule]service{
		web: {sdewan.RenderCNFService(web, netip.MustParseAddr("10.96.0.9"), "tcp"), nil},
	}
	return v
}

// An explanation has all rules that decide before a rule about the same packets, of whichever kind,
// and no others.
func TestExplainOrder(t *testing.T) {
	v := aSite()
	for name, want := range map[string]string{
		"anypass": "IpsecHost host",
		"all":     "IpsecHost host, FirewallRule anypass",
		"pass":    "IpsecHost host, FirewallRule anypass, FirewallForwarding all",
		"guest":   "IpsecHost host, FirewallRule anypass, FirewallForwarding all, FirewallRule pass",
		"out":     "IpsecHost host, FirewallRule anypass, FirewallForwarding all, FirewallRule pass, FirewallRule guest",
		"in":      "IpsecHost host, FirewallRule anypass, FirewallRule back",
		"local":   "IpsecHost host, FirewallRule anylocal",
		"own":     "IpsecHost host, FirewallRule anyown",
		"mark":    "",
		"mark2":   "FirewallRule mark",
		"markin":  "",
		"raw":     "",
		"snat":    "",
		"host":    "",
		"dnat":    "IpsecHost host, FirewallRule anypass, FirewallRule anylocal, FirewallRule back",
		"service": "FirewallDNAT dnat, IpsecHost host, FirewallRule anypass, FirewallRule anylocal, FirewallRule pass, FirewallRule local, FirewallRule guest, FirewallRule back",
		"wan":     "IpsecHost host, FirewallRule anypass, FirewallRule anylocal, FirewallRule anyown, FirewallForwarding all, FirewallRule own, FirewallRule back, FirewallForwarding in, CNFService service, FirewallDNAT dnat, FirewallSNAT snat",
		"lan":     "IpsecHost host, FirewallRule anypass, FirewallRule anylocal, FirewallRule anyown, FirewallForwarding all, FirewallRule pass, FirewallRule local, FirewallRule guest, FirewallForwarding out, CNFService service",
	} {
		require.Equal(t, want, strings.Join(v.Explain(v.FindRule(name)[0]).After, ", "), name)
	}
	for _, zone := range []string{"p", "q"} { // zones that share a network
		x := &batch.FirewallZone{
			ObjectMeta: metaOf(zone, "one", 50),
			Spec:       batch.FirewallZoneSpec{Network: []batch.NetworkName{"lan"}},
		}
		v.Rules = append(v.Rules, x)
	}
	require.Contains(t, v.Explain(v.FindRule("q")[0]).After, "FirewallZone p")
	require.NotContains(t, v.Explain(v.FindRule("q")[0]).After, "FirewallZone wan")
}

// The order of an explanation is the one of the plan: walk a packet's way through the table.
func TestExplainOrderIsThePlans(t *testing.T) {
	v := aSite()
	state, problems := v.Plan(v.CNFs[0], nil)
	require.Empty(t, problems)
	chains := map[string][]dataplane.TextRule{}
	for _, o := range state {
		if r, is := o.(dataplane.Ruleset); is {
			for _, c := range r.Chains {
				chains[c.Name] = c.Rules
			}
		}
	}
	var walk func(chain string) []string
	walk = func(chain string) (notes []string) {
		for _, r := range chains[chain] {
			words := strings.Fields(r.Text)
			if i := slices.IndexFunc(words, func(w string) bool { return w == "jump" || w == "goto" }); i >= 0 &&
				words[i+1] != "fw_reject" {
				notes = append(notes, walk(words[i+1])...)
				continue
			}
			notes = append(notes, r.Note)
		}
		return notes
	}
	checked := 0
	for _, chain := range []string{
		"fw_forward", "fw_input", "fw_output", "nat_prerouting", "nat_postrouting", "mark_prerouting",
	} {
		notes := walk(chain)
		if chain == "nat_postrouting" { // hides clients from what is behind redirects
			notes = slices.DeleteFunc(notes, func(n string) bool { return n == "dnat" || n == "service" })
		}
		for _, r := range v.Rules {
			at := slices.Index(notes, r.GetName())
			for _, first := range v.Explain(r).After {
				_, name, _ := strings.Cut(first, " ")
				if i := slices.Index(notes, name); i >= 0 && at >= 0 {
					require.Less(t, i, at, "%s: %s before %s: %v", chain, name, r.GetName(), notes)
					checked++
				}
			}
		}
	}
	require.Greater(t, checked, 30)
}
