package cmd

import (
	"cmp"
	"fmt"
	"strings"

	"subctl/internal/look"
)

const networksLong = `These are the networks with which the cluster joined. If they have changed since, run
"subctl join" again.`

// networksRow are the networks of a cluster; its JSON is a promise.
type networksRow struct {
	Cluster          string   `json:"cluster"`
	NetworkPlugin    string   `json:"networkPlugin"`
	ServiceCIDRs     []string `json:"serviceCIDRs"`
	ClusterCIDRs     []string `json:"clusterCIDRs"`
	GlobalCIDR       string   `json:"globalCIDR"`
	ClustersetIPCIDR string   `json:"clustersetIPCIDR"`
}

func networksTable() look.Section {
	return look.View[networksRow]{
		Noun: "networks", Short: "Show the networks of the clusters", Long: networksLong, Joined: true,
		Rows: func(s look.Site) []networksRow {
			spec, status := s.Submariner.Spec, s.Submariner.Status
			return []networksRow{{
				Cluster: s.Name, NetworkPlugin: cmp.Or(status.NetworkPlugin, "unknown"),
				ServiceCIDRs: split(cmp.Or(status.ServiceCIDR, spec.ServiceCIDR)),
				ClusterCIDRs: split(cmp.Or(status.ClusterCIDR, spec.ClusterCIDR)),
				GlobalCIDR:   cmp.Or(status.GlobalCIDR, spec.GlobalCIDR), ClustersetIPCIDR: spec.ClustersetIPCIDR,
			}}
		},
		Text: networksText,
	}.Section()
}

// networksText is upstream's layout.
func networksText(r networksRow) string {
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "        %-18s%s\n", name+":", value) }
	fmt.Fprintln(&b, "    Discovered network details via Submariner:")
	line("Network plugin", r.NetworkPlugin)
	line("Service CIDRs", fmt.Sprint(r.ServiceCIDRs))
	line("Cluster CIDRs", fmt.Sprint(r.ClusterCIDRs))
	if r.GlobalCIDR != "" {
		line("Global CIDR", r.GlobalCIDR)
	}
	if r.ClustersetIPCIDR != "" {
		line("ClustersetIP CIDR", r.ClustersetIPCIDR)
	}
	return b.String()
}

// split splits a list at commas.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
