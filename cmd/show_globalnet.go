package cmd

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"subctl/cluster"
	"subctl/globalnet"
	"subctl/internal/look"
	"subctl/internal/prefix"
	"subctl/internal/printer"
	"subctl/internal/words"
)

const globalnetLong = `The first table has the global networks (docs/globalnet.md) of the clusters that the cluster knows,
and of the cluster itself ("local"); on a broker that is not a member, those of all members of the
broker. A cluster without a global network is reached by its own addresses.

The second table has the use of the cluster's global network: ADDRESSES are those that can be
allocated, and FREE includes those that were freed less than five minutes ago, which are allocated
last.

The third table has the global addresses of the cluster, and whose they are: those at which other
clusters reach Services and pods, and those that pods have as their source in other clusters.
With -o wide, OBJECT is the object whose status has the address. STATE is "programmed" if all active
gateways translate the address; "allocated" if some do not yet, or if that is not known; "waiting" if
the global network has no free address; "refused" if the object has a mistake, or is a
GlobalEgressIP whose namespace has 100 older ones; and "pending" if the agent that allocates has
not seen it yet.

The last table has the use of the shared addresses that pods have as their source, by gateway.
An address can have 65,536 connections to one destination, one for each port: MOST TO is the
destination with the most of them, and THERE their number. Connections that have ended count for up
to two minutes (TCP) or three minutes (UDP). A gateway counts every 15 s, or less often if it has
many connections, and reports the 20 fullest addresses.

The exit code is 3 if no address is free; if an object waits for one, is refused, or is pending for
more than 15 s; if an address uses 80 % of its ports for a destination; or if several gateways
announce the same address.`

// globalnetRow is the globalnet of a cluster; its JSON is a promise.
type globalnetRow struct {
	Cluster    string          `json:"cluster"`
	GlobalCIDR string          `json:"globalCIDR"` // empty: it has no global network
	Pool       *poolUse        `json:"pool"`       // null: it has no global network
	Networks   []globalNetwork `json:"networks"`
	Addresses  []globalAddress `json:"addresses"`
	Egress     []egressRow     `json:"egress"`
}

// poolUse has the numbers of addresses of a global network that are allocated and free.
type poolUse struct {
	Addresses int `json:"addresses"` // that can be allocated
	Allocated int `json:"allocated"`
	Free      int `json:"free"`
}

// globalNetwork is the global network of a cluster, which may be none.
type globalNetwork struct {
	ClusterID   string   `json:"clusterID"`
	Type        string   `json:"type"` // local or remote
	GlobalCIDRs []string `json:"globalCIDRs"`
}

func globalnetTable() look.Section {
	return look.View[globalnetRow]{
		Noun:     globalnetNoun,
		Short:    "Show global networks and addresses",
		Long:     globalnetLong,
		Joined:   true,
		OnBroker: true,
		Reads: []look.Read{
			look.ReadMembers, look.ReadGlobalAddresses, readGatewaysOfMember,
			look.ReadDeployments(cluster.GlobalnetName),
		},
		Rows:    globalnetRows,
		None:    "no cluster has a global network",
		Tables:  globalnetTables,
		Trouble: globalnetTrouble,
		Note:    globalnetNotes,
	}.Section()
}

// globalnetNoun is the subcommand that can find the owner of an address.
const globalnetNoun = "globalnet"

// globalnetRows returns the row of a cluster; none if no cluster that it knows has a global
// network.
func globalnetRows(s look.Site) []globalnetRow {
	r := globalnetRow{Cluster: s.Name, Networks: globalNetworks(s), Addresses: []globalAddress{}, Egress: []egressRow{}}
	if !slices.ContainsFunc(r.Networks, func(n globalNetwork) bool { return len(n.GlobalCIDRs) > 0 }) {
		return nil
	}
	if s.Joined() && s.Global != nil {
		r.Addresses = globalAddresses(s.Global)
		r.Egress = egressRows(s)
		for i := range r.Addresses {
			r.Addresses[i].program(s)
		}
	}
	if own := ownGlobal(s); own.IsValid() {
		r.GlobalCIDR = own.String()
		r.Pool = &poolUse{Addresses: globalnet.Capacity(own)}
		used := map[netip.Addr]bool{}
		for _, a := range r.Addresses {
			for _, text := range a.Addresses {
				if ip, err := netip.ParseAddr(text); err == nil && own.Contains(ip) {
					used[ip] = true
				}
			}
		}
		r.Pool.Allocated = len(used)
		r.Pool.Free = max(0, r.Pool.Addresses-len(used))
	}
	return []globalnetRow{r}
}

// ownGlobal returns the global network of a cluster; the zero Prefix if it has none.
func ownGlobal(s look.Site) netip.Prefix {
	if !s.Joined() {
		return netip.Prefix{}
	}
	if own := prefix.Valid(split(s.Submariner.Spec.GlobalCIDR)); len(own) > 0 {
		return own[0]
	}
	return netip.Prefix{}
}

// globalNetworks returns the networks of a cluster and of those that it knows: the cluster itself
// first, then by name.
func globalNetworks(s look.Site) []globalNetwork {
	out := []globalNetwork{}
	if s.Joined() {
		out = append(out, globalNetwork{s.Name, "local", append([]string{}, split(s.Submariner.Spec.GlobalCIDR)...)})
	}
	if s.Members == nil {
		return out
	}
	for _, c := range s.Members.Catalog.Clusters {
		if !s.Joined() || c.ID != s.Members.Keeper {
			out = append(out,
				globalNetwork{c.ID, "remote", append([]string{}, s.Members.Clusters[c.ID].Spec.GlobalCIDR...)})
		}
	}
	slices.SortStableFunc(out, func(a, b globalNetwork) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.ClusterID, b.ClusterID))
	})
	return out
}

// globalnetTables prints the networks, the use of the pool, and the addresses.
func globalnetTables(w io.Writer, format printer.Format, r globalnetRow) error {
	if err := printer.Print(w, format, r.Networks, []printer.Column[globalNetwork]{
		{Head: "CLUSTER", Cell: func(n globalNetwork) string { return n.ClusterID }},
		{Head: "TYPE", Cell: func(n globalNetwork) string { return n.Type }},
		{
			Head: "GLOBAL NETWORK",
			Cell: func(n globalNetwork) string { return cmp.Or(strings.Join(n.GlobalCIDRs, ", "), "none") },
		},
	}); err != nil || r.Pool == nil {
		return err
	}
	fmt.Fprintln(w)
	if err := printer.Print(w, format, []poolUse{*r.Pool}, []printer.Column[poolUse]{
		{Head: "ADDRESSES", Cell: func(p poolUse) string { return fmt.Sprint(p.Addresses) }},
		{Head: "ALLOCATED", Cell: func(p poolUse) string { return fmt.Sprint(p.Allocated) }},
		{Head: "FREE", Cell: func(p poolUse) string { return fmt.Sprint(p.Free) }},
	}); err != nil {
		return err
	}
	if len(r.Addresses) > 0 {
		fmt.Fprintln(w)
		if err := printer.Print(w, format, r.Addresses, []printer.Column[globalAddress]{
			{Head: "ADDRESS", Cell: func(a globalAddress) string { return a.text() }},
			{Head: "OWNER", Max: 70, Cell: func(a globalAddress) string { return a.Owner }},
			{Head: "OBJECT", Wide: true, Cell: func(a globalAddress) string { return a.object() }},
			{Head: "STATE", Cell: globalAddress.stateText},
		}); err != nil {
			return err
		}
	}
	if len(r.Egress) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return printer.Print(w, format, r.Egress, egressColumns())
}

// Limits of what globalnetTrouble reports.
const (
	listedWaiting = 5                // objects of each state
	allocateTime  = 15 * time.Second // an object may be pending for so long
)

// globalnetNotes returns the GlobalEgressIPs whose addresses pods do not have everywhere. That is
// so by default with several active gateways, and no trouble.
func globalnetNotes(s look.Site) string {
	if !s.Joined() || s.Global == nil {
		return ""
	}
	var notes []string
	more := 0
	for _, a := range globalAddresses(s.Global) {
		switch {
		case a.Unused == "":
		case len(notes) == listedWaiting:
			more++
		default:
			notes = append(notes, a.object()+": "+a.Unused)
		}
	}
	if more > 0 {
		notes = append(notes, words.Count(more, "more GlobalEgressIP")+": see -o json")
	}
	return strings.Join(notes, "\n")
}

// globalnetTrouble returns that the pool is exhausted, the objects that have no addresses and
// should, and the addresses that have few ports left.
func globalnetTrouble(s look.Site, rows []globalnetRow) []string {
	var out []string
	for _, r := range rows {
		if r.Pool == nil {
			continue
		}
		out = append(out, s.Faults(cluster.GlobalnetName)...)
		if r.Pool.Free == 0 {
			out = append(
				out,
				fmt.Sprintf(
					"all %d addresses of the global network %s are allocated: delete objects that need none, or ask for a larger network with subctl join --globalnet-cluster-size",
					r.Pool.Addresses, r.GlobalCIDR),
			)
		}
		more := map[string]int{}
		for _, a := range r.Addresses {
			if !a.ill(s.Now) {
				continue
			}
			if more[a.State]++; more[a.State] <= listedWaiting {
				out = append(out, fmt.Sprintf("%s is %s: %s", a.object(), a.State, a.Message))
			}
		}
		out = append(out, egressTrouble(s, r.Egress)...)
		for _, state := range []string{stateWaiting, stateRefused, statePending} {
			if n := more[state] - listedWaiting; n > 0 {
				out = append(out, fmt.Sprintf("%s more %s: see -o json", words.Count(n, "object"), state))
			}
		}
	}
	return out
}
