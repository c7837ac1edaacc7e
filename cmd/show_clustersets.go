package cmd

import (
	"fmt"
	"slices"
	"strings"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/internal/look"
	"subctl/internal/printer"
)

const clustersetsLong = `The list contains the clustersets of the cluster. CLUSTERS are the other clusters in each of
them; a cluster knows no other clusters. On a broker that is not a member, the list contains all
clustersets of the broker, with the clusters that have published their data in them: subctl
clusterset list prints the members, whether or not they have done so.

A cluster is in the clustersets that its newest grant names. The administrator of the broker
changes them with subctl clusterset add and remove.

The exit code is 3 if a cluster that has joined is in no clusterset, or cannot exchange objects
with the broker, such as in a clusterset that was deleted there by hand.`

// clustersetMembersRow is a clusterset that a member or a broker knows; its JSON is a promise.
type clustersetMembersRow struct {
	Cluster    string   `json:"cluster"`
	ClusterSet string   `json:"clusterSet"`
	Clusters   []string `json:"clusters"` // without the cluster itself
}

func clustersetsTable() look.Section {
	return look.View[clustersetMembersRow]{
		Noun:     "clustersets",
		Short:    "Show the clustersets and their clusters",
		Long:     clustersetsLong,
		Joined:   true,
		OnBroker: true,
		Reads:    []look.Read{look.ReadMembers, look.ReadGateways},
		Rows:     clustersetRows,
		Trouble:  clustersetTrouble,
		Columns: []printer.Column[clustersetMembersRow]{
			{Head: "CLUSTERSET", Cell: func(r clustersetMembersRow) string { return r.ClusterSet }},
			{
				Head: "CLUSTERS",
				Max:  80,
				Cell: func(r clustersetMembersRow) string { return strings.Join(r.Clusters, ", ") },
			},
		},
	}.Section()
}

func clustersetRows(s look.Site) []clustersetMembersRow {
	if s.Members == nil {
		return nil
	}
	var rows []clustersetMembersRow
	for _, set := range slices.Sorted(slices.Values(s.Members.Sets)) {
		r := clustersetMembersRow{Cluster: s.Name, ClusterSet: set, Clusters: []string{}}
		for _, c := range s.Members.Catalog.Clusters {
			if c.ID != s.Members.Keeper && slices.Contains(c.Sets, set) {
				r.Clusters = append(r.Clusters, c.ID)
			}
		}
		rows = append(rows, r)
	}
	return rows
}

func clustersetTrouble(s look.Site, rows []clustersetMembersRow) (out []string) {
	if !s.Joined() {
		return nil
	}
	if len(rows) == 0 {
		out = append(
			out,
			fmt.Sprintf(
				"it is in no clusterset, and not connected to any other cluster: on the broker, run subctl clusterset add SET %s",
				s.Name),
		)
	}
	for _, gw := range s.Gateways {
		for _, c := range gw.Status.Conditions {
			if !role.Wrong(c) {
				continue
			}
			for line := range strings.Lines(c.Message) {
				// Objects may be refused for other reasons, too, which other tables show.
				if c.Type == submarinerv1.ConditionBrokerSynced ||
					c.Type == role.ConditionRefused && strings.Contains(line, exchange.NotReserved) {
					out = append(out, fmt.Sprintf("gateway %s: %s", gw.Name, strings.TrimSuffix(line, "\n")))
				}
			}
		}
	}
	return out
}
