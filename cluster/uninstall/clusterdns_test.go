package uninstall_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster/clusterdns"
)

// The cluster's DNS stops asking the DNS servers of subctl before anything is deleted, so that no
// name is answered with an error.
func TestUninstallRestoresTheClusterDNS(t *testing.T) {
	const corefile = ".:53 {\n    errors\n}\n# of a person\n"
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
		Data:       map[string]string{"Corefile": corefile},
	}
	j := newJoined(t, cm)
	_, err := clusterdns.Install(t.Context(), j.c, clusterdns.Settings{Address: "10.96.0.53"})
	require.NoError(t, err)
	require.NoError(t, j.c.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
	require.NotEqual(t, corefile, cm.Data["Corefile"])
	sub := j.remains(t).Submariner
	metav1.SetMetaDataAnnotation(&sub.ObjectMeta, clusterdns.Annotation, string(clusterdns.Corefile))
	require.NoError(t, j.c.Update(t.Context(), sub))
	require.Equal(t, "remove from the cluster's DNS what subctl has added", j.remains(t).Lines(j.c)[0])

	deleted := false
	j.c = interceptor.NewClient(j.c, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if _, ok := obj.(*v1alpha1.Submariner); ok {
				deleted = true
				require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(cm), cm))
				require.Equal(t, corefile, cm.Data["Corefile"])
			}
			return c.Delete(ctx, obj, opts...)
		},
	})
	require.NoError(t, j.uninstall(t))
	require.True(t, deleted)
	require.Contains(t, j.said.String(), "the cluster's DNS no longer forwards clusterset.local:\n"+
		"     restored ConfigMap kube-system/coredns\n")
}

// The block goes also where no Submariner object records it: after join --dns=false of an earlier
// version of subctl, or if somebody has deleted the object.
func TestUninstallRemovesABlockWithoutARecord(t *testing.T) {
	for name, change := range map[string]func(*joinedCluster, *v1alpha1.Submariner){
		"not recorded": func(*joinedCluster, *v1alpha1.Submariner) {},
		"no Submariner": func(j *joinedCluster, s *v1alpha1.Submariner) {
			j.agents = false
			require.NoError(t, j.c.Delete(t.Context(), s))
			without := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			require.NoError(t, client.IgnoreNotFound(j.c.Patch(t.Context(), s, without)))
		},
	} {
		const corefile = ".:53 {\n    errors\n}\n"
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
			Data:       map[string]string{"Corefile": corefile},
		}
		j := newJoined(t, cm)
		_, err := clusterdns.Install(t.Context(), j.c, clusterdns.Settings{Address: "10.96.0.53"})
		require.NoError(t, err)
		change(j, j.remains(t).Submariner)
		require.NoError(t, j.uninstall(t), name)
		require.NoError(t, j.c.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
		require.Equal(t, corefile, cm.Data["Corefile"], name)
	}
}
