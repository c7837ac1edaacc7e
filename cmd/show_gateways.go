package cmd

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
)

const gatewaysLong = `HA STATUS is active, draining or drained (subctl gateway drain), or passive: a standby, which
is used if no active gateway answers (docs/failover.md). WEIGHT is the gateway's share of new
connections compared to the others; 0 drains it. FLOWS is the number of connections to and
from other clusters that it carries, without those of pods on its own node; -o json and
-o yaml list up to 20 of them. SHARE is its part of those of all gateways of its cluster.
SUMMARY is the number of connections that are up, or the problem of the gateway. Of about
1,000 connections or more, it counts some that "subctl show connections" does not print. A
gateway that has not reported for 15 s is considered dead.

-o wide also shows since when the gateway drains; NEXT HOP GROUPS, which are resilient, or
plain where the kernel has no resilient ones, or multipath routes where it has no next hop
objects: then connections may move when another gateway comes or goes; and HASH POLICY, the
sysctl net.ipv4.fib_multipath_hash_policy: with 0, all connections between two pods take the
same gateways.

The exit code is 3 if no gateway is active, if fewer gateway nodes work than join was asked for,
or if a gateway is dead, reports a failure, refuses an endpoint, cannot use its configuration, is
out of sync with the broker, has a connection that is not connected, except to a gateway that is
leaving while another one reaches its cluster, or a clock that is 15 s ahead: nobody can tell then
whether it still reports; or if the firewall of a node drops packets of other clusters to its
pods.`

// gatewayRow is a gateway node of a cluster; its JSON is a promise.
type gatewayRow struct {
	Cluster     string `json:"cluster"`
	Node        string `json:"node"`
	HAStatus    string `json:"haStatus"`
	State       string `json:"state"` // active, draining, drained or passive
	Summary     string `json:"summary"`
	Connections int    `json:"connections"`
	Connected   int    `json:"connected"`
	Omitted     int    `json:"connectionsOmitted"` // of Connections: the gateway has no room to report each of them
	Version     string `json:"version"`
	Healthy     bool   `json:"healthy"`

	Weight *int   `json:"weight"` // 0: it is drained by its weight; null: unknown
	Flows  *int64 `json:"flows"`  // null: unknown
	// the first of them, at most 20, such as "tcp 10.1.0.5:40000 → 10.2.0.9:80"
	SomeFlows []string `json:"someFlows"`
	// of the flows of all gateways of the cluster, 0 to 1; null: unknown, or there are no flows
	Share          *float64 `json:"share"`
	DrainingSince  string   `json:"drainingSince"`  // RFC 3339; empty: it is in service
	NextHopObjects *bool    `json:"nextHopObjects"` // whether its kernel has next hop objects; null: unknown
	ResilientGroup *bool    `json:"resilientGroup"` // whether its kernel has resilient next hop groups; null: unknown
	HashPolicy     *int     `json:"hashPolicy"`     // net.ipv4.fib_multipath_hash_policy; null: unknown
}

func gatewaysTable() look.Section {
	return look.View[gatewayRow]{
		Noun:    "gateways",
		Short:   "Show the gateway nodes",
		Long:    gatewaysLong,
		Reads:   []look.Read{look.ReadGateways, look.ReadRouteAgentsIfAllowed},
		Joined:  true,
		Rows:    gatewayRows,
		Trouble: gatewayTrouble,
		Columns: []printer.Column[gatewayRow]{
			{Head: "NODE", Cell: func(r gatewayRow) string { return r.Node }},
			{Head: "HA STATUS", Cell: func(r gatewayRow) string { return r.State }},
			{Head: "SINCE", Wide: true, Cell: func(r gatewayRow) string { return r.DrainingSince }},
			{Head: "WEIGHT", Cell: func(r gatewayRow) string { return weightText(r.Weight) }},
			{Head: "FLOWS", Cell: func(r gatewayRow) string { return count(r.Flows) }},
			{Head: "SHARE", Cell: func(r gatewayRow) string { return percent(r.Share) }},
			{
				Head: "NEXT HOP GROUPS",
				Wide: true,
				Cell: func(r gatewayRow) string { return groupsText(r.NextHopObjects, r.ResilientGroup) },
			},
			{Head: "HASH POLICY", Wide: true, Cell: func(r gatewayRow) string { return hashText(r.HashPolicy) }},
			{Head: "VERSION", Wide: true, Cell: func(r gatewayRow) string { return r.Version }},
			{Head: "SUMMARY", Cell: func(r gatewayRow) string { return r.Summary }},
		},
	}.Section()
}

func gatewayRows(s look.Site) []gatewayRow {
	var rows []gatewayRow
	for _, gw := range s.Gateways {
		r := gatewayRow{
			Cluster:     s.Name,
			Node:        gw.Name,
			HAStatus:    string(gw.Status.HAStatus),
			Version:     gw.Status.Version,
			Connections: len(gw.Status.Connections) + gw.Status.ConnectionsOmitted,
			Connected:   gw.Status.ConnectionsOmitted - gw.Status.ConnectionsOmittedDown,
			Omitted:     gw.Status.ConnectionsOmitted,
		}
		for _, c := range gw.Status.Connections {
			if c.Status == submarinerv1.Connected {
				r.Connected++
			}
		}
		r.describe(s, gw)
		if look.Stale(gw, s.Now) != "" && !look.Ahead(gw, s.Now) {
			r.State = "unknown"
			r.Connected = 0 // what it reported last
		}
		fault := look.GatewayFault(gw, s.Now)
		leaving := replacedConnections(gw.Status.Connections)
		r.Summary = cmp.Or(fault, connectionSummary(r.Connected, r.Connections))
		if fault == "" && leaving > 0 {
			r.Summary += fmt.Sprintf("; %d leaving", leaving)
		}
		if fault == "" && r.Omitted > 0 {
			r.Summary += fmt.Sprintf("; %d of them are not reported one by one", r.Omitted)
		}
		r.Healthy = fault == "" && r.Connected+leaving == r.Connections
		rows = append(rows, r)
	}
	shareOut(rows)
	return rows
}

// replacedConnections returns how many connections of a gateway end because their remote gateways
// leave, while another one reaches the cluster.
func replacedConnections(all []submarinerv1.Connection) (n int) {
	for _, c := range all {
		if status, _ := look.ConnectionState(c); status == look.StatusLeaving &&
			slices.ContainsFunc(all, func(o submarinerv1.Connection) bool {
				return o.Endpoint.ClusterID == c.Endpoint.ClusterID && o.Status == submarinerv1.Connected
			}) {
			n++
		}
	}
	return n
}

// describe adds the share of a gateway in service, and what is known of its kernel.
func (r *gatewayRow) describe(s look.Site, gw submarinerv1.Gateway) {
	r.State = cmp.Or(gw.Status.Drain, r.HAStatus)
	r.Weight = gw.Status.Weight
	r.Flows = gw.Status.Flows
	r.SomeFlows = append([]string{}, gw.Status.SomeFlows[:min(len(gw.Status.SomeFlows), dataplane.MaxFlows)]...)
	if at := gw.Status.DrainingSince; at != nil {
		r.DrainingSince = at.UTC().Format(time.RFC3339)
	}
	for _, ra := range s.RouteAgents {
		if f := ra.Status.Node; ra.Name == gw.Name && f != nil {
			r.NextHopObjects = new(!f.NoNextHopObjects)
			r.ResilientGroup = &f.ResilientGroups
			r.HashPolicy = f.MultipathHashPolicy
		}
	}
}

// shareOut fills in the shares of the gateways of a cluster.
func shareOut(rows []gatewayRow) {
	var all int64
	for _, r := range rows {
		if r.Flows != nil {
			all += *r.Flows
		}
	}
	for i, r := range rows {
		if r.Flows != nil && all > 0 {
			share := float64(*r.Flows) / float64(all)
			rows[i].Share = &share
		}
	}
}

// weightText formats a weight that may be unknown.
func weightText(weight *int) string {
	if weight == nil {
		return ""
	}
	return strconv.Itoa(*weight)
}

// percent formats a share that may be unknown.
func percent(share *float64) string {
	if share == nil {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100**share)
}

// groupsText describes the next hop groups of a kernel; empty if unknown.
func groupsText(objects, resilient *bool) string {
	switch {
	case objects == nil || resilient == nil:
		return ""
	case !*objects:
		return "multipath routes (the kernel has no next hop objects)"
	case *resilient:
		return "resilient"
	}
	return "plain (the kernel has no resilient groups)"
}

// hashText describes a policy by which the kernel chooses among next hops, and what to do about it;
// empty if unknown.
func hashText(policy *int) string {
	switch {
	case policy == nil:
		return ""
	case *policy == 0:
		return "0: addresses (with ports: sysctl -w net.ipv4.fib_multipath_hash_policy=1)"
	case *policy == 1:
		return "1: addresses and ports"
	}
	return strconv.Itoa(*policy)
}

// connectionSummary is upstream's wording, except where one connection is up.
func connectionSummary(up, all int) string {
	switch {
	case all == 0:
		return "There are no connections"
	case up == all:
		return fmt.Sprintf("All connections (%d) are established", all)
	}
	if up == 1 {
		return fmt.Sprintf("1 connection out of %d is established", all)
	}
	return fmt.Sprintf("%d connections out of %d are established", up, all)
}

// gatewayProblems are problems that gateways of a cluster have, in the order in which they were
// added. A failure of a remote gateway is one for all gateways.
type gatewayProblems struct {
	texts    []string
	gateways map[string][]string // by text
}

// add adds a problem; text follows the name of the gateway.
func (p *gatewayProblems) add(gateway, text string) {
	if p.gateways == nil {
		p.gateways = map[string][]string{}
	}
	if p.gateways[text] == nil {
		p.texts = append(p.texts, text)
	}
	if !slices.Contains(p.gateways[text], gateway) {
		p.gateways[text] = append(p.gateways[text], gateway)
	}
}

// lines returns a line for each problem.
func (p *gatewayProblems) lines() (out []string) {
	for _, text := range p.texts {
		who := "gateway " + p.gateways[text][0]
		if len(p.gateways[text]) > 1 {
			who = "gateways " + words.List(p.gateways[text])
			if strings.HasPrefix(text, ":") {
				who += ", each"
			}
		}
		out = append(out, who+text)
	}
	return out
}

func gatewayTrouble(s look.Site, rows []gatewayRow) []string {
	few := fewGateways(s)
	if len(rows) == 0 && len(few) > 0 {
		return few
	}
	if len(rows) == 0 {
		return []string{look.NoGateways}
	}
	var faults gatewayProblems
	active := false
	for i, gw := range s.Gateways {
		active = active ||
			gw.Status.HAStatus == submarinerv1.HAStatusActive && (look.Stale(gw, s.Now) == "" || look.Ahead(gw, s.Now))
		if !rows[i].Healthy {
			faults.add(gw.Name, ": "+rows[i].Summary)
		}
	}
	out := append(faults.lines(), s.Firewalled()...)
	if !active {
		out = append(out, "no gateway is active")
	}
	return append(out, few...)
}

// fewGateways returns why fewer gateway nodes work than join was asked for; nothing if enough do.
func fewGateways(s look.Site) []string {
	if !s.Joined() {
		return nil
	}
	c := meta.FindStatusCondition(s.Submariner.Status.Conditions, v1alpha1.ConditionGateways)
	if c != nil && c.Status == metav1.ConditionFalse {
		return []string{c.Message}
	}
	return nil
}
