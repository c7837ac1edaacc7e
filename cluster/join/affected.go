package join

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/policy"
	"subctl/policy/catalog"
)

// pair is this cluster and another one, with the decision of the policies.
type pair struct {
	policy.Pair
	other    string
	decision policy.Decision
}

// newPair returns the pair of this cluster and another.
func newPair(self, other policy.Cluster, d policy.Decision) pair {
	both := policy.Pair{X: self, Y: other}
	if other.ID < self.ID {
		both = policy.Pair{X: other, Y: self}
	}
	return pair{both, other.ID, d}
}

// pairs returns what the policies decide for the pairs of this cluster, joined as spec with
// the labels, and the other clusters of the broker, sorted.
func (r request) pairs(spec v1alpha1.SubmarinerSpec, labels map[string]string) []pair {
	self := r.self(spec, labels)
	known := catalog.OfBroker(r.broker.Broker.Spec, r.broker.Members)
	known.BrokerOnly = spec.PoliciesFrom.BrokerOnly()
	book := known.Book()
	var out []pair
	for _, other := range known.Clusters {
		if r.isOther(other.ID) && self.SharesSet(other) {
			d := book.Decide(self, other)
			if err := r.lacks(known, spec, other.ID, d.Driver); d.Err == nil && err != nil {
				d.Err = err
				d.Driver = ""
			}
			out = append(out, newPair(self, other, d))
		}
	}
	return out
}

// lacks returns the error of this cluster, joined as spec, or the other one if it does not offer
// the driver; nil if both do, or if that is not known.
func (r request) lacks(known *catalog.Catalog, spec v1alpha1.SubmarinerSpec, other, driver string) error {
	if !lists(spec, driver) {
		return fmt.Errorf("this cluster does not offer %s", driver)
	}
	// so its gateways would offer it if they could
	if r.isSelf(spec.ClusterID) && lists(r.member.Submariner.Spec, driver) {
		if err := known.Lacks(spec.ClusterID, driver); err != nil {
			return err
		}
	}
	return known.Lacks(other, driver)
}

// lists reports whether a cluster that is joined as spec offers a driver, if its gateways can
// run it. A spec with a mistake is reported elsewhere.
func lists(spec v1alpha1.SubmarinerSpec, driver string) bool {
	offered, err := drivers.Listed(spec)
	return err != nil || slices.ContainsFunc(offered, func(d cable.Driver) bool { return d.Name() == driver })
}

// self returns this cluster, joined as spec with the labels.
func (r request) self(spec v1alpha1.SubmarinerSpec, labels map[string]string) policy.Cluster {
	out := policy.Cluster{
		ID:          spec.ClusterID,
		Labels:      labels,
		Sets:        spec.Sets(),
		Driver:      drivers.Default,
		MustEncrypt: spec.Encryption.Required(),
	}
	if offered, err := drivers.Listed(spec); err == nil {
		out.Driver = offered[0].Name()
	}
	return out
}

// isSelf reports whether this cluster has joined as id before.
func (r request) isSelf(id string) bool {
	return r.member.Submariner != nil && r.member.Submariner.Spec.ClusterID == id
}

// effective returns the labels of this cluster's Cluster object after its Submariner changes
// from the labels was to the labels will: labels that people have changed since stay.
func (r request) effective(was, will map[string]string) map[string]string {
	out := map[string]string{}
	for _, c := range r.broker.clusters() {
		if c.Spec.ClusterID == r.ClusterID && r.isSelf(r.ClusterID) {
			maps.Copy(out, c.Labels)
		}
	}
	maps.DeleteFunc(out, func(k, _ string) bool { return submarinerv1.IsReservedLabel(k) })
	for k := range was {
		if _, stays := will[k]; !stays {
			delete(out, k)
		}
	}
	for k, v := range will {
		if old, known := was[k]; !known || old != v || !r.isSelf(r.ClusterID) {
			out[k] = v
		}
	}
	return out
}

// local are the fields whose change concerns only this cluster, not its cables.
var local = []string{
	"airGappedDeployment", "broker", "brokerK8sApiServer", "brokerK8sCA", "brokerK8sHTTPSProxy", "brokerK8sInsecure",
	"brokerK8sNoProxy", "brokerK8sSecret", "brokerK8sTLSServerName", "colorCodes", "debug",
	"gatewayNodes", "gateways", "haltOnCertificateError",
	"imageOverrides", "repository", "tolerations", "version",
}

// decided are the fields from which policies decide.
var decided = []string{"cableDriver", "clusterLabels", "clusterSets", "encryption", "policiesFrom"}

// effect is the effect of changes of a Submariner on other clusters.
type effect struct {
	affected []string              // groups of clusters, with the cable before and after where it differs
	losses   []string              // groups of clusters that lose their cable or its encryption, with the reason
	cables   []catalog.CableChange // the pairs whose cable changes, and that have one then
}

// affected returns the effect of the changes.
func (r request) affected(was, will *v1alpha1.Submariner, list []Change) (out effect) {
	var affected, losses byText
	all := false
	for _, c := range list {
		field, _, _ := strings.Cut(c.Field, ".")
		all = all || !slices.Contains(local, field) && !slices.Contains(decided, field)
	}
	labels := was.ClusterLabels()
	before := r.pairs(was.Spec, r.effective(labels, labels))
	after := r.pairs(will.Spec, r.effective(labels, will.ClusterLabels()))
	for _, now := range after {
		text := ""
		i := slices.IndexFunc(before, func(p pair) bool { return p.other == now.other })
		switch {
		case i < 0:
			text = " (not connected → " + driverText(now.decision) + ")"
		case !before[i].decision.Same(now.decision):
			was := driverText(before[i].decision)
			text = fmt.Sprintf(" (%s → %s)", was, driverText(now.decision))
			change := catalog.CableChange{
				Pair: now.Pair,
				Now:  catalog.CableOf(before[i].decision),
				Then: catalog.CableOf(now.decision),
			}
			if change.Loses() {
				losses.add(now.other, fmt.Sprintf(" (%s → %s)", was, driverOrReason(now.decision)))
			}
			if change.Then.Err == nil {
				out.cables = append(out.cables, change)
			}
		case !all:
			continue
		}
		affected.add(now.other, text)
	}
	for _, p := range before {
		if !slices.ContainsFunc(after, func(now pair) bool { return now.other == p.other }) {
			affected.add(p.other, " (no longer connected)")
			losses.add(p.other, " (no longer connected)")
		}
	}
	out.affected = affected.groups()
	out.losses = losses.groups()
	return out
}

// driverText returns the driver that is decided, or that there is no cable: checkCables prints why.
func driverText(d policy.Decision) string {
	if d.Err != nil {
		return "no cable"
	}
	return d.Driver
}

// driverOrReason is driverText with the reason why there is no cable.
func driverOrReason(d policy.Decision) string {
	if d.Err != nil {
		return driverText(d) + ": " + d.Err.Error()
	}
	return driverText(d)
}

// byText groups clusters by the text about them.
type byText struct {
	texts    []string // in the order in which they were added
	clusters map[string][]string
}

func (b *byText) add(cluster, text string) {
	if b.clusters == nil {
		b.clusters = map[string][]string{}
	}
	if b.clusters[text] == nil {
		b.texts = append(b.texts, text)
	}
	b.clusters[text] = append(b.clusters[text], cluster)
}

// groups returns the clusters of each text, followed by the text.
func (b *byText) groups() []string {
	var out []string
	for _, text := range b.texts {
		out = append(out, strings.Join(b.clusters[text], ", ")+text)
	}
	return out
}
