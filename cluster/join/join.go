// Package join joins a cluster to a broker: it reads facts about both, runs all checks (see
// checks.go), makes a Plan, and carries it out. Package networks discovers the networks, and
// package cluster renders the objects to install.
package join

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/progress"
	"subctl/internal/proxy"
)

// Operation carries out a Plan. Every step can be repeated, so running an interrupted join
// again finishes it.
type Operation struct {
	Member, Broker cluster.Side
	File           *broker.JoinFile
	Plan           *Plan
	// NewSets are created first.
	NewSets NewSets
	Report  *progress.Reporter
	// Environment are the proxies of the environment of this machine.
	Environment proxy.Settings

	// renewed is the new public key of a cluster that was no member, or was revoked: its gateways
	// do not use it yet. It is empty if the key has not changed.
	renewed string
}

// Run claims the cluster ID on the broker, installs the agents, and labels the gateway
// nodes.
func (j *Operation) Run(ctx context.Context) error {
	err := j.run(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: run the same command again to finish, or subctl uninstall to undo what was done",
			cluster.Interrupted(ctx))
	}
	return err
}

func (j *Operation) run(ctx context.Context) error {
	spec := j.Plan.Submariner.Spec
	if err := j.Try(ctx); err != nil {
		return err
	}
	if err := j.createSets(ctx); err != nil {
		return err
	}
	j.Report.Step("claiming cluster ID %q on the broker at %s", spec.ClusterID, j.Broker.URL)
	creds, added, err := j.claim(ctx, j.Broker.Client)
	if err != nil {
		return err
	}
	if err := j.reserveNetwork(ctx); err != nil {
		return err
	}
	j.Report.Done("the broker knows this cluster as %q", spec.ClusterID)

	j.Report.Step("installing the agents in namespace %s at %s", cluster.Namespace, j.Member.URL)
	key, err := clusterKey(ctx, j.Member, j.Plan.NewKeys)
	if err != nil {
		return err
	}
	t, err := j.trust(added, time.Now())
	if err != nil {
		return err
	}
	// The join file has the certificate authorities for the broker's URL.
	creds.CA = j.File.CA
	if creds.ProxyUser, err = j.proxyUser(ctx); err != nil {
		return err
	}
	objs, err := j.Plan.Objects(cluster.Secrets(creds, j.File.PSK, key, t), key.Private.Public().String(), t.Grant)
	if err != nil {
		return err
	}
	if err := j.install(ctx, objs, added || j.Plan.NewKeys || len(j.Plan.Granted) > 0); err != nil {
		return err
	}
	if j.Plan.NewKeys {
		j.renewed = key.Private.Public().String()
	}
	if err := j.status(ctx); err != nil {
		return err
	}
	if err := j.settleNetwork(ctx); err != nil {
		return err
	}
	j.Report.Done("installed the agents")
	if err := j.clusterDNS(ctx); err != nil {
		return err
	}
	if err := j.removeGlobalnet(ctx); err != nil {
		return err
	}
	if err := j.removeGatewayNodes(ctx); err != nil {
		return err
	}
	if err := j.removeServices(ctx); err != nil {
		return err
	}

	for _, node := range j.Plan.Gateways {
		if err := labelGateway(ctx, j.Member, node); err != nil {
			return err
		}
		j.Report.Done("node %s is a gateway", node)
	}
	return nil
}

// install applies the objects. Server-side apply keeps fields that somebody else has set, and that
// the plan does not set: so the Submariner of an earlier join is first patched, in one write, to
// what the plan announced. If Secrets have changed, its gateways read them before that: a grant
// permits what the Submariner then announces.
func (j *Operation) install(ctx context.Context, objs []client.Object, secretsChanged bool) error {
	objs, err := j.withoutTheirs(ctx, objs)
	if err != nil {
		return err
	}
	for i, obj := range objs {
		sub, ok := obj.(*v1alpha1.Submariner)
		if !ok || j.Plan.Before == nil {
			continue
		}
		if err := kube.Install(ctx, j.Member.Client, kube.FieldOwner, objs[:i], nil); err != nil {
			return err
		}
		if secretsChanged {
			if err := j.reread(ctx); err != nil {
				return err
			}
		}
		next := j.Plan.Before.DeepCopy()
		next.Spec = sub.Spec
		if err := j.Member.Patch(ctx, next, client.MergeFrom(j.Plan.Before),
			client.FieldOwner(kube.FieldOwner)); err != nil {
			return fmt.Errorf("changing the Submariner object: %w", err)
		}
		objs = objs[i:]
		break
	}
	return kube.Install(ctx, j.Member.Client, kube.FieldOwner, objs, nil)
}

// withoutTheirs returns the objects without the definitions of the Multi-Cluster Services API that
// somebody else has installed: they keep theirs.
func (j *Operation) withoutTheirs(ctx context.Context, objs []client.Object) ([]client.Object, error) {
	var out []client.Object
	for _, obj := range objs {
		if !cluster.IsServicesDefinition(obj.GetName()) {
			out = append(out, obj)
			continue
		}
		found, err := kube.Optional(ctx, j.Member, &apiextensionsv1.CustomResourceDefinition{},
			client.ObjectKeyFromObject(obj))
		if err != nil {
			return nil, err
		}
		if found == nil || cluster.IsOurs(found.Labels) {
			out = append(out, obj)
		} else if !serves(found, mcsv1alpha1.GroupVersion.Version) {
			return nil, fmt.Errorf("the CustomResourceDefinition %s of another program does not serve version %s, "+
				"which "+
				"service discovery needs: let that program install a version of the Multi-Cluster Services API that "+
				"does, or join with --service-discovery=false", found.Name, mcsv1alpha1.GroupVersion.Version)
		}
	}
	return out, nil
}

// serves reports whether the API server serves a version of a kind.
func serves(def *apiextensionsv1.CustomResourceDefinition, version string) bool {
	return slices.ContainsFunc(def.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == version && v.Served
	})
}

// reread makes the gateways of a cluster that has joined before read its Secrets again.
func (j *Operation) reread(ctx context.Context) error {
	err := cluster.RereadSecrets(ctx, j.Member, time.Now())
	if apierrors.IsForbidden(err) {
		j.Report.Warn(cluster.NoReread, "credentials")
		return nil
	}
	return err
}

// claim makes the cluster a member of the broker of c, and returns its credentials: the
// existing credentials if the broker accepts them, and otherwise new ones. It reports whether the
// credentials are new: then the cluster is a new member, or was removed from the broker.
func (j *Operation) claim(ctx context.Context, c client.Client) (creds *broker.Credentials, added bool, err error) {
	ns := j.File.BaseNamespace()
	id := j.Plan.Submariner.Spec.ClusterID
	secret := cluster.BrokerSecretName(j.Plan.Submariner)
	stored, err := kube.Optional(ctx, j.Member, &corev1.Secret{},
		client.ObjectKey{Namespace: cluster.Namespace, Name: secret})
	if err != nil {
		return nil, false, err
	}
	// Another Secret is the user's: join does not write it.
	refused := fmt.Errorf(
		"the broker does not accept the token in Secret %s/%s, which Submariner.spec.brokerK8sSecret names: "+
			"correct it, or use the Secret that join makes with subctl join --reset",
		cluster.Namespace,
		secret,
	)
	if stored == nil || len(stored.Data[corev1.ServiceAccountTokenKey]) == 0 {
		if secret != cluster.BrokerSecret {
			return nil, false, refused
		}
		creds, err = broker.AddMember(ctx, c, ns, id, j.Plan.UID, j.Plan.Reservation)
		return creds, true, err
	}
	file := *j.File
	file.Token = stored.Data[corev1.ServiceAccountTokenKey]
	member, err := client.New(file.RESTConfig(j.Plan.Submariner.Spec.BrokerK8sInsecure),
		client.Options{Scheme: c.Scheme()})
	if err != nil {
		return nil, false, err
	}
	owner, err := broker.Accepts(ctx, member, ns, id)
	if err != nil {
		return nil, false, err
	}
	if owner != "" {
		account, err := broker.EnsureMember(ctx, c, ns, id, j.Plan.UID, j.Plan.Reservation)
		if err != nil {
			return nil, false, err
		}
		if owner == account {
			return &broker.Credentials{Token: file.Token, CA: file.CA}, false, nil
		}
	}
	if secret != cluster.BrokerSecret {
		return nil, false, refused
	}
	creds, err = broker.AddMember(ctx, c, ns, id, j.Plan.UID, j.Plan.Reservation)
	return creds, true, err
}

// Objects returns the objects to install in the cluster, in order, including the given
// Secrets. public is the public key of the cluster, in base64, and grant its signed grant.
func (p *Plan) Objects(secrets []client.Object, public, grant string) ([]client.Object, error) {
	sub := p.Submariner.DeepCopy()
	metav1.SetMetaDataAnnotation(&sub.ObjectMeta, v1alpha1.PublicKeyAnnotation, public)
	metav1.SetMetaDataAnnotation(&sub.ObjectMeta, submarinerv1.GrantAnnotation, grant)
	objs, err := p.Platform.Render(sub)
	if err != nil {
		return nil, err
	}
	var out []client.Object
	for _, obj := range objs {
		if ns, ok := obj.(*corev1.Namespace); ok && p.OthersNamespace {
			delete(ns.Labels, cluster.ManagedByLabel) // uninstall keeps it
		}
		if _, ok := obj.(*v1alpha1.Submariner); ok {
			out = append(out, secrets...) // before the agents, which mount them
		}
		out = append(out, obj)
	}
	return out, nil
}

// GatewayNodes returns the nodes to label, with the label and the annotation.
func (p *Plan) GatewayNodes() []client.Object {
	var out []client.Object
	for _, name := range p.Gateways {
		out = append(out, cluster.GatewayNode(name))
	}
	return out
}

// labelGateway labels a node as a gateway. It uses a merge patch, because server-side apply
// would create the node if it were deleted in the meantime.
func labelGateway(ctx context.Context, c client.Client, name string) error {
	was := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Patch(ctx, cluster.GatewayNode(name), client.MergeFrom(was),
		client.FieldOwner(kube.FieldOwner)); err != nil {
		return fmt.Errorf("labelling node %s as gateway: %w", name, err)
	}
	return nil
}

// status writes the status of the Submariner object, for upstream's tools.
func (j *Operation) status(ctx context.Context) error {
	sub := &v1alpha1.Submariner{}
	if err := j.Member.Get(ctx, client.ObjectKeyFromObject(j.Plan.Submariner), sub); err != nil {
		return fmt.Errorf("reading the Submariner object: %w", err)
	}
	sub.Status.ClusterID, sub.Status.Version = sub.Spec.ClusterID, sub.Spec.Version
	sub.Status.ClusterCIDR, sub.Status.ServiceCIDR = sub.Spec.ClusterCIDR, sub.Spec.ServiceCIDR
	sub.Status.GlobalCIDR = sub.Spec.GlobalCIDR
	sub.Status.NatEnabled = sub.Spec.NatEnabled
	sub.Status.NetworkPlugin = j.Plan.Found.Plugin
	// The patch has every field, even one with the zero value: upstream's tools expect them.
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&sub.Status)
	if err != nil {
		return fmt.Errorf("encoding the status of the Submariner object: %w", err)
	}
	if sub.Status.GlobalCIDR == "" {
		status["globalCIDR"] = nil // of an earlier join
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encoding the status of the Submariner object: %w", err)
	}
	if err := j.Member.Status().Patch(ctx, sub, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(kube.FieldOwner)); err != nil {
		return fmt.Errorf("writing the status of the Submariner object: %w", err)
	}
	return nil
}
