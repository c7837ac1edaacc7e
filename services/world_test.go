package services

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

// world is the importing cluster "east", and the clusters around it.
type world struct {
	*apiServer
	view View
	last Imported
	// settled is View.Settled of the next plan.
	settled Settled
}

func newWorld(t *testing.T) *world {
	return &world{apiServer: newAPIServer(t), view: View{
		ClusterID:  "east",
		Now:        time.Unix(1_800_000_000, 0),
		Namespaces: map[string]bool{"shop": true, "db": true},
		Forbidden:  prefixes("10.0.0.0/16", "10.96.0.0/16", "192.0.2.1/32"),
		Zones:      []string{""},
		Hints:      true,
	}}
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// clusterNumbers give each cluster its networks: pods in 10.<n>.0.0/16, Services in
// 10.10<n>.0.0/16.
var clusterNumbers = map[string]int{"east": 0, "west": 1, "north": 2, "south": 3}

func podIP(cluster string, n int) string {
	return fmt.Sprintf("10.%d.0.%d", clusterNumbers[cluster], n)
}

func serviceIP(cluster string) string { return fmt.Sprintf("10.%d.0.1", 100+clusterNumbers[cluster]) }

// webOf returns the record of Service shop/web in a cluster: port http, one ready pod.
func webOf(cluster string, change ...func(*v1alpha1.ExportedService)) v1alpha1.ExportedService {
	r := v1alpha1.ExportedService{
		Namespace:  web.Namespace,
		Name:       web.Name,
		ExportedAt: 1000,
		Ports:      []v1alpha1.ExportedPort{{Name: "http", Port: 80}},
		Address:    serviceIP(cluster),
		Ready:      true,
		Endpoints: []v1alpha1.ExportedEndpoints{{
			Targets: []int32{8080},
			Pods:    []v1alpha1.ExportedEndpoint{{IP: podIP(cluster, 1)}},
		}},
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

// Changes of records.

func exportedAt(at int64) func(*v1alpha1.ExportedService) {
	return func(r *v1alpha1.ExportedService) { r.ExportedAt = at }
}

func named(namespace, name string) func(*v1alpha1.ExportedService) {
	return func(r *v1alpha1.ExportedService) {
		r.Namespace = namespace
		r.Name = name
	}
}

func asHeadless(r *v1alpha1.ExportedService) {
	r.Headless = true
	r.Address = ""
	for n := range r.Endpoints {
		for p := range r.Endpoints[n].Pods {
			r.Endpoints[n].Pods[p].Hostname = fmt.Sprintf("web-%d", p)
		}
	}
}

func notReady(r *v1alpha1.ExportedService) {
	r.Ready = false
	for n := range r.Endpoints {
		for p := range r.Endpoints[n].Pods {
			r.Endpoints[n].Pods[p].State = v1alpha1.EndpointNotReady
		}
	}
}

// addressOnly is how clusters export that have a global network, or many readers.
func addressOnly(r *v1alpha1.ExportedService) { r.Endpoints = nil }

// ports sets the ports of a record, such as "http 80/TCP 8080": the last number is the target.
func ports(list ...string) func(*v1alpha1.ExportedService) {
	return func(r *v1alpha1.ExportedService) {
		r.Ports = nil
		pods := r.Endpoints[0].Pods
		r.Endpoints = []v1alpha1.ExportedEndpoints{{Pods: pods}}
		for _, text := range list {
			var p v1alpha1.ExportedPort
			var target int32
			_, err := fmt.Sscanf(strings.ReplaceAll(text, "/", " "), "%s %d %s %d", &p.Name, &p.Port, &p.Protocol,
				&target)
			if err != nil {
				panic(err)
			}
			if p.Name == "-" {
				p.Name = ""
			}
			r.Ports = append(r.Ports, p)
			r.Endpoints[0].Targets = append(r.Endpoints[0].Targets, target)
		}
	}
}

// export replaces the records of another cluster, by one page.
func (w *world) export(cluster string, records ...v1alpha1.ExportedService) {
	w.publish(cluster, page(cluster, 0, 1, records...))
}

// publish replaces the pages of another cluster.
func (w *world) publish(cluster string, pages ...*v1alpha1.ExportedServices) {
	n := clusterNumbers[cluster]
	m := Member{
		ID:              cluster,
		Pages:           pages,
		PodNetworks:     prefixes(fmt.Sprintf("10.%d.0.0/16", n)),
		ServiceNetworks: prefixes(fmt.Sprintf("10.%d.0.0/16", 100+n)),
	}
	w.leave(cluster)
	w.view.Members = append(w.view.Members, m)
	slices.SortFunc(w.view.Members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
}

func page(cluster string, n, of int, records ...v1alpha1.ExportedService) *v1alpha1.ExportedServices {
	return &v1alpha1.ExportedServices{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "submariner-operator",
			Name:      v1alpha1.ExportedServicesName(cluster, n),
		},
		Spec: v1alpha1.ExportedServicesSpec{ClusterID: cluster, Pages: of, Services: records},
	}
}

// leave removes another cluster.
func (w *world) leave(cluster string) {
	w.view.Members = slices.DeleteFunc(w.view.Members, func(m Member) bool { return m.ID == cluster })
}

func (w *world) member(cluster string) *Member {
	for n := range w.view.Members {
		if w.view.Members[n].ID == cluster {
			return &w.view.Members[n]
		}
	}
	require.Failf(w.t, "unknown cluster", "%s", cluster)
	return nil
}

// plan returns what Import plans now. That is the same whether it knows which imports were settled
// or not.
func (w *world) plan() Imported {
	w.t.Helper()
	w.lists(&w.view)
	view := w.view
	view.Settled = w.settled
	out := Import(view)
	w.settled = out.Settled
	anew := Import(w.view)
	require.Equal(w.t, anew.Settled.of, out.Settled.of)
	out.Settled = Settled{}
	anew.Settled = Settled{}
	require.Equal(w.t, anew, out)
	return out
}

// settle applies results until nothing is left to do, which takes four rounds at most.
func (w *world) settle() Imported {
	w.t.Helper()
	for range 4 {
		w.last = w.plan()
		if w.last.empty() {
			return w.last
		}
		w.apply(w.last)
		w.collect()
	}
	w.last = w.plan()
	require.True(w.t, w.last.empty(), "still something to do after four rounds: %+v", w.last)
	return w.last
}

// imported returns the import shop/web, which must be there.
func (w *world) imported() *mcsv1alpha1.ServiceImport {
	w.t.Helper()
	require.Contains(w.t, w.imports, web)
	return w.imports[web]
}

func (w *world) clusters() (out []string) {
	w.t.Helper()
	for _, c := range w.imported().Status.Clusters {
		out = append(out, c.Cluster)
	}
	return out
}

// slicesOf returns the EndpointSlices of shop/web of a cluster, by name.
func (w *world) slicesOf(cluster string) (out []*discoveryv1.EndpointSlice) {
	for _, key := range slices.SortedFunc(maps.Keys(w.slices), compareNames) {
		s := w.slices[key]
		if s.Namespace == web.Namespace && s.Labels[mcsv1alpha1.LabelServiceName] == web.Name &&
			s.Labels[mcsv1alpha1.LabelSourceCluster] == cluster {
			out = append(out, s)
		}
	}
	return out
}

// endpoints returns the endpoints of shop/web of a cluster as text: address, conditions, and
// port=number.
func (w *world) endpoints(cluster string) (out []string) {
	for _, s := range w.slicesOf(cluster) {
		for _, e := range s.Endpoints {
			text := e.Addresses[0]
			for _, c := range []struct {
				name string
				is   *bool
			}{
				{"ready", e.Conditions.Ready},
				{"serving", e.Conditions.Serving},
				{"terminating", e.Conditions.Terminating},
			} {
				if *c.is {
					text += " " + c.name
				}
			}
			for _, p := range s.Ports {
				text += fmt.Sprintf(" %s=%d", *p.Name, *p.Port)
			}
			out = append(out, text)
		}
	}
	return out
}

// hints returns the zones of the hints of all endpoints of shop/web of a cluster.
func (w *world) hints(cluster string) (out []string) {
	for _, s := range w.slices {
		if s.Labels[mcsv1alpha1.LabelSourceCluster] == cluster {
			for _, e := range s.Endpoints {
				for _, z := range zones(e) {
					out = append(out, z.Name)
				}
			}
		}
	}
	return out
}

func (w *world) refusals() (out []string) {
	for _, r := range w.last.Refused {
		out = append(out, fmt.Sprintf("%s %s: %s", r.Cluster, r.Service, r.Reason))
	}
	return out
}
