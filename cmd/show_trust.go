package cmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/look"
	"subctl/internal/printer"
)

const trustLong = `The list contains the cluster itself, and the other clusters whose grants its gateways have
verified; on a broker that is not a member, all members of the broker, compared with the
administrator's key that the broker states. It also contains the clusters that are no members any
more: those that left with subctl uninstall, and those that were removed with subctl revoke.

STATE is "member"; "left" or "revoked", and since when; or "refused", if other clusters refuse what
the cluster publishes. A cluster that has left, by a statement that it has signed, may still run if
subctl uninstall was interrupted: it must join again.

SIGNED BY states whether the grant was signed with the administrator's key or with an invitation.
GRANTED is when the administrator signed the grant or, for an invited cluster, the invitation:
an invited cluster signs its grant itself. SEEN SINCE is when the cluster's Cluster object arrived here, by the clock
of this API server; for the cluster itself, when it joined. A later grant of a cluster that is
known changes only GRANTED.

A cluster may announce only the NETWORKS of its grant, and as many GATEWAYS. CLUSTERSETS are those
for which the grant was found: a grant names no clusterset to a cluster that is not in it. A broker cannot
alter what a cluster publishes, but it can withhold it: AGE is the time since the cluster signed
the newest state of its Cluster object, by its own clock, which it renews about once an hour.

What the gateways refused, and why, is a problem: it is on stderr, and the exit code is 3.`

// trustRow is a cluster and its grant; its JSON is a promise.
type trustRow struct {
	Cluster     string   `json:"cluster"`
	ClusterID   string   `json:"clusterID"`
	State       string   `json:"state"`     // "member", "left", "revoked", or "refused": it has a flaw
	RemovedAt   string   `json:"removedAt"` // RFC 3339; empty: it is a member
	SignedBy    string   `json:"signedBy"`
	Granted     string   `json:"granted"`   // RFC 3339; empty: there is no valid grant
	SeenSince   string   `json:"seenSince"` // RFC 3339; empty: there is no Cluster object
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
		Reads: []look.Read{look.ReadRemoved, look.ReadGateways}, Rows: trustRows, None: "no cluster is known",
		Columns: []printer.Column[trustRow]{
			{Head: "CLUSTER", Cell: func(r trustRow) string { return r.ClusterID }},
			{Head: "STATE", Cell: func(r trustRow) string { return strings.TrimSpace(r.State + " " + r.RemovedAt) }},
			{Head: "SIGNED BY", Cell: func(r trustRow) string { return r.SignedBy }},
			{Head: "GRANTED", Cell: func(r trustRow) string { return r.Granted }},
			{Head: "SEEN SINCE", Cell: func(r trustRow) string { return r.SeenSince }},
			{Head: "NETWORKS", Wide: true, Cell: list(func(r trustRow) []string { return r.Networks })},
			{Head: "GATEWAYS", Cell: func(r trustRow) string {
				if r.Granted == "" {
					return ""
				}
				return fmt.Sprint(r.Gateways)
			}},
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
		object := s.Members.Clusters[c.ID]
		r := trustRow{Cluster: s.Name, ClusterID: c.ID, State: "member", Networks: []string{}, ClusterSets: []string{}}
		if s.Joined() && c.ID == s.Members.Keeper {
			r.Flaw = ownRemoval(s)
			r.state(s.Submariner, c.Sets, s.Now) // its gateways verify it
		} else {
			r.Flaw = grantFlaw(s, c.ID, &object)
			r.state(&object, c.Sets, s.Now)
		}
		rows = append(rows, r)
	}
	for _, removal := range s.Removed {
		if removal.Cluster == s.Members.Keeper {
			continue
		}
		r := trustRow{
			Cluster:     s.Name,
			ClusterID:   removal.Cluster,
			State:       "revoked",
			RemovedAt:   trust.Stamp(removal.Time),
			Networks:    []string{},
			ClusterSets: []string{},
		}
		if removal.Left {
			r.State = "left"
		}
		rows = append(rows, r)
	}
	return rows
}

// ownRemoval returns what is wrong if the gateways of a cluster have found a statement of the
// cluster that it has left, and it has not joined again since: the others refuse its grant.
func ownRemoval(s look.Site) string {
	for _, removal := range s.Removed {
		if removal.Cluster != s.Members.Keeper || !removal.Left {
			continue
		}
		if g, err := trust.ClaimedGrant(s.Submariner.Annotations[submarinerv1.GrantAnnotation]); err == nil &&
			g.Compare(removal.Grant) > 0 {
			continue
		}
		return fmt.Sprintf(
			"it has left at %s by its own statement, and the other clusters refuse its grant: join again with subctl join, or finish subctl uninstall",
			trust.Stamp(removal.Time))
	}
	return ""
}

// state adds when an object arrived and, unless it has a flaw, what its grant and its signature
// state. sets are the clustersets in which the grant was found, which disclose themselves only.
func (r *trustRow) state(object client.Object, sets []string, now time.Time) {
	if at := object.GetCreationTimestamp(); !at.IsZero() {
		r.SeenSince = at.UTC().Format(time.RFC3339)
	}
	if r.Flaw != "" {
		r.State = "refused"
		return
	}
	if last, err := trust.ClaimedStatement(object.GetAnnotations()[submarinerv1.SignatureAnnotation]); err == nil &&
		last.Sequence > 0 {
		r.LastData = trust.Stamp(last.Sequence)
		r.age = max(0, now.Sub(time.UnixMilli(last.Sequence))).Round(time.Second).String()
	}
	g, err := trust.ClaimedGrant(object.GetAnnotations()[submarinerv1.GrantAnnotation])
	if err != nil {
		return
	}
	r.SignedBy = "administrator"
	r.Granted = trust.Stamp(g.Authority())
	r.Gateways = g.Gateways
	if g.Invited > 0 {
		r.SignedBy = "invitation"
	}
	for _, n := range g.Networks {
		r.Networks = append(r.Networks, n.String())
	}
	r.ClusterSets = append(r.ClusterSets, sets...)
}

// grantFlaw returns what is wrong with the grant of a cluster. Members have verified it with the
// key that they pinned. On a broker, it is verified here, if the broker states the administrator's
// key.
func grantFlaw(s look.Site, id string, object *submarinerv1.Cluster) string {
	token := object.Annotations[submarinerv1.GrantAnnotation]
	if token == "" {
		return "it has no grant"
	}
	if s.Joined() || len(s.Brokers) == 0 || s.Brokers[0].Annotations[broker.AdministratorAnnotation] == "" {
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

// trustTrouble returns the clusters without a valid grant, and what the gateways refused.
func trustTrouble(s look.Site, rows []trustRow) []string {
	var out []string
	for _, r := range rows {
		if r.Flaw != "" {
			out = append(out, fmt.Sprintf("cluster %s: %s", r.ClusterID, r.Flaw))
		}
	}
	for i := range s.Gateways {
		if c := meta.FindStatusCondition(s.Gateways[i].Status.Conditions, role.ConditionRefused); c != nil &&
			c.Status == "True" {
			for line := range strings.SplitSeq(c.Message, "\n") {
				out = append(out, fmt.Sprintf("gateway %s refuses %s", s.Gateways[i].Name, line))
			}
		}
	}
	slices.SortStableFunc(out, cmp.Compare)
	return slices.Compact(out)
}
