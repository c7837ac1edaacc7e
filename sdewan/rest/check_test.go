package rest

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every check: an object in JSON, and the code and the text of the refusal; "" if it is accepted.
func TestCheck(t *testing.T) {
	for _, test := range []struct {
		l      *Collection
		object string
		code   int
		want   string
	}{
		{
			Policies,
			`{"name":"balanced","members":[{"interface":"net1","metric":"2","weight":"2"},{"interface":"net2","metric":" 3 ","weight":"3"}]}`,
			0,
			"",
		},
		{Policies, `{"name":"","members":null}`, 400, "name: required; members: required: name at least one interface"},
		{
			Policies,
			`{"name":"a/b","members":[{"interface":"a","metric":"0","weight":"x"},{"interface":"a","metric":"1"}]}`,
			400,
			`name: "a/b" cannot be a part of a URL: use letters, digits, '-', '_' and '.'; members[0].metric: "0" is not an integer from 1 to 256; ` +
				`members[0].weight: "x" is not an integer from 1 to 1000; members[1].weight: required; members[1].interface: same interface "a" is used in different members`,
		},
		{
			Rules,
			`{"name":"http_rule","policy":"balanced","src_ip":"192.168.1.2","dest_ip":"0.0.0.0/0","dest_port":"80","proto":"tcp","family":"","sticky":"1","timeout":"600"}`,
			0,
			"",
		},
		{Rules, `{"name":"x","policy":"p","dest_port":"80,443,1000-2000","family":"any"}`, 0, ""},
		{
			Rules,
			`{"name":"x","src_ip":"192.168.1","src_port":"0","dest_ip":"::1","dest_port":"70000","proto":"esp","family":"v4","sticky":"yes","timeout":"-1"}`,
			400,
			`policy: required; src_ip: "192.168.1" is neither an IPv4 address nor a network such as 192.0.2.0/24; ` +
				`src_port: "0" is not a port from 1 to 65535, a range such as 1000-2000, or a list of up to 15 of them separated by commas; ` +
				`dest_ip: "::1" is neither an IPv4 address nor a network such as 192.0.2.0/24; dest_port: "70000" is not a port from 1 to 65535, a range such as 1000-2000, or a list of up to 15 of them separated by commas; ` +
				`proto: "esp" is not one of tcp, udp, icmp, all; family: "v4" is not one of ipv4, ipv6, any, all; sticky: "yes" is not one of 0, 1; timeout: "-1" is not an integer from 1 to 86400`,
		},
		{
			Zones,
			`{"name":"a-zone-with-a-long-name","network":["net1"],"masq":"1","masq_src":["!192.168.0.0/16"],"input":"REJECT","forward":"DROP","output":"ACCEPT"}`,
			0,
			"",
		},
		{
			Zones,
			`{"name":"z","network":[" "],"masq":"2","masq_dest":["!x"],"subnet":["10.0.0.0/33"],"input":"accept"}`,
			400,
			`network: required; masq: "2" is not one of 0, 1; masq_dest: "x" is neither an IPv4 address nor a network such as 192.0.2.0/24; ` +
				`subnet: "10.0.0.0/33" is neither an IPv4 address nor a network such as 192.0.2.0/24; input: "accept" is not one of ACCEPT, REJECT, DROP`,
		},
		{Forwardings, `{"name":"f","src":"lan"}`, 400, "dest: required"},
		{
			FirewallRules,
			`{"name":"reject_80","src":"lan1","src_ip":"192.168.1.2","src_port":"80","proto":"tcp","target":"REJECT","src_mac":"02:00:5e:00:53:01","mark":"!0x10/0xff","icmp_type":["echo-request","3/1","8","any"]}`,
			0,
			"",
		},
		{
			FirewallRules,
			`{"name":"m","target":"MARK","src_mac":"2:0","mark":"!x","icmp_type":["pings"],"proto":"TCP"}`,
			400,
			`src_mac: "2:0" is not a MAC address such as 02:00:00:00:00:01; proto: "TCP" is not one of tcp, udp, tcpudp, udplite, icmp, esp, ah, sctp, all; icmp_type: "pings" is neither a number such as 8 or 3/1, nor one of any, `,
		},
		{FirewallRules, `{"name":"m","target":"MARK","set_mark":"7"}`, 0, ""},
		{FirewallRules, `{"name":"m","target":"MARK"}`, 400, "target: set_mark or set_xmark is required for MARK"},
		{
			Redirects,
			`{"name":"s","target":"SNAT"}`,
			400,
			"src_dip: src_dip is required for SNAT; dest: dest is required for SNAT",
		},
		{
			Redirects,
			`{"name":"s","target":"SNAT","dest":"wan","src_dip":"192.0.2.0/24","src_mac":"02:00:00:00:00:01"}`,
			400,
			`src_dip: "192.0.2.0/24" is not an IPv4 address; src_mac: it cannot be matched where sources are translated: remove it`,
		},
		{Redirects, `{"name":"d","target":"DNAT"}`, 400, "src: src is required for DNAT"},
		{
			Redirects,
			`{"name":"d","src":"wan1","src_dport":"19900","dest":"lan1","dest_ip":"192.168.1.1","dest_port":"22","proto":"tcp"}`,
			0,
			"",
		},
		{
			Redirects,
			`{"name":"d","src":"wan1","dest_port":"22,23"}`,
			400,
			`dest_port: "22,23" is not a port from 1 to 65535, or a range such as 1000-2000`,
		},
		{
			Proposals,
			`{"name":"p","encryption_algorithm":"aes128","hash_algorithm":"sha256","dh_group":"modp3072"}`,
			0,
			"",
		},
		{Proposals, `{"name":"p","encryption_algorithm":"aes256gcm16","dh_group":"x25519"}`, 0, ""},
		{
			Proposals, `{"name":"p","encryption_algorithm":"aes127","hash_algorithm":"sha256-","dh_group":"modp"}`, 400,
			`encryption_algorithm: "aes127" is not an algorithm of strongSwan: use aes256, aes256gcm16 or chacha20poly1305, for example; hash_algorithm: "sha256-" is not an algorithm of strongSwan: use sha256, sha384 or sha512, for example; ` +
				`dh_group: "modp" is not an algorithm of strongSwan: use modp3072, ecp256 or x25519, for example`,
		},
		{NetworkRules, `{"name":"n","target":"DROP"}`, 400, "src: required"},
		{NATs, `{"name":"n"}`, 400, "target: required"},
		{NATs, `{"name":"n","target":"DNAT"}`, 400, "dest_ip: dest_ip or dest_port is required for DNAT"},
		{
			NATs,
			`{"name":"n","target":"SNAT","index":"-1"}`,
			400,
			`index: "-1" is not an integer from 0 to 2147483648; src_dip: required; dest: required`,
		},
		{NATs, `{"name":"n","target":"MASQUERADE","dest":"#default"}`, 0, ""},
		{Routes, `{"name":"r","dst":"default","gw":"192.0.2.1","dev":"net1","table":"cnf"}`, 0, ""},
		{
			Routes,
			`{"name":"r","gw":"192.0.2.0/24","table":"main"}`,
			400,
			`dst: required; gw: "192.0.2.0/24" is not an IPv4 address; dev: required; table: "main" is not one of default, cnf`,
		},
		{RouteRules, `{"name":"r","src":"10.0.0.0/8","flag":true,"prio":"100","fwmark":"0xff","table":"40"}`, 0, ""},
		{
			RouteRules,
			`{"name":"r","prio":"x","fwmark":"0xg","table":"lan"}`,
			400,
			`prio: "x" is not an integer from 1 to 32765; fwmark: "0xg" is no mark such as 0x10 or 0x10/0xff; table: "lan" is not one of main, local, default, cnf`,
		},
		{
			RouteRules,
			`{"name":"r","prio":"32766","fwmark":"0"}`,
			400,
			`prio: "32766" is not an integer from 1 to 32765; fwmark: "0" matches every packet: use a mark that is not 0, or leave it out`,
		},
		{Applications, `{"name":"a","iplist":"192.0.2.1, 192.0.2.7"}`, 0, ""},
		{Applications, `{"name":"a","iplist":"192.0.2.1,"}`, 0, ""},
		{
			Applications,
			`{"name":"a","iplist":"x"}`,
			400,
			`iplist: "x" is neither an IPv4 address nor a network such as 192.0.2.0/24`,
		},
		{Services, `{"name":"s","fullname":"web.default.svc.cluster.local","port":"2288","dport":"8080"}`, 0, ""},
		{
			Services,
			`{"name":"s","fullname":"web.default.svc.cluster.local","port":"70000","dport":"8080"}`,
			416,
			`port: "70000" is not an integer from 1 to 65535`,
		},
		{Services, `{"name":"s","fullname":"10.96.0.10","port":"80","dport":"80"}`, 0, ""},
		{
			Services,
			`{"name":"s","fullname":"10.96.0.300","port":"80","dport":"80"}`,
			400,
			`fullname: "10.96.0.300" is not a DNS name such as web.default.svc.cluster.local`,
		},
		{
			Services,
			`{"name":"s","fullname":"a b","port":"70000"}`,
			400,
			`fullname: "a b" is not a DNS name such as web.default.svc.cluster.local; dport: required; port: "70000" is not an integer from 1 to 65535`,
		},
		{
			Services,
			"{\"name\":\"s\",\"fullname\":\"a\",\"port\":\"1\",\"dport\":\"2\\u0000\"}",
			400,
			`dport: it contains a control character: remove it; dport: "2\x00" is not an integer from 1 to 65535`,
		},
	} {
		o := test.l.New()
		require.NoError(t, json.Unmarshal([]byte(test.object), o), test.object)
		before, err := json.Marshal(o)
		require.NoError(t, err)
		err = test.l.Check(o)
		after, _ := json.Marshal(o)
		require.Equal(t, string(before), string(after), "the check changes the object")
		if test.want == "" {
			require.NoError(t, err, "%s %s", test.l, test.object)
			continue
		}
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal, "%s %s", test.l, test.object)
		require.Equal(t, test.code, refusal.Code, err.Error())
		require.True(t, strings.HasPrefix(err.Error(), test.want), "%s\nis not\n%s", err, test.want)
	}
}

// What an object refers to must exist, and what is referred to cannot be deleted.
func TestReferences(t *testing.T) {
	var c Config
	d := &Devices{Names: []string{"net1", "vti_1"}, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	check := func(l *Collection, o Object, code int, want string) {
		t.Helper()
		err := c.CheckReferences(l, o, d)
		if want == "" {
			require.NoError(t, err)
			c.Put(l, o)
			return
		}
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, code, refusal.Code)
		require.Equal(t, want, err.Error())
	}
	check(Rules, &Rule{Name: "r", Policy: "p"}, 400, `policy: policy "p" is not defined: create it first`)
	check(Rules, &Rule{Name: "r", Policy: "blackhole"}, 0, "")
	check(Policies, &Policy{Name: "p", Members: []Member{{Interface: "net2"}}}, 400,
		`members[0].interface: interface "net2" is not defined: the CNF has net1, vti_1`)
	check(Policies, &Policy{Name: "p", Members: []Member{{Interface: "net1"}}}, 0, "")
	check(Rules, &Rule{Name: "r", Policy: " p"}, 0, "")
	check(Zones, &Zone{Name: "lan", Network: []string{"net9"}}, 400,
		`network: interface "net9" is not defined: the CNF has net1, vti_1`)
	check(Zones, &Zone{Name: "lan", Network: []string{"net1"}}, 0, "")
	check(Forwardings, &Forwarding{Name: "f", Src: "lan", Dest: "wan"}, 400,
		`dest: zone "wan" is not defined: create it first`)
	check(FirewallRules, &FirewallRule{Name: "f", Src: "*", Dest: "lan"}, 0, "")
	check(Redirects, &Redirect{Name: "d", Src: "lan"}, 0, "")
	check(Remotes,
		&Remote{Name: "hub", Proposals: []string{"a"}, Connections: []Connection{{Proposals: []string{"b"}}}}, 428,
		`crypto_proposal: proposal "a" is not defined: create it first; connections[0].crypto_proposal: proposal "b" is not defined: create it first`)
	check(Proposals, &Proposal{Name: "a"}, 0, "")
	check(Remotes, &Remote{Name: "hub", Connections: []Connection{{Proposals: []string{"a"}}}}, 0, "")
	check(NetworkRules, &FirewallRule{Name: "n", Src: "lan"}, 428,
		`src: interface "lan" is not defined: the CNF has net1, vti_1`)
	check(NetworkRules, &FirewallRule{Name: "n", Src: "#192.0.2.1"}, 0, "")
	check(Routes, &Route{Name: "r", Dev: "#default"}, 428,
		`dev: interface "#default" is not defined: the CNF has net1, vti_1`)
	check(NATs, &NAT{Name: "n", Dest: "#source", SrcDIP: "192.0.2.2"}, 428,
		`dest: interface "#192.0.2.2" is not defined: the CNF has net1, vti_1`)
	check(NATs, &NAT{Name: "n", Dest: "#source", SrcDIP: "192.0.2.1"}, 0, "")
	require.NoError(t, c.CheckReferences(Routes, &Route{Dev: "x"}, nil))

	require.EqualError(t, c.CheckDelete(Policies, "p"), "policy p is used by mwan3/rules/r: delete what uses it first")
	require.EqualError(t, c.CheckDelete(Zones, "lan"),
		"zone lan is used by firewall/rules/f, firewall/redirects/d: delete what uses it first")
	require.EqualError(t, c.CheckDelete(Proposals, "a"),
		"proposal a is used by ipsec/remotes/hub: delete what uses it first")
	require.NoError(t, c.CheckDelete(Rules, "r"))
	require.True(t, c.Delete(Rules, "r"))
	require.NoError(t, c.CheckDelete(Policies, "p"))
}

// The same, with spaces around values, is what planners read.
func TestTrimmed(t *testing.T) {
	c := Config{
		Zones:   []Zone{{Name: " z", Network: []string{" a "}}},
		Remotes: []Remote{{Connections: []Connection{{Name: "c\t"}}}},
		Stopped: []string{"ipsec"},
	}
	got := c.Trimmed()
	require.Equal(
		t,
		Config{
			Zones:   []Zone{{Name: "z", Network: []string{"a"}}},
			Remotes: []Remote{{Connections: []Connection{{Name: "c"}}}},
			Stopped: []string{"ipsec"},
		},
		got,
	)
	require.Equal(t, []string{" a "}, c.Zones[0].Network)
	require.Equal(t, "c\t", c.Remotes[0].Connections[0].Name)
	require.Nil(t, got.Zones[0].Subnet)
}

func TestParsePool(t *testing.T) {
	for text, want := range map[string]string{
		"192.168.1.5-192.168.1.6": "192.168.1.5 192.168.1.6",
		"192.0.2.7":               "192.0.2.7 192.0.2.7",
		"192.0.2.77/30":           "192.0.2.77 192.0.2.78",
		"10.0.0.0/8":              "10.0.0.1 10.255.255.254",
		"192.0.2.6/31":            "192.0.2.6 192.0.2.7",
		"2001:db8::/126":          "2001:db8::1 2001:db8::2",
	} {
		p, err := ParsePool(text)
		require.NoError(t, err)
		require.Equal(t, want, p.First.String()+" "+p.Last.String(), text)
	}
	for _, text := range []string{
		"", "x", "192.0.2.6-192.0.2.5", "192.0.2.1-::2", "192.0.2.1-", "fe80::1%a-fe80::2%b",
	} {
		_, err := ParsePool(text)
		require.Error(t, err, text)
	}
}

// Hostile objects are refused or accepted, without a panic, and a refusal never has a secret.
func FuzzCheck(f *testing.F) {
	f.Add(uint8(0), `{"name":"p","members":[{}]}`)
	f.Add(uint8(7),
		`{"name":"p","authentication_method":"pubkey","local_public_cert":"LS0tLS1CRUdJTg==___x","connections":[{"name":"c","remote_sourceip":"10.0.0.0/8-"}]}`)
	f.Add(uint8(4), `{"icmp_type":["3/"],"mark":"!0x/"}`)
	f.Fuzz(func(t *testing.T, n uint8, body string) {
		l := Collections[int(n)%len(Collections)]
		o := l.New()
		if json.Unmarshal([]byte(body), o) != nil {
			return
		}
		if r, ok := o.(*Remote); ok {
			r.PreSharedKey = "sesame-open\x00"
		}
		err := l.Check(o)
		var refusal *Refusal
		require.True(t, err == nil || errors.As(err, &refusal))
		if err != nil {
			require.NotContains(t, err.Error(), "sesame")
		}
		c := Config{}
		_ = c.CheckReferences(l, o, &Devices{})
		c.Put(l, o)
		c.Put(l, Trimmed(o))
		for _, l := range Collections {
			_ = c.CheckDelete(l, o.GetName())
		}
	})
}
