//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// namesByCoreDNS checks that CoreDNS itself, with its option multicluster, answers from our objects
// as our own server does: docs/services.md describes how to use it.
func namesByCoreDNS(t *testing.T, members []conforming) {
	h := newHello(members)
	less := newHello(members)
	headlessPods(less)
	less.stateful = true
	h.start(t)
	less.start(t)
	from := members[len(members)-1] // it exports nothing
	h.awaitImport(t, from, hasAddress)
	slice := less.awaitSlice(t, from, int(less.replicas))
	server := startCoreDNS(t, from)

	for _, q := range []struct{ kind, name string }{
		{"A", h.domain()},
		{"SRV", "_tcp._tcp." + h.domain()},
		{"A", less.domain()},
		{"SRV", "_tcp._tcp." + less.domain()},
		{"A", *slice.Endpoints[0].Hostname + ".cluster1." + less.domain()},
	} {
		await(t, importedWithin, func() error {
			want, err := lookup(from.pod, q.kind, q.name)
			if err != nil {
				return err
			}
			got, err := lookup(from.pod, q.kind, q.name, "--server", server)
			if err != nil {
				return err
			}
			if q.kind == "SRV" {
				want = withoutWeights(want)
				got = withoutWeights(got)
			}
			if len(want) == 0 || !slices.Equal(want, got) {
				return fmt.Errorf("%s of %s: want %v, got %v", q.kind, q.name, want, got)
			}
			return nil
		})
	}
}

// withoutWeights returns the ports and targets of SRV records.
func withoutWeights(records []string) (out []string) {
	for _, r := range records {
		if f := strings.Fields(r); len(f) == 4 {
			out = append(out, f[2]+" "+f[3])
		}
	}
	return out
}

// startCoreDNS starts another one of the DNS servers of a cluster, with the option, and returns its
// address.
func startCoreDNS(t *testing.T, c conforming) string {
	t.Helper()
	const zones = "kubernetes cluster.local "
	require.Contains(t, corefiles[c.name], zones)
	config := strings.Replace(corefiles[c.name], zones+"in-addr.arpa ip6.arpa {",
		zones+"clusterset.local in-addr.arpa ip6.arpa {\n       multicluster clusterset.local", 1)
	allowImports(t, c)

	meta := metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns-multicluster"}
	labels := map[string]string{"app": meta.Name}
	var usual appsv1.Deployment
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "coredns"}, &usual))
	pod := usual.Spec.Template
	pod.Labels = labels
	pod.Spec.Affinity = nil
	for n := range pod.Spec.Volumes {
		if v := pod.Spec.Volumes[n].ConfigMap; v != nil {
			v.Name = meta.Name
		}
	}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"Corefile": config}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod,
		}},
	} {
		require.NoError(t, c.Create(t.Context(), o))
		t.Cleanup(func() {
			if err := c.Delete(context.Background(), o); err != nil {
				t.Error(err)
			}
		})
	}
	kubectl(t, c.name, "-n", meta.Namespace, "rollout", "status", "deployment/"+meta.Name, "--timeout=60s")
	return kubectl(t, c.name, "-n", meta.Namespace, "get", "pods", "-l", "app="+meta.Name,
		"-o", "jsonpath={.items[0].status.podIP}")
}

// allowImports gives CoreDNS the right to read imports, until the test ends.
func allowImports(t *testing.T, c conforming) {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "system:coredns"}, role))
	rules := role.Rules
	role.Rules = append(slices.Clone(rules), rbacv1.PolicyRule{
		APIGroups: []string{
			mcsv1beta1.GroupName,
		}, Resources: []string{"serviceimports"}, Verbs: []string{"list", "watch"},
	})
	require.NoError(t, c.Update(t.Context(), role))
	t.Cleanup(func() {
		role.Rules = rules
		if err := c.Update(context.Background(), role); err != nil {
			t.Error(err)
		}
	})
}
