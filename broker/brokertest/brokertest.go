// Package brokertest gives tests a broker on a real API server, and objects as clusters
// put them there. It is not for production code.
package brokertest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/internal/kubetest"
)

// Patience is the time limit of tests for what takes well under a second on an idle machine.
const Patience = 30 * time.Second

// Tick is the interval at which tests check for it.
const Tick = 20 * time.Millisecond

// administrator is the name of the key of the brokers' administrator.
const administrator = "administrator"

// Broker is a broker in a namespace of the test's own.
type Broker struct {
	Server *kubetest.Server
	Admin  client.Client
	NS     string
}

// Deploy makes a broker with the clustersets default and sets.
func Deploy(t testing.TB, server *kubetest.Server, sets ...string) *Broker {
	t.Helper()
	return DeployWith(t, server, broker.Options{Sets: sets})
}

// DeployWith makes a broker with options, except namespace, components and driver.
func DeployWith(t testing.TB, server *kubetest.Server, o broker.Options) *Broker {
	t.Helper()
	b := &Broker{Server: server, Admin: Filling(server.Client(t)), NS: server.Namespace(t, "broker")}
	o.Namespace = b.NS
	o.Components = []string{broker.Connectivity}
	o.CableDriver = "vxlan"
	o.Administrator = Key(administrator)
	o.Sequence = time.Now().UnixMilli()
	objects, err := broker.Render(o)
	check(t, err)
	check(t, broker.Preflight(t.Context(), b.Admin, objects))
	check(t, broker.Apply(t.Context(), b.Admin, objects))
	t.Cleanup(func() { b.RemoveClusterScoped(t) })
	b.awaitPolicies(t)
	return b
}

// RemoveClusterScoped removes what remains when the broker's namespace is deleted.
func (b *Broker) RemoveClusterScoped(t testing.TB) {
	ctx := context.WithoutCancel(t.Context())
	for _, name := range []string{b.NS + "-member", b.NS + "-joiner", b.NS + "-labels", b.NS + "-globalnet"} {
		meta := metav1.ObjectMeta{Name: name}
		_ = b.Admin.Delete(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta})
		_ = b.Admin.Delete(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta})
	}
}

// awaitPolicies waits until the API server has read the new admission policies.
func (b *Broker) awaitPolicies(t testing.TB) {
	t.Helper()
	probe := b.Join(t, "probe", "uid-probe")
	Eventually(t, func() bool {
		kept := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/kept"]}}`))
		return probe.Patch(t.Context(), Cluster(b.NS, "probe"), kept, client.DryRunAll) != nil
	})
	check(
		t,
		broker.RemoveMember(t.Context(), b.Admin, b.NS, []string{submarinerv1.DefaultClusterSet}, "probe",
			Administrator().Public()),
	)
	Eventually(t, func() bool {
		c := Cluster(b.NS, "probe")
		c.Labels[submarinerv1.ClusterIDLabel] = "another"
		return b.Admin.Create(t.Context(), c, client.DryRunAll) != nil
	})
	joiner, _ := b.Joiner(t)
	Eventually(t, func() bool {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: b.NS}}
		return joiner.Create(t.Context(), sa, client.DryRunAll) != nil
	})
}

// DeleteByHand deletes the namespace of a clusterset, with all members that it has, and waits until
// it is gone.
func (b *Broker) DeleteByHand(t testing.TB, set string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: broker.NamespaceIn(b.NS, set)}}
	if err := b.Admin.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	Eventually(t,
		func() bool { return apierrors.IsNotFound(b.Admin.Get(t.Context(), client.ObjectKeyFromObject(ns), ns)) })
}

// Join makes a member and returns its client.
func (b *Broker) Join(t testing.TB, id, uid string) client.Client {
	t.Helper()
	cred, err := broker.AddMember(t.Context(), b.Admin, b.NS, id, uid, broker.Reservation{})
	check(t, err)
	c := Filling(kubetest.Client(t, b.Server.As(string([]byte(cred.Token)))))
	Eventually(t, func() bool { // the API server knows of a new token after a moment
		return c.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(b.NS)) == nil
	})
	return c
}

// LetCreate gives members the right to create objects, so that a test can try what the admission
// policy does with them: a member that has no such right is refused earlier.
func (b *Broker) LetCreate(t testing.TB) {
	t.Helper()
	roles := &rbacv1.RoleList{}
	check(t, b.Admin.List(t.Context(), roles))
	for _, r := range roles.Items {
		if r.Name != broker.MemberRoleName || !strings.HasPrefix(r.Namespace, b.NS) {
			continue
		}
		for i := range r.Rules {
			if slices.Contains(r.Rules[i].Verbs, "update") {
				r.Rules[i].Verbs = append(r.Rules[i].Verbs, "create")
			}
		}
		check(t, b.Admin.Update(t.Context(), &r))
	}
	probe := b.Join(t, "probe", "uid-probe")
	Eventually(t, func() bool {
		return probe.Create(t.Context(), InSlot(Endpoint(b.NS, "probe", "10-0-0-9"), "probe", 9),
			client.DryRunAll) == nil
	})
	check(
		t,
		broker.RemoveMember(t.Context(), b.Admin, b.NS, []string{submarinerv1.DefaultClusterSet}, "probe",
			Administrator().Public()),
	)
}

// Filling returns a client that also creates what is reserved on a broker: it changes the empty
// object.
func Filling(c client.Client) client.Client { return filling{c} }

type filling struct{ client.Client }

// Unwrap returns the client that creates nothing else.
func (f filling) Unwrap() client.Client { return f.Client }

func (f filling) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	there := o.DeepCopyObject().(client.Object) // a request to create what exists would be counted by a quota
	if o.GetName() == "" || f.Get(ctx, client.ObjectKeyFromObject(o), there) != nil ||
		!exchange.Kinds().IsEmpty(there) {
		return f.Client.Create(ctx, o, opts...)
	}
	o.SetUID(there.GetUID())
	o.SetResourceVersion(there.GetResourceVersion())
	o.SetOwnerReferences(there.GetOwnerReferences())
	var update []client.UpdateOption
	if slices.Contains(opts, client.CreateOption(client.DryRunAll)) {
		update = append(update, client.DryRunAll)
	}
	err := f.Update(ctx, o, update...)
	if apierrors.IsNotFound(err) { // deleted in the meantime
		o.SetUID("")
		o.SetResourceVersion("")
		o.SetOwnerReferences(nil)
		return f.Client.Create(ctx, o, opts...)
	}
	return err
}

// Joiner returns a client with the rights of a join file, and the file.
func (b *Broker) Joiner(t testing.TB) (client.Client, *broker.JoinFile) {
	t.Helper()
	object := &v1alpha1.Broker{}
	check(t, b.Admin.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: v1alpha1.BrokerName}, object))
	f, err := broker.Invite(t.Context(), b.Admin, object, broker.Invitation{
		URL:           b.Server.Config().Host,
		PSK:           make(broker.Secret, 48),
		Administrator: Key(administrator),
		TTL:           broker.MinTokenTTL,
	})
	check(t, err)
	return kubetest.Client(t, f.RESTConfig(false)), f
}

// Eventually waits until a condition holds.
func Eventually(t testing.TB, condition func() bool) {
	t.Helper()
	for began := time.Now(); !condition(); time.Sleep(Tick) {
		if time.Since(began) > Patience {
			t.Fatalf("the condition does not hold after %s", Patience)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Cluster returns a Cluster as a cluster puts it on the broker: signed. Sign it again after a
// change, if it is to be copied.
func Cluster(ns, id string) *submarinerv1.Cluster {
	return Sign(&submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:      id,
			Namespace: ns,
			Labels:    map[string]string{submarinerv1.ClusterIDLabel: id},
		},
		Spec: submarinerv1.ClusterSpec{
			ClusterID: id, ColorCodes: []string{"blue"}, GlobalCIDR: []string{},
			ServiceCIDR: []string{"10.1.0.0/16"}, ClusterCIDR: []string{"10.2.0.0/16"},
		},
	}, "")
}

// Endpoint returns an Endpoint as a cluster puts it on the broker.
func Endpoint(ns, id, address string) *submarinerv1.Endpoint {
	cable := "submariner-cable-" + id + "-" + address
	return Sign(&submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{
			Name:      id + "-" + cable,
			Namespace: ns,
			Labels:    map[string]string{submarinerv1.ClusterIDLabel: id},
		},
		Spec: submarinerv1.EndpointSpec{
			ClusterID: id, CableName: cable, Hostname: "gw", Subnets: []string{"10.2.0.0/16"},
			PrivateIP: "192.0.2.1", Backend: "vxlan", BackendConfig: map[string]string{"udp-port": "4500"},
		},
	}, "")
}

// Page returns page n of a cluster as the cluster puts it on the broker, with one exported Service.
func Page(ns, id string, n int) *v1alpha1.ExportedServices {
	return Sign(&v1alpha1.ExportedServices{
		ObjectMeta: metav1.ObjectMeta{
			Name:      v1alpha1.ExportedServicesName(id, n),
			Namespace: ns,
			Labels:    map[string]string{submarinerv1.ClusterIDLabel: id},
		},
		Spec: v1alpha1.ExportedServicesSpec{ClusterID: id, Pages: n + 1, Services: []v1alpha1.ExportedService{{
			Namespace: "shop", Name: "web", ExportedAt: 1, Address: "10.1.0.1", Ready: true,
			Ports: []v1alpha1.ExportedPort{{Port: 80}},
			Endpoints: []v1alpha1.ExportedEndpoints{
				{Targets: []int32{8080}, Pods: []v1alpha1.ExportedEndpoint{{IP: "10.2.0.1"}, {IP: "10.2.0.2"}}},
			},
		}}},
	}, "")
}

// Policy returns a cable policy as a cluster puts it on the broker.
func Policy(ns, id, name string) *v1alpha1.CablePolicies {
	return Sign(&v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: ns,
			Labels:    map[string]string{submarinerv1.ClusterIDLabel: id},
		},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "vxlan"}},
	}, "")
}
