package join

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/clusterdns"
	"subctl/cluster/clustertest"
	"subctl/internal/progress"
)

const rootServer = ".:53 {\n    errors\n    cache 30\n    reload\n    loadbalance\n}\n"

// dnsWorld is a cluster with CoreDNS that joins again and again.
type dnsWorld struct {
	c   client.Client
	sub *v1alpha1.Submariner
	out bytes.Buffer
	// free is whether the user specifies --dns=false.
	free bool
}

func newDNSWorld(t *testing.T) *dnsWorld {
	t.Helper()
	w := &dnsWorld{sub: clustertest.Submariner()}
	w.sub.Name = v1alpha1.SubmarinerName
	w.sub.Namespace = cluster.Namespace
	w.sub.Spec.ServiceDiscoveryEnabled = true
	w.c = clustertest.Client(t, w.sub.DeepCopy(),
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.DNSName},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.53"},
		},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
			Data:       map[string]string{"Corefile": rootServer},
		})
	return w
}

// operation returns a join that changes the Submariner.
func (w *dnsWorld) operation(t *testing.T, change func(*v1alpha1.SubmarinerSpec)) *Operation {
	t.Helper()
	before := &v1alpha1.Submariner{}
	require.NoError(t, w.c.Get(t.Context(), client.ObjectKeyFromObject(w.sub), before))
	change(&w.sub.Spec)
	w.out.Reset()
	return &Operation{
		Member: cluster.Side{Client: w.c, Version: "v1.36.3"}, Report: progress.New(&w.out),
		Plan: &Plan{Submariner: w.sub.DeepCopy(), Before: before, FreeDNS: w.free},
	}
}

// join joins, and writes the spec as install does.
func (w *dnsWorld) join(t *testing.T, change func(*v1alpha1.SubmarinerSpec)) {
	t.Helper()
	op := w.operation(t, change)
	next := op.Plan.Before.DeepCopy()
	next.Spec = op.Plan.Submariner.Spec
	require.NoError(t, w.c.Update(t.Context(), next))
	require.NoError(t, op.clusterDNS(t.Context()))
}

// state returns the Corefile and the annotation of the Submariner.
func (w *dnsWorld) state(t *testing.T) (corefile, recorded string) {
	t.Helper()
	cm := &corev1.ConfigMap{}
	sub := &v1alpha1.Submariner{}
	require.NoError(t, w.c.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "coredns"}, cm))
	require.NoError(t, w.c.Get(t.Context(), client.ObjectKeyFromObject(w.sub), sub))
	return cm.Data["Corefile"], sub.Annotations[clusterdns.Annotation]
}

func TestClusterDNS(t *testing.T) {
	w := newDNSWorld(t)
	same := func(*v1alpha1.SubmarinerSpec) {}
	require.NoError(t, w.operation(t, same).ShowDNS(t.Context()))
	require.Equal(t, ` • would change ConfigMap kube-system/coredns, so that CoreDNS forwards clusterset.local:
     # submariner-begin: managed by subctl, removed by subctl uninstall
     clusterset.local:53 {
         errors
         loadbalance
         forward . 10.96.0.53
     }
     # submariner-end
`, w.out.String())
	corefile, recorded := w.state(t)
	require.Equal(t, rootServer, corefile, "--dry-run")
	require.Empty(t, recorded)

	w.join(t, same)
	require.Contains(t, w.out.String(), "• changed ConfigMap kube-system/coredns, so that CoreDNS forwards ")
	with, recorded := w.state(t)
	require.Contains(t, with, "forward . 10.96.0.53\n")
	require.Equal(t, string(clusterdns.Corefile), recorded)

	w.join(t, same)
	require.Equal(t, " ✓ CoreDNS forwards clusterset.local to the DNS servers of subctl\n", w.out.String())

	require.NoError(t, w.operation(t, leave).ShowDNS(t.Context()))
	require.Equal(t, " • would remove from the cluster's DNS what subctl has added: ConfigMap kube-system/coredns\n",
		w.out.String())
	w.join(t, leave)
	require.Contains(t, w.out.String(), " • the cluster's DNS:\n     restored ConfigMap kube-system/coredns\n"+
		" • the cluster's DNS is left alone: it must forward clusterset.local to ")
	corefile, recorded = w.state(t)
	require.Equal(t, rootServer, corefile)
	require.Empty(t, recorded, "no agent repairs it")

	w.join(t, func(s *v1alpha1.SubmarinerSpec) { s.ServiceDiscovery = nil })
	corefile, _ = w.state(t)
	require.Equal(t, with, corefile)
	w.join(t, func(s *v1alpha1.SubmarinerSpec) {
		s.CoreDNSCustomConfig = &v1alpha1.ConfigMapRef{ConfigMapName: "coredns-custom"}
	})
	require.Contains(t, w.out.String(), "the cluster's DNS:\n     restored ConfigMap kube-system/coredns\n"+
		" • changed ConfigMap kube-system/coredns-custom")
	corefile, recorded = w.state(t)
	require.Equal(t, rootServer, corefile, "the stanza is in one place")
	require.Equal(t, string(clusterdns.Custom), recorded)

	w.join(t, func(s *v1alpha1.SubmarinerSpec) { s.ServiceDiscoveryEnabled = false })
	require.Contains(t, w.out.String(), "deleted ConfigMap kube-system/coredns-custom\n")
	_, recorded = w.state(t)
	require.Empty(t, recorded)
	w.join(t, same)
	require.Empty(t, w.out.String(), "without service discovery, nothing is read")
}

// leave is the setting of --dns=false.
func leave(s *v1alpha1.SubmarinerSpec) {
	s.ServiceDiscovery = &v1alpha1.ServiceDiscoverySpec{LeaveDNS: true}
}

// put writes the Corefile as a person does.
func (w *dnsWorld) put(t *testing.T, corefile string) {
	t.Helper()
	cm := &corev1.ConfigMap{}
	require.NoError(t, w.c.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "coredns"}, cm))
	cm.Data["Corefile"] = corefile
	require.NoError(t, w.c.Update(t.Context(), cm))
}

// The block that an earlier version of subctl has left without a record goes when the user asks for
// --dns=false, and only then.
func TestClusterDNSWithoutARecord(t *testing.T) {
	w := newDNSWorld(t)
	w.join(t, func(*v1alpha1.SubmarinerSpec) {})
	with, _ := w.state(t)
	w.join(t, leave)
	w.put(t, with)
	w.join(t, leave)
	corefile, _ := w.state(t)
	require.Equal(t, with, corefile, "join without the flag leaves it alone")
	require.NotContains(t, w.out.String(), "restored")
	w.free = true
	w.join(t, leave)
	corefile, _ = w.state(t)
	require.Equal(t, rootServer, corefile)
}

// What join could not remove stays recorded: it is tried again.
func TestClusterDNSThatCannotBeRestored(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.SubmarinerSpec){
		"--dns=false":               leave,
		"--service-discovery=false": func(s *v1alpha1.SubmarinerSpec) { s.ServiceDiscoveryEnabled = false },
	} {
		w := newDNSWorld(t)
		w.join(t, func(*v1alpha1.SubmarinerSpec) {})
		with, _ := w.state(t)
		torn := strings.Replace(with, "# submariner-end", "# the end", 1)
		w.put(t, torn)
		w.join(t, change)
		require.Contains(t, w.out.String(), "the cluster's DNS still forwards clusterset.local to the DNS servers of "+
			"subctl: ", name)
		corefile, recorded := w.state(t)
		require.Equal(t, torn, corefile, name)
		require.NotEmpty(t, recorded, name)
		w.put(t, with)
		w.join(t, func(*v1alpha1.SubmarinerSpec) {})
		corefile, recorded = w.state(t)
		require.Equal(t, rootServer, corefile, name)
		require.Empty(t, recorded, name)
	}
}

// What somebody has added by hand is left alone when service discovery goes, and the user learns of
// it.
func TestClusterDNSLeftBehind(t *testing.T) {
	w := newDNSWorld(t)
	w.join(t, func(*v1alpha1.SubmarinerSpec) {})
	with, _ := w.state(t)
	w.join(t, leave)
	w.put(t, with)
	w.join(t, func(s *v1alpha1.SubmarinerSpec) { s.ServiceDiscoveryEnabled = false })
	require.Equal(t, " ⚠ the cluster's DNS is left alone, and forwards clusterset.local to DNS servers that do not "+
		"exist any more: "+
		"remove the server block of this domain from ConfigMap kube-system/coredns\n", w.out.String())
	corefile, _ := w.state(t)
	require.Equal(t, with, corefile)
	w.join(t, func(*v1alpha1.SubmarinerSpec) {})
	require.Empty(t, w.out.String(), "without service discovery, nothing is read")
}

// A first join with --dry-run does not know the address yet.
func TestClusterDNSWithoutAddress(t *testing.T) {
	w := newDNSWorld(t)
	require.NoError(t, w.c.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.Namespace, Name: cluster.DNSName,
	}}))
	require.NoError(t, w.operation(t, func(*v1alpha1.SubmarinerSpec) {}).ShowDNS(t.Context()))
	require.Contains(t, w.out.String(), "forward . <address of Service submariner-operator/submariner-dns>\n")
}

func TestDNSConfigMap(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "coredns-custom": "", "kube-system/coredns-custom": "",
		"a/b/c": "is not NAME or NAMESPACE/NAME of a ConfigMap",
		"Upper": "is not NAME or NAMESPACE/NAME of a ConfigMap",
		"/x":    "is not NAME or NAMESPACE/NAME of a ConfigMap",
	} {
		o := Options{CoreDNSConfig: text}
		if want == "" {
			require.NoError(t, o.checkDNSConfig(), text)
		} else {
			require.ErrorContains(t, o.checkDNSConfig(), want, text)
		}
	}
}
