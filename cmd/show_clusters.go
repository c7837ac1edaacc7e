package cmd

import (
	"maps"
	"slices"
	"strings"
	"time"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/policy"
)

const clustersLong = `The list contains the cluster itself ("local") and the other clusters that it knows
("remote"); on a broker that is not a member, all members of the broker. CABLE DRIVERS are
the drivers that all gateways of the cluster offer. NETWORKS are its service networks, pod
networks and global networks. LAST CONTACT is the time since a gateway of the cluster last
answered through a cable or, for the local cluster, since a gateway last reported; it is
empty if there was no contact. A broker has no contact with its members.

Cable policies select clusters by LABELS, and by the label submariner-io/clusterID, which
is always the ID.`

// clusterRow is a cluster that a member or a broker knows; its JSON is a promise.
type clusterRow struct {
	Cluster      string            `json:"cluster"`
	ClusterID    string            `json:"clusterID"`
	Type         string            `json:"type"`
	Labels       map[string]string `json:"labels"`
	ClusterSets  []string          `json:"clusterSets"`
	CableDrivers []string          `json:"cableDrivers"`
	ServiceCIDRs []string          `json:"serviceCIDRs"`
	ClusterCIDRs []string          `json:"clusterCIDRs"`
	GlobalCIDRs  []string          `json:"globalCIDRs"`
	Gateways     []string          `json:"gateways"`
	LastContact  string            `json:"lastContact"` // RFC 3339; empty: none

	contactAge string
}

func clustersTable() look.Section {
	list := func(of func(clusterRow) []string) func(clusterRow) string {
		return func(r clusterRow) string { return strings.Join(of(r), ", ") }
	}
	return look.View[clusterRow]{
		Noun:     "clusters",
		Short:    "Show the clusters and what they offer",
		Long:     clustersLong,
		Joined:   true,
		OnBroker: true,
		Reads: []look.Read{
			look.ReadMembers,
			look.ReadGateways,
		},
		Rows: clusterRows,
		None: "no cluster has joined this broker",
		Columns: []printer.Column[clusterRow]{
			{Head: "CLUSTER", Cell: func(r clusterRow) string { return r.ClusterID }},
			{Head: "TYPE", Cell: func(r clusterRow) string { return r.Type }},
			{Head: "CLUSTERSETS", Max: 40, Cell: list(func(r clusterRow) []string { return r.ClusterSets })},
			{Head: "CABLE DRIVERS", Wide: true, Cell: list(func(r clusterRow) []string { return r.CableDrivers })},
			{
				Head: "NETWORKS",
				Max:  40,
				Cell: list(
					func(r clusterRow) []string {
						return slices.Concat(r.ServiceCIDRs, r.ClusterCIDRs, r.GlobalCIDRs)
					}),
			},
			{Head: "GATEWAYS", Max: 30, Cell: list(func(r clusterRow) []string { return r.Gateways })},
			{Head: "LAST CONTACT", Cell: func(r clusterRow) string { return r.contactAge }},
			{Head: "LABELS", Max: 60, Cell: list(func(r clusterRow) []string { return labelList(r.Labels) })},
		},
	}.Section()
}

func clusterRows(s look.Site) []clusterRow {
	if s.Members == nil {
		return nil
	}
	contacts := lastContacts(s)
	var rows []clusterRow
	for _, c := range s.Members.Catalog.Clusters {
		r := clusterRow{
			Cluster:     s.Name,
			ClusterID:   c.ID,
			Type:        "remote",
			Labels:      userLabels(c),
			ClusterSets: slices.Sorted(slices.Values(c.Sets)),
			Gateways:    []string{},
		}
		drivers, _ := s.Members.Offers(c.ID)
		r.CableDrivers = append([]string{}, drivers...)
		spec := s.Members.Clusters[c.ID].Spec
		r.ServiceCIDRs = append([]string{}, spec.ServiceCIDR...)
		r.ClusterCIDRs = append([]string{}, spec.ClusterCIDR...)
		r.GlobalCIDRs = append([]string{}, spec.GlobalCIDR...)
		if s.Joined() && c.ID == s.Members.Keeper {
			own := s.Submariner.Spec
			r.Type = "local"
			r.ServiceCIDRs = split(own.ServiceCIDR)
			r.ClusterCIDRs = split(own.ClusterCIDR)
			r.GlobalCIDRs = split(own.GlobalCIDR)
		}
		for _, e := range s.Members.Endpoints[c.ID] {
			r.Gateways = append(r.Gateways, e.Hostname)
		}
		slices.Sort(r.Gateways)
		if at := contacts[c.ID]; !at.IsZero() {
			r.LastContact = at.UTC().Format(time.RFC3339)
			r.contactAge = max(0, s.Now.Sub(at)).Round(time.Second).String()
		}
		rows = append(rows, r)
	}
	return rows
}

// lastContacts returns, by cluster ID, when the gateways of the clusters last answered the
// gateways of this cluster, and when a gateway of this cluster last reported.
func lastContacts(s look.Site) map[string]time.Time {
	out := map[string]time.Time{}
	later := func(id string, at time.Time) {
		if at.After(out[id]) {
			out[id] = at
		}
	}
	for i := range s.Gateways {
		if at, ok := s.Gateways[i].ReportedAt(); ok {
			later(s.Name, at)
		}
		for _, c := range s.Gateways[i].Status.Connections {
			if c.LastContact != nil {
				later(c.Endpoint.ClusterID, c.LastContact.Time)
			}
		}
	}
	return out
}

// userLabels returns the labels of a cluster except the label with its ID.
func userLabels(c policy.Cluster) map[string]string {
	out := map[string]string{}
	maps.Copy(out, c.Labels)
	delete(out, submarinerv1.ClusterIDLabel)
	return out
}

// labelList returns labels as k=v, sorted.
func labelList(labels map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return out
}
