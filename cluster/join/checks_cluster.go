package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8sversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/version"
)

// JoinedAs returns an error if the cluster has joined with another ID than id. Nothing else is
// worth a message then: what is wrong with id, or with the cluster that has it, is of no interest.
func (f *Facts) JoinedAs(id string) error {
	sub := f.Submariner
	if sub == nil || !cluster.IsOurs(sub.Labels) || sub.DeletionTimestamp != nil || sub.Spec.ClusterID == id {
		return nil
	}
	return fmt.Errorf("this cluster is joined as %q: to change it, join with --clusterid %s; to give it another ID, "+
		"first take it out of the network with subctl uninstall",
		sub.Spec.ClusterID, sub.Spec.ClusterID)
}

// checkIdentity refuses a cluster ID that another cluster has claimed, a join file of
// another broker, and a cluster that has joined in another way.
func checkIdentity(r request) ([]string, error) {
	var errs []error
	f := r.member
	b := r.broker
	if b.Holder != nil && !b.holds(f.UID) {
		errs = append(errs,
			&broker.TakenError{ClusterID: r.ClusterID, Namespace: b.Namespace, Since: b.Holder.CreationTimestamp.Time})
	}
	if want := b.Broker.Annotations[broker.PSKFingerprintAnnotation]; want != "" &&
		want != broker.Fingerprint(r.file.PSK) {
		errs = append(
			errs,
			errors.New(
				"the pre-shared key in the join file is not the key of the other clusters: the file is outdated; create a new one with subctl deploy-broker"),
		)
	}
	if ns := f.Namespace; ns != nil && ns.DeletionTimestamp != nil {
		errs = append(errs, fmt.Errorf("namespace %s is being deleted: wait until it is deleted (subctl uninstall "+
			"prints what holds it)", ns.Name))
	}
	sub := f.Submariner
	if sub == nil {
		return nil, errors.Join(errs...)
	}
	switch {
	case !cluster.IsOurs(sub.Labels):
		errs = append(
			errs,
			fmt.Errorf(
				"this cluster was not joined by subctl (Submariner %s/%s has no label %s=%s): first uninstall it with the tool that joined it",
				sub.Namespace, sub.Name, cluster.ManagedByLabel, cluster.ManagedBy),
		)
	case sub.DeletionTimestamp != nil:
		errs = append(errs, errors.New("this cluster is being uninstalled: finish with subctl uninstall"))
	case sub.Spec.BrokerK8sApiServer != withoutScheme(r.file.BrokerURL) && !b.holds(f.UID):
		// If the broker knows this cluster, it is the same broker at another address.
		errs = append(
			errs,
			fmt.Errorf("this cluster is joined to another broker, at %s: run subctl uninstall first",
				sub.Spec.BrokerK8sApiServer),
		)
	}
	return nil, errors.Join(errs...)
}

// oldestKubernetes is the oldest supported version of Kubernetes. The broker separates its
// members, and a member its nodes, with ValidatingAdmissionPolicies, which are stable since
// 1.30. Since then, too, the token of a pod names the node of the pod.
const oldestKubernetes = "1.30"

// checkVersions refuses versions of Kubernetes that are too old.
func checkVersions(r request) ([]string, error) {
	return nil, errors.Join(
		checkVersion("the cluster at "+r.member.URL, r.member.Version, oldestKubernetes),
		checkVersion("the broker at "+r.broker.URL, r.broker.Version, oldestKubernetes))
}

func checkVersion(where, is, oldest string) error {
	v, err := k8sversion.ParseGeneric(is)
	if err != nil {
		return fmt.Errorf("%s reports the version %q, which is not a version of Kubernetes", where, is)
	}
	if !v.AtLeast(k8sversion.MustParseGeneric(oldest)) {
		return fmt.Errorf("%s runs Kubernetes %s: upgrade it to %s or later", where, is, oldest)
	}
	return nil
}

// checkRights refuses users who lack a right that joining needs.
func checkRights(r request) ([]string, error) {
	return nil, errors.Join(
		kube.DeniedError("the cluster at "+r.member.URL, r.member.Denied, "join as a cluster administrator"),
		kube.DeniedError("the broker at "+r.broker.URL, r.broker.Denied,
			"use a join file created by this version of subctl deploy-broker, and not revoked since"),
	)
}

// deniedRights returns the rights that the user lacks to join, and the further ones that the user
// lacks if the cluster gets a global network. services specifies whether it is to have service
// discovery.
func deniedRights(ctx context.Context, s cluster.Side, p cluster.Platform, services bool) (always, global []kube.Right,
	err error,
) {
	sub := &v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{
		Gateways: new(int32(1)), ServiceDiscoveryEnabled: services, GlobalCIDR: "242.0.0.0/8",
	}}
	everything, err := p.Render(sub)
	if err != nil {
		return nil, nil, err
	}
	all, err := deniedFor(ctx, s, everything)
	if err != nil || len(all) == 0 {
		return nil, nil, err
	}
	sub.Spec.GlobalCIDR = ""
	objs, err := p.Render(sub)
	if err != nil {
		return nil, nil, err
	}
	if always, err = deniedFor(ctx, s, objs); err != nil {
		return nil, nil, err
	}
	return always, slices.DeleteFunc(all, func(r kube.Right) bool { return slices.Contains(always, r) }), nil
}

// deniedFor returns the rights that the user lacks to install objs.
func deniedFor(ctx context.Context, s cluster.Side, objs []client.Object) ([]kube.Right, error) {
	needed, err := joinRights(s.Client, objs)
	if err != nil {
		return nil, err
	}
	denied, err := kube.Denied(ctx, s, needed)
	if err != nil {
		return nil, err
	}
	exceeding, err := kube.DeniedGrants(ctx, s, objs)
	return append(denied, exceeding...), err
}

// joinRights returns the rights that join needs in a cluster to install objs.
func joinRights(c client.Client, objs []client.Object) ([]kube.Right, error) {
	out, err := kube.ObjectRights(c.Scheme(), append(slices.Clone(objs), cluster.RedactedSecrets()...), "create",
		"patch")
	for _, k := range exchange.Kinds() {
		if k.Counted() { // see countShared
			out = append(out, kube.NewRight("list", k.GroupVersion.Group, k.Resource, cluster.Namespace))
		}
	}
	if slices.ContainsFunc(objs, func(o client.Object) bool { _, ok := o.(*appsv1.Deployment); return ok }) {
		out = append(out, kube.NewRight("get", appsv1.GroupName, "deployments", cluster.Namespace))
	}
	if slices.ContainsFunc(objs, func(o client.Object) bool { _, ok := o.(*corev1.Service); return ok }) {
		out = append(out, kube.NewRight("get", "", "services", cluster.Namespace)) // its address
	}
	return append(
		out,
		kube.Right{
			Verb:     "get",
			Resource: "namespaces",
		},
		kube.Right{Verb: "get", Resource: "secrets", Namespace: cluster.Namespace},
		kube.Right{Verb: "list", Resource: "nodes"},
		kube.Right{Verb: "patch", Resource: "nodes"},
		kube.Right{Verb: "get", Group: "submariner.io", Resource: "submariners", Namespace: cluster.Namespace},
		kube.Right{Verb: "patch", Group: "submariner.io", Resource: "submariners/status", Namespace: cluster.Namespace},
		// see kube.Install
		kube.Right{Verb: "get", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		kube.Right{Verb: "list", Group: "submariner.io", Resource: "gateways", Namespace: cluster.Namespace},
		kube.Right{Verb: "get", Group: "apps", Resource: "daemonsets", Namespace: cluster.Namespace},
		kube.Right{Verb: "list", Resource: "pods", Namespace: cluster.Namespace},
	), err
}

// claimRights returns the rights on the broker whose base namespace is ns that it takes to give a
// cluster an identity.
func claimRights(ns, clusterID string) []kube.Right {
	return append(placeRights(ns),
		kube.NewRight("create", "", "serviceaccounts", ns),
		kube.Right{Verb: "get", Resource: "serviceaccounts", Namespace: ns, Name: broker.MemberName(clusterID)},
		kube.NewRight("create", "", "secrets", ns), kube.NewRight("get", v1alpha1.GroupVersion.Group, "brokers", ns),
	)
}

// announceRights returns the further rights that it takes to change which global networks the
// cluster may announce.
func announceRights(ns, clusterID string) []kube.Right {
	return []kube.Right{
		{
			Verb:      "patch",
			Group:     "rbac.authorization.k8s.io",
			Resource:  "roles",
			Namespace: ns,
			Name:      broker.MemberName(clusterID),
		},
	}
}

// placeRights returns the rights that it takes to bind a cluster in a namespace of the broker.
func placeRights(ns string) []kube.Right {
	return []kube.Right{
		kube.NewRight("create", "rbac.authorization.k8s.io", "roles",
			ns), kube.NewRight("create", "rbac.authorization.k8s.io", "rolebindings", ns),
	}
}

// setRights returns the rights that it takes to give a cluster its place in the namespace of a
// clusterset.
func setRights(ns string) []kube.Right {
	rights := placeRights(ns)
	for _, k := range exchange.Kinds() {
		rights = append(rights, kube.NewRight("list", k.GroupVersion.Group, k.Resource, ns),
			kube.NewRight("create", k.GroupVersion.Group, k.Resource, ns))
	}
	return rights
}

// checkImage warns if the default image is in no registry.
func checkImage(r request) ([]string, error) {
	if kept := r.images(r.lastSubmariner().Spec.ImageOverrides); r.Image == "" && len(kept) > 0 {
		if stored := r.lastSubmariner().Spec.Version; stored == version.Version {
			return nil, nil
		}
		return []string{
			fmt.Sprintf(
				"the agents keep their image, %s: specify another one with --image to replace them by this version, %s",
				kept[cluster.GatewayName], version.Version),
		}, nil
	}
	registry, _, _ := strings.Cut(version.Image, "/")
	if r.Image != "" || registry != "localhost" {
		return nil, nil
	}
	return []string{
		fmt.Sprintf("the image of the agents, %s:%s, is in no registry: nodes that do not have it cannot pull it; "+
			"push it to a registry and specify it with --image", version.Image, version.Version),
	}, nil
}

// checkImageName refuses an image that no kubelet can pull, because its name is malformed.
func (o Options) checkImageName() error {
	if o.Image == "" {
		return nil
	}
	if _, err := reference.ParseNormalizedNamed(o.Image); err != nil { // as the kubelet does
		return fmt.Errorf(
			"--image %q is not the name of an image: %w: specify REGISTRY/REPOSITORY:TAG, such as registry.example/subctl:v1",
			o.Image, err)
	}
	return nil
}
