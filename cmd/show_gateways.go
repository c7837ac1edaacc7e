package cmd

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"subctl/agent"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/printer"
)

const gatewaysLong = `SUMMARY says how many connections to other clusters are up, or what keeps the gateway from
its work. A gateway that has not reported for 15 s counts as dead.

The exit code is 3 if no gateway is active, or if one is dead, reports a failure, refuses
an endpoint, cannot use what was configured, is not in step with the broker, or has a
connection that is not connected.`

// gatewayTimeout is how old a gateway's report may be: it is written every 5 s.
const gatewayTimeout = 15 * time.Second

// gatewayRow is a gateway node of a cluster; its JSON is a promise.
type gatewayRow struct {
	Cluster     string `json:"cluster"`
	Node        string `json:"node"`
	HAStatus    string `json:"haStatus"`
	Summary     string `json:"summary"`
	Connections int    `json:"connections"`
	Connected   int    `json:"connected"`
	Version     string `json:"version"`
	Healthy     bool   `json:"healthy"`
}

func gatewaysView() view[gatewayRow] {
	return view[gatewayRow]{
		noun: "gateways", short: "Show the gateway nodes", reads: []read{readGateways}, joined: true,
		rows: gatewayRows, trouble: gatewayTrouble,
		columns: []printer.Column[gatewayRow]{
			{Head: "NODE", Cell: func(r gatewayRow) string { return r.Node }},
			{Head: "HA STATUS", Cell: func(r gatewayRow) string { return r.HAStatus }},
			{Head: "VERSION", Wide: true, Cell: func(r gatewayRow) string { return r.Version }},
			{Head: "SUMMARY", Cell: func(r gatewayRow) string { return r.Summary }},
		},
	}
}

func gatewayRows(s site) []gatewayRow {
	var rows []gatewayRow
	for _, gw := range sortedGateways(s) {
		r := gatewayRow{
			Cluster: s.name, Node: gw.Name, HAStatus: string(gw.Status.HAStatus), Version: gw.Status.Version,
			Connections: len(gw.Status.Connections),
		}
		for _, c := range gw.Status.Connections {
			if c.Status == submarinerv1.Connected {
				r.Connected++
			}
		}
		fault := gatewayFault(gw, s.now)
		r.Summary = cmp.Or(fault, connectionSummary(r.Connected, r.Connections))
		r.Healthy = fault == "" && r.Connected == r.Connections
		rows = append(rows, r)
	}
	return rows
}

// connectionSummary is upstream's wording.
func connectionSummary(up, all int) string {
	switch {
	case all == 0:
		return "There are no connections"
	case up == all:
		return fmt.Sprintf("All connections (%d) are established", all)
	}
	return fmt.Sprintf("%d connections out of %d are established", up, all)
}

func gatewayTrouble(s site, rows []gatewayRow) []string {
	if len(rows) == 0 {
		return []string{noGateways}
	}
	var out []string
	active := false
	for i, gw := range sortedGateways(s) {
		active = active || gw.Status.HAStatus == submarinerv1.HAStatusActive && stale(gw, s.now) == ""
		if !rows[i].Healthy {
			out = append(out, fmt.Sprintf("gateway %s: %s", gw.Name, rows[i].Summary))
		}
	}
	if !active {
		out = append(out, "no gateway is active")
	}
	return out
}

// noGateways is what is wrong with a cluster that has joined and has no gateway.
const noGateways = `no gateways detected: label a node with ` + submarinerv1.GatewayNodeLabel + `=true, and see that its gateway pod runs`

// sortedGateways returns the gateways by name.
func sortedGateways(s site) []submarinerv1.Gateway {
	return slices.SortedFunc(slices.Values(s.gateways), func(a, b submarinerv1.Gateway) int { return strings.Compare(a.Name, b.Name) })
}

// gatewayFault says what keeps a gateway from its work, or from what it was told; ""
// if nothing does.
func gatewayFault(gw submarinerv1.Gateway, now time.Time) string {
	if old := stale(gw, now); old != "" {
		return old
	}
	var faults []string
	if gw.Status.StatusFailure != "" {
		faults = append(faults, gw.Status.StatusFailure)
	}
	for _, c := range gw.Status.Conditions {
		if text := cmp.Or(c.Message, c.Reason); agent.Wrong(c) && !slices.Contains(faults, text) {
			faults = append(faults, text)
		}
	}
	return strings.ReplaceAll(strings.Join(faults, "; "), "\n", "; ")
}

// stale says since when a gateway has not reported, if that is too long.
func stale(gw submarinerv1.Gateway, now time.Time) string {
	seconds, err := strconv.ParseInt(gw.Annotations[submarinerv1.TimestampAnnotation], 10, 64)
	if err != nil {
		return "not updated: it has no time of its last report"
	}
	last := time.Unix(seconds, 0)
	if now.Sub(last) <= gatewayTimeout {
		return ""
	}
	return "not updated since " + last.UTC().Format(time.RFC3339)
}
