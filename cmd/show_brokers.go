package cmd

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"subctl/broker"
	"subctl/internal/look"
	"subctl/internal/printer"
)

const brokersLong = `These are the brokers that the clusters host, not the brokers that they have joined. It is
not a problem if a cluster hosts none.`

// brokerRow is a broker on a cluster; its JSON is a promise.
type brokerRow struct {
	Cluster              string   `json:"cluster"`
	Namespace            string   `json:"namespace"`
	Name                 string   `json:"name"`
	Components           []string `json:"components"`
	Globalnet            bool     `json:"globalnet"`
	GlobalnetCIDR        string   `json:"globalnetCIDR"`
	DefaultGlobalnetSize uint     `json:"defaultGlobalnetSize"`
	DefaultDomains       []string `json:"defaultDomains"`
}

func brokersTable() look.Section {
	return look.View[brokerRow]{
		Noun: "brokers", Short: "Show the brokers", Long: brokersLong, Reads: []look.Read{look.ReadBrokers},
		Rows: brokerRows, None: "no brokers found",
		Columns: []printer.Column[brokerRow]{
			{Head: "NAMESPACE", Cell: func(r brokerRow) string { return r.Namespace }},
			{Head: "NAME", Cell: func(r brokerRow) string { return r.Name }},
			{Head: "COMPONENTS", Cell: func(r brokerRow) string { return strings.Join(r.Components, ", ") }},
			{Head: "GLOBALNET", Cell: func(r brokerRow) string { return look.YesNo(r.Globalnet) }},
			{Head: "GLOBALNET CIDR", Cell: func(r brokerRow) string { return r.GlobalnetCIDR }},
			{Head: "GLOBALNET SIZE", Cell: func(r brokerRow) string {
				return strconv.FormatUint(uint64(r.DefaultGlobalnetSize), 10)
			}},
			{
				Head: "DEFAULT DOMAINS",
				Max:  40,
				Cell: func(r brokerRow) string { return strings.Join(r.DefaultDomains, ", ") },
			},
		},
	}.Section()
}

func brokerRows(s look.Site) []brokerRow {
	var rows []brokerRow
	for _, b := range s.Brokers {
		rows = append(rows, brokerRow{
			Cluster:   s.Name,
			Namespace: b.Namespace,
			Name:      b.Name,
			Components: append([]string{},
				broker.ComponentsOf(b.Spec)...),
			Globalnet:            b.Spec.GlobalnetEnabled,
			GlobalnetCIDR:        b.Spec.GlobalnetCIDRRange,
			DefaultGlobalnetSize: b.Spec.DefaultGlobalnetClusterSize,
			DefaultDomains:       append([]string{}, b.Spec.DefaultCustomDomains...),
		})
	}
	slices.SortFunc(rows, func(a, b brokerRow) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return rows
}
