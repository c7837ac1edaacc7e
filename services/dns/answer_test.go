package dns

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"

	"subctl/services"
)

// shop are a Service with an address and a StatefulSet with a headless Service, each of two
// clusters.
func shop() []any {
	return []any{
		newImport("web.shop", "10.96.0.1", "http/TCP/80", "alt/TCP/80", "dns/UDP/53"),
		newSlice("web.shop", "east", []string{"http/TCP/8080"}, "10.1.0.1"),
		newSlice("web.shop", "west", []string{"http/TCP/8080"}, "10.2.0.1!"),
		newImport("db.shop", "None", "sql/TCP/5432"),
		newSlice("db.shop", "east", []string{"sql/TCP/5432"}, "10.1.0.10=db-0", "10.1.0.11=db-1!", "10.1.0.12"),
		newSlice("db.shop", "west", []string{"sql/TCP/5432"}, "10.2.0.10=db-0"),
		newImport("idle.shop", "None", "sql/TCP/5432"),
		newSlice("idle.shop", "west", []string{"sql/TCP/5432"}, "10.2.0.20=idle-0!"),
	}
}

const negative = "authority: clusterset.local. 5 IN SOA ns.dns.clusterset.local. hostmaster.clusterset.local. 1 7200 1800 86400 5\n"

func TestAnswers(t *testing.T) {
	i := newIndex(false, shop()...)
	for question, want := range map[string]string{
		// A Service with an address.
		"A web.shop.svc.clusterset.local.":    "NOERROR aa\nweb.shop.svc.clusterset.local. 5 IN A 10.96.0.1\n",
		"AAAA web.shop.svc.clusterset.local.": "NOERROR aa\n" + negative,
		"TXT web.shop.svc.clusterset.local.":  "NOERROR aa\n" + negative,
		"SRV web.shop.svc.clusterset.local.": `NOERROR aa
web.shop.svc.clusterset.local. 5 IN SRV 0 100 80 web.shop.svc.clusterset.local.
web.shop.svc.clusterset.local. 5 IN SRV 0 100 53 web.shop.svc.clusterset.local.
additional: web.shop.svc.clusterset.local. 5 IN A 10.96.0.1
`,
		"SRV _http._tcp.web.shop.svc.clusterset.local.": `NOERROR aa
_http._tcp.web.shop.svc.clusterset.local. 5 IN SRV 0 100 80 web.shop.svc.clusterset.local.
additional: web.shop.svc.clusterset.local. 5 IN A 10.96.0.1
`,
		"A _http._tcp.web.shop.svc.clusterset.local.":      "NOERROR aa\n" + negative,
		"SRV _http._udp.web.shop.svc.clusterset.local.":    "NXDOMAIN aa\n" + negative,
		"SRV _tcp.web.shop.svc.clusterset.local.":          "NOERROR aa\n" + negative,
		"SRV _sctp.web.shop.svc.clusterset.local.":         "NXDOMAIN aa\n" + negative,
		"SRV _.._.web.shop.svc.clusterset.local.":          "NXDOMAIN aa\n" + negative,
		"A east.web.shop.svc.clusterset.local.":            "NXDOMAIN aa\n" + negative,
		"A 10-1-0-1.east.web.shop.svc.clusterset.local.":   "NXDOMAIN aa\n" + negative,
		"A x.10-1-0-1.east.web.shop.svc.clusterset.local.": "NXDOMAIN aa\n" + negative,

		// A headless Service: ready endpoints of both clusters.
		"A db.shop.svc.clusterset.local.": `NOERROR aa
db.shop.svc.clusterset.local. 5 IN A 10.1.0.10
db.shop.svc.clusterset.local. 5 IN A 10.1.0.12
db.shop.svc.clusterset.local. 5 IN A 10.2.0.10
`,
		"AAAA db.shop.svc.clusterset.local.": "NOERROR aa\n" + negative,
		"SRV _sql._tcp.db.shop.svc.clusterset.local.": `NOERROR aa
_sql._tcp.db.shop.svc.clusterset.local. 5 IN SRV 0 100 5432 db-0.east.db.shop.svc.clusterset.local.
_sql._tcp.db.shop.svc.clusterset.local. 5 IN SRV 0 100 5432 10-1-0-12.east.db.shop.svc.clusterset.local.
_sql._tcp.db.shop.svc.clusterset.local. 5 IN SRV 0 100 5432 db-0.west.db.shop.svc.clusterset.local.
additional: db-0.east.db.shop.svc.clusterset.local. 5 IN A 10.1.0.10
additional: 10-1-0-12.east.db.shop.svc.clusterset.local. 5 IN A 10.1.0.12
additional: db-0.west.db.shop.svc.clusterset.local. 5 IN A 10.2.0.10
`,
		"A db-0.west.db.shop.svc.clusterset.local.":      "NOERROR aa\ndb-0.west.db.shop.svc.clusterset.local. 5 IN A 10.2.0.10\n",
		"A 10-1-0-12.east.db.shop.svc.clusterset.local.": "NOERROR aa\n10-1-0-12.east.db.shop.svc.clusterset.local. 5 IN A 10.1.0.12\n",
		"AAAA db-0.west.db.shop.svc.clusterset.local.":   "NOERROR aa\n" + negative,
		"A db-1.east.db.shop.svc.clusterset.local.":      "NXDOMAIN aa\n" + negative, // not ready
		"A 10-1-0-10.east.db.shop.svc.clusterset.local.": "NXDOMAIN aa\n" + negative, // has a hostname
		"A db-0.north.db.shop.svc.clusterset.local.":     "NXDOMAIN aa\n" + negative,
		// Reserved, but names are below it.
		"A east.db.shop.svc.clusterset.local.":  "NOERROR aa\n" + negative,
		"A north.db.shop.svc.clusterset.local.": "NXDOMAIN aa\n" + negative,
		// No endpoint is ready.
		"A idle.shop.svc.clusterset.local.":             "NXDOMAIN aa\n" + negative,
		"AAAA idle.shop.svc.clusterset.local.":          "NXDOMAIN aa\n" + negative,
		"A idle-0.west.idle.shop.svc.clusterset.local.": "NXDOMAIN aa\n" + negative,
		"SRV _sql._tcp.idle.shop.svc.clusterset.local.": "NXDOMAIN aa\n" + negative,

		// The zone, and names that exist because others are below.
		"SOA clusterset.local.":              "NOERROR aa\nclusterset.local. 5 IN SOA ns.dns.clusterset.local. hostmaster.clusterset.local. 1 7200 1800 86400 5\n",
		"NS clusterset.local.":               "NOERROR aa\nclusterset.local. 5 IN NS ns.dns.clusterset.local.\n",
		"A clusterset.local.":                "NOERROR aa\n" + negative,
		"A ns.dns.clusterset.local.":         "NOERROR aa\n" + negative,
		"TXT dns-version.clusterset.local.":  "NOERROR aa\ndns-version.clusterset.local. 28800 IN TXT \"1.0.0\"\n",
		"A dns-version.clusterset.local.":    "NOERROR aa\n" + negative,
		"A svc.clusterset.local.":            "NOERROR aa\n" + negative,
		"A shop.svc.clusterset.local.":       "NOERROR aa\n" + negative,
		"A yard.svc.clusterset.local.":       "NXDOMAIN aa\n" + negative,
		"A none.shop.svc.clusterset.local.":  "NXDOMAIN aa\n" + negative,
		"A web.shop.pod.clusterset.local.":   "NXDOMAIN aa\n" + negative,
		"A www.clusterset.local.":            "NXDOMAIN aa\n" + negative,
		"A web\\.shop.svc.clusterset.local.": "NXDOMAIN aa\n" + negative,

		// Other questions.
		"ANY web.shop.svc.clusterset.local.":  "NOERROR aa\nweb.shop.svc.clusterset.local. 5 IN HINFO \"RFC8482\" \"\"\n",
		"ANY none.shop.svc.clusterset.local.": "NXDOMAIN aa\n" + negative,
		"AXFR clusterset.local.":              "REFUSED\n",
		"NS .":                                "REFUSED\n",
		"A web.shop.svc.cluster.local.":       "REFUSED\n",
		"A xclusterset.local.":                "REFUSED\n",
		"A web\\.clusterset.local.":           "REFUSED\n", // a label in local., not a name in the zone
	} {
		require.Equal(t, want, show(i.Answer(ask(question), false)), question)
	}
}

// Names of one exporter are an option. They answer although nothing is ready there.
func TestClusterNames(t *testing.T) {
	i := newIndex(true, shop()...)
	for question, want := range map[string]string{
		"A east.web.shop.svc.clusterset.local.":     "NOERROR aa\neast.web.shop.svc.clusterset.local. 5 IN A 10.1.0.1\n",
		"A west.web.shop.svc.clusterset.local.":     "NOERROR aa\nwest.web.shop.svc.clusterset.local. 5 IN A 10.2.0.1\n",
		"AAAA west.web.shop.svc.clusterset.local.":  "NOERROR aa\n" + negative,
		"A north.web.shop.svc.clusterset.local.":    "NXDOMAIN aa\n" + negative,
		"A west.idle.shop.svc.clusterset.local.":    "NOERROR aa\nwest.idle.shop.svc.clusterset.local. 5 IN A 10.2.0.20\n",
		"A db-0.west.db.shop.svc.clusterset.local.": "NOERROR aa\ndb-0.west.db.shop.svc.clusterset.local. 5 IN A 10.2.0.10\n",
		"A east.db.shop.svc.clusterset.local.": `NOERROR aa
east.db.shop.svc.clusterset.local. 5 IN A 10.1.0.10
east.db.shop.svc.clusterset.local. 5 IN A 10.1.0.12
`,
	} {
		require.Equal(t, want, show(i.Answer(ask(question), false)), question)
	}
}

// With the annotation, or without an address of its own, a name stands for the exporters that are
// ready: this cluster alone, if it is.
func TestDirect(t *testing.T) {
	const question = "A web.shop.svc.clusterset.local."
	east := newSlice("web.shop", "east", []string{"http/TCP/80"}, "10.1.0.1")
	west := newSlice("web.shop", "west", []string{"http/TCP/80"}, "242.2.0.1")
	north := newSlice("web.shop", "north", []string{"http/TCP/80"}, "242.3.0.1")
	for _, o := range []any{
		newImport("web.shop", "", "http/TCP/80"),
		direct(newImport("web.shop", "10.96.0.1", "http/TCP/80")),
	} {
		i := newIndex(false, o, west, north)
		require.Equal(t, []string{"242.2.0.1", "242.3.0.1"}, addressesIn(i.Answer(ask(question), false)))
		i.SetSlice(east)
		require.Equal(t, []string{"10.1.0.1"}, addressesIn(i.Answer(ask(question), false)))
		i.SetSlice(newSlice("web.shop", "east", []string{"http/TCP/80"}, "10.1.0.1!"))
		require.Equal(t, []string{"242.2.0.1", "242.3.0.1"}, addressesIn(i.Answer(ask(question), false)))
		require.Equal(t, `NOERROR aa
web.shop.svc.clusterset.local. 5 IN SRV 0 100 80 web.shop.svc.clusterset.local.
additional: web.shop.svc.clusterset.local. 5 IN A 242.2.0.1
additional: web.shop.svc.clusterset.local. 5 IN A 242.3.0.1
`, show(i.Answer(ask("SRV web.shop.svc.clusterset.local."), false)))
	}
	// With the annotation spread, all that are ready.
	spread := direct(newImport("web.shop", "10.96.0.1", "http/TCP/80"))
	spread.Annotations["submariner.io/spread"] = "true"
	i := newIndex(false, spread, east, west)
	require.Equal(t, []string{"10.1.0.1", "242.2.0.1"}, addressesIn(i.Answer(ask(question), false)))
	// Endpoints with another port than the Service's cannot be reached by its name: the import's
	// own address stands for them, or else other exporters do.
	pods := newSlice("web.shop", "east", []string{"http/TCP/8080"}, "10.1.0.9")
	i = newIndex(false, direct(newImport("web.shop", "10.96.0.1", "http/TCP/80")), pods, west)
	require.Equal(t, []string{"10.96.0.1"}, addressesIn(i.Answer(ask(question), false)))
	i.SetImport(newImport("web.shop", "", "http/TCP/80"))
	require.Equal(t, []string{"242.2.0.1"}, addressesIn(i.Answer(ask(question), false)))
	i.DeleteSlice(nameOf(west))
	require.Equal(t, "NOERROR aa\n"+negative, show(i.Answer(ask(question), false)))
	// Slices have the exporter's address of the Service, which has the port of the Service.
	withAddress := func(cluster, address string, endpoints ...string) *discoveryv1.EndpointSlice {
		o := newSlice("web.shop", cluster, []string{"http/TCP/8080"}, endpoints...)
		o.Annotations = map[string]string{services.AddressAnnotation: address}
		return o
	}
	i = newIndex(true, direct(newImport("web.shop", "10.96.0.1", "http/TCP/80")),
		withAddress("west", "10.102.0.1", "10.2.0.1", "10.2.0.2"))
	require.Equal(t, []string{"10.102.0.1"}, addressesIn(i.Answer(ask(question), false)))
	require.Equal(t, []string{"10.102.0.1"}, addressesIn(i.Answer(ask("A west.web.shop.svc.clusterset.local."), false)))
	i.SetSlice(withAddress("east", "10.101.0.1", "10.1.0.1"))
	require.Equal(t, []string{"10.101.0.1"}, addressesIn(i.Answer(ask(question), false)))
	i.SetSlice(withAddress("east", "10.101.0.1", "10.1.0.1!"))
	require.Equal(t, []string{"10.102.0.1"}, addressesIn(i.Answer(ask(question), false)))
	require.Equal(t, []string{"10.101.0.1"}, addressesIn(i.Answer(ask("A east.web.shop.svc.clusterset.local."), false)))
	i.SetSlice(withAddress("west", "nonsense", "10.2.0.1"))
	require.Equal(t, []string{"10.96.0.1"}, addressesIn(i.Answer(ask(question), false)))
	// With no exporter ready, the import's own address remains.
	i = newIndex(false, direct(newImport("web.shop", "10.96.0.1", "http/TCP/80")))
	require.Equal(t, []string{"10.96.0.1"}, addressesIn(i.Answer(ask(question), false)))
	// The name exists, although nothing is ready.
	i = newIndex(false, newImport("web.shop", ""))
	require.Equal(t, "NOERROR aa\n"+negative, show(i.Answer(ask(question), false)))
}

// A and AAAA of both families come from the same code.
func TestBothFamilies(t *testing.T) {
	i := newIndex(false, newImport("web.shop", "10.96.0.1 fd00::1"))
	require.Equal(t, "NOERROR aa\nweb.shop.svc.clusterset.local. 5 IN A 10.96.0.1\n",
		show(i.Answer(ask("A web.shop.svc.clusterset.local."), false)))
	require.Equal(t, "NOERROR aa\nweb.shop.svc.clusterset.local. 5 IN AAAA fd00::1\n",
		show(i.Answer(ask("AAAA web.shop.svc.clusterset.local."), false)))
}

// Slices for each group of ports have the same pods: an address is answered once, and a pod has one
// record for each of its ports.
func TestGroupsOfPorts(t *testing.T) {
	i := newIndex(false, newImport("db.shop", "None", "sql/TCP/5432", "web/TCP/80"),
		newSlice("db.shop", "east", []string{"sql/TCP/5432"}, "10.1.0.10=db-0", "10.1.0.11=db-1"),
		newSlice("db.shop", "east", []string{"web/TCP/8080", "sql/TCP/5432"}, "10.1.0.10=db-0"))
	require.Equal(t, []string{"10.1.0.10", "10.1.0.11"},
		addressesIn(i.Answer(ask("A db.shop.svc.clusterset.local."), false)))
	require.Equal(t, []string{"10.1.0.10"},
		addressesIn(i.Answer(ask("A db-0.east.db.shop.svc.clusterset.local."), false)))
	r := i.Answer(ask("SRV db.shop.svc.clusterset.local."), false)
	require.Equal(t, `NOERROR aa
db.shop.svc.clusterset.local. 5 IN SRV 0 100 5432 db-0.east.db.shop.svc.clusterset.local.
db.shop.svc.clusterset.local. 5 IN SRV 0 100 5432 db-1.east.db.shop.svc.clusterset.local.
db.shop.svc.clusterset.local. 5 IN SRV 0 100 8080 db-0.east.db.shop.svc.clusterset.local.
`, show(&dns.Msg{MsgHdr: r.MsgHdr, Answer: r.Answer}))
}

// Resolvers compare the case of names to detect forged answers (0x20), and names are equal in any
// case.
func TestCase(t *testing.T) {
	i := newIndex(false, shop()...)
	r := i.Answer(ask("SRV _HTTP._tcP.wEb.shOp.Svc.clusterSET.local."), false)
	require.Equal(t, "_HTTP._tcP.wEb.shOp.Svc.clusterSET.local.", r.Question[0].Name)
	require.Equal(t, `NOERROR aa
_HTTP._tcP.wEb.shOp.Svc.clusterSET.local. 5 IN SRV 0 100 80 web.shop.svc.clusterset.local.
additional: web.shop.svc.clusterset.local. 5 IN A 10.96.0.1
`, show(r))
}

// A server that has not read everything does not deny names: caches would keep that.
func TestBeforeSynced(t *testing.T) {
	i := NewIndex("east", false)
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "SERVFAIL\n"},
		{func() { i.ReplaceImports(nil) }, "SERVFAIL\n"},
		{func() { i.ReplaceSlices(nil) }, "NXDOMAIN aa\n" + negative},
	} {
		step.do()
		require.Equal(t, step.want, show(i.Answer(ask("A web.shop.svc.clusterset.local."), false)))
		require.Equal(t, "REFUSED\n", show(i.Answer(ask("NS ."), false)))
	}
}

// The index follows each kind of change.
func TestChanges(t *testing.T) {
	i := newIndex(false)
	get := func() string {
		r := i.Answer(ask("A db.shop.svc.clusterset.local."), false)
		return strings.TrimSpace(dns.RcodeToString[r.Rcode] + " " + strings.Join(addressesIn(r), " "))
	}
	east := newSlice("db.shop", "east", nil, "10.1.0.1")
	west := newSlice("db.shop", "west", nil, "10.2.0.1")
	headless := newImport("db.shop", "None")
	vip := newImport("db.shop", "10.96.0.1")
	for n, step := range []struct {
		do   func()
		want string
	}{
		{func() { i.SetSlice(east) }, "NXDOMAIN"},
		{func() { i.SetImport(headless) }, "NOERROR 10.1.0.1"},
		{func() { i.SetSlice(west) }, "NOERROR 10.1.0.1 10.2.0.1"},
		{func() { i.SetImport(vip) }, "NOERROR 10.96.0.1"},
		{func() { i.SetImport(headless) }, "NOERROR 10.1.0.1 10.2.0.1"},
		{func() { i.DeleteSlice(nameOf(east)) }, "NOERROR 10.2.0.1"},
		{func() { i.DeleteSlice(nameOf(east)) }, "NOERROR 10.2.0.1"},
		{func() { i.DeleteSlice(nameOf(west)) }, "NXDOMAIN"},
		{func() { i.ReplaceSlices(list(east, west)) }, "NOERROR 10.1.0.1 10.2.0.1"},
		{func() { i.ReplaceSlices(list(west)) }, "NOERROR 10.2.0.1"},
		{func() { moved := west.DeepCopy(); moved.Labels[serviceName] = "other"; i.SetSlice(moved) }, "NXDOMAIN"},
		{func() { i.SetSlice(west) }, "NOERROR 10.2.0.1"},
		{func() { given := west.DeepCopy(); delete(given.Labels, managedBy); i.SetSlice(given) }, "NXDOMAIN"},
		{func() { i.SetSlice(west) }, "NOERROR 10.2.0.1"},
		{func() { i.DeleteImport(nameOf(headless)) }, "NXDOMAIN"},
		{func() { i.ReplaceImports(list(headless)) }, "NOERROR 10.2.0.1"},
		{func() { i.ReplaceImports(list(newImport("web.shop", "10.96.0.2"))) }, "NXDOMAIN"},
	} {
		step.do()
		require.Equal(t, step.want, get(), n)
	}
	imports, slices := i.Count()
	require.Equal(t, [2]int{1, 1}, [2]int{imports, slices})
	require.Equal(t, dns.RcodeSuccess, i.Answer(ask("A shop.svc.clusterset.local."), false).Rcode)
	i.ReplaceImports(nil)
	i.ReplaceSlices(nil)
	require.Equal(t, dns.RcodeNameError, i.Answer(ask("A shop.svc.clusterset.local."), false).Rcode)
	require.Empty(t, i.services)
	require.Empty(t, i.namespaces)
	require.Empty(t, i.slices)
}

// Requests that are not ordinary questions.
func TestProtocol(t *testing.T) {
	i := newIndex(false, shop()...)
	const question = "A web.shop.svc.clusterset.local."
	const address = "web.shop.svc.clusterset.local. 5 IN A 10.96.0.1\n"
	for name, test := range map[string]struct {
		edit func(*dns.Msg)
		want string
	}{
		"a response":     {func(q *dns.Msg) { q.Response = true }, "no response\n"},
		"no question":    {func(q *dns.Msg) { q.Question = nil }, "FORMERR\n"},
		"two questions":  {func(q *dns.Msg) { q.Question = append(q.Question, q.Question[0]) }, "FORMERR\n"},
		"a notification": {func(q *dns.Msg) { q.Opcode = dns.OpcodeNotify }, "NOTIMP\n"},
		"an update":      {func(q *dns.Msg) { q.Opcode = dns.OpcodeUpdate }, "NOTIMP\n"},
		"class CHAOS":    {func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassCHAOS }, "REFUSED\n"},
		"class ANY":      {func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassANY }, "REFUSED\n"},
		"EDNS": {
			func(q *dns.Msg) { q.SetEdns0(4096, true) },
			"NOERROR aa\n" + address + "EDNS: version 0, udp 1232, do true, options 0\n",
		},
		"EDNS options": {func(q *dns.Msg) {
			q.SetEdns0(512, false)
			q.IsEdns0().Option = append(q.IsEdns0().Option,
				&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0123456789abcdef"},
				&dns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")})
		}, "NOERROR aa\n" + address + "EDNS: version 0, udp 1232, do false, options 0\n"},
		"EDNS version 1": {
			func(q *dns.Msg) { q.SetEdns0(4096, false); q.IsEdns0().SetVersion(1) },
			"BADVERS\nEDNS: version 0, udp 1232, do false, options 0\n",
		},
		"EDNS twice": {
			func(q *dns.Msg) { q.SetEdns0(4096, false); q.Extra = append(q.Extra, q.Extra[0]) },
			"FORMERR\nEDNS: version 0, udp 1232, do false, options 0\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := ask(question)
			test.edit(q)
			r := i.Answer(q, false)
			got := show(r)
			require.Equal(t, test.want, strings.Replace(got, "BADSIG", "BADVERS", 1))
			if r == nil {
				return
			}
			wire, err := r.Pack()
			require.NoError(t, err)
			back := new(dns.Msg)
			require.NoError(t, back.Unpack(wire))
			require.Equal(t, q.Id, back.Id)
			require.Equal(t, r.Rcode, back.Rcode)
		})
	}
}

// A large answer fits what the client accepts: rotating over all addresses, and marked so that the
// client asks over TCP.
func TestSizes(t *testing.T) {
	var all []string
	for n := range 300 {
		all = append(all, fmt.Sprintf("10.1.%d.%d=db-%d", n/100, 1+n%100, n))
	}
	i := newIndex(false, newImport("db.shop", "None", "sql/TCP/5432"),
		newSlice("db.shop", "east", []string{"sql/TCP/5432"}, all...))
	for _, test := range []struct {
		question  string
		edns      uint16 // 0: none
		tcp       bool
		records   int
		truncated bool
	}{
		{question: "A db.shop.svc.clusterset.local.", records: 29, truncated: true},
		{question: "A db.shop.svc.clusterset.local.", edns: 100, records: 28, truncated: true},
		{question: "A db.shop.svc.clusterset.local.", edns: 1000, records: 58, truncated: true},
		{question: "A db.shop.svc.clusterset.local.", edns: 1232, records: 73, truncated: true},
		{question: "A db.shop.svc.clusterset.local.", edns: 65535, records: 73, truncated: true},
		{question: "A db.shop.svc.clusterset.local.", tcp: true, records: 300},
		{question: "A db.shop.svc.clusterset.local.", edns: 512, tcp: true, records: 300},
		{question: "SRV db.shop.svc.clusterset.local.", edns: 1232, records: 20, truncated: true},
		{question: "SRV db.shop.svc.clusterset.local.", tcp: true, records: 300},
	} {
		q := ask(test.question)
		if test.edns > 0 {
			q.SetEdns0(test.edns, false)
		}
		r := i.Answer(q, test.tcp)
		require.Equal(t, test.truncated, r.Truncated, test)
		require.Len(t, r.Answer, test.records, test)
		wire, err := r.Pack()
		require.NoError(t, err)
		if !test.tcp {
			require.LessOrEqual(t, len(wire), min(max(int(test.edns), 512), 1232), test)
		}
	}

	// Every address has its turn.
	seen := map[string]bool{}
	for n := range 300 {
		i.choose = func(int) int { return n }
		for _, a := range addressesIn(i.Answer(ask("A db.shop.svc.clusterset.local."), false)) {
			seen[a] = true
		}
	}
	require.Len(t, seen, 300)
}

// Additional addresses are left out rather than the answer is truncated.
func TestAdditionalLeftOut(t *testing.T) {
	var all []string
	for n := range 5 {
		all = append(all, fmt.Sprintf("10.1.0.%d=database-with-a-long-name-%d", 1+n, n))
	}
	i := newIndex(false, newImport("db.shop", "None", "sql/TCP/5432"),
		newSlice("db.shop", "east", []string{"sql/TCP/5432"}, all...))
	r := i.Answer(ask("SRV db.shop.svc.clusterset.local."), false)
	require.False(t, r.Truncated)
	require.Empty(t, r.Extra)
	r = i.Answer(ask("SRV db.shop.svc.clusterset.local."), true)
	require.Len(t, r.Extra, 5)
}
