package cmd

import (
	"cmp"
	"fmt"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/look"
	"subctl/internal/printer"
)

const gatewaysLong = `SUMMARY is the number of connections that are up, or the problem of the gateway. A gateway
that has not reported for 15 s is considered dead.

The exit code is 3 if no gateway is active, or if a gateway is dead, reports a failure,
refuses an endpoint, cannot use its configuration, is out of sync with the broker, or has a
connection that is not connected.`

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

func gatewaysTable() look.Section {
	return look.View[gatewayRow]{
		Noun: "gateways", Short: "Show the gateway nodes", Long: gatewaysLong, Reads: []look.Read{look.ReadGateways}, Joined: true,
		Rows: gatewayRows, Trouble: gatewayTrouble,
		Columns: []printer.Column[gatewayRow]{
			{Head: "NODE", Cell: func(r gatewayRow) string { return r.Node }},
			{Head: "HA STATUS", Cell: func(r gatewayRow) string { return r.HAStatus }},
			{Head: "VERSION", Wide: true, Cell: func(r gatewayRow) string { return r.Version }},
			{Head: "SUMMARY", Cell: func(r gatewayRow) string { return r.Summary }},
		},
	}.Section()
}

func gatewayRows(s look.Site) []gatewayRow {
	var rows []gatewayRow
	for _, gw := range s.Gateways {
		r := gatewayRow{
			Cluster: s.Name, Node: gw.Name, HAStatus: string(gw.Status.HAStatus), Version: gw.Status.Version,
			Connections: len(gw.Status.Connections),
		}
		for _, c := range gw.Status.Connections {
			if c.Status == submarinerv1.Connected {
				r.Connected++
			}
		}
		fault := look.GatewayFault(gw, s.Now)
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

func gatewayTrouble(s look.Site, rows []gatewayRow) []string {
	if len(rows) == 0 {
		return []string{look.NoGateways}
	}
	var out []string
	active := false
	for i, gw := range s.Gateways {
		active = active || gw.Status.HAStatus == submarinerv1.HAStatusActive && look.Stale(gw, s.Now) == ""
		if !rows[i].Healthy {
			out = append(out, fmt.Sprintf("gateway %s: %s", gw.Name, rows[i].Summary))
		}
	}
	if !active {
		out = append(out, "no gateway is active")
	}
	return out
}
