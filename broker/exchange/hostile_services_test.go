package exchange_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
)

// page returns page 0 of west as it was signed at a time, with a change.
func page(
	sequence int64,
	change func(*v1alpha1.ExportedServices, *v1alpha1.ExportedService),
) *v1alpha1.ExportedServices {
	return at(sequence, brokertest.Page("x", "west", 0),
		func(p *v1alpha1.ExportedServices) { change(p, &p.Spec.Services[0]) })
}

// narrowWest returns the Cluster of west with a grant for its networks and, if there are any, for
// exports from some namespaces.
func narrowWest(namespaces ...string) *submarinerv1.Cluster {
	return granted(cluster("x", "west"), func(g *trust.Grant) {
		g.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/16")}
		g.ExportNamespaces = namespaces
	})
}

// A member that publishes pages of exported Services which are not its own, exceed its grant or
// have a wrong form: the whole page is refused, with the reason, and the copy stays as it was.
func TestHostilePages(t *testing.T) {
	type change = func(p *v1alpha1.ExportedServices, s *v1alpha1.ExportedService)
	for name, test := range map[string]struct {
		change change
		reason string
	}{
		"an address of another cluster": {
			func(_ *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) { s.Address = "10.3.0.1" },
			"network 10.3.0.1 is not in the grant of cluster west",
		},
		"a public address": {
			func(_ *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) { s.Address = "1.1.1.1" },
			"network 1.1.1.1 is not in the grant of cluster west",
		},
		"the address of a metadata service": {func(_ *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) {
			s.Endpoints[0].Pods[1].IP = "169.254.169.254"
		}, "network 169.254.169.254 is not in the grant of cluster west"},
		"an IPv6 address": {
			func(_ *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) { s.Address = "::1" },
			`address "::1" is no IPv4 address`,
		},
		"an IPv4 address in IPv6": {func(_ *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) {
			s.Address = "::ffff:10.1.0.1"
		}, "is no IPv4 address"},
		"a network instead of an address": {
			func(_ *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) { s.Address = "10.1.0.0/24" },
			"is no IPv4 address",
		},
		"a namespace of Kubernetes": {
			func(_ *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) { s.Namespace = "kube-system" },
			`the grant of cluster west allows no exports from namespace "kube-system": delete the ServiceExports there, or allow it with ` +
				"subctl join --export-namespaces in that cluster",
		},
		"one of two namespaces": {func(p *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) {
			other := *s.DeepCopy()
			other.Namespace = "submariner-operator"
			p.Spec.Services = append(p.Spec.Services, other)
		}, `allows no exports from namespace "submariner-operator"`},
		"the ID of another cluster": {
			func(p *v1alpha1.ExportedServices, _ *v1alpha1.ExportedService) { p.Spec.ClusterID = "north" },
			`spec.clusterID is "north", not "west"`,
		},
		"the ID of the reader": {
			func(p *v1alpha1.ExportedServices, _ *v1alpha1.ExportedService) { p.Spec.ClusterID = "east" },
			"it claims to belong to this cluster",
		},
		"a name that is no label": {
			func(_ *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) { s.Name = "web.kube-system" },
			"namespace and name must be DNS labels",
		},
		"a Service twice": {func(p *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) {
			p.Spec.Services = append(p.Spec.Services, *s)
		}, "Service shop/web is listed twice, or out of order"},
		"Services out of order": {func(p *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) {
			other := *s.DeepCopy()
			other.Name = "api"
			p.Spec.Services = append(p.Spec.Services, other)
		}, "Service shop/api is listed twice, or out of order"},
		"more than 16 KiB": {func(p *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) {
			s.Annotations = map[string]string{"a": strings.Repeat("x", 17<<10)}
		}, "more than 16384"},
		"more pages than there can be": {
			func(p *v1alpha1.ExportedServices, _ *v1alpha1.ExportedService) { p.Spec.Pages = 1000 },
			"spec.pages is 1000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			before := page(1000, func(*v1alpha1.ExportedServices, *v1alpha1.ExportedService) {})
			require.Empty(t, v.sync(unsigned("default", narrowWest(), before)))
			require.True(t, v.has(before))

			refused := v.sync(unsigned("default", narrowWest(), page(2000, test.change)))
			require.Len(t, refused, 1)
			require.Contains(t, refused[0], test.reason)
			require.Contains(t, refused[0], "west-services-0")
			require.True(t, v.has(before), "the copy has changed")
			require.Equal(t, before.Spec, v.local[id(before)].(*v1alpha1.ExportedServices).Spec)

			newcomer := newVictim(t)
			require.NotEmpty(t, newcomer.sync(unsigned("default", narrowWest(), page(2000, test.change))))
			require.NotContains(t, newcomer.local, id(before))
		})
	}
}

// A member that gives a page a name which is not that of one of its pages.
func TestHostileNamesOfPages(t *testing.T) {
	for _, name := range []string{
		"west-services-64", "west-services-00", "west-services-1x", "west-services-", "west", "north-services-0",
		"east-services-0", "kube-dns",
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			p := brokertest.Page("x", "west", 0)
			p.Name = name
			brokertest.Sign(p, "")
			v.sync(unsigned("default", cluster("x", "west"), cluster("x", "north"), p))
			require.NotContains(t, v.local, id(p))
		})
	}
}

// The grant decides from which namespaces a member exports, and a later grant with less ends what
// it does not allow any more, as with networks.
func TestHostileExportNamespaces(t *testing.T) {
	p := page(1000, func(*v1alpha1.ExportedServices, *v1alpha1.ExportedService) {})
	system := page(1000,
		func(_ *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) { s.Namespace = "kube-system" })
	for _, test := range []struct {
		granted []string
		page    *v1alpha1.ExportedServices
		copied  bool
	}{
		{nil, p, true},
		{[]string{"shop"}, p, true},
		{[]string{"sh*"}, p, true},
		{[]string{"shop-2", "sho"}, p, false},
		{nil, system, false},
		{[]string{"shop"}, system, false},
		{[]string{"kube-system", "shop"}, system, true},
	} {
		t.Run(fmt.Sprint(test.granted, test.page.Spec.Services[0].Namespace), func(t *testing.T) {
			v := newVictim(t)
			refused := v.sync(unsigned("default", narrowWest(test.granted...), test.page))
			require.Equal(t, test.copied, v.has(test.page))
			require.Equal(t, test.copied, len(refused) == 0)
		})
	}
	t.Run("a later grant", func(t *testing.T) {
		v := newVictim(t)
		require.Empty(t, v.sync(unsigned("default", narrowWest("shop"), p)))
		later := granted(at(2000, cluster("x", "west"), func(*submarinerv1.Cluster) {}), func(g *trust.Grant) {
			g.Serial = 2000
			g.ExportNamespaces = []string{"other"}
		})
		require.NotEmpty(t, v.sync(unsigned("default", later, p)))
		require.NotContains(t, v.local, id(p), "the grant allows it no more")
	})
}

// A broker, or another member, that shows forged and earlier versions of the pages of an honest
// member.
func TestHostileBrokerShowsPages(t *testing.T) {
	latest := page(2000, func(_ *v1alpha1.ExportedServices, s *v1alpha1.ExportedService) { s.Name = "web-2" })
	for name, forged := range map[string]*v1alpha1.ExportedServices{
		"an earlier version": page(1000, func(*v1alpha1.ExportedServices, *v1alpha1.ExportedService) {}),
		"another address": func() *v1alpha1.ExportedServices {
			p := latest.DeepCopy()
			p.Spec.Services[0].Address = "10.1.0.9"
			return p
		}(),
		"fewer Services": func() *v1alpha1.ExportedServices {
			p := latest.DeepCopy()
			p.Spec.Services = nil
			return p
		}(),
		"fewer pages": func() *v1alpha1.ExportedServices {
			p := latest.DeepCopy()
			p.Spec.Pages = 0
			return p
		}(),
		"another page": func() *v1alpha1.ExportedServices {
			p := at(3000, brokertest.Page("x", "west", 1), func(*v1alpha1.ExportedServices) {})
			p.Name = latest.Name
			return p
		}(),
		"the signature of another member": func() *v1alpha1.ExportedServices {
			p := latest.DeepCopy()
			forge(p, "north")
			return p
		}(),
		"no signature": func() *v1alpha1.ExportedServices {
			p := latest.DeepCopy()
			p.Annotations = nil
			return p
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			require.Empty(t, v.sync(unsigned("default", cluster("x", "west"), latest)))
			require.NotEmpty(t, v.sync(unsigned("default", cluster("x", "west"), cluster("x", "north"), forged)))
			require.True(t, v.has(latest))
			require.Equal(t, latest.Spec, v.local[id(latest)].(*v1alpha1.ExportedServices).Spec)
		})
	}
	t.Run("a page that was deleted", func(t *testing.T) {
		v := newVictim(t)
		require.Empty(t, v.sync(unsigned("default", cluster("x", "west"), latest)))
		require.Empty(t, v.sync(unsigned("default", cluster("x", "west"))))
		require.NotContains(t, v.local, id(latest), "like any object that is not shown")
		require.NotEmpty(t, v.sync(unsigned("default", cluster("x", "west"), latest)))
		require.NotContains(t, v.local, id(latest))
	})
}

// A cluster publishes its own pages, and tells why it does not publish one that its grant does not
// allow.
func TestOwnPages(t *testing.T) {
	local := func(namespace string) client.Object {
		p := brokertest.Page(here, "west", 1)
		p.Labels = nil
		p.Annotations = nil
		p.Spec.Services[0].Namespace = namespace
		return p
	}
	publish := func(o client.Object) (out []string, refused []string) {
		writes, refusals := plan(exchange.Kinds(), exchange.Snapshot{
			ClusterID: "west", Namespace: here, Local: []client.Object{o}, Sets: []exchange.SetSnapshot{set("default")},
		})
		for _, w := range writes {
			if _, ok := w.Object.(*v1alpha1.ExportedServices); ok && w.Op != exchange.Report {
				out = append(out, w.String())
			}
		}
		return out, texts(refusals)
	}
	writes, refused := publish(local("shop"))
	require.Equal(t, []string{"create ExportedServices west-services-1 on the broker in clusterset default"}, writes)
	require.Empty(t, refused)
	writes, refused = publish(local("kube-system"))
	require.Empty(t, writes)
	require.Len(t, refused, 1)
	require.Contains(
		t,
		refused[0],
		`in this cluster: the grant of cluster west allows no exports from namespace "kube-system": delete the ServiceExports there, `+
			"or allow it with subctl join --export-namespaces in that cluster",
	)
}
