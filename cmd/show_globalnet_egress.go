package cmd

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/look"
	"subctl/internal/printer"
)

// egressRow holds the number of connections through a gateway with a global address as their
// source; its JSON is a promise.
type egressRow struct {
	Address     string `json:"address"`
	Gateway     string `json:"gateway"`
	Connections int64  `json:"connections"` // to all destinations
	// Busiest is the destination with the most of them, BusiestConnections how many those are, and
	// Ports how many it can have.
	Busiest            string `json:"busiest"`
	BusiestConnections int64  `json:"busiestConnections"`
	Ports              int64  `json:"ports"`
}

// readGatewaysOfMember reads the reports of the gateways of a cluster that has joined: a broker
// that is not a member has none.
func readGatewaysOfMember(ctx context.Context, r client.Reader, s *look.Site) error {
	if !s.Joined() {
		return nil
	}
	return look.ReadGateways(ctx, r, s)
}

// egressRows returns what the active gateways of a cluster have reported, by address.
func egressRows(s look.Site) []egressRow {
	out := []egressRow{}
	for _, gw := range s.Gateways {
		if gw.Status.HAStatus != submarinerv1.HAStatusActive || look.Stale(gw, s.Now) != "" {
			continue
		}
		for _, u := range gw.Status.GlobalEgress {
			out = append(out,
				egressRow{u.Address, gw.Name, u.Connections, u.Busiest, u.BusiestConnections, submarinerv1.EgressPorts})
		}
	}
	slices.SortStableFunc(out, func(a, b egressRow) int {
		x, _ := netip.ParseAddr(a.Address) // the zero Addr is first
		y, _ := netip.ParseAddr(b.Address)
		return cmp.Or(x.Compare(y), strings.Compare(a.Gateway, b.Gateway))
	})
	return out
}

// scarce reports whether the address has few ports left for a destination.
func (r egressRow) scarce() bool {
	return submarinerv1.EgressUse{BusiestConnections: r.BusiestConnections}.Scarce()
}

// used returns the part of the ports that is in use, for a table.
func (r egressRow) used() string {
	return fmt.Sprintf("%.0f %%", 100*float64(r.BusiestConnections)/float64(r.Ports))
}

func egressColumns() []printer.Column[egressRow] {
	return []printer.Column[egressRow]{
		{Head: "SOURCE", Cell: func(r egressRow) string { return r.Address }},
		{Head: "GATEWAY", Cell: func(r egressRow) string { return r.Gateway }},
		{Head: "CONNECTIONS", Cell: func(r egressRow) string { return fmt.Sprint(r.Connections) }},
		{Head: "MOST TO", Cell: func(r egressRow) string { return r.Busiest }},
		{Head: "THERE", Cell: func(r egressRow) string { return fmt.Sprint(r.BusiestConnections) }},
		{Head: "PORTS USED", Cell: egressRow.used},
	}
}

// egressTrouble returns the addresses with few ports left, and those that several gateways
// announce.
func egressTrouble(s look.Site, rows []egressRow) (out []string) {
	for _, r := range rows {
		if r.scarce() {
			out = append(
				out,
				fmt.Sprintf(
					"%s uses %d of its %d ports for %s, through gateway %s: allocate more addresses (spec.numGlobalIPs of the ClusterGlobalEgressIP, or spec.numberOfIPs of the GlobalEgressIP, that has it), or a GlobalEgressIP to the pods that connect most",
					r.Address, r.BusiestConnections, r.Ports, r.Busiest, r.Gateway),
			)
		}
	}
	told := map[string]bool{}
	for _, gw := range s.Gateways {
		if look.Stale(gw, s.Now) != "" {
			continue
		}
		if c := meta.FindStatusCondition(gw.Status.Conditions, report.ConditionEgressDistinct); c != nil &&
			role.Wrong(*c) &&
			!told[c.Message] {
			told[c.Message] = true
			out = append(out, strings.Split(c.Message, "\n")...)
		}
	}
	return out
}
