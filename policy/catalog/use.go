package catalog

import (
	"cmp"
	"fmt"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/policy"
)

// Use is the report of an active gateway about its connection to a gateway of another cluster.
// Its JSON is part of the output of subctl cable-policy explain, and stays compatible.
type Use struct {
	Cluster       string `json:"cluster"` // of the gateway that reports
	Gateway       string `json:"gateway"`
	RemoteCluster string `json:"remoteCluster"`
	RemoteGateway string `json:"remoteGateway"`
	CableDriver   string `json:"cableDriver"` // in use; empty: there is no cable
	Policy        string `json:"policy"`      // that chose the driver; empty: none
	Rule          int    `json:"rule"`        // of the policy, counted from 1; 0: none, or unknown
	NAT           bool   `json:"nat"`         // detected on the path
	Status        string `json:"status"`      // as in subctl show connections
	Message       string `json:"statusMessage"`
	DriverReason  string `json:"cableDriverReason"` // why it is not the driver that was decided on; empty if it is
}

// Connected reports whether the connection works.
func (u Use) Connected() bool { return u.Status == string(submarinerv1.Connected) }

// String returns the use as text.
func (u Use) String() string {
	text := fmt.Sprintf("gateway %s of cluster %s to %s of cluster %s: ", u.Gateway, u.Cluster, u.RemoteGateway,
		u.RemoteCluster)
	text += cmp.Or(u.CableDriver, "no cable")
	if u.CableDriver != "" && u.Policy != "" {
		text += " (" + ruleName(u.Policy, u.Rule) + ")"
	}
	text += ", " + u.Status
	if u.NAT {
		text += ", through NAT"
	}
	if u.Message != "" {
		text += ": " + u.Message
	}
	return text
}

// ruleName returns the name of a rule in messages; n is counted from 1, 0 if unknown.
func ruleName(name string, n int) string {
	if n == 0 {
		return "cable policy " + name
	}
	return fmt.Sprintf("rule %d of cable policy %s", n, name)
}

// UsesOf returns what the gateways report of a pair. They are known only if the catalog is of
// one of its clusters.
func (c *Catalog) UsesOf(x, y string) []Use {
	var out []Use
	for _, u := range c.Uses {
		if u.Cluster == x && u.RemoteCluster == y || u.Cluster == y && u.RemoteCluster == x {
			out = append(out, u)
		}
	}
	return out
}

// NotObserved returns the reason why nothing is known of what the gateways of a pair do; empty if
// a gateway reports.
func (c *Catalog) NotObserved(x, y string) string {
	const unknown = "what the gateways do is not observed here: "
	switch {
	case len(c.UsesOf(x, y)) > 0:
		return ""
	case c.Keeper != x && c.Keeper != y:
		return fmt.Sprintf("%sonly %s and %s see it: use the context of one of them (--context)", unknown, x, y)
	case c.Keeper == y:
		x, y = y, x
	}
	return fmt.Sprintf("%sno gateway of cluster %s reports a connection to cluster %s: see subctl show gateways",
		unknown, x, y)
}

// differs reports whether a gateway does something else than was decided: it uses another cable,
// without a reason such as that one of the two gateways is a standby, its cable does not work, or
// it has one although the decision is that there is none.
func (u Use) differs(driver string, dec policy.Decision) bool {
	decided := (u.CableDriver == driver || u.CableDriver != "" && driver != "" && u.DriverReason != "") &&
		(u.CableDriver == "" || u.Policy == dec.Policy && (u.Rule == 0 || u.Rule == dec.Number()))
	return !decided || driver != "" && !u.Connected()
}
