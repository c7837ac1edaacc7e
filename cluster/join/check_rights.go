package join

import (
	"context"
	"errors"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/cluster"
	"subctl/internal/kube"
)

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
