//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

func conformsNotExported(t *testing.T, h *hello) {
	for _, c := range h.clusters {
		out, err := h.connect(c, 42, "-n", "20")
		require.Error(t, err)
		require.NotContains(t, out, "pod=", c.name)
	}
}

func conformsReachable(t *testing.T, h *hello) {
	for _, c := range h.clusters {
		await(t, importedWithin, func() error {
			out, err := h.connect(c, 42)
			if err != nil || !strings.Contains(out, "pod=hello-") {
				return fmt.Errorf("from %s: %v: %s", c.name, err, out)
			}
			return nil
		})
	}
}

// conformsExporterOnly has the Service in two clusters, and exports one of them.
func conformsExporterOnly(t *testing.T, h *hello) {
	h.deploy(t, 1)
	h.awaitOnly(t, 42, h.podIP(t, 0))
}

func conformsSamePortName(t *testing.T, h *hello) { h.awaitOnly(t, 42, h.podIP(t, 0)) }

func conformsOtherPortName(t *testing.T, h *hello) {
	h.awaitOnly(t, 42, h.podIP(t, 0))
	h.awaitOnly(t, 4242, h.podIP(t, 1))
}

// awaitOnly waits until a port of the Service is reached from all clusters, so many times in a row,
// and always in the same pod.
func (h *hello) awaitOnly(t *testing.T, port int, ip string) {
	t.Helper()
	names := make([]string, len(h.clusters))
	for n, c := range h.clusters {
		names[n] = c.name
	}
	for name, got := range together(names, func(name string) (out string, err error) {
		from := h.clusters[slices.Index(names, name)]
		for range inARow {
			out, err = h.connect(from, port, "-n", fmt.Sprint(inARow), "--pause", "1s")
			if err == nil && strings.Count(out, "ips="+ip+" ") == inARow {
				return out, nil
			}
		}
		return out, errors.Join(err, fmt.Errorf("not only %s has answered on port %d", ip, port))
	}) {
		require.NoError(t, got.err, "from %s: %s", name, got.text)
	}
}

// connect sends a request to a port of the Service.
func (h *hello) connect(from conforming, port int, options ...string) (string, error) {
	url := fmt.Sprintf("http://%s.:%d/", h.domain(), port)
	return from.pod.try(append([]string{"get", url, "--timeout", "4s"}, options...)...)
}

// podIP waits until the pod of a cluster has an address.
func (h *hello) podIP(t *testing.T, cluster int) (ip string) {
	t.Helper()
	await(t, slicedWithin, func() error {
		var pods corev1.PodList
		if err := h.clusters[cluster].List(t.Context(), &pods, client.InNamespace(h.namespace)); err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.PodIP == "" {
			return fmt.Errorf("no address in %d pods of %s", len(pods.Items), h.clusters[cluster].name)
		}
		ip = pods.Items[0].Status.PodIP
		return nil
	})
	return ip
}

// lookup asks for records of a name, and returns what is in them, sorted.
func lookup(from pod, kind, name string, options ...string) ([]string, error) {
	out, err := from.try(append([]string{"resolve", name, "--type", kind}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	code, records, _ := strings.Cut(out, "\n")
	if code != "NOERROR" {
		return nil, fmt.Errorf("%s of %s in %s: %s", kind, name, from.cluster, out)
	}
	var found []string
	for line := range strings.Lines(records) {
		if _, data, is := strings.Cut(line, " "+kind+" "); is && !strings.HasPrefix(line, ";") {
			found = append(found, strings.TrimSpace(data))
		}
	}
	slices.Sort(found)
	return found, nil
}

// awaitRecords waits until a name has just these records in a cluster.
func (h *hello) awaitRecords(t *testing.T, from conforming, kind, name string, want ...string) {
	t.Helper()
	await(t, importedWithin, func() error {
		got, err := lookup(from.pod, kind, name)
		if err != nil {
			return err
		}
		if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			return fmt.Errorf("%s of %s in %s: want %v, got %v", kind, name, from.name, want, got)
		}
		return nil
	})
}

func conformsA(t *testing.T, h *hello) {
	for _, c := range h.clusters {
		ips := h.awaitImport(t, c, hasAddress).Spec.IPs
		h.awaitRecords(t, c, "A", h.domain(), ips...)
	}
}

// conformsSRV asks for the ports without naming one: two ports with the same number are one record.
func conformsSRV(t *testing.T, h *hello) {
	for _, c := range h.clusters {
		await(t, importedWithin, func() error { return h.srv(c, h.domain()+".") })
	}
}

// srv returns an error unless the SRV records of the Service have port 42, and just these targets.
func (h *hello) srv(from conforming, targets ...string) error {
	records, err := lookup(from.pod, "SRV", h.domain())
	if err != nil {
		return err
	}
	var got []string
	for _, r := range records {
		if f := strings.Fields(r); len(f) == 4 && f[2] == "42" {
			got = append(got, f[3])
		}
	}
	slices.Sort(got)
	if len(got) != len(records) || !slices.Equal(got, slices.Sorted(slices.Values(targets))) {
		return fmt.Errorf("SRV of %s in %s: want %v, got %v", h.domain(), from.name, targets, records)
	}
	return nil
}

func conformsClusterLocal(t *testing.T, h *hello) {
	local := strings.Replace(h.domain(), "clusterset.local", "cluster.local", 1)
	h.awaitRecords(t, h.first(), "A", local, h.services[0].Spec.ClusterIP)
	for _, c := range h.clusters[1:] {
		require.NoError(t, resolves(c.pod, local, "NXDOMAIN"))
	}
}

func conformsHeadlessA(t *testing.T, h *hello) {
	endpoints := h.endpoints(t)
	for _, c := range h.clusters {
		h.awaitRecords(t, c, "A", h.domain(), endpoints...)
	}
}

// conformsHeadlessSRV has pods without a hostname: their names are their addresses with dashes.
func conformsHeadlessSRV(t *testing.T, h *hello) {
	var targets []string
	for _, ip := range h.endpoints(t) {
		targets = append(targets, strings.ReplaceAll(ip, ".", "-")+"."+h.first().name+"."+h.domain()+".")
	}
	for _, c := range h.clusters {
		await(t, importedWithin, func() error { return h.srv(c, targets...) })
	}
}

// endpoints waits until all pods of the exported Service are ready, and returns their addresses.
func (h *hello) endpoints(t *testing.T) (ips []string) {
	t.Helper()
	await(t, importedWithin, func() error {
		found, err := h.slices(t, h.first(), discoveryv1.LabelServiceName)
		if err != nil {
			return err
		}
		if ips = readyIn(found); len(ips) != int(h.replicas) {
			return fmt.Errorf("want %d ready endpoints, got %v", h.replicas, ips)
		}
		return nil
	})
	return ips
}

func conformsPodName(t *testing.T, h *hello) {
	for _, c := range h.clusters {
		slice := h.awaitSlice(t, c, int(h.replicas))
		for _, e := range slice.Endpoints {
			require.NotNil(t, e.Hostname)
			name := *e.Hostname + "." + slice.Labels[mcsv1beta1.LabelSourceCluster] + "." + h.domain()
			h.awaitRecords(t, c, "A", name, e.Addresses...)
		}
	}
}

func conformsSlices(t *testing.T, h *hello) {
	made := make([]discoveryv1.EndpointSlice, len(h.clusters))
	for n, c := range h.clusters {
		made[n] = h.awaitSlice(t, c, 1)
		require.Equal(t, "hello", made[n].Labels[mcsv1beta1.LabelServiceName])
		require.Equal(t, h.first().name, made[n].Labels[mcsv1beta1.LabelSourceCluster])
		manager := made[n].Labels[discoveryv1.LabelManagedBy]
		require.NotEmpty(t, manager)
		require.NotEqual(t, "endpointslice-controller.k8s.io", manager)
		i, err := h.imported(t, c)
		require.NoError(t, err)
		require.Equal(t, mcsv1beta1.EndpointSliceObjectsPresent, i.Status.EndpointSliceObjects)
	}
	h.unexport(t, 0)
	for n, c := range h.clusters {
		await(t, importedWithin, func() error {
			err := c.Get(t.Context(), client.ObjectKeyFromObject(&made[n]), &discoveryv1.EndpointSlice{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, fmt.Errorf("%s still has %s", c.name, made[n].Name))
		})
	}
}

// awaitSlice waits until a cluster has one EndpointSlice of the API, with so many ready endpoints.
func (h *hello) awaitSlice(t *testing.T, c conforming, endpoints int) (slice discoveryv1.EndpointSlice) {
	t.Helper()
	await(t, slicedWithin, func() error {
		found, err := h.slices(t, c, mcsv1beta1.LabelServiceName)
		if err != nil {
			return err
		}
		if len(found) != 1 || len(readyIn(found)) != endpoints {
			return fmt.Errorf("in %s: want a slice with %d ready endpoints, got %+v", c.name, endpoints, found)
		}
		slice = found[0]
		return nil
	})
	return slice
}

// slices returns the EndpointSlices of a cluster in which a label names the Service.
func (h *hello) slices(t *testing.T, c conforming, label string) ([]discoveryv1.EndpointSlice, error) {
	t.Helper()
	var list discoveryv1.EndpointSliceList
	err := c.List(t.Context(), &list, client.InNamespace(h.namespace), client.MatchingLabels{label: "hello"})
	return list.Items, err
}

// readyIn returns the addresses of all ready endpoints.
func readyIn(slices []discoveryv1.EndpointSlice) (ips []string) {
	for _, s := range slices {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ips = append(ips, e.Addresses...)
			}
		}
	}
	return ips
}
