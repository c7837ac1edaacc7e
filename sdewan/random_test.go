package sdewan_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kubetest"
	"subctl/sdewan"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// values are what fields of a type may have, good and bad; fields of other types have a value of
// any of them.
var values = map[string][]string{
	"ObjectName":  {"a", "b-1.c", "", "A", "a_b"},
	"ZoneName":    {"lan", "*", "", "wan1", "l an"},
	"NetworkName": {"ovn-net1", "ovn-net2", "pnetwork", "nowhere", "", "a b"},
	"Address": {
		"10.0.0.1",
		"10.0.0.0/8",
		"10.0.0.1/8",
		"",
		"10.0.0.0/33",
		"2001:db8::1",
		"10.0.0.1-10.0.0.2",
		"::ffff:10.0.0.1",
	},
	"Destination":    {"default", "10.0.0.0/8", "10.0.0.1", "", "::/0", "all"},
	"Device":         {"net1", "ovn-net1", "#default", "#10.0.0.1", "#source", "", "#", "a b", "vti_192.0.2.1"},
	"Priority":       {"1", "65535", "", "0", "first"},
	"RoutePriority":  {"1", "32765", "", "0", "32766"},
	"Index":          {"0", "1", "", "-1", "first"},
	"Table":          {"main", "cnf", "40", "", "0", "table"},
	"IP":             {"10.0.0.1", "", "10.0.0.0/8", "::1", "10.0.0"},
	"MaybeNot":       {"!10.0.0.0/8", "10.0.0.1", "!", "!!10.0.0.1", "! 10.0.0.1", ""},
	"MAC":            {"02:00:00:00:00:0A", "", "02-00-00-00-00-01", "02:00:00:00:00"},
	"Policy":         {"ACCEPT", "REJECT", "DROP", "", "accept"},
	"Proto":          {"tcp", "udp", "tcpudp", "icmp", "esp", "all", "", "6", "TCP"},
	"Family":         {"ipv4", "ipv6", "any", "", "all"},
	"Port":           {"1", "65535", "22", "", "0", "65536", "080", "1-2"},
	"Ports":          {"1", "80,443", "1000-2000", "1-2,7,9-65535", "", "0", "2-1", "1,", "65536", "1:2"},
	"Switch":         {"0", "1", "", "2", "on"},
	"Metric":         {"1", "256", "", "0", "257", "01"},
	"Percent":        {"1", "100", "", "0", "101"},
	"Milliseconds":   {"1", "60000", "", "0", "60001"},
	"Weight":         {"1", "1000", "", "0", "1001"},
	"Seconds":        {"1", "600", "86400", "", "0", "-1", "86401"},
	"Mark":           {"0", "16", "0x10", "0x10/0xff", "1/2", "", "0x", "099", "0x100000000", "4294967296", "!1"},
	"MarkMatch":      {"16", "!0x10/0xff", "!0", "", "!", "! 1", "!!1"},
	"ICMPType":       {"echo-request", "any", "host-redirect", "ttl-zero-during-transit", "", "nonsense"},
	"ConnectionName": {"a", "connection_A", "b.c-d", "", "a/b", "a b"},
	"Subnets":        {"10.0.0.0/8", "10.0.0.0/8, 192.0.2.1", "2001:db8::/32", "", ",", "10.0.0.0/8,", "xx/xx"},
	"SourceIPs":      {"%config", "10.0.0.1-10.0.0.9", "10.0.0.0/24", "10.0.0.1", "", "config", "10.0.0.1-", "-"},
	"Encryption":     {"aes256", "aes256gcm16", "3des", "nonsense"},
	"Hash":           {"sha256", "", "md5", "nonsense"},
	"DHGroup":        {"x25519", "modp3072", "", "nonsense"},
	"Auth":           {"psk", "pubkey", ""},
	"PreSharedKey":   {"secret", "a b", ""},
	"Remote":         {"192.0.2.1", "%any", "hub.example.com", "2001:db8::1", "", "1.2.3.4/%any"},
	"Mode":           {"start", "add", "route", ""},
	"Target":         {"ACCEPT", "MARK", "NOTRACK", "SNAT", "DNAT", "DROP", "", "nonsense"},
	"LocalFirewall":  {"yes", "", "no", "1"},
	"RemoteFirewall": {"", "no", "1"},
	"ConnType":       {"tunnel", "transport", "", "nonsense"},
	"FullName":       {"web.default.svc.cluster.local", "web.", "", "http://web"},
	"string":         {"", "tcp", "ipv4", "text", "nonsense ?"},
}

// random replaces fields of a value, each with a probability.
func random(r *rand.Rand, v reflect.Value, field string, probability float64) {
	switch v.Kind() {
	case reflect.String:
		list := values[v.Type().Name()]
		if own, ok := values[field]; ok && v.Type().Name() == "string" {
			list = own
		}
		if r.Float64() < probability {
			v.SetString(list[r.IntN(len(list))])
		}
	case reflect.Slice:
		if r.Float64() < probability {
			v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 3))
			probability = 0.9
		}
		for i := range v.Len() {
			random(r, v.Index(i), field, probability)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Name != "Newtork" {
				random(r, v.Field(i), f.Name, probability)
			}
		}
	}
}

// samples returns the rules of the proposal, and upstream's of kinds that the proposal has not.
func samples(t testing.TB) []sdewan.Rule {
	out := manifest(t, "seed.yaml")
	for _, r := range manifest(t, "upstream.yaml") {
		kind, _ := sdewan.KindOf(r)
		if !slices.ContainsFunc(out, func(o sdewan.Rule) bool {
			k, _ := sdewan.KindOf(o)
			return k.GVK.Kind == kind.GVK.Kind
		}) {
			out = append(out, r)
		}
	}
	return out
}

// randomRule returns a rule of the proposal with some other fields, or one of other fields only.
func randomRule(t testing.TB, r *rand.Rand, k sdewan.Kind, seed []sdewan.Rule) sdewan.Rule {
	rule := k.New()
	for _, sample := range seed {
		if sk, _ := sdewan.KindOf(sample); sk.GVK.Kind == k.GVK.Kind {
			b, err := json.Marshal(sample)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, rule))
		}
	}
	probability := []float64{0.1, 0.3, 0.9}[r.IntN(3)]
	random(r, reflect.ValueOf(rule).Elem().FieldByName("Spec"), "", probability)
	rule.SetName("x")
	rule.SetNamespace("default")
	rule.SetLabels(map[string]string{sdewan.PurposeLabel: "cnf"})
	return rule
}

// Render converts whatever it gets: the API server may have stored it with another schema.
func TestHostileRender(t *testing.T) {
	seed := samples(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		for _, k := range sdewan.Kinds() {
			rule := randomRule(t, r, k, seed)
			k.Uses(rule)
			o, err := render(k, rule)
			_ = sdewan.Check(rule)
			if err == nil {
				require.Equal(t, "x", o.GetName())
			}
		}
	}
}

// A CNF accepts every rule that the API server accepts. The checks of a CNF know certificates, and
// compare the ends of a range of addresses, which the schema cannot: the dependency webhook does
// (sdewan.Check).
func TestSchemaIsAsStrictAsCNF(t *testing.T) {
	s := kubetest.Shared(t)
	s.InstallSDEWAN(t)
	c := client.NewDryRunClient(s.Client(t))
	seed := samples(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, k := range sdewan.Kinds() {
		accepted := 0
		for range 100 {
			rule := randomRule(t, r, k, seed)
			if c.Create(t.Context(), rule) != nil {
				continue
			}
			accepted++
			o, err := render(k, rule)
			if err != nil {
				require.ErrorContains(t, err, "the CNF is not attached to network")
				continue
			}
			if err := k.Collection.Check(o); err != nil && !strings.Contains(err.Error(), "_cert") &&
				!strings.Contains(err.Error(), "shared_ca") {
				t.Errorf("%s: %v\n%+v", k.GVK.Kind, err, o)
			}
		}
		t.Logf("%s: %d of 100 accepted", k.Resource, accepted)
		require.NotZero(t, accepted, k.Resource)
	}
}
