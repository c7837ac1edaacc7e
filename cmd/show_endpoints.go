package cmd

import (
	"cmp"
	"slices"
	"strings"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/look"
	"subctl/internal/printer"
)

const endpointsLong = `An endpoint is the end of the cables at a gateway. The list contains the endpoints
of the cluster ("local"), and the endpoints of other clusters that its gateways connect to
("remote"). CLUSTERSETS are the clustersets of the cluster, or those that it shares with the
other cluster. STANDBY is shown if there are standbys, which are used if no other gateway of their
cluster answers (docs/failover.md).

The exit code is 3 if the cluster has no gateway.`

// endpointRow is an endpoint that a cluster has read; its JSON is a promise.
type endpointRow struct {
	Cluster         string   `json:"cluster"`
	EndpointCluster string   `json:"endpointCluster"`
	ClusterSets     []string `json:"clusterSets"` // of both clusters
	EndpointGateway string   `json:"endpointGateway"`
	EndpointIP      string   `json:"endpointIP"`
	PublicIP        string   `json:"publicIP"`
	CableDriver     string   `json:"cableDriver"`
	Type            string   `json:"type"`
	Standby         bool     `json:"standby"` // used only if no other gateway of its cluster answers
	Subnets         []string `json:"subnets"`
}

func endpointsTable() look.Section {
	return look.View[endpointRow]{
		Noun:   "endpoints",
		Short:  "Show the endpoints of cables",
		Long:   endpointsLong,
		Reads:  []look.Read{look.ReadGateways, look.ReadMembersIfAllowed},
		Joined: true,
		Rows:   endpointRows,
		Trouble: func(s look.Site, _ []endpointRow) []string {
			if len(s.Gateways) == 0 {
				return []string{look.NoGateways}
			}
			return nil
		},
		Columns: []printer.Column[endpointRow]{
			{Head: "CLUSTER", Cell: func(r endpointRow) string { return r.EndpointCluster }},
			{
				Head: "CLUSTERSETS",
				Max:  30,
				Cell: func(r endpointRow) string { return strings.Join(r.ClusterSets, ", ") },
			},
			{Head: "GATEWAY", Cell: func(r endpointRow) string { return r.EndpointGateway }},
			{Head: "ENDPOINT IP", Cell: func(r endpointRow) string { return r.EndpointIP }},
			{Head: "PUBLIC IP", Cell: func(r endpointRow) string { return r.PublicIP }},
			{Head: "CABLE DRIVER", Cell: func(r endpointRow) string { return r.CableDriver }},
			{Head: "TYPE", Cell: func(r endpointRow) string { return r.Type }},
			{
				Head:   "STANDBY",
				Wide:   true,
				Unless: haveStandbys,
				Cell:   func(r endpointRow) string { return look.YesNo(r.Standby) },
			},
			{Head: "SUBNETS", Wide: true, Cell: func(r endpointRow) string { return strings.Join(r.Subnets, ", ") }},
		},
	}.Section()
}

func endpointRows(s look.Site) []endpointRow {
	var rows []endpointRow
	add := func(e submarinerv1.EndpointSpec, driver, kind string) {
		rows = append(rows, endpointRow{
			Cluster:         s.Name,
			EndpointCluster: e.ClusterID,
			ClusterSets:     s.Members.Shared(e.ClusterID),
			EndpointGateway: e.Hostname,
			EndpointIP:      e.PrivateIP,
			PublicIP:        e.PublicIP,
			CableDriver:     cmp.Or(driver, e.Backend),
			Type:            kind,
			Standby:         isStandby(e),
			Subnets:         append([]string{}, e.Subnets...),
		})
	}
	for _, gw := range s.Gateways {
		if gw.Status.HAStatus != submarinerv1.HAStatusActive && !isStandby(gw.Status.LocalEndpoint) {
			continue // a passive gateway of an older version has no endpoint
		}
		add(gw.Status.LocalEndpoint, "", "local")
		for _, c := range gw.Status.Connections {
			driver := c.Driver
			if c.UsingIP == "" {
				driver = "" // there is no cable
			}
			add(c.Endpoint, driver, "remote")
		}
	}
	order := func(a, b endpointRow) int {
		return cmp.Or(
			strings.Compare(a.Type, b.Type), strings.Compare(a.EndpointCluster, b.EndpointCluster),
			strings.Compare(a.EndpointGateway, b.EndpointGateway), strings.Compare(a.EndpointIP, b.EndpointIP),
			strings.Compare(a.CableDriver, b.CableDriver))
	}
	slices.SortStableFunc(rows, order)
	// All gateways of a cluster report the same remote endpoints.
	return slices.CompactFunc(rows, func(a, b endpointRow) bool { return order(a, b) == 0 })
}

// isStandby reports whether the gateway of an endpoint is a standby.
func isStandby(e submarinerv1.EndpointSpec) bool {
	return e.BackendConfig[submarinerv1.BackendDrain] == submarinerv1.Standby
}

// haveStandbys reports whether one of the endpoints is of a standby.
func haveStandbys(rows []endpointRow) bool {
	return slices.ContainsFunc(rows, func(r endpointRow) bool { return r.Standby })
}
