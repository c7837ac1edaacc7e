package cluster_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/clustertest"
)

// TestSettingsRestartNoPod changes every field of Submariner.spec. Only what a pod is made
// of changes its template: the image, what is mounted, and where it may run. The agents
// follow every other field while they run, so that its change interrupts no cable.
func TestSettingsRestartNoPod(t *testing.T) {
	const name = "another"
	values := map[string]any{ // of fields with a type of their own
		"CableDriverCustomConfig": &v1alpha1.ConfigMapRef{ConfigMapName: name},
		"ClusterLabels":           map[string]string{name: name},
		"ConnectionHealthCheck":   &v1alpha1.HealthCheckSpec{Enabled: true, IntervalSeconds: 7, MaxPacketLossCount: 9},
		"CoreDNSCustomConfig":     &v1alpha1.ConfigMapRef{ConfigMapName: name},
		"Gateways":                new(int32(2)),
		"ImageOverrides":          map[string]string{cluster.GatewayName: name},
		"ServiceDiscovery":        &v1alpha1.ServiceDiscoverySpec{Direct: true},
		"NodeSelector":            map[string]string{name: name},
		"Tolerations":             []corev1.Toleration{{Key: name}},
	}
	pods := []string{
		"BrokerK8sSecret", "CeIPSecPSKSecret", "ImageOverrides", "Repository", "Tolerations", "Version",
	}
	for field := range reflect.TypeFor[v1alpha1.SubmarinerSpec]().Fields() {
		t.Run(field.Name, func(t *testing.T) {
			sub := clustertest.Submariner()
			before := templates(t, sub)
			value := reflect.ValueOf(&sub.Spec).Elem().FieldByIndex(field.Index)
			switch {
			case values[field.Name] != nil:
				value.Set(reflect.ValueOf(values[field.Name]))
			case value.Kind() == reflect.String:
				value.SetString(name)
			case value.Kind() == reflect.Bool:
				value.SetBool(!value.Bool())
			case value.CanInt():
				value.SetInt(value.Int() + 1)
			default:
				value.Set(reflect.ValueOf([]string{name}))
			}
			if after := templates(t, sub); slices.Contains(pods, field.Name) {
				require.NotEqual(t, before, after, "take it out of the list")
			} else {
				require.Equal(t, before, after)
			}
		})
	}
}

// The ConfigMap with the settings of the cable drivers is mounted where the user wants it, in the
// pods of gateways only.
func TestCableDriverConfigIsMounted(t *testing.T) {
	mounted := func(sub *v1alpha1.Submariner) map[string]string {
		out := map[string]string{}
		for name, pod := range templates(t, sub) {
			for _, v := range pod.Spec.Volumes {
				if v.ConfigMap == nil {
					continue
				}
				require.True(t, *v.ConfigMap.Optional, "a pod starts without it")
				for _, m := range pod.Spec.Containers[0].VolumeMounts {
					if m.Name == v.Name {
						out[name] = v.ConfigMap.Name + " at " + m.MountPath
					}
				}
			}
		}
		return out
	}
	sub := clustertest.Submariner()
	sub.Spec.CableDriverCustomConfigPath = "/etc/submariner/cables"
	require.Empty(t, mounted(sub), "there is no ConfigMap")
	sub.Spec.CableDriverCustomConfig = &v1alpha1.ConfigMapRef{ConfigMapName: "cables"}
	require.Equal(t, map[string]string{cluster.GatewayName: "cables at /etc/submariner/cables"}, mounted(sub))
	sub.Spec.CableDriverCustomConfig.Namespace = "elsewhere"
	require.Empty(t, mounted(sub), "a pod mounts no ConfigMap of another namespace")
	sub.Spec.CableDriverCustomConfig.Namespace = cluster.Namespace
	sub.Spec.CableDriverCustomConfigPath = ""
	require.Empty(t, mounted(sub))
}

// templates returns the pods that are rendered, by DaemonSet.
func templates(t *testing.T, sub *v1alpha1.Submariner) map[string]corev1.PodTemplateSpec {
	t.Helper()
	out := map[string]corev1.PodTemplateSpec{}
	for _, obj := range clustertest.Render(t, sub) {
		if ds, ok := obj.(*appsv1.DaemonSet); ok {
			out[ds.Name] = *ds.Spec.Template.DeepCopy()
		}
	}
	require.Len(t, out, 2)
	return out
}
