package dns

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kubetest"
	"subctl/services"
	"subctl/services/dns"
)

func TestMain(m *testing.M) {
	what := os.Getenv(serveOnly)
	if what == "" {
		os.Exit(kubetest.Main(m))
	}
	if err := serveAlone(what); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newImport returns a ServiceImport of ours; it is headless without an address.
func newImport(namespace, name string, ips ...string) *mcsv1alpha1.ServiceImport {
	o := &mcsv1alpha1.ServiceImport{}
	o.Namespace = namespace
	o.Name = name
	o.Labels = map[string]string{submarinerv1.ManagedByLabel: submarinerv1.ManagedBy}
	o.Spec.IPs = ips
	o.Spec.Type = mcsv1alpha1.ClusterSetIP
	if len(ips) == 0 {
		o.Spec.Type = mcsv1alpha1.Headless
	}
	o.Spec.Ports = []mcsv1alpha1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}
	return o
}

// newSlice returns an EndpointSlice of ours, with endpoints that are ready.
func newSlice(namespace, service, cluster string, addresses ...string) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	o.Namespace = namespace
	o.Name = service + "-" + cluster
	o.Labels = map[string]string{
		mcsv1alpha1.LabelServiceName:   service,
		mcsv1alpha1.LabelSourceCluster: cluster,
		discoveryv1.LabelManagedBy:     services.ManagedBy,
	}
	o.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}
	for i, a := range addresses {
		o.Endpoints = append(o.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{a}, Hostname: new(fmt.Sprintf("%s-%d", service, i))})
	}
	return o
}

// manyAddresses returns addresses of endpoints.
func manyAddresses(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("10.%d.%d.%d", 1+i>>16, i>>8&255, i&255))
	}
	return out
}

// newServer serves an index on the loopback address, until the test has ended.
func newServer(t testing.TB, index *dns.Index) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := listen(ctx, "127.0.0.1:0", index, newMeters(index))
	for range 10 {
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
		// a connection of another test has the port of TCP that the kernel has chosen for UDP
		s, err = listen(ctx, "127.0.0.1:0", index, newMeters(index))
	}
	require.NoError(t, err)
	done := make(chan error, 2)
	go func() { done <- s.serveUDP(ctx) }()
	go func() { done <- s.serveTCP(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
	return s
}

func (s *server) address() string { return s.packets.LocalAddr().String() }

// exampleIndex returns an index that has read web.shop, and large.shop with a number of endpoints.
func exampleIndex(large int) *dns.Index {
	i := dns.NewIndex("east", false)
	i.ReplaceImports([]*mcsv1alpha1.ServiceImport{newImport("shop", "web", "10.96.0.1"), newImport("shop", "large")})
	i.ReplaceSlices([]*discoveryv1.EndpointSlice{newSlice("shop", "large", "west", manyAddresses(large)...)})
	return i
}

const web = "web.shop.svc.clusterset.local."

// exchange asks over a network with room for an answer, none for plain DNS.
func exchange(t testing.TB, network, address, name string, kind, room uint16) *wire.Msg {
	t.Helper()
	q := new(wire.Msg)
	q.SetQuestion(name, kind)
	if room > 0 {
		q.SetEdns0(room, false)
	}
	r, _, err := (&wire.Client{Net: network, Timeout: 5 * time.Second}).Exchange(q, address)
	require.NoError(t, err)
	return r
}

// addresses returns the addresses of an answer.
func addresses(r *wire.Msg) (out []string) {
	for _, rr := range r.Answer {
		if a, ok := rr.(*wire.A); ok {
			out = append(out, a.A.String())
		}
	}
	return out
}

// Both networks answer at one address. What does not fit into a packet is marked, and complete over
// TCP.
func TestNetworks(t *testing.T) {
	s := newServer(t, exampleIndex(200))
	for _, network := range []string{"udp", "tcp"} {
		r := exchange(t, network, s.address(), web, wire.TypeA, 0)
		require.Equal(t, []string{"10.96.0.1"}, addresses(r))
		require.True(t, r.Authoritative)
		require.False(t, r.RecursionAvailable)
		require.Equal(t, wire.RcodeRefused, exchange(t, network, s.address(), ".", wire.TypeNS, 0).Rcode)
		require.Equal(t, wire.RcodeNameError, exchange(t, network, s.address(), "x."+web, wire.TypeA, 0).Rcode)
	}
	const large = "large.shop.svc.clusterset.local."
	for room, want := range map[uint16]int{0: 28, 512: 28, 1232: 73, 4096: 73} {
		r := exchange(t, "udp", s.address(), large, wire.TypeA, room)
		require.True(t, r.Truncated)
		require.InDelta(t, want, len(r.Answer), 1)
		require.Equal(t, room > 0, r.IsEdns0() != nil)
	}
	r := exchange(t, "tcp", s.address(), large, wire.TypeA, 0)
	require.False(t, r.Truncated)
	require.Len(t, r.Answer, 200)
	require.Len(t, exchange(t, "tcp", s.address(), large, wire.TypeSRV, 0).Answer, 200)

	// The resolver of Go asks again over TCP by itself.
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, s.address())
	}}
	found, err := resolver.LookupHost(t.Context(), large)
	require.NoError(t, err)
	require.Len(t, found, 200)
	_, records, err := resolver.LookupSRV(t.Context(), "http", "tcp", large)
	require.NoError(t, err)
	require.Len(t, records, 200)
}

// Answers with the address of an exporter need it in memory, and nothing else of the annotations.
func TestSliceInMemory(t *testing.T) {
	o := newSlice("shop", "web", "west", "10.2.0.1")
	o.Annotations = map[string]string{services.AddressAnnotation: "10.102.0.1", "example.com/other": "value"}
	slimSlice(o)
	require.Equal(t, map[string]string{services.AddressAnnotation: "10.102.0.1"}, o.Annotations)
	require.Equal(t, []string{"10.2.0.1"}, o.Endpoints[0].Addresses)
}

// A connection answers many questions, also those that are sent before the answers are read.
func TestPipelining(t *testing.T) {
	s := newServer(t, exampleIndex(1))
	c, err := wire.Dial("tcp", s.address())
	require.NoError(t, err)
	defer c.Close()
	const questions = 300 // more than the library allows for a connection by default
	for n := range questions {
		q := new(wire.Msg)
		q.SetQuestion(web, wire.TypeA)
		q.Id = uint16(n)
		require.NoError(t, c.WriteMsg(q))
	}
	for n := range questions {
		r, err := c.ReadMsg()
		require.NoError(t, err)
		require.Equal(t, uint16(n), r.Id)
	}
}

// Packets that are no queries are refused or ignored, and cost no more.
func TestHostilePackets(t *testing.T) {
	s := newServer(t, exampleIndex(1))
	c, err := net.Dial("udp", s.address())
	require.NoError(t, err)
	defer c.Close()
	query := new(wire.Msg)
	query.SetQuestion(web, wire.TypeA)
	good, err := query.Pack()
	require.NoError(t, err)
	response := slices.Clone(good)
	response[2] |= 0x80
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 20_000 {
		b := slices.Clone(good)
		switch n % 4 {
		case 0:
			b = make([]byte, random.IntN(1500))
			for i := range b {
				b[i] = byte(random.Uint32())
			}
		case 1:
			b[random.IntN(len(b))] = byte(random.Uint32())
		case 2:
			b = b[:random.IntN(len(b))]
		case 3:
			b = append(response, bytes.Repeat([]byte{0xc0, 0x0c}, random.IntN(700))...)
		}
		_, err := c.Write(b)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		r, _, err := (&wire.Client{Timeout: time.Second}).Exchange(query.Copy(), s.address())
		return err == nil && r.Rcode == wire.RcodeSuccess
	}, 20*time.Second, 10*time.Millisecond)

	// A response gets no answer: two servers could go on for ever.
	quiet, err := net.Dial("udp", s.address())
	require.NoError(t, err)
	defer quiet.Close()
	_, err = quiet.Write(response)
	require.NoError(t, err)
	require.NoError(t, quiet.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	_, err = quiet.Read(make([]byte, 512))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// Clients that open connections and send nothing, or slowly, or do not read, keep neither UDP nor
// other clients out for long.
func TestHostileConnections(t *testing.T) {
	s := newServer(t, exampleIndex(4000))
	q := new(wire.Msg)
	q.SetQuestion("large.shop.svc.clusterset.local.", wire.TypeA)
	b, err := q.Pack()
	require.NoError(t, err)
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
	for name, send := range map[string][]byte{
		"nothing":       nil,
		"half a length": {0},
		"half a query":  framed[:20],
		"many queries":  bytes.Repeat(framed, 500),
		"a length":      {255, 255},
	} {
		t.Run(name, func(t *testing.T) {
			var conns []net.Conn
			for n := range 500 {
				from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+n%10))}
				c, err := (&net.Dialer{LocalAddr: from, Timeout: time.Second}).Dial("tcp4", s.address())
				if err != nil {
					continue
				}
				conns = append(conns, c)
				_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				_, _ = c.Write(send)
			}
			start := time.Now()
			require.Equal(t, wire.RcodeSuccess, exchange(t, "udp", s.address(), web, wire.TypeA, 0).Rcode)
			require.Eventually(t, func() bool {
				r, _, err := (&wire.Client{Net: "tcp", Timeout: time.Second}).Exchange(
					&wire.Msg{
						MsgHdr:   wire.MsgHdr{Id: 1},
						Question: []wire.Question{{Name: web, Qtype: wire.TypeA, Qclass: wire.ClassINET}},
					},
					s.address(),
				)
				return err == nil && len(r.Answer) == 1
			}, 2*idleTimeout, 50*time.Millisecond, "no connection is free")
			t.Logf("TCP answers after %v", time.Since(start).Round(time.Millisecond))
			for _, c := range conns {
				_ = c.Close()
			}
		})
	}
}

// A connection that is idle is closed.
func TestIdle(t *testing.T) {
	s := newServer(t, exampleIndex(1))
	c, err := net.Dial("tcp", s.address())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(idleTimeout)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

var discard = slog.New(slog.DiscardHandler)

// lines returns the samples of a metric in what /metrics serves.
func lines(text, metric string) (out []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, metric) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}
