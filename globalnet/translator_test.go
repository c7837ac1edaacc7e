package globalnet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// cluster makes random changes to few objects with few addresses, so that they compete for
// everything.
type cluster struct {
	*rand.Rand
	Objects
}

func (c *cluster) address() string { return fmt.Sprintf("242.1.0.%d", c.IntN(8)) }
func (c *cluster) local() string   { return fmt.Sprintf("10.0.0.%d", c.IntN(4)) }
func (c *cluster) named(prefix string) metav1.ObjectMeta {
	return named([]string{"a", "b"}[c.IntN(2)], fmt.Sprintf("%s%d", prefix, c.IntN(4)), c.IntN(3))
}

// change replaces, adds or removes the object of a list that has the name of o. The list stays as
// it was.
func change[T interface {
	comparable
	metav1.Object
}](c *cluster, list []T, o T) []T {
	i, found := slices.BinarySearchFunc(list, o, func(a, b T) int { return refOf(a).compare(refOf(b)) })
	switch list = slices.Clone(list); {
	case found && c.IntN(2) == 0:
		return slices.Delete(list, i, i+1)
	case found:
		list[i] = o
		return list
	}
	return slices.Insert(list, i, o)
}

func (c *cluster) step() {
	switch c.IntN(7) {
	case 0, 1:
		i := &submarinerv1.GlobalIngressIP{ObjectMeta: c.named("i")}
		if i.Status.AllocatedIP = c.address(); c.IntN(8) == 0 {
			i.Status.AllocatedIP = ""
		}
		target := &corev1.LocalObjectReference{Name: fmt.Sprintf("x%d", c.IntN(4))}
		switch c.IntN(3) {
		case 0:
			i.Spec.Target = submarinerv1.TargetHeadlessServicePod
			i.Spec.PodRef = target
		case 1:
			i.Spec.Target = submarinerv1.TargetClusterIPService
			i.Spec.ServiceRef = target
		case 2:
			i.Spec.Target = submarinerv1.TargetHeadlessServiceEndpoints
			i.Annotations = map[string]string{
				submarinerv1.HeadlessEndpointAnnotation: c.local(),
			}
		}
		c.Ingress = change(c, c.Ingress, i)
	case 2:
		p := &corev1.Pod{ObjectMeta: c.named("x"), Status: corev1.PodStatus{PodIP: c.local()}}
		p.Labels = map[string]string{"app": fmt.Sprint(c.IntN(2))}
		if c.IntN(6) == 0 {
			p.Status.Phase = corev1.PodSucceeded
		}
		c.Pods = change(c, c.Pods, p)
	case 3:
		s := &corev1.Service{ObjectMeta: c.named("x")}
		s.Spec.Ports = []corev1.ServicePort{{Name: "one", Port: 80}, {Name: "two", Port: 81}}[:1+c.IntN(2)]
		c.Services = change(c, c.Services, s)
	case 4:
		s := &discoveryv1.EndpointSlice{ObjectMeta: c.named("s"), AddressType: discoveryv1.AddressTypeIPv4}
		s.Labels = map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("x%d", c.IntN(4))}
		s.Ports = []discoveryv1.EndpointPort{
			{Name: new("one"), Port: new(int32(8080))},
			{Name: new("two"), Port: new(int32(8080))},
		}
		for range c.IntN(4) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{c.local()}})
		}
		c.Slices = change(c, c.Slices, s)
	case 5:
		e := &submarinerv1.GlobalEgressIP{ObjectMeta: c.named("e")}
		if e.Status.AllocatedIPs = []string{c.address(), c.address()}; c.IntN(2) == 0 {
			e.Spec.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(c.IntN(2))}}
		}
		c.Egress = change(c, c.Egress, e)
	case 6:
		e := &submarinerv1.ClusterGlobalEgressIP{
			ObjectMeta: named("",
				[]string{submarinerv1.ClusterEgress, "gw" + submarinerv1.GatewayEgressSuffix}[c.IntN(2)], c.IntN(3)),
		}
		e.Status.AllocatedIPs = []string{c.address(), c.address()}
		c.ClusterEgress = change(c, c.ClusterEgress, e)
	}
}

// Whatever changes, in whatever order, what a Translator has remembered makes no difference. What
// it has returned before does not change.
func TestTranslatorRemembersNothingWrong(t *testing.T) {
	gateways := []Gateway{gatewayOf("gw"), gatewayOf("gw", "gw", "gw2"), gatewayOf("gw", "gw")}
	for seed := range uint64(100) {
		c := &cluster{Rand: rand.New(rand.NewPCG(seed, 1))}
		var tr Translator
		g := gateways[0]
		var before, copied Translation
		for step := range 150 {
			for range c.IntN(4) {
				c.step()
			}
			if c.IntN(30) == 0 {
				g = gateways[c.IntN(len(gateways))]
			}
			out := tr.Translate(g, c.Objects)
			require.Equal(t, Translate(g, c.Objects), out, "seed %d, step %d", seed, step)
			require.Equal(t, copied, before, "seed %d, step %d: an older result", seed, step)
			before = out
			copied = copyOf(out)
			sorted(t, out)
		}
	}
}

// lists returns the elements of all maps.
func lists(e *Elements) []*[]string {
	return []*[]string{
		&e.Pods, &e.Globals, &e.Answering, &e.Ports, &e.Endpoints, &e.Exports, &e.Selected, &e.SelectedAddresses,
		&e.SharedAddresses,
	}
}

// sorted fails the test unless the maps are sorted, and have each key once. Pods and Globals have
// the same pairs.
func sorted(t *testing.T, out Translation) {
	t.Helper()
	for _, list := range lists(&out.Elements) {
		keys := map[string]bool{}
		for _, e := range *list {
			key, _, _ := strings.Cut(e, " : ")
			keys[key] = true
		}
		require.Len(t, keys, len(*list), "%v", *list)
		require.True(t, slices.IsSorted(*list), "%v", *list)
	}
	var reversed []string
	for _, e := range out.Globals {
		key, value, _ := strings.Cut(e, " : ")
		reversed = append(reversed, value+" : "+key)
	}
	require.ElementsMatch(t, out.Pods, reversed)
}

func copyOf(t Translation) Translation {
	for _, list := range lists(&t.Elements) {
		*list = slices.Clone(*list)
	}
	t.Returned = slices.Clone(t.Returned)
	return t
}

// valueOf returns the address that an element of a map has for its key.
func valueOf(element string) netip.Addr {
	_, value, _ := strings.Cut(element, " : ")
	return ip(value)
}

// The time to translate 50,000 addresses, half of which are Services': from nothing, and if one pod
// comes or goes, with its own address and the Service that it is behind.
func BenchmarkTranslate(b *testing.B) {
	var objs Objects
	for i := range 25_000 {
		name := fmt.Sprintf("p%05d", i)
		at := netip.AddrFrom4([4]byte{10, 0, byte(64 + i>>8), byte(i)}).String()
		objs.Pods = append(objs.Pods, pod("ns", name, at))
		objs.Ingress = append(objs.Ingress,
			ofPod(1, name, name, netip.AddrFrom4([4]byte{242, 1, byte(i >> 8), byte(i)}).String()))
	}
	for i := range 25_000 {
		name := fmt.Sprintf("s%05d", i)
		at := netip.AddrFrom4([4]byte{10, 0, byte(64 + i>>8), byte(i)}).String()
		export := &submarinerv1.GlobalIngressIP{ObjectMeta: named("ns", name, 1)}
		export.Spec.Target = submarinerv1.TargetClusterIPService
		export.Spec.ServiceRef = &corev1.LocalObjectReference{Name: name}
		export.Status.AllocatedIP = netip.AddrFrom4([4]byte{242, 1, byte(128 + i>>8), byte(i)}).String()
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		service.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		objs.Ingress, objs.Services = append(objs.Ingress, export), append(objs.Services, service)
		objs.Slices = append(objs.Slices, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns",
				Name:      name,
				Labels:    map[string]string{discoveryv1.LabelServiceName: name},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Port: new(int32(8080))}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{at}}},
		})
	}
	check := func(out Translation, n int) {
		if len(out.Pods) != n || len(out.Ports) != n || len(out.Exports) != n {
			b.Fatal(len(out.Pods), len(out.Ports), len(out.Exports))
		}
	}
	b.Run("from nothing", func(b *testing.B) {
		for b.Loop() {
			check(Translate(gatewayOf("gw"), objs), 25_000)
		}
	})
	var t Translator
	t.Translate(gatewayOf("gw"), objs)
	less := objs
	less.Pods = objs.Pods[1:]
	b.Run("one pod", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			check(t.Translate(gatewayOf("gw"), []Objects{less, objs}[i%2]), 25_000-(i+1)%2)
		}
	})
	b.Run("nothing", func(b *testing.B) {
		for b.Loop() {
			t.Translate(gatewayOf("gw"), objs)
		}
	})
}
