package cmd

import (
	"cmp"
	"fmt"
	"strings"
)

const networksLong = `Shows the networks that the cluster announced when it joined. If its components use others
by now, run "subctl join" again.`

// networksRow is the networks of a cluster; its JSON is a promise.
type networksRow struct {
	Cluster          string   `json:"cluster"`
	NetworkPlugin    string   `json:"networkPlugin"`
	ServiceCIDRs     []string `json:"serviceCIDRs"`
	ClusterCIDRs     []string `json:"clusterCIDRs"`
	GlobalCIDR       string   `json:"globalCIDR"`
	ClustersetIPCIDR string   `json:"clustersetIPCIDR"`
}

func networksView() view[networksRow] {
	return view[networksRow]{
		noun: "networks", short: "Show the networks of the clusters", joined: true,
		rows: func(s site) []networksRow {
			spec, status := s.submariner.Spec, s.submariner.Status
			return []networksRow{{
				Cluster: s.name, NetworkPlugin: cmp.Or(status.NetworkPlugin, "unknown"),
				ServiceCIDRs: split(cmp.Or(status.ServiceCIDR, spec.ServiceCIDR)),
				ClusterCIDRs: split(cmp.Or(status.ClusterCIDR, spec.ClusterCIDR)),
				GlobalCIDR:   cmp.Or(status.GlobalCIDR, spec.GlobalCIDR), ClustersetIPCIDR: spec.ClustersetIPCIDR,
			}}
		},
		text: networksText,
	}
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

// split takes a list with commas apart.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
