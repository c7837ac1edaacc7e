package controller

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan/rest"
)

// inEffect checks that all that a CNF should hold is in effect, in its order.
func (b *box) inEffect(desires []desire) {
	b.Helper()
	for _, d := range desires {
		var names []string
		for _, w := range d.objects {
			names = append(names, w.object.GetName())
		}
		got := b.EffectiveNames(d.collection)
		require.ElementsMatch(b, names, got, d.collection)
		if d.collection == rest.NATs {
			require.Equal(b, names, append([]string(nil), got...))
		}
	}
}

func nat(name string) *rest.NAT { return &rest.NAT{Name: name, Target: "DNAT", DestIP: "10.0.0.1"} }

func site(more ...rest.Object) []desire {
	return want(
		append(
			[]rest.Object{
				policy("p"),
				mwan3("a", "p", "1"),
				&rest.Zone{Name: "z", Network: []string{"net1"}},
				nat("n2"),
				nat("n1"),
			},
			more...)...)
}

// On OpenWrt, a restart of the firewall drops what mwan3 and NATs have in effect. After a sync, all
// of it is.
func TestFirewallRestartDropsNothing(t *testing.T) {
	b := newBox(t)
	b.sync(site())
	b.inEffect(site())
	b.Writes()
	changed := site(&rest.Forwarding{Name: "f", Src: "z", Dest: "*"})
	s := b.sync(changed)
	b.inEffect(changed)
	require.NotContains(t, s.written, id{rest.NATs, "n1"}, "the rule is what it was")
	require.Equal(
		t,
		[]string{
			"POST firewall/forwardings", "restart firewall", "restart mwan3", "PUT nat/nats/n2", "PUT nat/nats/n1",
		},
		b.Writes(),
	)
	b.sync(changed)
	require.Empty(t, b.Writes())
	b.sync(site(&rest.Forwarding{Name: "f", Src: "z", Dest: "*"}, mwan3("b", "p", "2")))
	require.Equal(t, []string{"POST mwan3/rules", "restart mwan3"}, b.Writes(), "the firewall is as it was")
}

// What the restart has dropped is owed until it is in effect again: whether mwan3 or a NAT fails,
// no answer comes, or the controller ends in between.
func TestFirewallRestartInterrupted(t *testing.T) {
	changed := site(&rest.Forwarding{Name: "f", Src: "z", Dest: "*"})
	for name, fails := range map[string]func(*http.Request) bool{
		"mwan3": func(r *http.Request) bool { return r.URL.Path == rest.ServicePath("mwan3") },
		"the NAT": func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/n1")
		},
	} {
		for _, restarted := range []bool{false, true} {
			for _, hangs := range []bool{false, true} {
				b := newBox(t)
				b.sync(site())
				b.Answer(func(w http.ResponseWriter, r *http.Request) bool {
					if !fails(r) {
						return false
					}
					if hangs {
						panic(http.ErrAbortHandler)
					}
					w.WriteHeader(http.StatusInternalServerError)
					return true
				})
				label := fmt.Sprintf("%s fails, controller restarted %v, no answer %v", name, restarted, hangs)
				s, err := b.memory.sync(t.Context(), b.client, changed, syncOptions{})
				require.True(t, err != nil || len(s.refused)+len(s.restarts) > 0, label)
				b.Answer(func(http.ResponseWriter, *http.Request) bool { return false })
				if restarted {
					b.memory = newMemory()
				}
				_, err = b.memory.sync(t.Context(), b.client, changed,
					syncOptions{owes: func(service string) bool { return service == "firewall" }})
				require.NoError(t, err, label)
				b.inEffect(changed)
			}
		}
	}
}

// Our own CNF loses nothing, so nothing is written again.
func TestFirewallRestartOfReportingCNF(t *testing.T) {
	b := newBox(t)
	b.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == rest.StatusPath("effect") {
			fmt.Fprint(w, `{"name":"effect","status":{"applied":true,"no_effect":[]}}`)
			return true
		}
		return false
	})
	b.sync(site())
	b.Writes()
	b.sync(site(&rest.Forwarding{Name: "f", Src: "z", Dest: "*"}))
	require.Equal(t, []string{"POST firewall/forwardings", "restart firewall"}, slices.Clone(b.Writes()))
}

// mwan3 on OpenWrt accepts names that it skips. Such a rule is not in sync, nor is one whose policy
// is skipped; both are as soon as the names are short.
func TestNamesThatOpenWrtSkips(t *testing.T) {
	w := newWorld(t)
	pod := w.cnf("cnf-1", 1)[0]
	long := w.policy("cnf-1", "sixteen-letters-"[:15]+"x")
	short := w.policy("cnf-1", "fifteen-letters")
	w.create(long)
	w.create(short)
	w.run()
	require.Contains(t, w.waits(long, NoEffect),
		"skips names of more than 15 characters: create it again with a shorter name")
	w.inSync(short)
	require.Equal(t, []string{"fifteen-letters"}, pod.EffectiveNames(rest.Policies))
}

func TestSkipped(t *testing.T) {
	long := strings.Repeat("x", 16)
	got := skipped(
		want(policy(long), policy("p"), mwan3("a", long, "1"), mwan3(long, "p", "1"), mwan3("b", "p", "1"),
			&rest.Forwarding{Name: long}),
	)
	require.Len(t, got, 3)
	require.Contains(t, got[id{rest.Rules, "a"}], "skips its policy "+long)
	require.Contains(t, got, id{rest.Policies, long})
	require.Contains(t, got, id{rest.Rules, long})
}

// OpenWrt refuses long names of zones. The status of the rule names the limit, whatever the answer
// says.
func TestLongNamesOfZones(t *testing.T) {
	w := newWorld(t)
	pod := w.cnf("cnf-1", 1)[0]
	w.run()
	zone := func(name string) *batch.FirewallZone {
		return &batch.FirewallZone{
			ObjectMeta: w.meta("cnf-1", name),
			Spec:       batch.FirewallZoneSpec{Network: []batch.NetworkName{"lan"}},
		}
	}
	long := zone("zone-of-12-c")
	most := zone("zone-of-11c")
	w.create(long)
	w.create(most)
	w.inSync(most)
	require.Contains(t, w.waits(long, Rejected),
		"OpenWrt limits names of zones to 11 characters: if that is the reason, create it again with a shorter name")
	require.Equal(t, []string{most.Name}, pod.Names(rest.Zones))
}
