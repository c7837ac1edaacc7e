package cmd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/policy/catalog"
)

const connectionsLong = `Every gateway has one connection to each gateway of every other cluster, standbys included
(docs/failover.md); the drivers wireguard and ipsec do not connect to standbys.
GATEWAY, CLUSTER and REMOTE IP describe the remote gateway. MEMBER is shown if packets to the cluster
may not take one of the connections, with the reason. CABLE DRIVER is the driver in
use or, if there is no cable, the driver that should be in use. POLICY is the cable policy
that chose the driver; it is empty if none did. MESSAGE describes the problem, if there is
one. Connections that were reported more than 15 s ago are shown as errors; those of a gateway
that another gateway of its cluster has replaced are not shown. A gateway with about 1,000
connections or more does not report each of them: first, it leaves out some that are connected
and carry no packets. The command prints how many are left out.

STATUS is leaving if the remote gateway does not answer any more, and has announced before that it is
drained, or that its node is no gateway any more.

A line below the table names nodes that drop packets now, and why: see docs/troubleshooting.md.

LOCAL GATEWAY is shown if there are several.

-o wide also shows the local gateway, the number of the policy's rule, details of the cable, and
CLUSTERSETS, the clustersets that the two clusters share, if you may read the clusters. DESIRED
DRIVER differs from CABLE DRIVER while the pair changes its cable. DRIVER REASON tells why it is
not the driver that the policy names, or that is the clusters' default. MTU is the largest packet
that the cable carries, and PATH MTU the largest packet of the network between the gateways, in
bytes. RECEIVED and SENT count the bytes of an encrypted cable since its keys or its program were
last replaced, and HANDSHAKE is the time since the gateways last agreed on keys. DETECTED BY is
the probe that last found that the cable does not carry packets, how long ago, and until when if
the cable carries them again, where there are several ways to the cluster: ping; echo, which the
remote gateway's kernel forwards back; or large echo, a packet as large as the MTU. DROPPED counts
the packets from and to the cluster that the gateway dropped to keep clusters apart, such as
packets for a third cluster. IMPLEMENTATION is kernel, or the program that processes the packets.
ATTEMPTS lists the attempts to reach the remote gateway.

With --wait, the command waits until it would exit with 0, there is a connection to each gateway
of each cluster that the cluster knows (subctl show clusters), and all cables are the ones that
the cable policies, labels and clustersets decide on now (subctl cable-policy explain): also
directly after a change of these, in any cluster of the kubeconfig. It reports clusters that it
cannot check. Ctrl-C prints what is connected so far.

The exit code is 3 if a connection is not connected, also one that is left out, but not one that is
leaving while another one reaches the cluster; if there are no connections, if a cluster has no
gateway, or if a gateway reports a failure or has a wrong clock (subctl show gateways); with
--wait, if that still holds when the time is out.`

// connectionRow is a connection as reported by one of its gateways; its JSON is a promise.
type connectionRow struct {
	Cluster       string   `json:"cluster"`
	Gateway       string   `json:"gateway"`
	RemoteCluster string   `json:"remoteCluster"`
	ClusterSets   []string `json:"clusterSets"` // that both clusters are in
	RemoteGateway string   `json:"remoteGateway"`
	RemoteIP      string   `json:"remoteIP"`
	NAT           bool     `json:"nat"`
	CableDriver   string   `json:"cableDriver"`
	Policy        string   `json:"policy"`
	Rule          int      `json:"rule"` // of the policy, counted from 1; 0: none, or unknown
	Subnets       []string `json:"subnets"`
	Status        string   `json:"status"`
	StatusMessage string   `json:"statusMessage"`
	// of the next hop group of the remote cluster; null: unknown, or no cable
	Member       *bool  `json:"member"`
	MemberReason string `json:"memberReason"` // why it is not, or why it gets few packets; may be empty
	RTTAverage   string `json:"rttAverage"`   // such as "404.351µs"; empty: unknown

	RTTAverageMilliseconds *float64 `json:"rttAverageMilliseconds"` // the same as a number; null: unknown

	DesiredDriver  string `json:"desiredDriver"`
	DriverReason   string `json:"driverReason"`   // why it is not the driver that was decided on; empty if it is
	MTU            int    `json:"mtu"`            // bytes; 0: unknown
	PathMTU        int    `json:"pathMTU"`        // bytes; 0: unknown
	ReceivedBytes  *int64 `json:"receivedBytes"`  // null: unknown
	SentBytes      *int64 `json:"sentBytes"`      // null: unknown
	LastHandshake  string `json:"lastHandshake"`  // RFC 3339; empty: unknown
	IsolationDrops *int64 `json:"isolationDrops"` // packets; null: unknown
	Implementation string `json:"implementation"`
	// ping, echo or large echo; empty: there is no failure now, or it was not detected
	DetectedBy string   `json:"detectedBy"`
	DetectedAt string   `json:"detectedAt"` // RFC 3339; empty: unknown
	Attempts   []string `json:"attempts"`

	LastFailure *failureRow `json:"lastFailure"` // that is over; null: none is known, or there is one now

	handshakeAge string
	detected     string
}

// failureRow is a failure of a cable that is over.
type failureRow struct {
	DetectedBy  string `json:"detectedBy"`  // ping, echo or large echo
	DetectedAt  string `json:"detectedAt"`  // RFC 3339
	RecoveredAt string `json:"recoveredAt"` // RFC 3339
}

func connectionsTable() look.Section { return connectionsView().Section() }

func connectionsView() look.View[connectionRow] {
	return look.View[connectionRow]{
		Noun: connectionsNoun, Short: "Show the connections between gateways", Long: connectionsLong,
		Reads: []look.Read{look.ReadGateways, look.ReadMembersIfAllowed, look.ReadRouteAgentsIfAllowed}, Joined: true,
		Rows: connectionRows, Trouble: connectionTrouble, Note: connectionNotes,
		Columns: []printer.Column[connectionRow]{
			{
				Head:   "LOCAL GATEWAY",
				Wide:   true,
				Unless: severalLocal,
				Cell:   func(r connectionRow) string { return r.Gateway },
			},
			{Head: "GATEWAY", Cell: func(r connectionRow) string { return r.RemoteGateway }},
			{Head: "CLUSTER", Cell: func(r connectionRow) string { return r.RemoteCluster }},
			{Head: "CLUSTERSETS", Wide: true, Cell: func(r connectionRow) string {
				return strings.Join(r.ClusterSets, ", ")
			}},
			{Head: "REMOTE IP", Cell: func(r connectionRow) string { return r.RemoteIP }},
			{Head: "NAT", Wide: true, Cell: func(r connectionRow) string { return look.YesNo(r.NAT) }},
			{Head: "CABLE DRIVER", Cell: func(r connectionRow) string { return r.CableDriver }},
			{Head: "DESIRED DRIVER", Wide: true, Cell: func(r connectionRow) string { return r.DesiredDriver }},
			{Head: "POLICY", Cell: func(r connectionRow) string { return r.Policy }},
			{Head: "RULE", Wide: true, Cell: func(r connectionRow) string { return number(r.Rule) }},
			{Head: "SUBNETS", Wide: true, Cell: func(r connectionRow) string { return strings.Join(r.Subnets, ", ") }},
			{Head: "STATUS", Cell: func(r connectionRow) string { return r.Status }},
			{Head: "MEMBER", Wide: true, Unless: someNotMembers, Max: 45, Cell: memberText},
			{Head: "RTT avg.", Cell: func(r connectionRow) string { return roundTrip(r.RTTAverage) }},
			{Head: "MTU", Wide: true, Cell: func(r connectionRow) string { return number(r.MTU) }},
			{Head: "PATH MTU", Wide: true, Cell: func(r connectionRow) string { return number(r.PathMTU) }},
			{Head: "RECEIVED", Wide: true, Cell: func(r connectionRow) string { return count(r.ReceivedBytes) }},
			{Head: "SENT", Wide: true, Cell: func(r connectionRow) string { return count(r.SentBytes) }},
			{Head: "HANDSHAKE", Wide: true, Cell: func(r connectionRow) string { return r.handshakeAge }},
			{Head: "DETECTED BY", Wide: true, Cell: func(r connectionRow) string { return r.detected }},
			{Head: "DROPPED", Wide: true, Cell: func(r connectionRow) string { return count(r.IsolationDrops) }},
			{Head: "IMPLEMENTATION", Wide: true, Cell: func(r connectionRow) string { return r.Implementation }},
			{
				Head: "ATTEMPTS",
				Wide: true,
				Cell: func(r connectionRow) string { return strings.Join(r.Attempts, "; ") },
			},
			{Head: "DRIVER REASON", Wide: true, Cell: func(r connectionRow) string { return r.DriverReason }},
			{Head: "MESSAGE", Max: 80, Cell: func(r connectionRow) string { return r.StatusMessage }},
		},
	}
}

func connectionRows(s look.Site) []connectionRow {
	var rows []connectionRow
	for _, gw := range s.Current() {
		old := look.Stale(gw, s.Now)
		for _, c := range gw.Status.Connections {
			r := connectionRow{
				Cluster:        s.Name,
				Gateway:        gw.Name,
				RemoteCluster:  c.Endpoint.ClusterID,
				ClusterSets:    s.Members.Shared(c.Endpoint.ClusterID),
				RemoteGateway:  c.Endpoint.Hostname,
				RemoteIP:       remoteIP(c),
				NAT:            c.UsingNAT,
				CableDriver:    catalog.CableDriver(c),
				Subnets:        append([]string{}, c.Endpoint.Subnets...),
				Member:         c.Member,
				MemberReason:   c.MemberReason,
				Policy:         c.Policy,
				Rule:           c.Rule,
				DesiredDriver:  c.DesiredDriver,
				DriverReason:   c.DriverReason,
				MTU:            c.MTU,
				PathMTU:        c.PathMTU,
				ReceivedBytes:  c.ReceivedBytes,
				SentBytes:      c.SentBytes,
				IsolationDrops: c.IsolationDrops,
				Implementation: c.Implementation,
				Attempts:       append([]string{}, c.Attempts...),
			}
			r.Status, r.StatusMessage = look.ConnectionState(c)
			r.describeFailure(s.Now, c)
			if at := c.LastHandshake; at != nil {
				r.LastHandshake = at.UTC().Format(time.RFC3339)
				r.handshakeAge = max(0, s.Now.Sub(at.Time)).Round(time.Second).String()
			}
			if c.LatencyRTT != nil {
				r.RTTAverage = c.LatencyRTT.Average
				r.RTTAverageMilliseconds = milliseconds(c.LatencyRTT.Average)
			}
			if old != "" && !look.Ahead(gw, s.Now) {
				r.Status = string(submarinerv1.ConnectionError)
				r.StatusMessage = old
			}
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b connectionRow) int {
		return cmp.Or(
			strings.Compare(a.Gateway, b.Gateway), strings.Compare(a.RemoteCluster, b.RemoteCluster),
			strings.Compare(a.RemoteGateway, b.RemoteGateway), strings.Compare(a.RemoteIP, b.RemoteIP),
			strings.Compare(a.CableDriver, b.CableDriver))
	})
	return rows
}

// describeFailure adds what has found that a cable does not carry packets, or did not.
func (r *connectionRow) describeFailure(now time.Time, c submarinerv1.Connection) {
	r.DetectedBy = c.DetectedBy
	r.detected = c.DetectedBy
	if at := c.DetectedAt; at != nil {
		r.DetectedAt = at.UTC().Format(time.RFC3339)
		r.detected += ", " + words.Ago(now.Sub(at.Time))
	}
	if f := c.LastFailure; f != nil && c.DetectedBy == "" {
		r.LastFailure = &failureRow{
			f.DetectedBy,
			f.DetectedAt.UTC().Format(time.RFC3339),
			f.RecoveredAt.UTC().Format(time.RFC3339),
		}
		r.detected = fmt.Sprintf("%s, %s (until %s)", f.DetectedBy, words.Ago(now.Sub(f.DetectedAt.Time)),
			words.Ago(now.Sub(f.RecoveredAt.Time)))
	}
}

// severalLocal reports whether the rows are connections of several gateways of a cluster.
func severalLocal(rows []connectionRow) bool {
	return slices.ContainsFunc(rows, func(r connectionRow) bool { return r.Gateway != rows[0].Gateway })
}

// someNotMembers reports whether one of the rows is not a plain member of its group.
func someNotMembers(rows []connectionRow) bool {
	return slices.ContainsFunc(rows, func(r connectionRow) bool { return r.Member != nil && memberText(r) != "yes" })
}

// roundTrip formats a round-trip time with three digits, such as 404 µs or 10.9 ms.
func roundTrip(text string) string {
	d, err := time.ParseDuration(text)
	switch ms := float64(d) / float64(time.Millisecond); {
	case err != nil:
		return text
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms >= 1:
		return fmt.Sprintf("%.2f ms", ms)
	}
	return fmt.Sprintf("%d µs", d.Microseconds())
}

// memberText formats whether a connection is a member of the next hop group of its cluster.
func memberText(r connectionRow) string {
	switch {
	case r.Member == nil:
		return ""
	case r.MemberReason != "":
		return look.YesNo(*r.Member) + ": " + r.MemberReason
	}
	return look.YesNo(*r.Member)
}

// number formats a number that may be unknown.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// milliseconds converts a duration in Go's notation; nil if it is not one.
func milliseconds(text string) *float64 {
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil
	}
	ms := float64(d) / float64(time.Millisecond)
	return &ms
}

// count formats a counter that may be unknown.
func count(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// remoteIP returns the remote address of a cable. If the report does not contain it, remoteIP
// guesses as upstream does.
func remoteIP(c submarinerv1.Connection) string {
	if c.UsingIP == "" && c.Endpoint.NATEnabled {
		return cmp.Or(c.Endpoint.PublicIP, c.Endpoint.PrivateIP)
	}
	return cmp.Or(c.UsingIP, c.Endpoint.PrivateIP)
}

// connectionNotes returns what is no problem of a connection, but may explain why something does
// not work.
func connectionNotes(s look.Site) string {
	notes := droppingNodes(s)
	if omitted := omittedConnections(s); omitted != "" {
		notes = append([]string{omitted}, notes...)
	}
	return strings.Join(notes, "; ")
}

// droppingNodes returns which nodes drop packets now, and why.
func droppingNodes(s look.Site) (out []string) {
	nodes := map[string][]string{} // by reason
	note := func(node string, conditions []metav1.Condition) {
		c := meta.FindStatusCondition(conditions, role.ConditionPacketsDropped)
		if c == nil || c.Status != metav1.ConditionTrue {
			return
		}
		text := strings.ReplaceAll(c.Message, "\n", ", ")
		if !slices.Contains(nodes[text], node) {
			nodes[text] = append(nodes[text], node)
		}
	}
	for _, gw := range s.Current() {
		note(gw.Name, gw.Status.Conditions)
	}
	for _, ra := range s.RouteAgents {
		note(ra.Name, ra.Status.Conditions)
	}
	for _, text := range slices.Sorted(maps.Keys(nodes)) {
		slices.Sort(nodes[text])
		verb := " drops "
		if len(nodes[text]) > 1 {
			verb = " drop "
		}
		out = append(out, words.List(nodes[text])+verb+"packets: "+text)
	}
	return out
}

// omittedConnections returns which gateways do not report all of their connections, as they have
// too many; empty if there are none.
func omittedConnections(s look.Site) string {
	var omitted []string
	for _, gw := range s.Current() {
		if n := gw.Status.ConnectionsOmitted; n > 0 {
			omitted = append(
				omitted,
				fmt.Sprintf("gateway %s reports %d of its %d connections, as there is no room for more", gw.Name,
					len(gw.Status.Connections), len(gw.Status.Connections)+n),
			)
		}
	}
	return strings.Join(omitted, "; ")
}

// replaced reports whether a connection ends because its remote gateway leaves, and another one
// reaches the cluster.
func replaced(r connectionRow, rows []connectionRow) bool {
	return r.Status == look.StatusLeaving && slices.ContainsFunc(rows, func(o connectionRow) bool {
		return o.Gateway == r.Gateway && o.RemoteCluster == r.RemoteCluster &&
			o.Status == string(submarinerv1.Connected)
	})
}

func connectionTrouble(s look.Site, rows []connectionRow) []string {
	if len(s.Gateways) == 0 {
		return []string{look.NoGateways}
	}
	var out []string
	if len(rows) == 0 {
		out = append(out, "no connections found")
	}
	var down, faults gatewayProblems
	for _, r := range rows {
		if r.Status != string(submarinerv1.Connected) && !replaced(r, rows) {
			down.add(
				r.Gateway,
				strings.TrimSuffix(
					fmt.Sprintf(" to %s of cluster %q: %s: %s", r.RemoteGateway, r.RemoteCluster, r.Status,
						r.StatusMessage),
					": ",
				),
			)
		}
	}
	for _, gw := range s.Current() {
		if n := gw.Status.ConnectionsOmittedDown; n > 0 {
			down.add(gw.Name,
				fmt.Sprintf(": %d of the connections that it does not report one by one are not connected", n))
		}
	}
	for _, gw := range s.Gateways {
		if look.Stale(gw, s.Now) != "" && !look.Ahead(gw, s.Now) && len(gw.Status.Connections) > 0 {
			continue // reported for each connection above
		}
		if fault := look.GatewayFault(gw, s.Now); fault != "" {
			faults.add(gw.Name, ": "+fault)
		}
	}
	return slices.Concat(out, withoutGateway(s), down.lines(), faults.lines(), s.Firewalled())
}

// withoutGateway returns a line for each cluster that should be connected, and announces no
// gateway.
func withoutGateway(s look.Site) (out []string) {
	if s.Members == nil {
		return nil
	}
	for _, c := range s.Members.Catalog.Clusters {
		if _, known := s.Members.Clusters[c.ID]; known && c.ID != s.Members.Keeper &&
			len(s.Members.Endpoints[c.ID]) == 0 && len(s.Members.Shared(c.ID)) > 0 {
			out = append(out,
				fmt.Sprintf("cluster %q has no gateway: it announces no endpoint (subctl show gateways there)", c.ID))
		}
	}
	return out
}
