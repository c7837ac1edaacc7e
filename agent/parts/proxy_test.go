package parts

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/proxy"
	"subctl/internal/wake"
)

// A gateway reaches the broker through the proxy of the Submariner, or else of its pod's
// environment, where a webhook may have put it. The cluster's own networks are never reached
// through a proxy.
func TestBrokerProxy(t *testing.T) {
	const hub, injected = "https://hub.example:6443", "http://injected.example:3128"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gw"}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.10"},
			{Type: corev1.NodeHostName, Address: "gw.east.example"},
		},
	}}
	for name, test := range map[string]struct {
		server, setting string
		except          []string
		environment     proxy.Settings
		want, source    string
	}{
		"none": {server: "hub.example:6443"},
		"the Submariner's": {
			server: "hub.example:6443", setting: "http://proxy.example:3128", want: "http://proxy.example:3128",
			source: "Submariner.spec.brokerK8sHTTPSProxy",
		},
		"the environment's": {
			server: "hub.example:6443", environment: proxy.Settings{URL: injected, Source: "HTTPS_PROXY"},
			want: injected, source: "HTTPS_PROXY",
		},
		"NO_PROXY of a webhook": {
			server: "hub.example:6443", environment: proxy.Settings{URL: injected, Except: ".example"},
		},
		"both": {
			server: "hub.example:6443", setting: "socks5://p.example:1080",
			environment: proxy.Settings{URL: injected, Except: ".example"}, want: "socks5://p.example:1080",
			source: "Submariner.spec.brokerK8sHTTPSProxy",
		},
		"none, despite a webhook": {
			server: "hub.example:6443", setting: proxy.None, environment: proxy.Settings{URL: injected},
		},
		"the user's exceptions": {
			server: "hub.example:6443", setting: "http://p.example:1", except: []string{"hub.example"},
		},
		"an address": {
			server: "198.51.100.7:6443", setting: "http://p.example:1", want: "http://p.example:1",
			source: "Submariner.spec.brokerK8sHTTPSProxy",
		},
		"an excepted network": {
			server: "198.51.100.7:6443", setting: "http://p.example:1", except: []string{"198.51.100.0/24"},
		},
		"a Service of its own":             {server: "10.101.0.1:443", setting: "http://p.example:1"},
		"a pod of its own":                 {server: "10.111.3.4:6443", environment: proxy.Settings{URL: injected}},
		"a global address of its own":      {server: "242.1.0.7:6443", environment: proxy.Settings{URL: injected}},
		"its node":                         {server: "192.0.2.10:6443", setting: "http://p.example:1"},
		"its node's name":                  {server: "gw.east.example:6443", setting: "http://p.example:1"},
		"a network of the node":            {server: "203.0.113.9:6443", setting: "http://p.example:1"},
		"its own API server":               {server: "api.east.example:6443", setting: "http://p.example:1"},
		"an address of its own API server": {server: "192.0.2.77:6443", setting: "http://p.example:1"},
		"the broker's address": {
			server: "192.0.2.88:6443", setting: "http://p.example:1", want: "http://p.example:1",
			source: "Submariner.spec.brokerK8sHTTPSProxy",
		},
		"a Service's name":      {server: "broker.hub.svc:443", setting: "http://p.example:1"},
		"a Service's long name": {server: "broker.hub.svc.cluster.local:443", setting: "http://p.example:1"},
		"its loopback address":  {server: "127.0.0.1:6443", setting: "http://p.example:1"},
		"a path": {
			server: "hub.example/k8s/clusters/c-abc", setting: "http://p.example:1", want: "http://p.example:1",
			source: "Submariner.spec.brokerK8sHTTPSProxy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.SubmarinerSpec{
				BrokerK8sApiServer: test.server, BrokerK8sHTTPSProxy: test.setting, BrokerK8sNoProxy: test.except,
				ClusterCIDR: "10.111.0.0/16, 10.112.0.0/16", ServiceCIDR: "10.101.0.0/16", GlobalCIDR: "242.1.0.0/16",
			}
			s := role.NewSnapshot("gw", []client.Object{node, &v1alpha1.Submariner{Spec: spec}}...)
			s.Facts.NeverRouted = []submarinerv1.NeverRouted{
				{Network: "203.0.113.0/24", Reason: "the network of device eth0"},
				{Network: "192.0.2.77/32", Reason: ownServer},
				{Network: "192.0.2.88/32", Reason: brokerServer},
			}
			via, source := brokerProxy(s, spec, test.environment, "https://api.east.example:6443")
			if test.want == "" {
				require.Nil(t, via)
				return
			}
			require.Equal(t, test.want, via.String())
			require.Equal(t, test.source, source)
		})
	}
}

// Each node writes its own addresses: one that was taken over could have all gateways bypass the
// proxy, and so cut them off from the broker where only the proxy reaches it.
func TestHostileNodeBypassesTheProxy(t *testing.T) {
	own := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gw"}}
	for _, server := range []string{"hub.example:6443", "198.51.100.7:6443"} {
		for _, address := range []string{"*", "hub.example", "example", "a,*", "198.51.100.7", "0.0.0.0/0"} {
			spec := v1alpha1.SubmarinerSpec{
				BrokerK8sApiServer: server, BrokerK8sHTTPSProxy: "http://proxy.example:3128",
				ClusterCIDR: "10.111.0.0/16",
			}
			taken := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "taken"}, Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{
					{Type: corev1.NodeInternalIP, Address: "192.0.2.66"},
					{Type: corev1.NodeHostName, Address: address},
				},
			}}
			s := role.NewSnapshot("gw", []client.Object{own, taken, &v1alpha1.Submariner{Spec: spec}}...)
			via, _ := brokerProxy(s, spec, proxy.Settings{}, "https://10.101.0.1")
			require.NotNil(t, via, "the address %s, and the broker %s", address, server)
		}
	}
}

// The node must reach the proxy, not the broker, whose name it may not even be able to look up.
func TestAPIServersThroughAProxy(t *testing.T) {
	asked := map[string]bool{}
	a := &apiServers{
		lookUp: func(_ context.Context, _, host string) ([]netip.Addr, error) {
			asked[host] = true
			return []netip.Addr{netip.MustParseAddr("203.0.113.20")}, nil
		},
		listed: func(context.Context) ([]netip.Addr, error) { return nil, nil },
		own:    "https://10.101.0.1", log: slog.New(slog.DiscardHandler), trigger: func() {}, wake: wake.NewSignal(),
		seen: map[serverAddress]time.Time{},
	}
	sub := &v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{
		BrokerK8sApiServer: "hub.example/k8s/clusters/c-abc", ClusterCIDR: "10.111.0.0/16",
		ServiceCIDR: "10.101.0.0/16",
	}}
	for via, want := range map[string]contact{
		"": {"hub.example", brokerServer}, "http://proxy.example:3128": {"proxy.example", proxyServer},
	} {
		clear(asked)
		clear(a.seen)
		sub.Spec.BrokerK8sHTTPSProxy = via
		s := role.NewSnapshot("gw", sub)
		require.ErrorIs(t, a.Observe(&s), ErrTooEarly)
		a.refresh(t.Context(), time.Unix(1000, 0))
		require.NoError(t, a.Observe(&s))
		require.Contains(t, s.Facts.NeverRouted, submarinerv1.NeverRouted{
			Network: "203.0.113.20/32", Reason: want.reason,
		})
		require.Equal(t, map[string]bool{want.host: true}, asked)
	}
}
