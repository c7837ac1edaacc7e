package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"subctl/internal/cli"
	"subctl/internal/look"
	"subctl/internal/prefix"
	"subctl/internal/printer"
)

const whoLong = `

--who prints which cluster has an address, and which namespace, Service or pods. The cluster that
has it tells the latter, to users who may read its objects; so its context must be in the
kubeconfig, and among --contexts if that is set. Other clusters know which cluster it is, and which
of its gateways if it is one that pods have as their source. If nobody has the address, the exit code is 1.`

// whoRow is whose an address is; its JSON is a promise.
type whoRow struct {
	Address    string `json:"address"`
	Cluster    string `json:"cluster"`
	GlobalCIDR string `json:"globalCIDR"`
	Gateway    string `json:"gateway"` // to which replies return; empty: any, or not known
	// Those of globalAddress; empty: the clusters that were read do not know.
	Owner          string `json:"owner"`
	OwnerKind      string `json:"ownerKind"`
	OwnerNamespace string `json:"ownerNamespace"`
	OwnerName      string `json:"ownerName"`
	Kind           string `json:"kind"`
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
}

// addWho gives the command for globalnet the flag --who.
func (s *show) addWho(c *cobra.Command) {
	var text string
	c.Flags().StringVar(&text, "who", "", "print whose global address this is")
	c.Long += whoLong
	c.Example += "\n  subctl show globalnet --who 242.1.0.9 --contexts west,east"
	cli.Before(c, func() error {
		if !c.Flags().Changed("who") {
			return nil
		}
		ip, err := netip.ParseAddr(text)
		switch {
		case err != nil || !ip.Is4():
			return fmt.Errorf("--who %q is not an IPv4 address: write it like 242.1.0.9", text)
		case s.watch:
			return errors.New("--who prints its answer once: set only one of --who and --watch")
		}
		s.who = ip
		return nil
	})
}

// answerWho prints whose the address is.
func (s *show) answerWho(ctx context.Context) error {
	targets, err := s.Targets(s.contexts)
	if err != nil {
		return err
	}
	sites, errs := look.ReadAll(ctx, targets, look.ReadMembersIfAllowed, look.ReadGlobalAddressesIfAllowed)
	var good []look.Site
	for i, err := range errs {
		if err == nil {
			good = append(good, sites[i])
			continue
		}
		s.progress().Fail("cluster %q: %s", sites[i].Name, printer.CleanLines(err.Error()))
	}
	if len(good) == 0 {
		return errors.New("no cluster could be read: choose another context or user")
	}
	rows, err := whose(good, s.who)
	if err != nil {
		return err
	}
	known := func(of func(whoRow) string) func([]whoRow) bool {
		return func(rows []whoRow) bool { return slices.ContainsFunc(rows, func(r whoRow) bool { return of(r) != "" }) }
	}
	gateway := func(r whoRow) string { return r.Gateway }
	object := func(r whoRow) string {
		return strings.TrimSpace(r.Kind + " " + strings.TrimPrefix(r.Namespace+"/"+r.Name, "/"))
	}
	err = printer.Print(s.Out, s.format.Format(), rows, []printer.Column[whoRow]{
		{Head: "ADDRESS", Cell: func(r whoRow) string { return r.Address }},
		{Head: "CLUSTER", Cell: func(r whoRow) string { return r.Cluster }},
		{Head: "GLOBAL NETWORK", Wide: true, Cell: func(r whoRow) string { return r.GlobalCIDR }},
		{Head: "GATEWAY", Wide: true, Unless: known(gateway), Cell: gateway},
		{
			Head:   "OWNER",
			Wide:   true,
			Unless: known(func(r whoRow) string { return r.Owner }),
			Cell:   func(r whoRow) string { return r.Owner },
		},
		{Head: "OBJECT", Wide: true, Cell: func(r whoRow) string { return strings.TrimSuffix(object(r), "/") }},
	})
	for _, r := range rows {
		if r.Owner == "" {
			s.progress().Warn(
				"only cluster %s knows whose it is: who may read its GlobalIngressIPs and GlobalEgressIPs (ClusterRole view for all namespaces) learns it with subctl show globalnet --who %v --context CONTEXT",
				printer.Clean(r.Cluster), s.who)
		}
	}
	return err
}

// whose returns whose an address is, as far as sites know: the cluster that has it knows best.
func whose(sites []look.Site, ip netip.Addr) ([]whoRow, error) {
	var full, partial []whoRow
	var nobody error
	var seen []string
	for _, s := range sites {
		if own := ownGlobal(s); own.Contains(ip) {
			r := whoRow{
				Address:    ip.String(),
				Cluster:    s.Name,
				GlobalCIDR: own.String(),
				Gateway:    egressGateway(s, s.Name, ip),
			}
			switch a, ok := ownerOf(s, ip); {
			case ok:
				r.Owner = a.Owner
				r.OwnerKind = a.OwnerKind
				r.OwnerNamespace = a.OwnerNamespace
				r.OwnerName = a.OwnerName
				r.Kind = a.Kind
				r.Namespace = a.Namespace
				r.Name = a.Name
				full = append(full, r)
			case s.Global == nil:
				partial = append(partial, r)
			default:
				nobody = fmt.Errorf(
					"nobody has %v, an address of the global network %v of cluster %s: it is free: see subctl show globalnet",
					ip, own, s.Name)
			}
		}
		for _, n := range globalNetworks(s) {
			for _, net := range prefix.Valid(n.GlobalCIDRs) {
				seen = append(seen, printer.Clean(fmt.Sprintf("%s of %s", net, n.ClusterID)))
				if net.Contains(ip) && (ip == net.Addr() || !net.Contains(ip.Next())) {
					return nil, fmt.Errorf(
						"nobody can have %v: the first and the last address of a global network are not allocated, here of %s",
						ip, seen[len(seen)-1])
				}
				if n.Type == "remote" && net.Contains(ip) {
					partial = append(
						partial,
						whoRow{
							Address:    ip.String(),
							Cluster:    n.ClusterID,
							GlobalCIDR: net.String(),
							Gateway:    egressGateway(s, n.ClusterID, ip),
						},
					)
				}
			}
		}
	}
	slices.Sort(seen)
	switch seen = slices.Compact(seen); {
	case len(full) > 0:
		return full, nil
	case nobody != nil:
		return nil, nobody
	case len(partial) > 0:
		slices.SortStableFunc(partial, func(a, b whoRow) int { return strings.Compare(a.Cluster, b.Cluster) })
		return slices.CompactFunc(partial, func(a, b whoRow) bool { return a.Cluster == b.Cluster }), nil
	case len(seen) == 0:
		return nil, fmt.Errorf(
			"no cluster that was read knows a global network: choose another cluster with --context, and see subctl show networks for the networks of a cluster without globalnet")
	}
	return nil, fmt.Errorf("%v is in no global network that is known: see subctl show globalnet (%s)", ip,
		strings.Join(seen, ", "))
}

// ownerOf returns the object of a cluster that has an address.
func ownerOf(s look.Site, ip netip.Addr) (globalAddress, bool) {
	if s.Global == nil {
		return globalAddress{}, false
	}
	for _, a := range globalAddresses(s.Global) {
		if slices.Contains(a.Addresses, ip.String()) {
			return a, true
		}
	}
	return globalAddress{}, false
}

// egressGateway returns the gateway of a cluster to which replies to an address must return; empty
// if there is none.
func egressGateway(s look.Site, id string, ip netip.Addr) string {
	if s.Members == nil {
		return ""
	}
	for _, e := range s.Members.Endpoints[id] {
		if slices.Contains(e.AllocatedIPs, ip.String()) {
			return e.Hostname
		}
	}
	return ""
}
