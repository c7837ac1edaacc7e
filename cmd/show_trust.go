package cmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/look"
	"subctl/internal/printer"
)

const trustLong = `The list contains the other clusters whose grants the gateways of the cluster have verified;
on a broker that is not a member, all members of the broker, compared with the administrator's
key that the broker states.

SINCE is when the grant was signed, and SIGNED BY whether with the administrator's key or with
an invitation. A cluster may announce only the NETWORKS of its grant, and as many GATEWAYS. A
broker cannot alter what a cluster publishes, but it can withhold it: AGE is the time since the
cluster signed the newest state of its Cluster object, which it renews about once an hour.

What the gateways refused, and why, is a problem: it is on stderr, and the exit code is 3.`

// trustRow is a cluster and its grant; its JSON is a promise.
type trustRow struct {
	Cluster     string   `json:"cluster"`
	ClusterID   string   `json:"clusterID"`
	Since       string   `json:"since"` // RFC 3339; empty: there is no grant
	SignedBy    string   `json:"signedBy"`
	Networks    []string `json:"networks"`
	Gateways    int      `json:"gateways"`
	ClusterSets []string `json:"clusterSets"`
	LastData    string   `json:"lastData"` // RFC 3339; empty: not known
	Flaw        string   `json:"flaw"`     // empty: none is known

	age string
}

func trustTable() look.Section {
	list := func(of func(trustRow) []string) func(trustRow) string {
		return func(r trustRow) string { return strings.Join(of(r), ", ") }
	}
	return look.View[trustRow]{
		Noun: "trust", Short: "Show the grants of the clusters", Long: trustLong, Joined: true, OnBroker: true,
		Reads: []look.Read{look.ReadMembers, look.ReadGateways}, Rows: trustRows, None: "no other cluster is known",
		Columns: []printer.Column[trustRow]{
			{Head: "CLUSTER", Cell: func(r trustRow) string { return r.ClusterID }},
			{Head: "SINCE", Cell: func(r trustRow) string { return r.Since }},
			{Head: "SIGNED BY", Cell: func(r trustRow) string { return r.SignedBy }},
			{Head: "NETWORKS", Max: 60, Cell: list(func(r trustRow) []string { return r.Networks })},
			{Head: "GATEWAYS", Cell: func(r trustRow) string { return fmt.Sprint(r.Gateways) }},
			{Head: "CLUSTERSETS", Max: 40, Cell: list(func(r trustRow) []string { return r.ClusterSets })},
			{Head: "AGE", Cell: func(r trustRow) string { return r.age }},
		},
		Trouble: trustTrouble,
	}.Section()
}

func trustRows(s look.Site) []trustRow {
	if s.Members == nil {
		return nil
	}
	var rows []trustRow
	for _, c := range s.Members.Catalog.Clusters {
		if s.Joined() && c.ID == s.Members.Keeper {
			continue // it verifies the others
		}
		object := s.Members.Clusters[c.ID]
		rows = append(rows, trustRowOf(s, c.ID, &object))
	}
	return rows
}

// trustRowOf returns the row of a cluster, with what its Cluster object states.
func trustRowOf(s look.Site, id string, object *submarinerv1.Cluster) trustRow {
	r := trustRow{Cluster: s.Name, ClusterID: id, Networks: []string{}, ClusterSets: []string{}}
	token := object.Annotations[submarinerv1.GrantAnnotation]
	g, err := trust.ClaimedGrant(token)
	if err == nil {
		r.Since, r.SignedBy, r.Gateways = stampOf(g.Serial), "administrator", g.Gateways
		if g.Invited > 0 {
			r.SignedBy = "invitation"
		}
		for _, n := range g.Networks {
			r.Networks = append(r.Networks, n.String())
		}
		r.ClusterSets = append(r.ClusterSets, g.Sets...)
	}
	if token == "" {
		r.Flaw = "it has no grant"
	} else if !s.Joined() {
		r.Flaw = grantFlaw(s, id, token, object)
	}
	if last, err := trust.ClaimedStatement(object.Annotations[submarinerv1.SignatureAnnotation]); err == nil && last.Sequence > 0 {
		r.LastData = stampOf(last.Sequence)
		r.age = max(0, s.Now.Sub(time.UnixMilli(last.Sequence))).Round(time.Second).String()
	}
	return r
}

// grantFlaw returns what is wrong with the grant of a cluster on a broker; empty if the broker
// does not state the administrator's key. Members verify with the key that they pinned.
func grantFlaw(s look.Site, id, token string, object *submarinerv1.Cluster) string {
	if len(s.Brokers) == 0 || s.Brokers[0].Annotations[broker.AdministratorAnnotation] == "" {
		return ""
	}
	key, err := trust.ParsePublic(s.Brokers[0].Annotations[broker.AdministratorAnnotation])
	if err != nil {
		return err.Error()
	}
	g, err := key.Grant(token)
	if err == nil && g.Cluster != id {
		err = fmt.Errorf("its grant is for cluster %s", g.Cluster)
	}
	if err == nil {
		_, err = exchange.Kinds().Verify(object, g.Key)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func stampOf(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// trustTrouble returns the clusters without a valid grant, and what the gateways refused.
func trustTrouble(s look.Site, rows []trustRow) []string {
	var out []string
	for _, r := range rows {
		if r.Flaw != "" {
			out = append(out, fmt.Sprintf("cluster %s: %s", r.ClusterID, r.Flaw))
		}
	}
	for i := range s.Gateways {
		if c := meta.FindStatusCondition(s.Gateways[i].Status.Conditions, mesh.ConditionRefused); c != nil && c.Status == "True" {
			for line := range strings.SplitSeq(c.Message, "\n") {
				out = append(out, fmt.Sprintf("gateway %s refuses %s", s.Gateways[i].Name, line))
			}
		}
	}
	slices.SortStableFunc(out, cmp.Compare)
	return slices.Compact(out)
}
