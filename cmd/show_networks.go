package cmd

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster/networks"
	"subctl/internal/look"
	"subctl/internal/prefix"
)

const networksLong = `These are the networks with which the cluster joined. If the cluster has got others since, a
warning has the command that takes them over. Further warnings are about settings of the network
plugin and of kube-proxy under which traffic between clusters fails (docs/cni.md), as far as you
may read these settings.`

// networksRow are the networks of a cluster; its JSON is a promise.
type networksRow struct {
	Cluster          string   `json:"cluster"`
	NetworkPlugin    string   `json:"networkPlugin"`
	ServiceCIDRs     []string `json:"serviceCIDRs"`
	ClusterCIDRs     []string `json:"clusterCIDRs"`
	GlobalCIDR       string   `json:"globalCIDR"`
	ClustersetIPCIDR string   `json:"clustersetIPCIDR"`
	// Warnings name settings of the network plugin and of kube-proxy under which traffic between
	// clusters fails, and networks with which the cluster has not joined.
	Warnings []string `json:"warnings"`
}

func networksTable() look.Section {
	return look.View[networksRow]{
		Noun: "networks", Short: "Show the networks of the clusters", Long: networksLong, Joined: true,
		Reads: []look.Read{look.ReadNetwork},
		Rows: func(s look.Site) []networksRow {
			spec := s.Submariner.Spec
			status := s.Submariner.Status
			warnings := []string{}
			if s.Network != nil {
				warnings = append(warnings, s.Network.Warnings...)
				warnings = append(warnings,
					notJoined(s.Submariner, v1alpha1.ClusterCIDRField, spec.ClusterCIDR, "pod", s.Network.Pods)...)
				warnings = append(warnings, notJoined(s.Submariner, v1alpha1.ServiceCIDRField, spec.ServiceCIDR,
					"Service", s.Network.Services)...)
			}
			return []networksRow{{
				Cluster: s.Name, NetworkPlugin: cmp.Or(status.NetworkPlugin, "unknown"),
				ServiceCIDRs: split(cmp.Or(status.ServiceCIDR, spec.ServiceCIDR)),
				ClusterCIDRs: split(cmp.Or(status.ClusterCIDR, spec.ClusterCIDR)),
				GlobalCIDR:   cmp.Or(status.GlobalCIDR, spec.GlobalCIDR), ClustersetIPCIDR: spec.ClustersetIPCIDR,
				Warnings: warnings,
			}}
		},
		Text: networksText,
	}.Section()
}

// notJoined returns a warning about networks that the cluster has and with which it has not joined.
func notJoined(sub *v1alpha1.Submariner, field, joined, what string, found networks.Found) []string {
	known := networks.Parse(joined)
	more := slices.DeleteFunc(slices.Clone(found.CIDRs),
		func(p netip.Prefix) bool { return prefix.CoverTogether(known, p) })
	if len(known) == 0 || len(more) == 0 {
		return nil
	}
	remedy := "subctl join JOIN-FILE"
	if !sub.Discovered(field) {
		remedy += fmt.Sprintf(" --%s %s,%s", strings.ToLower(field), joined, prefix.Format(more))
	}
	return []string{fmt.Sprintf("the %s network %s (%s) is not known to other clusters: run %q with the join file",
		what, prefix.Format(more), found.From, remedy)}
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
	for _, warning := range r.Warnings {
		line("Warning", warning)
	}
	return b.String()
}

// split splits a list at commas.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
