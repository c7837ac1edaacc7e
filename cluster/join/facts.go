package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/cluster"
	"subctl/cluster/networks"
	"subctl/globalnet"
	"subctl/internal/kube"
	"subctl/policy/catalog"
)

// Facts are the facts about a cluster that joining it depends on.
type Facts struct {
	URL     string
	Version string
	// UID is the UID of namespace kube-system, which is different in every cluster.
	UID    string
	Denied []kube.Right // rights that the user lacks; if any, nothing below is known
	// GlobalnetDenied are the rights that the user lacks in addition if the cluster gets a global
	// network.
	GlobalnetDenied []kube.Right
	Nodes           []corev1.Node
	// Platform is what the objects to install depend on; its BrokenGateways are not known yet.
	Platform cluster.Platform
	Network  networks.Discovered
	// Submariner describes how the cluster has joined; nil if it has not. Its clustersets are those
	// in which the cluster is now. Alone reports that there are none.
	Submariner *v1alpha1.Submariner
	Alone      bool
	// Trust holds the keys and the grant with which the cluster signs and verifies; nil if it has
	// not joined.
	Trust *cluster.Trust
	// Namespace is the namespace of the agents; nil if it does not exist.
	Namespace *corev1.Namespace
	// Shared are the numbers of objects that were made in the cluster, of the kinds of which the
	// broker reserves as many, by resource: "cablepolicies" and "exportedservices".
	Shared map[string]int
	// CableConfig is the ConfigMap with settings of the cable drivers; nil if the user
	// names none, or it does not exist.
	CableConfig *corev1.ConfigMap
}

// ReadFacts reads the facts about a cluster that joining it with o depends on.
func ReadFacts(ctx context.Context, s cluster.Side, o Options) (*Facts, error) {
	f := &Facts{URL: s.URL, Version: s.Version}
	var err error
	if f.Platform.SCC, err = cluster.HasSCC(s); err != nil {
		return nil, err
	}
	if f.Denied, f.GlobalnetDenied, err = deniedRights(ctx, s, f.Platform, o.ServiceDiscovery); err != nil {
		return nil, err
	}
	if len(f.Denied) > 0 {
		return f, nil
	}
	system := &corev1.Namespace{}
	if err := s.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return nil, fmt.Errorf("reading the cluster's identity: %w", err)
	}
	f.UID = string(system.UID)
	nodes := &corev1.NodeList{}
	if err := s.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	f.Nodes = nodes.Items
	network, err := networks.Discover(ctx, s.Client)
	if err != nil {
		return nil, err
	}
	f.Network = *network
	if f.Submariner, err = kube.Optional(ctx, s, &v1alpha1.Submariner{}, client.ObjectKey{
		Namespace: cluster.Namespace,
		Name:      v1alpha1.SubmarinerName,
	}); err != nil {
		return nil, err
	}
	if f.Submariner != nil {
		own, err := kube.Optional(ctx, s, &submarinerv1.Cluster{},
			client.ObjectKey{Namespace: cluster.Namespace, Name: f.Submariner.Spec.ClusterID})
		if err != nil {
			return nil, err
		}
		f.Submariner.Spec.ClusterSets = v1alpha1.ClusterSets(f.Submariner.Spec, own)
		f.Alone = len(f.Submariner.Spec.ClusterSets) == 0
	}
	if f.Trust, err = readTrust(ctx, s); err != nil {
		return nil, err
	}
	if ref := o.With(f.Submariner).configRef(); ref != nil {
		if f.CableConfig, err = kube.Optional(ctx, s, &corev1.ConfigMap{}, client.ObjectKey{
			Namespace: ref.Namespace,
			Name:      ref.ConfigMapName,
		}); err != nil {
			return nil, err
		}
	}
	if f.Shared, err = countShared(ctx, s); err != nil {
		return nil, err
	}
	f.Namespace, err = kube.Optional(ctx, s, &corev1.Namespace{}, client.ObjectKey{Name: cluster.Namespace})
	return f, err
}

// countShared counts the objects of Facts.Shared.
func countShared(ctx context.Context, c client.Reader) (map[string]int, error) {
	out := map[string]int{}
	for _, k := range exchange.Kinds() {
		if !k.Counted() {
			continue
		}
		list := k.List.DeepCopyObject().(client.ObjectList)
		if err := c.List(ctx, list, client.InNamespace(cluster.Namespace)); err != nil && !kube.NotThere(err) {
			return nil, fmt.Errorf("listing the %s of the cluster: %w", k.Resource, err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if !submarinerv1.IsCopy(o.(client.Object)) {
				out[k.Resource]++
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// BrokerFacts are the facts about a broker that joining it depends on.
type BrokerFacts struct {
	URL       string
	Version   string
	Namespace string       // namespace of the clusterset "default"
	Denied    []kube.Right // rights that the user lacks; if any, nothing below is known
	// GlobalnetDenied are the rights that the user lacks in addition if the cluster gets a global
	// network, or gives it up.
	GlobalnetDenied []kube.Right
	// Broker describes how the broker was deployed; nil if there is no broker.
	Broker *v1alpha1.Broker
	// Sets are the clustersets of the broker that the user may read, sorted.
	Sets []string
	// Holder is the ServiceAccount of the cluster that has claimed the cluster ID; nil if
	// none has.
	Holder *corev1.ServiceAccount
	// Revocations are the revocations that clustersets have in place of the Cluster with the
	// cluster ID, and Leaving is the statement of the cluster that it has left; empty if none has.
	Revocations []string
	Leaving     string
	// Global are the global networks of the members and of invited clusters. GlobalKnown reports
	// whether the user may read them, as with a general join file.
	Global      globalnet.Record
	GlobalKnown bool
	// Members are the objects in the clustersets that the cluster joins.
	Members []catalog.Set
}

// clusters returns the Clusters on the broker, each once.
func (f *BrokerFacts) clusters() (out []submarinerv1.Cluster) {
	for _, set := range f.Members {
		out = append(out, set.Clusters...)
	}
	return uniqueByName(out, func(c submarinerv1.Cluster) string { return c.Name })
}

// endpoints returns the Endpoints on the broker, each once.
func (f *BrokerFacts) endpoints() (out []submarinerv1.Endpoint) {
	for _, set := range f.Members {
		out = append(out, set.Endpoints...)
	}
	return uniqueByName(out, func(e submarinerv1.Endpoint) string { return e.Name })
}

// uniqueByName returns the first object of each name.
func uniqueByName[T any](all []T, name func(T) string) (out []T) {
	seen := map[string]bool{}
	for _, o := range all {
		if !seen[name(o)] {
			seen[name(o)] = true
			out = append(out, o)
		}
	}
	return out
}

// ReadBrokerFacts reads the facts about the broker with the base namespace ns that a cluster
// depends on that joins as clusterID, in the clustersets sets.
func ReadBrokerFacts(ctx context.Context, s cluster.Side, ns, clusterID string, sets []string) (*BrokerFacts, error) {
	f := &BrokerFacts{URL: s.URL, Version: s.Version, Namespace: ns}
	var err error
	if f.Denied, err = kube.Denied(ctx, s, claimRights(ns, clusterID)); err != nil || len(f.Denied) > 0 {
		return f, err
	}
	f.Broker, err = kube.Optional(ctx, s, &v1alpha1.Broker{},
		client.ObjectKey{Namespace: ns, Name: v1alpha1.BrokerName})
	if err != nil || f.Broker == nil {
		return f, err
	}
	if f.Sets, err = clustersets(ctx, s, ns, sets); err != nil {
		return nil, err
	}
	f.Holder, err = kube.Optional(ctx, s, &corev1.ServiceAccount{},
		client.ObjectKey{Namespace: ns, Name: broker.MemberName(clusterID)})
	if err != nil {
		return nil, err
	}
	if f.GlobalnetDenied, err = kube.Denied(ctx, s, announceRights(ns, clusterID)); err != nil {
		return nil, err
	}
	f.Global, err = broker.GlobalNetworks(ctx, s, ns, time.Now())
	if f.GlobalKnown = err == nil; err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	for _, set := range sets {
		if !slices.Contains(f.Sets, set) {
			continue // checkClusterSets reports it
		}
		denied, err := kube.Denied(ctx, s, setRights(broker.NamespaceIn(ns, set)))
		if f.Denied = append(f.Denied, denied...); err != nil || len(denied) > 0 {
			return f, err
		}
		in := client.InNamespace(broker.NamespaceIn(ns, set))
		clusters := &submarinerv1.ClusterList{}
		endpoints := &submarinerv1.EndpointList{}
		policies := &v1alpha1.CablePoliciesList{}
		if err := errors.Join(s.List(ctx, clusters, in), s.List(ctx, endpoints, in),
			s.List(ctx, policies, in)); err != nil {
			return nil, fmt.Errorf("listing the members of clusterset %q: %w", set, err)
		}
		clusters.Items = slices.DeleteFunc(clusters.Items, func(c submarinerv1.Cluster) bool {
			if exchange.IsRemoved(&c) && c.Name == clusterID {
				f.Revocations = append(f.Revocations, c.Annotations[submarinerv1.RevocationAnnotation])
				f.Leaving = cmp.Or(c.Annotations[submarinerv1.LeavingAnnotation], f.Leaving)
			}
			return exchange.IsRemoved(&c)
		})
		o := catalog.Objects{
			Policies:  exchange.InClusters(policies.Items),
			Clusters:  exchange.InClusters(clusters.Items),
			Endpoints: exchange.InClusters(endpoints.Items),
		}
		f.Members = append(f.Members, catalog.Set{
			Name: set, Namespace: string(in), Objects: o,
			Refused: exchange.RefusedPolicies(o.Policies, o.Clusters, set,
				f.Broker.Annotations[broker.AdministratorAnnotation]),
		})
	}
	return f, nil
}

// holds reports whether the cluster with the given UID has claimed the cluster ID.
func (f *BrokerFacts) holds(uid string) bool {
	return f.Holder != nil && f.Holder.Annotations[broker.ClusterUIDAnnotation] == uid
}
