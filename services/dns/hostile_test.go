package dns

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
)

// Whatever arrives, a response is one to the query, fits and can be sent.
func FuzzAnswer(f *testing.F) {
	objects := append(shop(), newImport("large.shop", "None"),
		newSlice("large.shop", "west", []string{"x/TCP/1"}, many(2000)...))
	i := newIndex(false, objects...)
	names := newIndex(true, objects...)
	for _, question := range []string{
		"A web.shop.svc.clusterset.local.",
		"SRV _http._tcp.web.shop.svc.clusterset.local.",
		"SRV large.shop.svc.clusterset.local.",
		"A db-0.east.db.shop.svc.clusterset.local.",
		"A east.db.shop.svc.clusterset.local.",
		"TXT dns-version.clusterset.local.",
		"ANY clusterset.local.",
		"NS .",
		"A a\\.b\\000.\\255.svc.clusterset.local.",
		"SRV _._.web.shop.svc.clusterset.local.",
	} {
		q := ask(question)
		plain, err := q.Pack()
		require.NoError(f, err)
		q.SetEdns0(4096, true)
		edns, err := q.Pack()
		require.NoError(f, err)
		f.Add(plain)
		f.Add(edns)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		query := new(dns.Msg)
		if query.Unpack(b) != nil {
			return
		}
		for _, index := range []*Index{i, names} {
			checkResponse(t, query, index.Answer(query, false), maxUDP)
			checkResponse(t, query, index.Answer(query, true), dns.MaxMsgSize)
		}
	})
}

func checkResponse(t *testing.T, query, r *dns.Msg, most int) {
	t.Helper()
	if query.Response {
		require.Nil(t, r)
		return
	}
	wire, err := r.Pack()
	require.NoError(t, err)
	require.LessOrEqual(t, len(wire), most)
	back := new(dns.Msg)
	require.NoError(t, back.Unpack(wire))
	require.True(t, back.Response)
	require.Equal(t, query.Id, back.Id)
	require.Equal(t, query.Opcode, back.Opcode)
	require.Equal(t, query.IsEdns0() != nil, back.IsEdns0() != nil)
	if len(query.Question) > 0 {
		require.Equal(t, query.Question[:1], back.Question)
	}
}

// many returns endpoints.
func many(n int) []string { return manyFrom(0, n) }

// manyFrom returns n endpoints, the first of which has a number.
func manyFrom(first, n int) (out []string) {
	for i := first; i < first+n; i++ {
		out = append(out, fmt.Sprintf("10.%d.%d.%d", 1+i>>16, i>>8&255, i&255))
	}
	return out
}

// Imports and slices that users have made have no names, and take none from ours.
func TestHostileObjects(t *testing.T) {
	theirs := newImport("mine.shop", "192.0.2.1")
	theirs.Labels = nil
	other := newImport("mine.shop", "192.0.2.2")
	other.Labels[submarinerv1.ManagedByLabel] = "helm"
	db := newImport("db.shop", "None", "sql/TCP/5432")
	forged := newSlice("db.shop", "west", nil, "192.0.2.3")
	forged.Labels[managedBy] = "endpointslice-controller.k8s.io"
	unlabelled := newSlice("db.shop", "north", nil, "192.0.2.4")
	delete(unlabelled.Labels, managedBy)
	elsewhere := newSlice("db.yard", "west", nil, "192.0.2.5") // a namespace cannot add to another's Service
	unnamed := newSlice("db.shop", "south", nil, "192.0.2.6")
	delete(unnamed.Labels, serviceName)
	clusterless := newSlice("db.shop", "x", nil, "192.0.2.7")
	clusterless.Labels[mcsv1alpha1.LabelSourceCluster] = "a.b"
	i := newIndex(true, theirs, other, db, forged, unlabelled, elsewhere, unnamed, clusterless,
		newSlice("db.shop", "east", nil, "10.1.0.1"))
	require.Equal(t, "NXDOMAIN aa\n"+negative, show(i.Answer(ask("A mine.shop.svc.clusterset.local."), false)))
	require.Equal(t, []string{"10.1.0.1"}, addressesIn(i.Answer(ask("A db.shop.svc.clusterset.local."), true)))

	// An endpoint without an address is none.
	empty := newSlice("db.shop", "east", nil, "10.1.0.1", "10.1.0.2")
	empty.Endpoints[0].Addresses = nil
	i.SetSlice(empty)
	require.Equal(t, []string{"10.1.0.2"}, addressesIn(i.Answer(ask("A db.shop.svc.clusterset.local."), true)))

	// A slice that loses our label is a user's from then on.
	forged = newSlice("db.shop", "east", nil, "192.0.2.8")
	delete(forged.Labels, managedBy)
	i.SetSlice(forged)
	require.Equal(t, "NXDOMAIN aa\n"+negative, show(i.Answer(ask("A db.shop.svc.clusterset.local."), true)))
}

// What is no label, address or port is left out, or gets a name that is possible.
func TestHostileNames(t *testing.T) {
	long := strings.Repeat("x", 63)
	i := newIndex(
		true,
		newImport("db.shop", "None", "sql/TCP/5432"),
		newSlice("db.shop", "east", []string{"sql/TCP/5432", "none/TCP/0", "high/TCP/65535"}, "10.1.0.1=db.0",
			"10.1.0.2=DB", "10.1.0.3=-db", "10.1.0.4="+long+"x", "10.1.0.5=", "10.1.0.6=*", "10.1.0.7=a\x00b", "10.1.0",
			"example.com", "fe80::1%eth0", "::ffff:10.1.0.8", ""),
		newImport("a.b.c", "10.96.0.1"),
		newImport("UPPER.shop", "10.96.0.2"),
		newImport(".shop", "10.96.0.3"),
		newImport("*.shop", "10.96.0.4"),
		newImport(long+"."+long, "None", "sql/TCP/5432"),
		newSlice(long+"."+long, long, []string{"sql/TCP/5432"}, "10.1.1.1="+long, "10.1.1.2=short"),
		newImport("ips.shop", "nonsense 10.96.0.300 10.96.0.5"),
	)
	r := i.Answer(ask("SRV _sql._tcp.db.shop.svc.clusterset.local."), true)
	var targets []string
	for _, rr := range r.Answer {
		targets = append(targets, strings.TrimSuffix(rr.(*dns.SRV).Target, ".east.db.shop.svc.clusterset.local."))
	}
	require.Equal(t,
		[]string{"10-1-0-1", "10-1-0-2", "10-1-0-3", "10-1-0-4", "10-1-0-5", "10-1-0-6", "10-1-0-7", "10-1-0-8"},
		targets)
	require.Len(t, i.Answer(ask("SRV db.shop.svc.clusterset.local."), true).Answer, 16, "two ports each")
	for _, name := range []string{"a.b.c", "*.shop", "none.none.shop"} {
		require.Equal(t, dns.RcodeNameError, i.Answer(ask("A "+name+".svc.clusterset.local."), true).Rcode, name)
	}
	require.Equal(t, []string{"10.96.0.5"}, addressesIn(i.Answer(ask("A ips.shop.svc.clusterset.local."), true)))

	// A Service whose endpoints have names that are too long answers with addresses, and those
	// names that are possible.
	service := long + "." + long + ".svc.clusterset.local."
	require.Equal(t, []string{"10.1.1.1", "10.1.1.2"}, addressesIn(i.Answer(ask("A "+service), false)))
	r = i.Answer(ask("SRV "+service), false)
	require.Len(t, r.Answer, 1)
	require.Equal(t, "short."+long+"."+service, r.Answer[0].(*dns.SRV).Target)
	_, err := r.Pack()
	require.NoError(t, err)
}

// A Service with very many endpoints costs no more than the largest answer.
func TestHostileSlices(t *testing.T) {
	i := newIndex(true, newImport("db.shop", "None", "sql/TCP/5432"))
	for n := range 100 {
		s := newSlice("db.shop", fmt.Sprintf("c%d", n), []string{"sql/TCP/5432"}, manyFrom(n*1000, 1000)...)
		i.SetSlice(s)
	}
	checked := func(question string, tcp bool) *dns.Msg {
		q := ask(question)
		r := i.Answer(q, tcp)
		checkResponse(t, q, r, map[bool]int{false: 512, true: dns.MaxMsgSize}[tcp])
		return r
	}
	for _, question := range []string{
		"A db.shop.svc.clusterset.local.",
		"SRV db.shop.svc.clusterset.local.",
		"SRV _sql._tcp.db.shop.svc.clusterset.local.",
	} {
		require.True(t, checked(question, false).Truncated)
		checked(question, true)
		require.Less(t, testing.AllocsPerRun(100, func() { i.Answer(ask(question), false) }), 400.0, question)
	}
	require.Len(t, checked("A c99.db.shop.svc.clusterset.local.", true).Answer, 1000)
	require.Len(t, checked("A 10-2-134-158.c99.db.shop.svc.clusterset.local.", true).Answer, 1)
}

// Questions are answered while objects change.
func TestConcurrent(t *testing.T) {
	i := newIndex(false)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r := i.Answer(ask("A db.shop.svc.clusterset.local."), false)
				if n := len(r.Answer); n != 0 && n != 3 {
					t.Errorf("%d addresses", n)
					return
				}
			}
		})
	}
	import1 := newImport("db.shop", "None")
	slice1 := newSlice("db.shop", "east", nil, many(3)...)
	for range 2000 {
		i.SetImport(import1)
		i.SetSlice(slice1)
		i.Count()
		i.DeleteSlice(nameOf(slice1))
		i.ReplaceSlices([]*discoveryv1.EndpointSlice{slice1})
		i.DeleteImport(nameOf(import1))
	}
	close(stop)
	readers.Wait()
}
