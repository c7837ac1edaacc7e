package cnf

import (
	"crypto/x509"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/sdewan/rest"
)

// planned returns the plan of some remotes, as text, and its report.
func planned(t *testing.T, w World, proposals []rest.Proposal, remotes ...rest.Remote) (text, report string) {
	t.Helper()
	s, r := Plan(rest.Config{Proposals: proposals, Remotes: remotes}, w)
	var out []string
	for _, o := range s.Sorted() {
		out = append(out, o.String())
	}
	var lines []string
	for _, l := range r {
		lines = append(lines, l.Collection+"/"+l.Name+": "+l.Message)
	}
	return strings.Join(out, "\n"), strings.Join(lines, "\n")
}

func TestPlanIPsec(t *testing.T) {
	userspace := World{IPsec: dataplane.Engine{Name: "kernel-libipsec"}}
	kernel := World{IPsec: dataplane.Engine{Name: dataplane.EngineKernel}}
	psk := func(conns ...rest.Connection) rest.Remote {
		return rest.Remote{
			Name:         "hub",
			Gateway:      "192.0.2.1",
			Auth:         "psk",
			PreSharedKey: "sesame-open",
			Connections:  conns,
		}
	}
	tunnel := rest.Connection{
		Name:         "a",
		Type:         "tunnel",
		Mode:         "route",
		LocalSubnet:  " 10.2.0.7/24,192.0.2.2",
		RemoteSubnet: "10.1.0.0/24",
	}

	text, report := planned(
		t,
		userspace,
		[]rest.Proposal{{Name: "p", Encryption: "aes256gcm16", Hash: "sha384", DHGroup: "x25519"}},
		func() rest.Remote {
			r := psk(tunnel)
			r.Proposals = []string{"p"}
			r.Connections[0].Proposals = []string{"p"}
			return r
		}(),
	)
	require.Empty(t, report)
	require.Contains(t, text, "remote_addrs = 192.0.2.1\n  proposals = aes256gcm16-prfsha384-x25519, default\n")
	require.Contains(t, text, "remote.id = 192.0.2.1")
	require.Contains(t, text,
		"local_ts = 10.2.0.0/24, 192.0.2.2/32\n    remote_ts = 10.1.0.0/24\n    esp_proposals = aes256gcm16-x25519, default")
	require.Contains(t, text, "start_action = route")
	require.Contains(t, text, "secrets.ike.secret = (hidden)")
	require.NotContains(t, text, "sesame")
	require.Contains(t, text, "ip route replace 10.1.0.0/24 table 39 dev ipsec0\n")
	require.Contains(t, text, "ip route replace blackhole 10.1.0.0/24 table 39 metric")
	require.Contains(t, text, "ip rule add pref 95 not from all fwmark 0x40000000/0x40000000 lookup 39")

	// Without IPsec: nothing leaves in clear.
	text, report = planned(t, World{IPsec: dataplane.Engine{Missing: "charon"}}, nil, psk(tunnel))
	require.Equal(t, "ipsec/remotes/hub: the pod has no charon: what is for the networks of the tunnel is dropped",
		report)
	require.Contains(t, text, "ip route replace blackhole 10.1.0.0/24 table 39")
	require.NotContains(t, text, "swanctl")

	// Pools and virtual addresses.
	text, report = planned(
		t,
		kernel,
		nil,
		rest.Remote{Name: "edges", Gateway: "%any", Auth: "psk", PreSharedKey: "0x00ff", Connections: []rest.Connection{
			{
				Name:           "a",
				Type:           "tunnel",
				Mode:           "start",
				LocalNAT:       "10.1.0.0/24",
				LocalSubnet:    "10.9.0.0/24",
				RemoteSourceIP: "172.12.0.30-172.12.0.32",
			},
			{Name: "b", Type: "transport", Mode: "add"},
		}},
	)
	require.Empty(t, report)
	require.Contains(t, text, "remote_addrs = %any")
	require.Contains(t, text, "pools.addrs = 172.12.0.30-172.12.0.32")
	require.Contains(t, text, "local_ts = 10.1.0.0/24\n    remote_ts = dynamic")
	require.Contains(t, text, "start_action = add", "there is nobody to begin with")
	require.Contains(t, text, "blackhole 172.12.0.30/31")
	require.Contains(t, text, "blackhole 172.12.0.32/32")
	text, _ = planned(t, kernel, nil,
		psk(rest.Connection{Name: "a", Type: "tunnel", Mode: "start", LocalSourceIP: "%config"}))
	require.Contains(t, text, "vips = 0.0.0.0")
	require.Contains(t, text, "blackhole 192.0.2.1/32", "the other end itself, through the tunnel")

	// Mistakes concern one object or connection.
	for _, test := range []struct {
		name   string
		remote rest.Remote
		want   string
	}{
		{
			"everything without local networks",
			psk(rest.Connection{Name: "a", Type: "tunnel", Mode: "start", RemoteSubnet: "0.0.0.0/0"}),
			"connection a: remote_subnet 0.0.0.0/0 needs a local_subnet, the networks whose packets the tunnel takes",
		},
		{
			"nobody to send to",
			rest.Remote{
				Name:         "hub",
				Gateway:      "any",
				Auth:         "psk",
				PreSharedKey: "x",
				Connections:  []rest.Connection{{Name: "a", Type: "tunnel", Mode: "add"}},
			},
			"connection a: no packets are sent into the tunnel: remote_subnet, remote_sourceip or the address of the gateway is needed",
		},
		{
			"transport in userspace",
			psk(rest.Connection{Name: "a", Type: "transport", Mode: "start"}, tunnel),
			"connection a: transport needs a kernel with ESP: use conn_type tunnel",
		},
		{
			"IPv6",
			psk(rest.Connection{Name: "a", Type: "tunnel", Mode: "start", RemoteSubnet: "2001:db8::/32"}, tunnel),
			`connection a: remote_subnet: "2001:db8::/32" is neither an IPv4 address nor an IPv4 network`,
		},
		{
			"routes",
			func() rest.Remote { r := psk(tunnel); r.Type = "VTI-based"; return r }(),
			"type VTI-based has no effect: addresses select what passes through tunnels, which all have one device",
		},
		{
			"scripts",
			psk(func() rest.Connection { c := tunnel; c.LocalUpdown = "/etc/updown"; return c }()),
			"connection a: local_updown has no effect: this CNF runs no scripts, and all tunnels have one device",
		},
		{
			"a key",
			func() rest.Remote { r := psk(tunnel); r.PreSharedKey = "0xsesame"; return r }(),
			"pre_shared_key: after 0x there must be hexadecimal digits, and after 0s base64",
		},
		{
			"no proposal",
			func() rest.Remote { r := psk(tunnel); r.Proposals = []string{"nope"}; return r }(),
			`the proposal "nope" does not exist`,
		},
		{
			"certificates",
			func() rest.Remote {
				r := psk(tunnel)
				r.Auth = "pubkey"
				r.LocalCert = "x"
				return r
			}(),
			"local_public_cert: part 1 is not base64 of PEM; local_private_cert: required for the authentication method pubkey; shared_ca: required for the authentication method pubkey",
		},
	} {
		text, report := planned(t, userspace, nil, test.remote)
		require.Equal(t, "ipsec/remotes/hub: "+test.want, report, test.name)
		require.NotContains(t, text+report, "sesame")
		if strings.Contains(test.want, "pre_shared_key") {
			require.Contains(t, text, "blackhole 10.1.0.0/24", "packets leave in clear because of a mistake")
		}
	}
}

// A pre-shared key of no certain identity would let the other end pass for the other ends of all
// connections.
func TestHostileKeyOfAnybody(t *testing.T) {
	remote := func(name, id, key, subnet string) rest.Remote {
		return rest.Remote{
			Name: name, Gateway: "any", Auth: "psk", PreSharedKey: key, LocalID: "hub", RemoteID: id,
			Connections: []rest.Connection{{Name: "c", Type: "tunnel", Mode: "add", RemoteSubnet: subnet}},
		}
	}
	w := World{IPsec: dataplane.Engine{Name: dataplane.EngineKernel}}
	site := remote("site", "edge-a", "x", "10.1.0.0/24")
	other := remote("other", "edge-b", "y", "10.2.0.0/24")
	_, report := planned(t, w, nil, site, other)
	require.Empty(t, report)
	_, report = planned(t, w, nil, site, remote("guests", "", "x", "10.3.0.0/24"))
	require.Empty(t, report, "the same key proves the same")
	for _, gateway := range []string{"", "any", "%any", "0.0.0.0", "::"} {
		text, report := planned(
			t,
			w,
			nil,
			rest.Remote{
				Name:         "edges",
				Gateway:      gateway,
				Auth:         "psk",
				PreSharedKey: "one",
				Connections:  []rest.Connection{{Name: "c", Type: "tunnel", Mode: "start", RemoteSubnet: "10.0.0.0/8"}},
			},
			rest.Remote{
				Name:         "other",
				Gateway:      "192.0.2.1",
				Auth:         "psk",
				PreSharedKey: "two",
				Connections: []rest.Connection{
					{Name: "c", Type: "tunnel", Mode: "start", RemoteSubnet: "10.1.0.0/16"},
				},
			},
		)
		require.Contains(t, report, "ipsec/remotes/edges: without remote_identifier",
			"%q is any address", gateway)
		require.NotContains(t, text, "remote_addrs = 0.0.0.0")
	}
	for _, id := range []string{"", "%any", "*.example.org"} {
		text, report := planned(t, w, nil, site, remote("guests", id, "y", "10.3.0.0/24"))
		require.Contains(t, report, "ipsec/remotes/guests: without remote_identifier")
		require.Contains(t, report, "set remote_identifier")
		require.NotContains(t, report, "ipsec/remotes/site")
		require.Contains(t, text, "blackhole 10.3.0.0/24", "packets leave in clear because of a mistake")
	}
}

// The device of tunnels is in the zone of the device that carries them, for all but masquerading.
func TestTunnelsAndZones(t *testing.T) {
	w := World{
		IPsec:      dataplane.Engine{Name: dataplane.EngineKernel},
		Interfaces: []Interface{{Name: "net0", Device: "net0", Up: true}, {Name: "net1", Device: "net1", Up: true}},
		Routes: []MainRoute{
			{Dst: netip.MustParsePrefix("192.0.2.0/24"), Device: "net1"},
			{Dst: netip.MustParsePrefix("192.0.0.0/16"), Device: "net0"},
		},
	}
	c := rest.Config{
		Zones: []rest.Zone{
			{Name: "lan", Network: []string{"net0"}, Forward: "REJECT"},
			{Name: "wan", Network: []string{"net1"}, Masq: "1", Input: "REJECT"},
		},
		Forwardings: []rest.Forwarding{{Name: "out", Src: "lan", Dest: "wan"}},
		Redirects: []rest.Redirect{
			{
				Name:   "virtual",
				Target: "SNAT",
				Dest:   "wan",
				SrcIP:  "10.2.0.0/24",
				SrcDIP: "172.16.0.5",
				DestIP: "10.1.0.0/24",
				Proto:  "all",
			},
		},
		Remotes: []rest.Remote{
			{Name: "hub", Gateway: "192.0.2.1", Auth: "psk", PreSharedKey: "x", Connections: []rest.Connection{
				{
					Name:          "a",
					Type:          "tunnel",
					Mode:          "start",
					LocalSourceIP: "%config",
					RemoteSubnet:  "10.1.0.0/24",
					LocalFirewall: "yes",
				},
			}},
		},
	}
	rules := func() string {
		s, report := Plan(c, w)
		require.Empty(t, report)
		for _, o := range s {
			if r, ok := o.(dataplane.Ruleset); ok {
				return r.String()
			}
		}
		return ""
	}
	text := rules()
	require.Contains(t, text, `oifname { "net1", "ipsec0" } accept`,
		"the SNAT to a virtual address and the forwarding are for tunnels, too")
	require.Contains(t, text, `oifname "ipsec0" return`)
	require.Contains(t, text, `iifname "ipsec0" ip saddr 10.1.0.0/24 accept`)
	require.Contains(t, text, `oifname "ipsec0" ip daddr 10.1.0.0/24 accept`)
	snat := strings.Index(text, "snat ip to 172.16.0.5")
	masquerade := strings.Index(text, `oifname "ipsec0" return`)
	require.Less(t, snat, masquerade)
	require.Positive(t, snat)
	c.Remotes = nil
	require.NotContains(t, rules(), "ipsec0")
}

// A pool consists of the networks that cover it, and nothing else.
func TestPrefixes(t *testing.T) {
	for text, want := range map[string][]string{
		"192.168.1.5-192.168.1.6":         {"192.168.1.5/32", "192.168.1.6/32"},
		"10.0.0.0-10.0.0.255":             {"10.0.0.0/24"},
		"10.0.0.7-10.0.0.7":               {"10.0.0.7/32"},
		"0.0.0.0-255.255.255.255":         {"0.0.0.0/0"},
		"255.255.255.254-255.255.255.255": {"255.255.255.254/31"},
	} {
		first, last, _ := strings.Cut(text, "-")
		var got []string
		for _, p := range prefixes(dataplane.Pool{First: netip.MustParseAddr(first), Last: netip.MustParseAddr(last)}) {
			got = append(got, p.String())
		}
		require.Equal(t, want, got, text)
	}
}

// A connection with a mistake is not planned, and packets for its networks are dropped, as with any
// connection: they do not leave in clear.
func TestHostileConnections(t *testing.T) {
	w := World{IPsec: dataplane.Engine{Name: "kernel-libipsec"}}
	for name, c := range map[string]rest.Connection{
		"one network of IPv6": {RemoteSubnet: "10.1.0.0/24, 2001:db8::/32"},
		"a local network of IPv6": {
			RemoteSubnet: "10.1.0.0/24",
			LocalSubnet:  "10.2.0.0/24,2001:db8::/32",
		},
		"a virtual address that is a network":      {RemoteSubnet: "10.1.0.0/24", LocalSourceIP: "172.16.0.0/24"},
		"a virtual address that is unspecified":    {RemoteSubnet: "10.1.0.0/24", LocalSourceIP: "0.0.0.0"},
		"a pool of IPv6":                           {RemoteSubnet: "10.1.0.0/24", RemoteSourceIP: "2001:db8::/64"},
		"a virtual address that is not one, alone": {LocalSourceIP: "0.0.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			c.Name = "a"
			c.Type = "tunnel"
			c.Mode = "start"
			r := rest.Remote{
				Name:         "hub",
				Gateway:      "10.1.0.0",
				Auth:         "psk",
				PreSharedKey: "x",
				Connections:  []rest.Connection{c},
			}
			require.NoError(t, rest.Remotes.Check(&r), "the REST API accepts it")
			text, report := planned(t, w, nil, r)
			require.Contains(t, report, "connection a: ")
			require.Regexp(t, `ip route replace blackhole 10.1.0.0/(24|32) table 39`, text, report)
			require.NotContains(t, text, "dev ipsec0 ")
		})
	}
}

// Packets for the networks of connections that have just left are dropped, without a word, unless
// another tunnel takes them.
func TestConnectionsThatHaveLeft(t *testing.T) {
	remote := func(name, local, subnet string) rest.Remote {
		return rest.Remote{
			Name:         name,
			Gateway:      "192.0.2.1",
			Auth:         "psk",
			PreSharedKey: "x",
			Connections: []rest.Connection{
				{
					Name:          "a",
					Type:          "tunnel",
					Mode:          "start",
					LocalSubnet:   local,
					RemoteSubnet:  subnet,
					LocalFirewall: "yes",
				},
			},
		}
	}
	left := []rest.Remote{
		remote("hub", "10.2.0.0/24", "10.1.0.0/24"),
		remote("all", "10.3.0.0/24", "0.0.0.0/0"),
		remote("wrong", "", "10.4.0.0/16, 2001:db8::/32"),
		remote("none", "", "0.0.0.0/0"),
		{
			Name:    "pool",
			Gateway: "any",
			Connections: []rest.Connection{
				{Name: "a", Type: "tunnel", Mode: "add", RemoteSourceIP: "172.16.0.1-172.16.0.1"},
			},
		},
	}
	for i := range left {
		left[i].Auth = ""
		left[i].PreSharedKey = ""
	}
	w := World{IPsec: dataplane.Engine{Name: dataplane.EngineKernel}, Left: left}
	text, report := planned(t, w, nil)
	require.Empty(t, report)
	for _, want := range []string{
		"blackhole 10.1.0.0/24 table 39",
		"blackhole 10.4.0.0/16 table 39",
		"blackhole 172.16.0.1/32 table 39",
		"from 10.3.0.0/24",
		"blackhole 0.0.0.0/0 table 38",
		"not from all fwmark 0x40000000/0x40000000 lookup 39",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "ipsec0")
	require.NotContains(t, text, "nft", "the firewall does not know them")

	// Others are there. A larger network contains one that has left, which a blackhole must not cut
	// out of it.
	text, report = planned(t, w, nil, remote("hub", "10.2.0.0/24", "10.0.0.0/14"))
	require.Empty(t, report)
	require.NotContains(t, text, "blackhole 10.1.0.0/24")
	require.Contains(t, text, "10.0.0.0/14 table 39 dev ipsec0")
	require.Contains(t, text, "blackhole 10.4.0.0/16")

	state, _ := Plan(rest.Config{Stopped: []string{"ipsec"}}, w)
	alone, _ := Plan(rest.Config{Stopped: []string{"ipsec"}}, World{IPsec: w.IPsec})
	require.Equal(t, alone, state, "a stopped service ends it")
}

// A certificate that the other end cannot accept is a problem, although the tunnel is tried.
func TestCertificatesThatAreNotAccepted(t *testing.T) {
	ca, caKey := certificate(t, "ca", nil, nil)
	c, k := certificate(t, "edge", ca, caKey)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	r := rest.Remote{
		Name:        "hub",
		Gateway:     "192.0.2.1",
		Auth:        "pubkey",
		LocalCert:   encode("CERTIFICATE", c.Raw),
		LocalKey:    encode("PRIVATE KEY", der),
		CA:          encode("CERTIFICATE", ca.Raw),
		LocalID:     "CN=edge",
		Connections: []rest.Connection{{Name: "a", Type: "tunnel", Mode: "start", RemoteSubnet: "10.1.0.0/24"}},
	}
	w := World{IPsec: dataplane.Engine{Name: dataplane.EngineKernel}, Now: c.NotBefore.Add(time.Minute)}
	_, report := planned(t, w, nil, r)
	require.Empty(t, report)
	w.Now = c.NotAfter.Add(time.Second)
	text, report := planned(t, w, nil, r)
	require.Contains(t, report, `ipsec/remotes/hub: local_public_cert: certificate 1 ("CN=edge") has expired, at `)
	require.Contains(t, text, "remote_addrs = 192.0.2.1")
	w.Now = time.Time{}
	r.LocalID = "edge.test"
	_, report = planned(t, w, nil, r)
	require.Equal(t,
		`ipsec/remotes/hub: local_identifier: the certificate in local_public_cert does not contain "edge.test": specify its subject ("CN=edge") or one of its alternative names, or nothing`,
		report)
}
