//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// conformsWhileExported takes the exports of two clusters away, one after the other.
func conformsWhileExported(t *testing.T, h *hello) {
	h.awaitImport(t, h.first(), nil)
	h.deploy(t, 1)
	h.export(t, 1)
	exists := func() error {
		_, err := h.imported(t, h.first())
		return err
	}
	unchanged(t, exists)
	h.unexport(t, 0)
	unchanged(t, exists)
	h.unexport(t, 1)
	h.awaitNoImport(t)
}

func conformsClusterSetIP(t *testing.T, h *hello) { h.comesAndGoes(t, mcsv1beta1.ClusterSetIP) }

func conformsHeadless(t *testing.T, h *hello) { h.comesAndGoes(t, mcsv1beta1.Headless) }

// comesAndGoes checks that all clusters have the import while the Service is exported.
func (h *hello) comesAndGoes(t *testing.T, want mcsv1beta1.ServiceImportType) {
	t.Helper()
	h.awaitCondition(t, 0, mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue)
	for _, c := range h.clusters {
		require.Equal(t, want, h.awaitImport(t, c, nil).Spec.Type, c.name)
	}
	h.unexport(t, 0)
	h.awaitNoImport(t)
}

func conformsAffinity(t *testing.T, h *hello) {
	h.awaitSpec(t, func(got mcsv1beta1.ServiceImportSpec, want corev1.ServiceSpec) bool {
		return got.SessionAffinity == want.SessionAffinity &&
			equality.Semantic.DeepEqual(got.SessionAffinityConfig, want.SessionAffinityConfig)
	})
}

func conformsTrafficPolicy(t *testing.T, h *hello) {
	h.awaitSpec(t, func(got mcsv1beta1.ServiceImportSpec, want corev1.ServiceSpec) bool {
		return equality.Semantic.DeepEqual(got.InternalTrafficPolicy, want.InternalTrafficPolicy)
	})
}

func conformsTrafficDistribution(t *testing.T, h *hello) {
	h.awaitSpec(t, func(got mcsv1beta1.ServiceImportSpec, want corev1.ServiceSpec) bool {
		return equality.Semantic.DeepEqual(got.TrafficDistribution, want.TrafficDistribution)
	})
}

// awaitSpec waits until the imports of all clusters are as the exported Service.
func (h *hello) awaitSpec(t *testing.T, same func(mcsv1beta1.ServiceImportSpec, corev1.ServiceSpec) bool) {
	t.Helper()
	for _, c := range h.clusters {
		h.awaitImport(t, c, func(i *mcsv1beta1.ServiceImport) error {
			if !same(i.Spec, h.services[0].Spec) {
				return fmt.Errorf("want %+v, got %+v", h.services[0].Spec, i.Spec)
			}
			return nil
		})
	}
}

func conformsAddresses(t *testing.T, h *hello) {
	for _, c := range h.clusters {
		i := h.awaitImport(t, c, hasAddress)
		require.Len(t, i.Spec.IPs, len(i.Spec.IPFamilies))
		for n, family := range i.Spec.IPFamilies {
			ip, err := netip.ParseAddr(i.Spec.IPs[n])
			require.NoError(t, err)
			require.Equal(t, family == corev1.IPv4Protocol, ip.Is4(), "%s: %+v", c.name, i.Spec)
		}
	}
}

func conformsPorts(t *testing.T, h *hello) { h.awaitPorts(t, h.services[0].Spec.Ports) }

func conformsUnionOfPorts(t *testing.T, h *hello) {
	h.awaitConflict(t)
	h.awaitPorts(t, append(slices.Clone(h.services[0].Spec.Ports), h.services[1].Spec.Ports[1]))
}

func conformsPortConflict(t *testing.T, h *hello) {
	h.awaitConflict(t)
	h.awaitPorts(t, h.services[0].Spec.Ports)
}

// awaitPorts waits until the imports of all clusters have just these ports.
func (h *hello) awaitPorts(t *testing.T, ports []corev1.ServicePort) {
	t.Helper()
	byName := func(a, b mcsv1beta1.ServicePort) int { return cmp.Compare(a.Name, b.Name) }
	var want []mcsv1beta1.ServicePort
	for _, p := range ports {
		want = append(want, mcsv1beta1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, Port: p.Port, AppProtocol: p.AppProtocol,
		})
	}
	slices.SortFunc(want, byName)
	for _, c := range h.clusters {
		h.awaitImport(t, c, func(i *mcsv1beta1.ServiceImport) error {
			if got := slices.SortedFunc(slices.Values(i.Spec.Ports), byName); !equality.Semantic.DeepEqual(got, want) {
				return fmt.Errorf("want %+v, got %+v", want, got)
			}
			return nil
		})
	}
}

func conformsNoAddress(t *testing.T, h *hello) {
	h.awaitImport(t, h.first(), nil)
	unchanged(t, func() error {
		i, err := h.imported(t, h.first())
		if err == nil && len(i.Spec.IPs) > 0 {
			return fmt.Errorf("the import has %v", i.Spec.IPs)
		}
		return err
	})
}

func conformsExternalName(t *testing.T, h *hello) {
	h.awaitCondition(t, 0, mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse)
	unchanged(t, func() error { return h.notImported(t, h.first()) })
}

func conformsTypeConflict(t *testing.T, h *hello) {
	h.awaitConflict(t)
	for _, c := range h.clusters {
		require.Equal(t, mcsv1beta1.ClusterSetIP, h.awaitImport(t, c, nil).Spec.Type, c.name)
	}
}

func conformsLabels(t *testing.T, h *hello) {
	for _, c := range h.clusters {
		h.awaitImport(t, c, func(i *mcsv1beta1.ServiceImport) error {
			return has(i, "label", "annotation", "of-service", "of-export")
		})
	}
}

func conformsLabelConflict(t *testing.T, h *hello) {
	h.awaitConflict(t)
	for _, c := range h.clusters {
		h.awaitImport(t, c, func(i *mcsv1beta1.ServiceImport) error {
			return has(i, "label", "annotation", "label-2", "annotation-2")
		})
	}
}

// has returns an error unless an import has a label and an annotation, and some not.
func has(i *mcsv1beta1.ServiceImport, label, annotation string, not ...string) error {
	if i.Labels[label] != "true" || i.Annotations[annotation] != "true" {
		return fmt.Errorf("the import has %v and %v, without %s or %s", i.Labels, i.Annotations, label, annotation)
	}
	for _, key := range not {
		if i.Labels[key] != "" || i.Annotations[key] != "" {
			return fmt.Errorf("the import has %v and %v, with %s", i.Labels, i.Annotations, key)
		}
	}
	return nil
}

func (h *hello) imported(t *testing.T, c conforming) (*mcsv1beta1.ServiceImport, error) {
	t.Helper()
	i := &mcsv1beta1.ServiceImport{}
	if err := c.Get(t.Context(), h.key(), i); err != nil {
		return nil, fmt.Errorf("the ServiceImport of %s: %w", c.name, err)
	}
	return i, nil
}

func (h *hello) notImported(t *testing.T, c conforming) error {
	t.Helper()
	switch i, err := h.imported(t, c); {
	case err == nil:
		return fmt.Errorf("%s has the ServiceImport %+v", c.name, i)
	case !apierrors.IsNotFound(err):
		return err
	}
	return nil
}

// awaitImport waits until a cluster has the import, and it is as it should be.
func (h *hello) awaitImport(
	t *testing.T, c conforming, check func(*mcsv1beta1.ServiceImport) error,
) (i *mcsv1beta1.ServiceImport) {
	t.Helper()
	await(t, importedWithin, func() (err error) {
		if i, err = h.imported(t, c); err != nil || check == nil {
			return err
		}
		if err = check(i); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		return nil
	})
	return i
}

func hasAddress(i *mcsv1beta1.ServiceImport) error {
	if len(i.Spec.IPs) == 0 {
		return fmt.Errorf("no address: %+v", i.Spec)
	}
	return nil
}

// awaitNoImport waits until no cluster has the import.
func (h *hello) awaitNoImport(t *testing.T) {
	t.Helper()
	for _, c := range h.clusters {
		await(t, importedWithin, func() error { return h.notImported(t, c) })
	}
}

// awaitConflict waits until both exporters report that they disagree.
func (h *hello) awaitConflict(t *testing.T) {
	t.Helper()
	for cluster := range h.exports {
		h.awaitCondition(t, cluster, mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue)
	}
}

func (h *hello) awaitCondition(
	t *testing.T, cluster int, kind mcsv1beta1.ServiceExportConditionType, want metav1.ConditionStatus,
) {
	t.Helper()
	c := h.clusters[cluster]
	await(t, importedWithin, func() error {
		e := &mcsv1beta1.ServiceExport{}
		if err := c.Get(t.Context(), h.key(), e); err != nil {
			return err
		}
		if !meta.IsStatusConditionPresentAndEqual(e.Status.Conditions, string(kind), want) {
			return fmt.Errorf("the ServiceExport of %s: want %s %s, got %+v", c.name, kind, want, e.Status.Conditions)
		}
		return nil
	})
}
