package join

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cluster/networks"
	"subctl/internal/kube"
	"subctl/internal/prefix"
	"subctl/internal/words"
)

// checkNetworks refuses networks that are unknown, that agents do not connect, and that
// overlap other networks.
//
// What other clusters announce is their own claim. A claim that no agent accepts is a warning. A
// conflict with a valid claim is an error, because most often it is a mistake; with --force, and
// where this cluster has joined with these networks before, it is a warning: the agents then do
// not connect the two clusters, and no member keeps another cluster from joining.
func checkNetworks(r request) ([]string, error) {
	found := r.member.Network
	b := r.broker
	warnings := slices.Clone(found.Warnings)
	if len(r.ClusterCIDRs) == 0 {
		warnings = append(warnings, found.Guess)
	}
	pods, podsWarning, podsErr := r.podNetworks()
	services, servicesWarning, servicesErr := r.serviceNetworks()
	own := append(
		named(pods, "the pod network of this cluster"),
		named(services, "the Service network of this cluster")...)
	var global []network
	if r.globalErr == nil && r.global.IsValid() { // checkGlobalnet reports an error
		global = []network{{r.global, "the global network of this cluster"}}
	}
	members, invalid := r.members()
	const hintRight = "specify the right networks with --clustercidr and --servicecidr"
	const hintGlobal = "join with another --globalnet-cidr"
	var conflicts error
	if r.globalErr == nil { // otherwise, nobody knows what the cluster will announce
		conflicts = r.conflicts(own, global, members)
	}
	errs := []error{
		podsErr, servicesErr,
		errorsImpossible(own, hintRight), errorsImpossible(global, hintGlobal),
		errorsInside(internalIPs(r.member.Nodes), own, hintRight),
		errorsInside(internalIPs(r.member.Nodes), global, hintGlobal),
		errorsOverlap(global, own, hintGlobal),
	}
	for i, n := range own {
		errs = append(errs, errorsOverlap([]network{n}, own[i+1:], hintRight))
	}
	if all, err := netip.ParsePrefix(b.Broker.Spec.GlobalnetCIDRRange); err == nil && b.Broker.Spec.GlobalnetEnabled {
		const hintRange = "deploy the broker with another --globalnet-cidr-range"
		within := []network{{all, "the range of the broker's globalnet"}}
		errs = append(errs, errorsOverlap(own, within, hintRange),
			errorsInside(internalIPs(r.member.Nodes), within, hintRange))
	}
	warnings = append(append(warnings, podsWarning, servicesWarning), invalid...)
	switch {
	case conflicts == nil:
	case r.AllowConflicts || r.keepsNetworks(pods, services) && r.entersNoSet():
		warnings = append(warnings,
			fmt.Sprintf("the agents do not connect clusters with these conflicts: %v", conflicts))
	default:
		errs = append(
			errs,
			fmt.Errorf("%w\nto join without a cable to the clusters that announce these addresses, add --force",
				conflicts),
		)
	}
	if apart := r.othersInConflict(); apart != nil && r.AllowConflicts {
		warnings = append(warnings, fmt.Sprintf("the agents do not connect clusters with these conflicts: %v", apart))
	} else if apart != nil {
		errs = append(errs, fmt.Errorf("%w\nto join these clustersets nevertheless, add --force", apart))
	}
	return warnings, errors.Join(errs...)
}

// conflicts returns, as an error, the conflicts between this cluster, with its own networks and its
// global one, and what other clusters announce; nil if there are none.
//
// Whoever has a global network announces no other. Its own networks may be those of other clusters
// with global networks, but it cannot reach a cluster that announces them, and what it announces
// must be nobody's own network.
func (r request) conflicts(own, global []network, members others) error {
	const (
		hintBehind = "addresses in the network of a node cannot be reached through a cable"
		most       = 20 // lines
	)
	mine := slices.Concat(own, global)
	announced := own
	if len(global) > 0 {
		announced = global
	}
	err := errors.Join(errorsOverlap(mine, members.announced, r.hintOther()),
		errorsOverlap(announced, members.own, r.hintOther()),
		errorsInside(internalIPs(r.member.Nodes), members.announced, hintBehind),
		errorsInside(r.gatewayIPs(), mine, hintBehind))
	if err == nil {
		return nil
	}
	lines := strings.Split(err.Error(), "\n")
	if n := len(lines) - most; n > 0 {
		lines = append(lines[:most], fmt.Sprintf("and %s more", words.Count(n, "conflict")))
	}
	return errors.New(strings.Join(lines, "\n"))
}

// keepsNetworks reports whether this cluster has joined with the same networks before.
func (r request) keepsNetworks(pods, services []netip.Prefix) bool {
	if !r.isSelf(r.ClusterID) {
		return false
	}
	before := r.member.Submariner.Spec
	global := r.global
	return before.ClusterCIDR == prefix.Format(pods) && before.ServiceCIDR == prefix.Format(services) &&
		(before.GlobalCIDR == global.String() || before.GlobalCIDR == "" && !global.IsValid())
}

func named(list []netip.Prefix, of string) []network {
	var out []network
	for _, p := range list {
		out = append(out, network{p, of})
	}
	return out
}

// isOther reports whether id belongs to another cluster: neither the ID to join with, nor
// the ID as which this cluster has joined before.
func (r request) isOther(id string) bool { return id != r.ClusterID && !r.isSelf(id) }

// hintOther returns what to do about clusters that use the same addresses.
func (r request) hintOther() string {
	const (
		both      = "clusters that use the same addresses cannot be connected"
		hintRight = "if they do not, specify the right networks with --clustercidr and --servicecidr"
	)
	global := r.global
	err := r.globalErr
	switch {
	case err == nil && global.IsValid():
		return both +
			": the other cluster can join again with --globalnet, and then announces a global network instead; " +
			hintRight
	case r.broker.Broker.Spec.GlobalnetEnabled:
		return both + " unless both have global networks: join with --globalnet; " + hintRight
	}
	return both + " without globalnet: let the administrator of the broker enable it with " + enableGlobalnet +
		", and join then, both clusters with --globalnet; " + hintRight
}

// others are the networks of the other clusters.
type others struct {
	announced []network
	own       []network // that a cluster with a global network does not announce
}

// members returns the networks of the other clusters, and a warning for each cluster that
// announces networks which no agent accepts.
func (r request) members() (valid others, invalid []string) {
	for _, c := range r.broker.clusters() {
		if !r.isOther(c.Spec.ClusterID) {
			continue
		}
		of := fmt.Sprintf("cluster %.70q", c.Spec.ClusterID)
		pods, flaws := announced(c.Spec.ClusterCIDR)
		services, serviceFlaws := announced(c.Spec.ServiceCIDR)
		own := append(named(pods, "the pod network of "+of), named(services, "the Service network of "+of)...)
		if len(c.Spec.GlobalCIDR) > 0 {
			global, globalFlaws := announced(c.Spec.GlobalCIDR)
			valid.own = append(valid.own, own...)
			valid.announced = append(valid.announced, named(global, "the global network of "+of)...)
			flaws = globalFlaws
		} else {
			valid.announced = append(valid.announced, own...)
			flaws = append(flaws, serviceFlaws...)
		}
		if len(flaws) > 0 {
			text := of + " announces networks that join and the agents ignore: " + flaws[0]
			if n := len(flaws) - 1; n > 0 {
				text += fmt.Sprintf("; and %s more", words.Count(n, "mistake"))
			}
			invalid = append(invalid, text)
		}
	}
	return valid, invalid
}

// announced returns the networks in a list that agents accept, and the mistakes in it.
func announced(list []string) (valid []netip.Prefix, flaws []string) {
	if n := len(list); n > cable.MaxSubnets {
		flaws = append(flaws, fmt.Sprintf("%d networks, of which the first %d count", n, cable.MaxSubnets))
	}
	for _, text := range list[:min(len(list), cable.MaxSubnets)] {
		if p, err := cable.ParseCIDR(text); err == nil {
			valid = append(valid, p)
		} else {
			flaws = append(flaws, fmt.Sprintf("%.200v", err))
		}
	}
	return valid, flaws
}

// gatewayIPs returns the addresses of the other clusters' gateways, sorted by gateway.
func (r request) gatewayIPs() (out []address) {
	for _, e := range r.broker.endpoints() {
		if ip, err := netip.ParseAddr(e.Spec.PrivateIP); err == nil && r.isOther(e.Spec.ClusterID) {
			out = append(out, address{ip, fmt.Sprintf("gateway %s of cluster %q", e.Spec.Hostname, e.Spec.ClusterID)})
		}
	}
	slices.SortStableFunc(out, func(a, b address) int { return strings.Compare(a.of, b.of) })
	return out
}

// podNetworks returns the pod networks to join with.
func (r request) podNetworks() (list []netip.Prefix, warning string, err error) {
	list, warning, err = r.chooseNetworks("clustercidr", r.ClusterCIDRs, r.member.Network.Pods, "pod")
	outside := func(p netip.Prefix) bool { return !prefix.CoverTogether(list, p) }
	if r.member.Network.Guess != "" && !slices.ContainsFunc(r.member.Network.Pods.CIDRs, outside) {
		warning = "" // the user knows the network better than a guess, and it contains all nodes
	}
	return list, warning, err
}

// serviceNetworks returns the Service networks to join with.
func (r request) serviceNetworks() (list []netip.Prefix, warning string, err error) {
	return r.chooseNetworks("servicecidr", r.ServiceCIDRs, r.member.Network.Services, "Service")
}

// chooseNetworks returns the networks that a flag, or the Submariner of the last join, specifies,
// or else the networks that were found. Networks that an earlier join discovered, instead of the
// user, follow what is found now.
func (r request) chooseNetworks(
	flag string,
	specified []string,
	found networks.Found,
	what string,
) (list []netip.Prefix, warning string, err error) {
	if list, err = cable.ParseCIDRs("--"+flag, specified); err != nil {
		return nil, "", nil // Validate reports it
	}
	switch {
	case len(list) == 0 && len(found.CIDRs) == 0:
		return nil, "", fmt.Errorf("the %s network could not be discovered: specify it with --%s", what, flag)
	case len(list) == 0:
		return found.CIDRs, "", nil
	case len(found.CIDRs) > 0 && !slices.Equal(list, found.CIDRs) && r.wasDiscovered(flag):
		list, warning = mergeDiscovered(list, found, flag, what)
	case len(found.CIDRs) > 0 && !slices.Equal(list, found.CIDRs):
		where := "--" + flag
		remedy := ""
		if field := r.storedIn(flag); field != "" {
			where = field
			remedy = ": specify --" + flag + " to change it"
		}
		warning = fmt.Sprintf("%s %s is used, although the %s network seems to be %s (%s)%s",
			where, prefix.Format(list), what, prefix.Format(found.CIDRs), found.From, remedy)
	}
	return list, warning, nil
}

// mergeDiscovered returns the networks that were discovered before, and those that are found now. A
// network that is no longer found stays: addresses in it may be in use, and what has found it
// before may not be readable now.
func mergeDiscovered(
	before []netip.Prefix,
	found networks.Found,
	flag, what string,
) (list []netip.Prefix, warning string) {
	all := slices.Clone(found.CIDRs)
	var gone, added []netip.Prefix
	for _, p := range before {
		if !prefix.CoverTogether(found.CIDRs, p) {
			gone = append(gone, p)
		}
	}
	all = append(all, gone...)
	for i, p := range all {
		isLarger := func(o netip.Prefix) bool { return o.Bits() < p.Bits() && o.Contains(p.Addr()) }
		if !slices.ContainsFunc(all, isLarger) && !slices.Contains(all[:i], p) {
			list = append(list, p)
		}
		if !prefix.CoverTogether(before, p) {
			added = append(added, p)
		}
	}
	var texts []string
	if len(added) > 0 {
		texts = append(texts, fmt.Sprintf("the %s network of this cluster now has %s as well (%s)", what,
			prefix.Format(added), found.From))
	}
	if len(gone) > 0 {
		texts = append(texts, fmt.Sprintf("%s of the %s network is no longer found, and stays: specify --%s to give "+
			"it up", prefix.Format(gone), what, flag))
	}
	return list, strings.Join(texts, "; ")
}

// wasDiscovered reports whether the last join has discovered the networks of a flag, and the user
// specifies no other ones now.
func (r request) wasDiscovered(flag string) bool {
	return r.isStored(flag) && r.member.Submariner.Discovered(strings.TrimPrefix(r.storedIn(flag), "Submariner.spec."))
}

// discovered returns the fields of the Submariner with networks that the user did not choose: see
// v1alpha1.DiscoveredAnnotation. Where a version without the annotation has joined, networks that
// are just those that are found were most likely discovered.
func (r request) discovered(pods, services []netip.Prefix) []string {
	var out []string
	for _, n := range []struct {
		flag, field string
		found       networks.Found
		list        []netip.Prefix
		specified   []string
	}{
		{"clustercidr", v1alpha1.ClusterCIDRField, r.member.Network.Pods, pods, r.ClusterCIDRs},
		{"servicecidr", v1alpha1.ServiceCIDRField, r.member.Network.Services, services, r.ServiceCIDRs},
	} {
		if len(n.specified) == 0 || r.wasDiscovered(n.flag) || slices.Equal(n.list, n.found.CIDRs) {
			out = append(out, n.field)
		}
	}
	return out
}

// network is an address range and its description, such as: the pod network of cluster
// "west".
type network struct {
	prefix netip.Prefix
	of     string
}

// errorsImpossible returns an error for each network of list that agents do not connect.
func errorsImpossible(list []network, remedy string) error {
	var errs []error
	for _, n := range list {
		if err := cable.CheckNetwork(n.prefix); err != nil {
			errs = append(errs, fmt.Errorf("%s cannot be connected: %w: %s", n.of, err, remedy))
		}
	}
	return errors.Join(errs...)
}

// errorsOverlap returns an error for each network of mine that overlaps one of others.
func errorsOverlap(mine, others []network, remedy string) error {
	var errs []error
	for _, m := range mine {
		for _, o := range others {
			if m.prefix.Overlaps(o.prefix) {
				errs = append(errs, fmt.Errorf("%s, %s, overlaps %s, %s: %s", m.prefix, m.of, o.prefix, o.of, remedy))
			}
		}
	}
	return errors.Join(errs...)
}

// address is an address and whose it is, such as: node west-1.
type address struct {
	ip netip.Addr
	of string
}

// errorsInside returns an error for each address that is in one of nets.
func errorsInside(addrs []address, nets []network, remedy string) error {
	var errs []error
	for _, a := range addrs {
		for _, n := range nets {
			if n.prefix.Contains(a.ip) {
				errs = append(errs,
					fmt.Errorf("%s, the address of %s, is in %s, %s: %s", a.ip, a.of, n.prefix, n.of, remedy))
			}
		}
	}
	return errors.Join(errs...)
}

// internalIPs returns all internal IPv4 addresses of nodes, sorted by node: the agents use the
// first that a device holds.
func internalIPs(nodes []corev1.Node) (out []address) {
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if err == nil && ip.Is4() && a.Type == corev1.NodeInternalIP {
				out = append(out, address{ip, "node " + n.Name})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b address) int { return strings.Compare(a.of, b.of) })
	return out
}

// checkGlobalnet refuses a cluster that cannot get the global network that it asks for, or for
// which the user lacks rights.
func checkGlobalnet(r request) ([]string, error) {
	global := r.global
	err := r.globalErr
	var denied error
	if had := r.member.Submariner != nil && r.member.Submariner.Spec.GlobalCIDR != ""; had ||
		err == nil && global.IsValid() {
		denied = kube.DeniedError("the broker at "+r.broker.URL, r.broker.GlobalnetDenied,
			"let the administrator of the broker run this version of subctl deploy-broker, which gives the right to all join files that are not revoked or expired")
	}
	if err == nil && global.IsValid() {
		return nil, errors.Join(
			denied,
			kube.DeniedError("the cluster at "+r.member.URL, r.member.GlobalnetDenied,
				"join as a cluster administrator, or without a global network, with --globalnet=false"),
		)
	}
	err = errors.Join(err, denied)
	if err != nil || !r.broker.Broker.Spec.GlobalnetEnabled || r.specifies("globalnet") {
		return nil, err
	}
	return []string{
		"the broker has globalnet, and this cluster joins without a global network, with the addresses of its own networks, " +
			"because it has joined so before or is invited so: to change that, see docs/globalnet.md",
	}, nil
}
