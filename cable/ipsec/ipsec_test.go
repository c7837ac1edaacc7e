package ipsec

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"gotest.tools/v3/golden"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/keys"
	"subctl/dataplane"
)

// The figures for AES-GCM are those of Linux: an XFRM interface on a path of 1500 bytes
// passes 1446, and 1438 in UDP.
func TestOverhead(t *testing.T) {
	for _, test := range []struct {
		name      string
		mtu       int
		proposals string
		encap     bool
		want      int
	}{
		{"GCM", 1500, "aes128gcm16-x25519", false, 54},
		{"GCM in UDP", 1500, "aes128gcm16-x25519", true, 62},
		{"GCM, a path that leaves two bytes over", 1498, "aes256gcm16-x25519", false, 56},
		{"ChaCha20", 1500, "chacha20poly1305-x25519", false, 54},
		{"CBC and SHA-256", 1500, "aes256-sha256-ecp256", false, 62},
		{"CBC and SHA-512 in UDP", 1500, "aes256-sha512-ecp256", true, 94},
		{"the costliest counts", 1500, "aes128gcm16-x25519, aes256-sha256-ecp256", false, 62},
		{"jumbo frames", 9000, "aes128gcm16-x25519", false, 54},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := overhead(test.mtu, test.proposals, test.encap)
			require.Equal(t, test.want, got)
			require.Equal(t, got+30, transportOverhead(test.mtu, test.proposals, test.encap))
		})
	}
}

func TestCheckProposals(t *testing.T) {
	for _, test := range []struct {
		text string
		p    protocol
		want string // empty: accepted
	}{
		{optIKE.Default, ike, ""},
		{optESP.Default, esp, ""},
		{"aes256-sha256-modp4096, chacha20poly1305-prfsha512-ecp521", ike, ""},
		{"aes256-sha256-prfsha256-x25519", ike, ""},
		{"aes128-sha256-ecp256", esp, ""},
		{"", ike, "it must begin with a cipher"},
		{"default", esp, "not \"default\""},
		{"3des-sha256-x25519", esp, "3des is weak and not accepted: use another cipher: aes128, aes128gcm16, "},
		{
			"aes128-sha1-x25519",
			esp,
			"sha1 is weak and not accepted: use another integrity check: sha256, sha384, sha512",
		},
		{"aes128gcm16-modp1024", esp, "modp1024 is weak and not accepted: use another Diffie-Hellman group: x25519, "},
		{"null-sha256-x25519", esp, "null is weak"},
		{"aes128-x25519", esp, "lacks an integrity check"},
		{"aes128gcm16-sha256-x25519", esp, "the cipher has its own integrity check: remove sha256"},
		{"aes128gcm16", esp, "lacks a Diffie-Hellman group"},
		{"aes256gcm16-x25519", ike, "lacks a pseudo-random function"},
		{"aes256gcm16-prfsha384-x25519", esp, "lacks a Diffie-Hellman group"},
		{"aes128gcm16-x25519-esn", esp, "after the Diffie-Hellman group"},
		{"aes128gcm16-x25519,", esp, "it must begin with a cipher"},
		{"aes128gcm16-x25519\nconnections {", esp, "lacks a Diffie-Hellman group"},
		{"a,b,c,d,e,f,g,h,i", esp, "at most 8"},
	} {
		err := checkProposals(test.text, test.p)
		if test.want == "" {
			require.NoError(t, err, test.text)
			continue
		}
		require.ErrorContains(t, err, test.want, test.text)
	}
}

func testLocal(t *testing.T) cable.Local {
	t.Helper()
	return cable.Local{
		Gateway: cable.Gateway{
			Cluster: "east", Name: "cable-east", PrivateIP: netip.MustParseAddr("172.18.1.11"),
			Subnets: []netip.Prefix{netip.MustParsePrefix("10.101.0.0/16"), netip.MustParsePrefix("10.111.0.0/16")},
		},
		MTU: 1500, PodIP: netip.MustParseAddr("10.111.1.1"), IPsec: dataplane.Engine{Name: dataplane.EngineKernel},
		Keys: &keys.Ring{Cluster: "east", Private: private(t), PSK: []byte("0123456789abcdef")},
	}
}

func testPeer(t *testing.T) cable.Peer {
	t.Helper()
	return cable.Peer{
		Gateway: cable.Gateway{
			Cluster: "west", Name: "cable-west", PrivateIP: netip.MustParseAddr("172.18.2.11"),
			Subnets: []netip.Prefix{netip.MustParsePrefix("10.102.0.0/16"), netip.MustParsePrefix("10.112.0.0/16")},
			Config:  map[string]string{},
		},
		Address: netip.MustParseAddr("172.18.2.11"), PublicKey: private(t).Public(),
	}
}

func private(t *testing.T) keys.PrivateKey {
	t.Helper()
	k, err := keys.Generate()
	require.NoError(t, err)
	return k
}

// The plans, as a person would type them.
func TestPlan(t *testing.T) {
	for name, d := range map[string]cable.Driver{"ipsec": Driver{}, "vxlan+ipsec": Combined{}} {
		t.Run(name, func(t *testing.T) {
			w, err := d.Plan(testLocal(t), []cable.Peer{testPeer(t)})
			require.NoError(t, err)
			golden.Assert(t, w.State.String(), name+".txt")
			require.Len(t, w.Links, 1)
			require.Equal(t, d.Device(nil), w.Links[0].StateDevice)
			require.Contains(t, w.State, dataplane.Tunnel{Name: w.Links[0].State}.Key())
			none, err := d.Plan(testLocal(t), nil)
			require.NoError(t, err)
			require.Empty(t, none.State, "without peers there is no daemon")
		})
	}
}

// Who begins, what is encapsulated, and where the other end is looked for.
func TestTunnel(t *testing.T) {
	for _, test := range []struct {
		name       string
		change     func(*cable.Local, *cable.Peer)
		initiative dataplane.Initiative
		encap      bool
		remote     bool
	}{
		{"the lower name begins", func(*cable.Local, *cable.Peer) {}, dataplane.InitiateFirst, false, true},
		{
			"the higher name waits",
			func(l *cable.Local, _ *cable.Peer) { l.Name = "x" },
			dataplane.InitiateSecond,
			false,
			true,
		},
		{"the one behind a translation begins", func(l *cable.Local, _ *cable.Peer) {
			l.Name = "x"
			l.NAT = true
		}, dataplane.InitiateFirst, true, true},
		{
			"the other is behind a translation",
			func(_ *cable.Local, p *cable.Peer) { p.NAT = true },
			dataplane.InitiateSecond,
			true,
			true,
		},
		{"the other cannot be reached", func(_ *cable.Local, p *cable.Peer) {
			p.NAT = true
			p.InboundOnly = true
		}, dataplane.InitiateNever, true, false},
		{"the server waits", server(true, false), dataplane.InitiateSecond, false, true},
		{
			"the other one begins",
			func(l *cable.Local, p *cable.Peer) { l.Name = "x"; server(false, true)(l, p) },
			dataplane.InitiateFirst,
			false,
			true,
		},
		{"two servers: the lower name begins", server(true, true), dataplane.InitiateFirst, false, true},
		{
			"two servers: the higher name waits",
			func(l *cable.Local, p *cable.Peer) { l.Name = "x"; server(true, true)(l, p) },
			dataplane.InitiateSecond,
			false,
			true,
		},
		{
			"a server behind a translation waits",
			func(l *cable.Local, p *cable.Peer) { l.NAT = true; server(true, false)(l, p) },
			dataplane.InitiateSecond,
			true,
			true,
		},
		{"a server that cannot be reached begins", func(l *cable.Local, p *cable.Peer) {
			p.NAT = true
			p.InboundOnly = true
			server(false, true)(l, p)
		}, dataplane.InitiateNever, true, false},
		{
			"what is not true is no server",
			func(_ *cable.Local, p *cable.Peer) { p.Gateway.Config["preferred-server"] = "yes" },
			dataplane.InitiateFirst,
			false,
			true,
		},
		{
			"userspace",
			func(l *cable.Local, _ *cable.Peer) { l.IPsec.Name = "kernel-libipsec" },
			dataplane.InitiateFirst,
			true,
			true,
		},
		{
			"the other's userspace",
			func(_ *cable.Local, p *cable.Peer) { p.Gateway.Config[encapKey] = "yes" },
			dataplane.InitiateFirst,
			true,
			true,
		},
		{
			"asked for",
			func(_ *cable.Local, p *cable.Peer) { p.Config = cable.Config{"encapsulation": "yes"} },
			dataplane.InitiateFirst,
			true,
			true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := testLocal(t)
			p := testPeer(t)
			test.change(&l, &p)
			require.Equal(t, test.encap, encapsulated(l, p))
			got, err := tunnel(l, p)
			require.NoError(t, err)
			require.Equal(t, test.initiative, got.Initiative)
			require.Equal(t, test.remote, got.Remote.IsValid())
			require.NotZero(t, got.PSK)
		})
	}
}

// server has this gateway, and the peer, be preferred servers.
func server(own, other bool) func(*cable.Local, *cable.Peer) {
	return func(l *cable.Local, p *cable.Peer) {
		if own {
			l.Settings = map[string]cable.Config{cable.IPsec: {"preferredServer": "true"}}
		}
		if other {
			p.Gateway.Config["preferred-server"] = "true"
		}
	}
}

// Whatever is said at either end, they never both wait for ever, and one begins at once.
func TestOneEndBegins(t *testing.T) {
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		for bits := range 16 {
			flag := func(i int) bool { return bits>>i&1 == 1 }
			l := testLocal(t)
			p := testPeer(t)
			l.Name = names[0]
			p.Name = names[1]
			l.NAT = flag(0)
			p.NAT = flag(1)
			server(flag(2), flag(3))(&l, &p)
			other := testLocal(t)
			back := testPeer(t)
			other.Name = names[1]
			back.Name = names[0]
			other.NAT = flag(1)
			back.NAT = flag(0)
			server(flag(3), flag(2))(&other, &back)
			require.ElementsMatch(t, []dataplane.Initiative{dataplane.InitiateFirst, dataplane.InitiateSecond},
				[]dataplane.Initiative{initiative(l, p), initiative(other, back)}, "%v %04b", names, bits)
		}
	}
}

func TestAdvertise(t *testing.T) {
	l := testLocal(t)
	config, err := Driver{}.Advertise(l)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"udp-port": "4500"}, config)
	settings, err := Driver{}.SettingsOf(
		v1alpha1.SubmarinerSpec{CeIPSecPreferredServer: true, CeIPSecNATTPort: 4600, CeIPSecForceUDPEncaps: true})
	require.NoError(t, err)
	l.Settings = map[string]cable.Config{cable.IPsec: settings, cable.VXLANIPsec: settings}
	config, err = Driver{}.Advertise(l)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"udp-port": "4600", "ipsec-encapsulation": "yes", "preferred-server": "true"},
		config)
}

func TestRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*cable.Local, *cable.Peer)
		want   string // of Driver and Combined; empty: Driver accepts
		nat    string // of Combined alone
	}{
		{"fine", func(*cable.Local, *cable.Peer) {}, "", ""},
		{
			"no cluster key",
			func(_ *cable.Local, p *cable.Peer) { p.PublicKey = keys.PublicKey{} },
			"run subctl join there again",
			"",
		},
		{
			"our own key",
			func(l *cable.Local, p *cable.Peer) { p.PublicKey = l.Keys.Private.Public() },
			"same public key",
			"",
		},
		{"our own name", func(l *cable.Local, p *cable.Peer) { p.Name = l.Name }, "own cable name", ""},
		{"a wildcard", func(_ *cable.Local, p *cable.Peer) { p.Name = "*" }, "is not a valid IKE identity", ""},
		{"any", func(_ *cable.Local, p *cable.Peer) { p.Name = "%any" }, "is not a valid IKE identity", ""},
		{"an address", func(_ *cable.Local, p *cable.Peer) { p.Name = "10.0.0.1" }, "is not a valid IKE identity", ""},
		{
			"a distinguished name",
			func(_ *cable.Local, p *cable.Peer) { p.Name = "CN=x" },
			"is not a valid IKE identity",
			"",
		},
		{
			"no port",
			func(_ *cable.Local, p *cable.Peer) { p.Gateway.Config["udp-port"] = "99999" },
			"is not a UDP port",
			"",
		},
		{
			"the other's translation",
			func(_ *cable.Local, p *cable.Peer) { p.NATed = true },
			"",
			"cluster west is behind NAT",
		},
		{"our translation", func(l *cable.Local, _ *cable.Peer) { l.NAT = true }, "", "this cluster is behind NAT"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := testLocal(t)
			p := testPeer(t)
			test.change(&l, &p)
			for d, want := range map[cable.Driver]string{Driver{}: test.want, Combined{}: test.want + test.nat} {
				if err := d.Refuses(l, p); want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, want)
				}
			}
		})
	}
}

// A node without IPsec says what is missing, and one without it in the kernel cannot
// have transport mode.
func TestLacks(t *testing.T) {
	l := testLocal(t)
	require.NoError(t, Driver{}.Lacks(l))
	require.NoError(t, Combined{}.Lacks(l))
	l.IPsec.Name = "kernel-libipsec"
	require.NoError(t, Driver{}.Lacks(l))
	require.ErrorContains(t, Combined{}.Lacks(l), "transport mode")
	l.IPsec = dataplane.Engine{Missing: "strongSwan is missing from the image"}
	require.ErrorContains(t, Driver{}.Lacks(l), "strongSwan is missing from the image")
	l = testLocal(t)
	l.Keys.Private = keys.PrivateKey{}
	require.ErrorContains(t, Driver{}.Lacks(l), "subctl join again")
}

// In userspace ESP, each network of ours has an address of the node.
func TestUserspaceAddresses(t *testing.T) {
	l := testLocal(t)
	l.IPsec.Name = "kernel-libipsec"
	w, err := Driver{}.Plan(l, []cable.Peer{testPeer(t)})
	require.NoError(t, err)
	require.Contains(t, w.State,
		dataplane.Addr{Dev: dataplane.IPsecDevice, Prefix: netip.MustParsePrefix("10.101.0.0/32")}.Key())
	require.NotContains(t, w.State,
		dataplane.Addr{Dev: dataplane.IPsecDevice, Prefix: netip.MustParsePrefix("10.111.0.0/32")}.Key(),
		"the node has one")
	require.Len(t, w.Listens, 1, "no ESP but in UDP")
	require.Equal(t, 100, Driver{}.Overhead(l, testPeer(t)))
	narrow := testPeer(t)
	narrow.MTU = 1400
	require.Equal(t, 62, Driver{}.Overhead(l, narrow))
}
