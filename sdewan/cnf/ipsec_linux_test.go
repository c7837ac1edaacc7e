package cnf

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
	"subctl/sdewan/rest"
)

// site is a CNF with a strongSwan of its own: 192.0.2.N on the WAN, and 10.N.0.1 in its LAN,
// 10.N.0.0/24, where one host is 10.N.0.2.
type site struct {
	t      testing.TB
	ns     *nstest.NS
	app    *nstest.NS
	host   *kernel.Host
	config rest.Config
	world  World
}

func sites(t testing.TB) (hub, edge *site) {
	t.Helper()
	nstest.Root(t)
	var out [2]*site
	for i := range out {
		n := i + 1
		s := &site{t: t, ns: nstest.New(t, fmt.Sprintf("cnf%d", n)), app: nstest.New(t, fmt.Sprintf("app%d", n))}
		nstest.Join(nstest.End{NS: s.ns, Dev: "lan", Addr: fmt.Sprintf("10.%d.0.1/24", n)},
			nstest.End{NS: s.app, Dev: "eth0", Addr: fmt.Sprintf("10.%d.0.2/24", n)})
		s.app.Run(fmt.Sprintf("ip route add default via 10.%d.0.1", n))
		s.ns.Run("sysctl -qw net.ipv4.ip_forward=1")
		s.ns.Do(func() {
			f, err := kernel.ReadFacts()
			require.NoError(t, err)
			s.world.IPsec = f.IPsec
			s.host, err = kernel.New(dataplane.CNFOwner)
			require.NoError(t, err)
		})
		if s.world.IPsec.Name == "" {
			if os.Getenv(nstest.RequireRoot) == "1" {
				t.Fatalf("no IPsec: %s", s.world.IPsec.Missing)
			}
			t.Skip("no IPsec: " + s.world.IPsec.Missing)
		}
		out[i] = s
	}
	nstest.Join(nstest.End{NS: out[0].ns, Dev: "wan", Addr: "192.0.2.1/24"},
		nstest.End{NS: out[1].ns, Dev: "wan", Addr: "192.0.2.2/24"})
	for i, s := range out {
		// Without tunnels, packets pass in clear: only then their absence means something.
		s.ns.Run(fmt.Sprintf("ip route add 10.%d.0.0/24 via 192.0.2.%d", 2-i, 2-i))
		t.Cleanup(func() {
			s.config = rest.Config{}
			s.sync()
			s.host.Close()
		})
	}
	out[0].app.Run("ping -c1 -W10 10.2.0.2")
	return out[0], out[1]
}

// sync makes the kernel hold the plan, and returns the steps.
func (s *site) sync() (ops []dataplane.Op) {
	s.t.Helper()
	want, report := Plan(s.config, s.world)
	require.Empty(s.t, report)
	s.ns.Do(func() {
		var err error
		ops, err = dataplane.Sync(context.Background(), s.host, want)
		require.NoError(s.t, err)
	})
	return ops
}

func (s *site) remote(name string) dataplane.RemoteState {
	states, err := s.host.RemoteStates()
	require.NoError(s.t, err)
	for _, st := range states {
		if st.Name == name {
			return st
		}
	}
	return dataplane.RemoteState{}
}

// up waits until all children of all connections are up.
func (s *site) up() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		for _, r := range s.config.Remotes {
			st := s.remote(r.Name)
			if len(st.Children) == 0 {
				return false
			}
			for _, c := range st.Children {
				if !c.Up {
					return false
				}
			}
		}
		return true
	}, 60*time.Second, 100*time.Millisecond, "%+v", s.remote(s.config.Remotes[0].Name))
}

// private requires that packets of a ping get an answer, or none, and that none of them is seen on
// the WAN in clear.
func (s *site) private(from *nstest.NS, command string, answered bool) {
	s.t.Helper()
	seen := s.ns.Watch("wan")
	out, err := from.Try("ping -c3 -i0.2 -W2 " + nstest.Pattern + " " + command)
	require.Equal(s.t, answered, err == nil, out)
	_, _ = s.ns.Try("ping -b -c1 -W1 192.0.2.255") // the capture must see something
	require.False(s.t, seen().Marker, "packets leave in clear beside the tunnel")
}

var proposals = []rest.Proposal{
	{Name: "p", Encryption: "aes128", Hash: "sha256", DHGroup: "ecp256"},
	{Name: "q", Encryption: "aes256gcm16", Hash: "sha384", DHGroup: "x25519"},
}

// pair configures a tunnel between the two LANs, which the edge begins.
func pair(hub, edge *site) {
	hub.config = rest.Config{Proposals: proposals, Remotes: []rest.Remote{{
		Name:          "edge-1",
		Gateway:       "%any",
		Auth:          "psk",
		PreSharedKey:  "sesame-open",
		LocalID:       "hub.test",
		RemoteID:      "edge.test",
		Proposals:     []string{"p"},
		ForceProposal: "1",
		Connections: []rest.Connection{
			{
				Name:         "a",
				Type:         "tunnel",
				Mode:         "add",
				LocalSubnet:  "10.1.0.0/24",
				RemoteSubnet: "10.2.0.0/24",
				Proposals:    []string{"q"},
			},
		},
	}}}
	edge.config = rest.Config{Proposals: proposals, Remotes: []rest.Remote{{
		Name:          "hub",
		Gateway:       "192.0.2.1",
		Auth:          "psk",
		PreSharedKey:  "0s" + base64.StdEncoding.EncodeToString([]byte("sesame-open")),
		LocalID:       "edge.test",
		RemoteID:      "hub.test",
		Proposals:     []string{"p"},
		ForceProposal: "1",
		Connections: []rest.Connection{
			{
				Name:         "a",
				Type:         "tunnel",
				Mode:         "start",
				LocalSubnet:  "10.2.0.0/24",
				RemoteSubnet: "10.1.0.0/24",
				Proposals:    []string{"q"},
			},
		},
	}}}
}

// Two sites with a pre-shared key: packets between the LANs pass through the tunnel, and never
// beside it.
func TestIPsecPSK(t *testing.T) {
	hub, edge := sites(t)
	pair(hub, edge)
	edge.sync()
	edge.private(edge.app, "10.1.0.2", false) // the hub does not know the edge yet
	hub.sync()
	edge.up()
	hub.up()
	edge.private(edge.app, "10.1.0.2", true)
	hub.private(hub.app, "10.2.0.2", true)
	require.Empty(t, edge.sync(), "a second sync has nothing to do")
	require.Empty(t, hub.sync())

	// Another agent adopts the tunnel, which stays.
	before := edge.remote("hub")
	edge.host.Close()
	edge.ns.Do(func() {
		var err error
		edge.host, err = kernel.New(dataplane.CNFOwner)
		require.NoError(t, err)
	})
	for _, op := range edge.sync() {
		require.Equal(t, dataplane.KindDaemon, op.New.Key().Kind, "%v", op)
	}
	require.Equal(t, before.Children[0].Out, edge.remote("hub").Children[0].Out)
	edge.private(edge.app, "10.1.0.2", true)

	// So it does when something else changes.
	edge.config.Remotes = append(
		edge.config.Remotes,
		rest.Remote{
			Name:         "other",
			Gateway:      "192.0.2.77",
			Auth:         "psk",
			PreSharedKey: "x",
			Connections: []rest.Connection{
				{Name: "a", Type: "tunnel", Mode: "start", LocalSubnet: "10.2.0.0/24", RemoteSubnet: "10.77.0.0/24"},
			},
		},
	)
	edge.config.RouteRules = []rest.RouteRule{{Name: "r", Src: "198.51.100.0/24", Table: "main"}}
	require.NotEmpty(t, edge.sync())
	require.GreaterOrEqual(t, edge.remote("hub").Children[0].Out, before.Children[0].Out)
	require.GreaterOrEqual(t, edge.remote("hub").Age, before.Age)
	edge.config.Remotes = edge.config.Remotes[:1]
	edge.sync()
	edge.private(edge.app, "10.1.0.2", true)

	// A new key: the tunnel is down until the hub has it, too.
	edge.config.Remotes[0].PreSharedKey = "other-key"
	edge.sync()
	edge.private(edge.app, "10.1.0.2", false)
	hub.config.Remotes[0].PreSharedKey = "other-key"
	hub.sync()
	edge.up()
	edge.private(edge.app, "10.1.0.2", true)

	// Stopped, on purpose: the objects stay, without effect.
	hub.config.Stopped = []string{"ipsec"}
	edge.config.Stopped = []string{"ipsec"}
	hub.sync()
	edge.sync()
	seen := edge.ns.Watch("wan")
	edge.app.Run("ping -c1 -W2 " + nstest.Pattern + " 10.1.0.2")
	require.True(t, seen().Marker, "and a packet in clear would have been seen")
}

// A hub hands out virtual addresses, and the edge proves itself by a certificate.
func TestIPsecHubAndEdge(t *testing.T) {
	hub, edge := sites(t)
	ca, caKey := certificate(t, "ca", nil, nil)
	pub := func(name string) (cert, key string) {
		c, k := certificate(t, name, ca, caKey)
		der, err := x509.MarshalPKCS8PrivateKey(k)
		require.NoError(t, err)
		return encode("CERTIFICATE", c.Raw), encode("PRIVATE KEY", der)
	}
	hubCert, hubKey := pub("hub")
	edgeCert, edgeKey := pub("edge")
	hub.config.Remotes = []rest.Remote{{
		Name:      "edges",
		Gateway:   "any",
		Auth:      "pubkey",
		LocalCert: hubCert,
		LocalKey:  hubKey,
		CA:        encode("CERTIFICATE", ca.Raw),
		LocalID:   "CN=hub",
		Connections: []rest.Connection{
			{
				Name:           "a",
				Type:           "tunnel",
				Mode:           "start",
				LocalSubnet:    "10.1.0.0/24,192.0.2.1/32",
				RemoteSourceIP: "172.16.0.5-172.16.0.6",
			},
		},
	}}
	edge.config.Remotes = []rest.Remote{{
		Name:      "hub",
		Gateway:   "192.0.2.1",
		Auth:      "pubkey",
		LocalCert: edgeCert,
		LocalKey:  edgeKey,
		CA:        encode("CERTIFICATE", ca.Raw),
		RemoteID:  "CN=hub",
		Connections: []rest.Connection{
			{
				Name:          "a",
				Type:          "tunnel",
				Mode:          "start",
				LocalSourceIP: "%config",
				RemoteSubnet:  "10.1.0.0/24,192.0.2.1/32",
			},
		},
	}}
	hub.sync()
	edge.sync()
	edge.up()
	hub.up()
	require.Equal(t, []string{"172.16.0.5"}, edge.remote("hub").Virtual)
	require.Equal(t, []string{"172.16.0.5"}, hub.remote("edges").Leases)
	edge.private(edge.ns, "10.1.0.2", true)  // from the virtual address
	edge.private(edge.ns, "192.0.2.1", true) // the hub itself, through the tunnel to the hub
	hub.private(hub.app, "172.16.0.5", true)
	edge.private(edge.app, "10.1.0.2", false) // not from an address that the tunnel is not for
	require.Empty(t, edge.sync(), "a second sync has nothing to do")

	// Unless its source is translated to the virtual address, in the zone of the WAN, which also
	// masquerades.
	edge.world.Interfaces = []Interface{{Name: "wan", Device: "wan", Up: true}, {Name: "lan", Device: "lan", Up: true}}
	edge.world.Routes = []MainRoute{{Dst: netip.MustParsePrefix("192.0.2.0/24"), Device: "wan"}}
	edge.config.Zones = []rest.Zone{{Name: "wan", Network: []string{"wan"}, Masq: "1", Input: "REJECT"}}
	edge.config.Redirects = []rest.Redirect{
		{
			Name:   "virtual",
			Target: "SNAT",
			Dest:   "wan",
			SrcIP:  "10.2.0.0/24",
			SrcDIP: "172.16.0.5",
			DestIP: "10.1.0.0/24",
			Proto:  "all",
		},
	}
	require.NotEmpty(t, edge.sync())
	edge.private(edge.app, "10.1.0.2", true)

	// A certificate of another authority.
	other, otherKey := certificate(t, "ca", nil, nil)
	c, k := certificate(t, "edge", other, otherKey)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	edge.config.Remotes[0].LocalCert = encode("CERTIFICATE", c.Raw)
	edge.config.Remotes[0].LocalKey = encode("PRIVATE KEY", der)
	edge.sync()
	edge.private(edge.ns, "10.1.0.2", false)
	require.Eventually(t, func() bool { return edge.remote("hub").Message != "" && hub.remote("edges").Message != "" },
		20*time.Second, 100*time.Millisecond)
	require.Contains(t, edge.remote("hub").Message, "the other end does not accept the certificate of this end")
	require.Contains(t, hub.remote("edges").Message, "this end does not accept the certificate of the other end")
	require.False(t, edge.remote("hub").Children[0].Up)

	// A certificate of an authority with a name that the hub does not know.
	unknown, unknownKey := certificate(t, "elsewhere", nil, nil)
	c, k = certificate(t, "other", unknown, unknownKey)
	der, err = x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	edge.config.Remotes[0].LocalCert = encode("CERTIFICATE", c.Raw)
	edge.config.Remotes[0].LocalKey = encode("PRIVATE KEY", der)
	hub.config.Remotes[0].Gateway = "%any" // the same, but it is loaded anew and so has no message yet
	edge.sync()
	require.Eventually(t, func() bool {
		return strings.Contains(edge.remote("hub").Message, "the other end does not accept the certificate") &&
			strings.Contains(hub.remote("edges").Message, "this end does not accept the certificate")
	}, 20*time.Second, 100*time.Millisecond)
}

// Packets of all sizes pass, also over a WAN with a smaller MTU, whether or not the firewall limits
// the segments of TCP.
func TestIPsecLargePackets(t *testing.T) {
	hub, edge := sites(t)
	pair(hub, edge)
	hub.sync()
	edge.sync()
	edge.up()
	there := nstest.Host{NS: hub.app, IP: "10.1.0.2"}
	here := nstest.Host{NS: edge.app, IP: "10.2.0.2"}
	seen := edge.ns.Watch("wan")
	setMTU := func(mtu int) {
		for _, s := range []*site{hub, edge} {
			s.ns.Run(fmt.Sprintf("ip link set wan mtu %d", mtu))
			s.ns.Run("ip route flush cache") // what was learned of a path is kept for ten minutes
			s.app.Run("ip route flush cache")
		}
	}
	// the tunnel's own 1400 bytes fit; with ESP they just fit; they do not
	for _, mtu := range []int{1500, 1465, 1300} {
		setMTU(mtu)
		transfer(t, here, there)
		transfer(t, there, here)
	}
	setMTU(1500)
	for _, s := range []*site{hub, edge} {
		s.world.Interfaces = []Interface{{Name: "wan", Device: "wan", Up: true}, {Name: "lan", Device: "lan", Up: true}}
		s.world.Routes = []MainRoute{{Dst: netip.MustParsePrefix("192.0.2.0/24"), Device: "wan"}}
		s.config.Zones = []rest.Zone{{Name: "wan", Network: []string{"wan"}, MTUFix: "1"}}
		s.sync()
	}
	nstest.Reach(t, here, there, tunnelMTU)
	nstest.Reach(t, there, here, tunnelMTU)
	require.False(t, seen().Marker, "packets leave in clear beside the tunnel")
}

// transfer sends some megabytes by TCP, which must all arrive.
func transfer(t testing.TB, from, to nstest.Host) {
	t.Helper()
	const size = 4 << 20
	sent := bytes.Repeat([]byte(nstest.Marker), size/len(nstest.Marker))
	var l net.Listener
	var c net.Conn
	var err error
	to.NS.Do(func() { l, err = net.Listen("tcp4", to.IP+":0") })
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	got := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- nil
			return
		}
		b, _ := io.ReadAll(c)
		_ = c.Close()
		got <- b
	}()
	from.NS.Do(func() { c, err = net.DialTimeout("tcp4", l.Addr().String(), 10*time.Second) })
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = c.Write(sent)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	select {
	case b := <-got:
		require.True(t, bytes.Equal(sent, b), "%d of %d bytes arrived", len(b), size)
	case <-time.After(time.Minute):
		t.Fatal("the transfer does not end")
	}
}

// Several connections of one remote are up at once; one for packets to everywhere does not cut the
// CNF off from its neighbours.
func TestIPsecChildren(t *testing.T) {
	hub, edge := sites(t)
	pair(hub, edge)
	hub.config.Remotes[0].Connections = append(hub.config.Remotes[0].Connections,
		rest.Connection{Name: "b", Type: "tunnel", Mode: "add", LocalSubnet: "0.0.0.0/0", RemoteSubnet: "10.22.0.0/24"})
	edge.config.Remotes[0].Connections = append(
		edge.config.Remotes[0].Connections,
		rest.Connection{
			Name:         "b",
			Type:         "tunnel",
			Mode:         "route",
			LocalSubnet:  "10.22.0.0/24",
			RemoteSubnet: "0.0.0.0/0",
		},
	)
	edge.ns.Run("ip addr add 10.22.0.1/24 dev lan")
	hub.sync()
	edge.sync()
	require.Eventually(t, func() bool { return edge.remote("hub").Children[0].Up }, 60*time.Second,
		100*time.Millisecond)
	_, _ = edge.ns.Try("ping -c1 -W1 -I 10.22.0.1 10.1.0.2")
	edge.up()
	edge.private(edge.ns, "-I 10.22.0.1 10.1.0.2", true)
	edge.private(edge.app, "10.1.0.2", true)
	edge.ns.Run("ping -c1 -W2 192.0.2.1") // not from 10.22.0.0/24
}

// certificate returns a certificate that an authority has issued, or, without one, an authority.
func certificate(
	t testing.TB,
	name string,
	ca *x509.Certificate,
	caKey crypto.Signer,
) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		BasicConstraintsValid: true,
		IsCA:                  ca == nil,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if ca == nil {
		ca = template
		caKey = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	require.NoError(t, err)
	c, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return c, key
}

func encode(block string, der []byte) string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: block, Bytes: der}))
}
