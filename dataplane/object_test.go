package dataplane_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/internal/secret"

	"github.com/stretchr/testify/require"
)

// objects returns an object of every type, without zero fields.
func objects() []dataplane.Object {
	ip := netip.MustParseAddr("192.0.2.1")
	p := netip.MustParsePrefix("10.1.0.0/16")
	return []dataplane.Object{
		dataplane.Set{Name: "s", Members: []netip.Prefix{p}},
		dataplane.Chain{
			Table: "nat", Name: "c", Hook: "OUTPUT", Rules: []string{"-j DROP"}, Sets: []string{"s"}, Last: true,
		},
		dataplane.Ruleset{
			Family: "ip",
			Table:  "t",
			Sets: []dataplane.RuleSet{
				{
					Name: "s", Type: "ipv4_addr", Typeof: "ip saddr", Flags: "interval", Size: 1,
					Timeout: time.Second, Counter: true, Elements: []string{"10.1.0.0/16"},
				},
			},
			Chains: []dataplane.RuleChain{
				{
					Name:     "c",
					Type:     "filter",
					Hook:     "input",
					Priority: 1,
					Rules:    []dataplane.TextRule{{Text: "drop", Note: "n"}},
				},
			},
		},
		dataplane.VXLAN{
			Name:       "d",
			Dev:        "a",
			MAC:        "m",
			VNI:        1,
			Local:      ip,
			Port:       2,
			SourcePort: 4,
			MTU:        3,
			Conf:       dataplane.Conf{RPFilter: 2, Forwarding: 1, AcceptLocal: 1, ARPIgnore: 8},
		},
		dataplane.IKEDaemon{Port: 1, Debug: true, Unattended: true, IKEPort: 2, Device: "d", Mark: 4},
		dataplane.IPsecSA{Src: ip, Dst: ip, SPI: 1, ReqID: 2},
		dataplane.IPsecPolicy{Src: p, Dst: p, Port: 1, Dir: "out", IfID: 2, Index: 3, ReqID: 4},
		dataplane.IKERemains{},
		dataplane.StandInAddr{IP: ip},
		dataplane.IPsecInterface{
			Name: "i",
			MTU:  3,
			Conf: dataplane.Conf{RPFilter: 2, Forwarding: 1, AcceptLocal: 1, ARPIgnore: 8},
		},
		dataplane.WireGuard{
			Name:    "w",
			Private: dataplane.Secret{1},
			Port:    2,
			MTU:     3,
			Conf:    dataplane.Conf{RPFilter: 2, Forwarding: 1, AcceptLocal: 1, ARPIgnore: 8},
		},
		dataplane.WireGuardPeer{
			Dev:       "w",
			Public:    dataplane.PublicKey{1},
			Preshared: dataplane.Secret{2},
			Endpoint:  netip.AddrPortFrom(ip, 3),
			Allowed:   []netip.Prefix{p},
			Keepalive: 4,
		},
		dataplane.Addr{Dev: "d", Prefix: p},
		dataplane.Tunnel{
			Name:        "t",
			Local:       ip,
			Remote:      ip,
			LocalPort:   1,
			RemotePort:  2,
			LocalID:     "a",
			RemoteID:    "b",
			PSK:         dataplane.Secret{1},
			Mode:        "m",
			LocalTS:     []netip.Prefix{p},
			RemoteTS:    []netip.Prefix{p},
			Port:        3,
			ReqID:       4,
			IKE:         "i",
			ESP:         "e",
			IKELifetime: time.Hour,
			ESPLifetime: time.Minute,
			DPDDelay:    time.Second,
			Encap:       true,
			Initiative:  "first",
		},
		dataplane.IKERemote{
			Name:         "r",
			Gateway:      "g",
			LocalID:      "a",
			RemoteID:     "b",
			PSK:          []byte{1},
			Certificates: []string{"c"},
			Keys:         []secret.Bytes{{2}},
			Authorities:  []string{"d"},
			IKE: []string{
				"i",
			},
			VIPs:        []string{"v"},
			Pools:       []dataplane.Pool{{First: ip, Last: ip}},
			IKELifetime: time.Hour,
			ESPLifetime: time.Minute,
			DPDDelay:    time.Second,
			Children: []dataplane.IKEChild{
				{
					Name:     "c",
					Mode:     "m",
					LocalTS:  []netip.Prefix{p},
					RemoteTS: []netip.Prefix{p},
					ESP:      []string{"e"},
					Start:    "start",
				},
			},
		},
		dataplane.IPsecBlock{From: ip, Port: 1},
		dataplane.FDB{Dev: "d", MAC: "m", Dst: ip},
		dataplane.Neigh{Dev: "d", IP: ip, MAC: "m"},
		dataplane.Nexthop{ID: 1, Via: ip, Dev: "d"},
		dataplane.Group{ID: 1, Members: []dataplane.Member{{ID: 2, Weight: 3}}, Buckets: 8, Idle: time.Second},
		dataplane.Detour{Table: 1, Dst: p, Hop: 2, Src: ip, MTU: 3},
		dataplane.Blackhole{Table: 1, Dst: p},
		dataplane.Throw{Table: 1, Dst: p},
		dataplane.Route{Table: 1, Dst: p, Group: 2, Src: ip, MTU: 3},
		dataplane.Multipath{
			Table: 1,
			Dst:   p,
			Hops:  []dataplane.Hop{{Via: ip, Dev: "d", Weight: 2}, {Via: ip, Dev: "e", Weight: 3}},
			Src:   ip,
			MTU:   3,
		},
		dataplane.Arrival{Priority: 1, Dev: "d", Table: 2, Specific: true},
		dataplane.Rule{Priority: 1, Table: 2, Specific: true},
		dataplane.MarkRule{Priority: 1, Mark: 2, Mask: 3, Table: 2},
		dataplane.PolicyRule{Priority: 1, Not: true, Src: p, Dst: p, Mark: 2, Mask: 3, Table: 2, Action: "unreachable"},
	}
}

// every calls f for each settable value within v that has no parts, with its path.
func every(t *testing.T, path string, v reflect.Value, f func(path string, leaf reflect.Value)) {
	switch v.Type() {
	case reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.AddrPort](), reflect.TypeFor[netip.Prefix](),
		// values, whatever they are made of
		reflect.TypeFor[dataplane.Secret](), reflect.TypeFor[dataplane.PublicKey]():
		f(path, v)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if slices.Contains(outside, v.Type().Field(i).Name) {
				continue // not part of a plan
			}
			require.True(t, v.Type().Field(i).IsExported(), "%s has a field that no plan can set", path)
			every(t, path+"."+v.Type().Field(i).Name, v.Field(i), f)
		}
	case reflect.Slice:
		require.NotZero(t, v.Len(), "%s is empty in the test's example", path)
		for i := range v.Len() {
			every(t, fmt.Sprintf("%s[%d]", path, i), v.Index(i), f)
		}
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		require.False(t, v.IsZero(), "%s is zero in the test's example", path)
		f(path, v)
	default:
		require.Fail(t, "not plain data", "%s is a %v", path, v.Type())
	}
}

// outside are the fields that are not part of what a kernel holds: what was seen of a tunnel, what
// must be there before an entry, what happens to connections when a table is written, and what the
// text of a rule says, too.
var outside = []string{
	"Seen", "Salt", "Guard", "Odd", "Handle", "Direct", "Pods", "Ends", "Unfinished", "Remembers", "Inner",
}

// Objects are plain values: no pointers, maps, channels, functions or interfaces.
func TestObjectsArePlainData(t *testing.T) {
	kinds := map[dataplane.Kind]bool{}
	for _, o := range objects() {
		every(t, fmt.Sprintf("%T", o), reflect.ValueOf(o), func(string, reflect.Value) {})
		kinds[o.Key().Kind] = true
	}
	names := map[string]bool{}
	for k := dataplane.KindSet; k <= dataplane.KindRule; k++ {
		require.True(t, kinds[k], "%v has no example", k)
		require.NotEmpty(t, k.String(), "kind %d has no name", uint8(k))
		require.False(t, names[k.String()], "two kinds are called %v", k)
		names[k.String()] = true
	}
	require.Equal(t, "kind 15", (dataplane.KindRule + 1).String(), "a new kind is to be in the tests of this file")
}

// change changes the value of a leaf.
func change(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *netip.Addr:
		*x = x.Next()
	case *netip.AddrPort:
		*x = netip.AddrPortFrom(x.Addr(), x.Port()+1)
	case *dataplane.Secret:
		x[0]++
	case *dataplane.PublicKey:
		x[0]++
	case *netip.Prefix:
		*x = netip.PrefixFrom(x.Addr(), x.Bits()-1).Masked()
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Uint8, reflect.Uint16, reflect.Uint32:
			v.SetUint(v.Uint() + 1)
		default:
			v.SetInt(v.Int() + 1)
		}
	}
}

// Every field counts and shows: an object with any field changed is not Equal, and has another
// String. Otherwise a difference between plans could go unnoticed.
func TestEveryFieldShows(t *testing.T) {
	silent := map[string]bool{
		"dataplane.Chain.Sets[0]":           true, // the rules name them
		"dataplane.Ruleset.Sets[0].Type":    true, // Typeof has it
		"dataplane.Tunnel.PSK":              true, // secret
		"dataplane.IKERemote.PSK[0]":        true, // secret
		"dataplane.IKERemote.Keys[0][0]":    true, // secret
		"dataplane.WireGuard.Private":       true, // secret
		"dataplane.WireGuardPeer.Preshared": true,
	}
	for i, o := range objects() {
		leaves := 0
		every(t, fmt.Sprintf("%T", o), reflect.ValueOf(o), func(string, reflect.Value) { leaves++ })
		for n := range leaves {
			changed := reflect.New(reflect.TypeOf(o)).Elem()
			changed.Set(reflect.ValueOf(objects()[i])) // with slices of its own
			at := 0
			path := ""
			every(t, fmt.Sprintf("%T", o), changed, func(p string, leaf reflect.Value) {
				if at == n {
					path = p
					change(leaf)
				}
				at++
			})
			other := changed.Interface().(dataplane.Object)
			require.False(t, o.Equal(other), "%s does not count", path)
			if !silent[path] {
				require.NotEqual(t, o.String(), other.String(), "%s does not show", path)
			}
		}
	}
}

// Different types, or the same one under another key, are never Equal.
func TestEqualKeys(t *testing.T) {
	for i, a := range objects() {
		for j, b := range objects() {
			require.Equal(t, i == j, a.Equal(b), "%v\n%v", a, b)
		}
	}
}

// An object depends only on objects that are created before it.
func TestNeedsPointBack(t *testing.T) {
	for _, o := range objects() {
		for _, k := range o.Needs() {
			own := o.Key()
			require.True(t, k.Kind < own.Kind || k.Kind == own.Kind && k.Name < own.Name, "%v", o)
		}
	}
}
