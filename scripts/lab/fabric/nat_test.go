package fabric

import (
	"slices"
	"strings"
	"testing"

	"subctl/lab/plan"
)

func TestNATRules(t *testing.T) {
	rules := natRules(plan.Cluster{Number: 3, Nodes: 2}, []int{4490, 4500})
	for _, want := range []string{
		`out oifname != "br3" ip saddr 10.100.3.0/24 ip saddr != 10.100.3.1 snat to 10.100.3.254` + "\n",
		`behind oifname "br3" iifname != { "br3", "host" } ip daddr != 10.100.3.1 ct direction original ct status & dnat == 0 drop`,
		`in iifname != "br3" ip daddr 10.100.3.254 udp dport 4500 dnat to 10.100.3.11`,
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("%q is missing in %s", want, rules)
		}
	}
	if n := strings.Count(natRules(plan.Cluster{Number: 3, Nodes: 2}, nil), "dnat to"); n != 0 {
		t.Errorf("%d ports are forwarded that nobody asked for", n)
	}
}

func TestParseTables(t *testing.T) {
	// As nft 1.0.6 prints it.
	const listing = `{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "ip", "name": "subctl_lab_nat_cluster3", "handle": 5}},
		{"table": {"family": "ip", "name": "filter", "handle": 6}}]}`
	got, err := parseTables([]byte(listing))
	if want := []string{natTable(plan.Cluster{Number: 3})}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
