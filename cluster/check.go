package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
)

// The oldest Kubernetes we work with. The broker keeps members apart by
// ValidatingAdmissionPolicies, which are stable since 1.30; a member needs
// server-side apply and unprivileged pods with seccomp, as of 1.25, the oldest
// version whose pod security labels we set.
const (
	oldestMember = "1.25"
	oldestBroker = "1.30"
)

func checkVersions(f *Facts, b *BrokerFacts) error {
	return errors.Join(
		checkVersion("the cluster at "+f.URL, f.Version, oldestMember),
		checkVersion("the broker at "+b.URL, b.Version, oldestBroker))
}

func checkVersion(where, is, oldest string) error {
	v, err := version.ParseGeneric(is)
	if err != nil {
		return fmt.Errorf("%s says that its version is %q, which is not a version of Kubernetes", where, is)
	}
	if !v.AtLeast(version.MustParseGeneric(oldest)) {
		return fmt.Errorf("%s runs Kubernetes %s: upgrade it to %s or later", where, is, oldest)
	}
	return nil
}

// checkIdentity says whether the cluster may be who it wants to be.
func checkIdentity(o Options, file *broker.JoinFile, f *Facts, b *BrokerFacts) error {
	var errs []error
	if b.Holder != nil && !b.holds(f.UID) {
		errs = append(errs, &broker.TakenError{ClusterID: o.ClusterID, Namespace: b.Namespace, Since: b.Holder.CreationTimestamp.Time})
	}
	if want := b.Broker.Annotations[broker.PSKFingerprintAnnotation]; want != "" && want != broker.Fingerprint(file.PSK) {
		errs = append(errs, errors.New("the pre-shared key in the join file is not the one of the broker's other clusters: the file is old; make a new one with subctl deploy-broker"))
	}
	if ns := f.Namespace; ns != nil && ns.DeletionTimestamp != nil {
		errs = append(errs, fmt.Errorf("namespace %s is being deleted: wait until it is gone", ns.Name))
	}
	sub := f.Submariner
	if sub == nil {
		return errors.Join(errs...)
	}
	switch {
	case !isOurs(sub.Labels):
		errs = append(errs, fmt.Errorf("this cluster was joined by something else than this subctl (Submariner %s/%s lacks label %s=%s): uninstall that first",
			sub.Namespace, sub.Name, ManagedByLabel, ManagedBy))
	case sub.DeletionTimestamp != nil:
		errs = append(errs, errors.New("this cluster is being uninstalled: finish that with subctl uninstall"))
	case sub.Spec.ClusterID != o.ClusterID:
		errs = append(errs, fmt.Errorf("this cluster is joined as %q: run subctl uninstall first, or join with --clusterid %s",
			sub.Spec.ClusterID, sub.Spec.ClusterID))
	case sub.Spec.BrokerK8sApiServer != withoutScheme(file.BrokerURL) && !b.holds(f.UID):
		// Another address of the same broker knows us.
		errs = append(errs, fmt.Errorf("this cluster is joined to another broker, at %s: run subctl uninstall first", sub.Spec.BrokerK8sApiServer))
	}
	return errors.Join(errs...)
}

// checkSets says which clustersets there are not.
func checkSets(o Options, b *BrokerFacts) error {
	var errs []error
	for _, set := range o.Sets() {
		if !slices.Contains(b.Sets, set) {
			errs = append(errs, fmt.Errorf("the broker has no clusterset %q, or the join file is not for it: there is %s",
				set, strings.Join(b.Sets, ", ")))
		} else if set != submarinerv1.DefaultClusterSet {
			errs = append(errs, fmt.Errorf("clusterset %q: this version joins clusters to clusterset %q only", set, submarinerv1.DefaultClusterSet))
		}
	}
	return errors.Join(errs...)
}

// checkNetworks says which addresses would be in two places.
func checkNetworks(self string, pods, services []netip.Prefix, nodes []corev1.Node, b *BrokerFacts) error {
	own := append(named(pods, "the pod network of this cluster"), named(services, "the Service network of this cluster")...)
	members := members(self, b)
	const (
		sayOther  = "no two clusters can be connected that use the same addresses; if they do not, say the right networks with --clustercidr and --servicecidr"
		sayRight  = "say the right networks with --clustercidr and --servicecidr"
		sayBehind = "what is in a node's own network cannot be reached through a cable as well"
	)
	errs := []error{
		impossible(own, sayRight),
		overlaps(own, members, sayOther),
		inside(internalIPs(nodes), own, sayRight),
		inside(internalIPs(nodes), members, sayBehind),
		inside(gatewayIPs(self, b), own, sayBehind),
	}
	for i, n := range own {
		errs = append(errs, overlaps([]network{n}, own[i+1:], sayRight))
	}
	if r, err := netip.ParsePrefix(b.Broker.Spec.GlobalnetCIDRRange); err == nil && b.Broker.Spec.GlobalnetEnabled {
		errs = append(errs, overlaps(own, []network{{r, "the range of the broker's globalnet"}}, "deploy the broker with another --globalnet-cidr-range"))
	}
	return errors.Join(errs...)
}

func named(list []netip.Prefix, of string) []network {
	var out []network
	for _, p := range list {
		out = append(out, network{p, of})
	}
	return out
}

// members returns the networks of the other clusters.
func members(self string, b *BrokerFacts) []network {
	var out []network
	for _, c := range b.Clusters {
		if c.Spec.ClusterID != self {
			out = append(out, named(cidrs(strings.Join(c.Spec.ClusterCIDR, ",")), fmt.Sprintf("the pod network of cluster %q", c.Spec.ClusterID))...)
			out = append(out, named(cidrs(strings.Join(c.Spec.ServiceCIDR, ",")), fmt.Sprintf("the Service network of cluster %q", c.Spec.ClusterID))...)
		}
	}
	return out
}

// gatewayIPs returns where the other clusters' gateways are.
func gatewayIPs(self string, b *BrokerFacts) map[string]netip.Addr {
	out := map[string]netip.Addr{}
	for _, e := range b.Endpoints {
		if ip, err := netip.ParseAddr(e.Spec.PrivateIP); err == nil && e.Spec.ClusterID != self {
			out[fmt.Sprintf("gateway %s of cluster %q", e.Spec.Hostname, e.Spec.ClusterID)] = ip
		}
	}
	return out
}
