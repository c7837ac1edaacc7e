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
	"subctl/policy/impact"
)

// catalog returns the policies and clusters of the broker, with this cluster joined as spec with
// the labels.
func (r request) catalog(spec v1alpha1.SubmarinerSpec, labels map[string]string) *catalog.Catalog {
	known := catalog.OfBroker(r.broker.Broker.Spec, r.broker.Members)
	known.BrokerOnly = spec.PoliciesFrom.BrokerOnly()
	return known.Joining(r.self(spec, labels), func(driver string) error {
		switch {
		case !lists(spec, driver):
			return fmt.Errorf("this cluster does not offer %s", driver)
		case r.isSelf(spec.ClusterID) && lists(r.member.Submariner.Spec, driver):
			return known.Lacks(spec.ClusterID, driver) // its gateways would offer it if they could
		}
		return nil
	})
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

// impact returns what the change of the Submariner from was to will means for the pairs of this
// cluster, and the other clusters that it affects: groups of clusters, with the cable before and
// after where it differs. A change of one of the fields in list that is neither local nor decided
// affects all of them.
func (r request) impact(was, will *v1alpha1.Submariner, list []Change) (impact.Change, []string) {
	all := false
	for _, c := range list {
		field, _, _ := strings.Cut(c.Field, ".")
		all = all || !slices.Contains(local, field) && !slices.Contains(decided, field)
	}
	labels := was.ClusterLabels()
	then := r.catalog(will.Spec, r.effective(labels, will.ClusterLabels()))
	change := impact.Of(r.catalog(was.Spec, r.effective(labels, labels)), then)
	change.Cables = change.On(will.Spec.ClusterID)
	changed := map[string]impact.CableChange{}
	for _, x := range change.Cables {
		changed[x.Other(will.Spec.ClusterID)] = x
	}
	var affected groups
	self, _ := then.Cluster(will.Spec.ClusterID)
	for _, other := range then.Clusters {
		switch x, is := changed[other.ID]; {
		case is && x.New:
			affected.add(other.ID, " (not connected → "+driverText(x.Then)+")")
		case is && x.Ended:
			affected.add(other.ID, " (no longer connected)")
		case is:
			affected.add(other.ID, fmt.Sprintf(" (%s → %s)", driverText(x.Now), driverText(x.Then)))
		case all && other.ID != self.ID && self.SharesSet(other):
			affected.add(other.ID, "")
		}
	}
	return change, affected.texts()
}

// driverText returns the driver of a cable, or that there is none: checkCables prints why.
func driverText(c catalog.Cable) string {
	if c.Err != nil {
		return "no cable"
	}
	return c.Driver
}

// groups are clusters by what is said about them.
type groups struct {
	said     []string // in the order in which it was added
	clusters map[string][]string
}

func (g *groups) add(cluster, text string) {
	if g.clusters == nil {
		g.clusters = map[string][]string{}
	}
	if g.clusters[text] == nil {
		g.said = append(g.said, text)
	}
	g.clusters[text] = append(g.clusters[text], cluster)
}

// texts returns the clusters of each group, followed by what is said about them.
func (g *groups) texts() []string {
	var out []string
	for _, text := range g.said {
		out = append(out, strings.Join(g.clusters[text], ", ")+text)
	}
	return out
}
