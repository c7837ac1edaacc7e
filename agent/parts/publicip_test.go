package parts

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/wake"
)

func TestParsePublicIP(t *testing.T) {
	for _, test := range []struct{ text, ip, host, problem string }{
		{text: "ipv4:192.0.2.7", ip: "192.0.2.7"},
		{text: "192.0.2.7", ip: "192.0.2.7"},
		{text: "dns:gw.example.com", host: "gw.example.com"},
		{text: "dns:gw.example.com.", host: "gw.example.com"},
		{text: "dns:", problem: "is no DNS name"},
		{text: "dns:a b", problem: "is no DNS name"},
		{text: "ipv4:192.0.2", problem: `"192.0.2" is no public address: not an IP address`},
		{text: "ipv4:127.0.0.1", problem: "loopback"},
		{text: "ipv4:2001:db8::1", problem: "not an IPv4 address"},
		{text: "api:example.com", problem: `the method "api" is not supported: write ipv4:ADDRESS or dns:NAME`},
		{text: "lb:submariner-gateway", problem: `the method "lb" is not supported`},
		{text: "ftp:x", problem: "neither ipv4:ADDRESS nor dns:NAME"},
		{text: "ipv4:192.0.2.7,dns:gw", problem: "not an IP address"},
	} {
		t.Run(test.text, func(t *testing.T) {
			ip, host, err := parsePublicIP(test.text)
			if test.problem != "" {
				require.ErrorContains(t, err, "node annotation gateway.submariner.io/public-ip: ")
				require.ErrorContains(t, err, test.problem)
				require.False(t, ip.IsValid())
				require.Empty(t, host)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.host, host)
			if test.ip != "" {
				require.Equal(t, test.ip, ip.String())
			}
		})
	}
}

func TestPublicIP(t *testing.T) {
	var said []netip.Addr
	var failed error
	news := 0
	p := &publicIP{
		lookUp: func(_ context.Context, network, host string) ([]netip.Addr, error) {
			require.Equal(t, []string{"ip4", "gw.example.com"}, []string{network, host})
			return said, failed
		},
		trigger: func() { news++ }, wake: wake.NewSignal(),
	}
	published := netip.MustParseAddr("192.0.2.1")
	seen := netip.MustParseAddr("198.51.100.1")
	node := func(annotation, label string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}, Labels: map[string]string{}}}
		n.Annotations[submarinerv1.PublicIPAnnotation] = annotation
		n.Labels[submarinerv1.PublicIPAnnotation] = label
		return n
	}
	is := func(n *corev1.Node, want string) {
		t.Helper()
		got, err := p.of(n, seen, published)
		require.NoError(t, err)
		require.Equal(t, want, got.String())
	}
	is(node("", ""), "198.51.100.1")
	is(node("", "192.0.2.8"), "192.0.2.8")
	is(node("ipv4:192.0.2.7", "192.0.2.8"), "192.0.2.7")

	name := node("dns:gw.example.com", "")
	is(name, "192.0.2.1") // not looked up yet
	require.Len(t, p.wake, 1)
	said = []netip.Addr{
		netip.MustParseAddr("192.0.2.9"),
		netip.MustParseAddr("::ffff:192.0.2.7"),
		netip.MustParseAddr("127.0.0.1"),
	}
	p.refresh(t.Context())
	require.Equal(t, 1, news)
	is(name, "192.0.2.7")
	p.refresh(t.Context())
	require.Equal(t, 1, news, "nothing new")

	said = nil
	failed = errors.New("no such host")
	p.refresh(t.Context())
	require.Equal(t, 2, news)
	got, err := p.of(name, seen, published)
	require.ErrorContains(t, err, "no such host")
	require.Equal(t, "192.0.2.7", got.String(), "the one before")

	said = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	failed = nil
	p.refresh(t.Context())
	_, err = p.of(name, seen, published)
	require.ErrorContains(t, err, "gw.example.com has no public IPv4 address")
}
