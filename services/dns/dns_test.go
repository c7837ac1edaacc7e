package dns

import (
	"fmt"
	"slices"
	"strings"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/services"

	corev1 "k8s.io/api/core/v1"
)

// newIndex returns the index of cluster east, which has read all objects there are.
func newIndex(clusterNames bool, objects ...any) *Index {
	i := NewIndex("east", clusterNames)
	i.choose = func(int) int { return 0 }
	i.ReplaceImports(nil)
	i.ReplaceSlices(nil)
	for _, o := range objects {
		switch o := o.(type) {
		case *mcsv1alpha1.ServiceImport:
			i.SetImport(o)
		case *discoveryv1.EndpointSlice:
			i.SetSlice(o)
		}
	}
	return i
}

// newImport returns an import of ours, such as newImport("web.shop", "10.96.0.1", "http/TCP/80").
// It is headless if ip is "None".
func newImport(name, ip string, ports ...string) *mcsv1alpha1.ServiceImport {
	o := &mcsv1alpha1.ServiceImport{}
	o.Name, o.Namespace, _ = strings.Cut(name, ".")
	o.Labels = map[string]string{submarinerv1.ManagedByLabel: submarinerv1.ManagedBy}
	o.Spec.Type = mcsv1alpha1.ClusterSetIP
	switch ip {
	case "None":
		o.Spec.Type = mcsv1alpha1.Headless
	case "":
	default:
		o.Spec.IPs = strings.Fields(ip)
	}
	for _, p := range readPorts(ports) {
		o.Spec.Ports = append(o.Spec.Ports,
			mcsv1alpha1.ServicePort{Name: p.name, Protocol: corev1.Protocol(p.protocol), Port: int32(p.number)})
	}
	return o
}

// newSlice returns a slice of ours with endpoints such as "10.1.0.1", "10.1.0.1=web-0" and
// "10.1.0.1!", which is not ready.
func newSlice(service, cluster string, ports []string, endpoints ...string) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{}
	name, namespace, _ := strings.Cut(service, ".")
	o.Namespace = namespace
	o.Name = name + "-" + cluster + "-" + strings.NewReplacer("/",
		"-").Replace(strings.ToLower(strings.Join(ports, "-")))
	o.Labels = map[string]string{
		mcsv1alpha1.LabelServiceName:   name,
		mcsv1alpha1.LabelSourceCluster: cluster,
		discoveryv1.LabelManagedBy:     services.ManagedBy,
	}
	for _, p := range readPorts(ports) {
		protocol := corev1.Protocol(p.protocol)
		o.Ports = append(o.Ports,
			discoveryv1.EndpointPort{Name: &p.name, Protocol: &protocol, Port: new(int32(p.number))})
	}
	for _, e := range endpoints {
		e, unready := strings.CutSuffix(e, "!")
		address, host, found := strings.Cut(e, "=")
		is := discoveryv1.Endpoint{Addresses: []string{address}}
		if unready {
			is.Conditions.Ready = new(false)
		}
		if found {
			is.Hostname = &host
		}
		o.Endpoints = append(o.Endpoints, is)
	}
	return o
}

func readPorts(ports []string) (out []port) {
	for _, p := range ports {
		fields := strings.Split(p, "/")
		number := 0
		fmt.Sscan(fields[2], &number)
		out = append(out, port{fields[0], fields[1], uint16(number)})
	}
	return out
}

// direct annotates an import so that its name stands for the exporters.
func direct(o *mcsv1alpha1.ServiceImport) *mcsv1alpha1.ServiceImport {
	o.Annotations = map[string]string{"submariner.io/direct": "true"}
	return o
}

// ask returns a query such as ask("A web.shop.svc.clusterset.local.").
func ask(question string) *dns.Msg {
	kind, name, _ := strings.Cut(question, " ")
	q := new(dns.Msg)
	q.SetQuestion(name, dns.StringToType[kind])
	return q
}

// show prints a response as dig does, in short.
func show(r *dns.Msg) string {
	if r == nil {
		return "no response\n"
	}
	out := dns.RcodeToString[r.Rcode]
	for _, flag := range []struct {
		name string
		set  bool
	}{{"aa", r.Authoritative}, {"tc", r.Truncated}, {"ra", r.RecursionAvailable}} {
		if flag.set {
			out += " " + flag.name
		}
	}
	out += "\n"
	section := func(prefix string, rrs []dns.RR) {
		for _, rr := range rrs {
			if opt, ok := rr.(*dns.OPT); ok {
				out += fmt.Sprintf("EDNS: version %d, udp %d, do %v, options %d\n", opt.Version(), opt.UDPSize(),
					opt.Do(), len(opt.Option))
				continue
			}
			out += prefix + strings.Join(strings.Fields(rr.String()), " ") + "\n"
		}
	}
	section("", r.Answer)
	section("authority: ", r.Ns)
	section("additional: ", r.Extra)
	return out
}

// addressesIn returns the addresses of an answer, sorted.
func addressesIn(r *dns.Msg) (out []string) {
	for _, rr := range r.Answer {
		if a, ok := rr.(*dns.A); ok {
			out = append(out, a.A.String())
		}
	}
	slices.Sort(out)
	return out
}

const (
	serviceName = mcsv1alpha1.LabelServiceName
	managedBy   = discoveryv1.LabelManagedBy
)

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func list[T any](all ...T) []T { return all }
