package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/secret"
	"subctl/sdewan/rest"
	restclient "subctl/sdewan/rest/client"
	"subctl/sdewan/rest/openwrttest"
)

// box is a CNF on OpenWrt, and what the controller remembers of it.
type box struct {
	*testing.T
	*openwrttest.Box
	*memory
	client *restclient.Client
}

func newBox(t *testing.T) *box {
	t.Helper()
	return newBoxWithin(t, 0)
}

// newBoxWithin returns a box whose answers to each request have so much time.
func newBoxWithin(t *testing.T, timeout time.Duration) *box {
	t.Helper()
	authority := openwrttest.NewAuthority(t)
	b := openwrttest.New(password)
	address, _ := openwrttest.Serve(t, "127.0.0.1:0", authority.Certificate(t, "box"), b)
	c, err := restclient.New(
		restclient.Options{
			Address:  address,
			Name:     "box",
			CA:       authority.PEM,
			Password: secret.Bytes(password),
			Timeout:  timeout,
		},
	)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &box{t, b, newMemory(), c}
}

// about returns the name of the object that a request would change, or "".
func about(r *http.Request) string {
	switch r.Method {
	case http.MethodGet:
		return ""
	case http.MethodDelete:
		return path.Base(r.URL.Path)
	}
	var o struct{ Name string }
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	_ = json.Unmarshal(body, &o)
	return o.Name
}

// want returns what a CNF should hold: lists of objects by collection.
func want(objects ...rest.Object) []desire {
	var out []desire
	for _, l := range collections() {
		d := desire{collection: l, keep: func(string) bool { return false }}
		for _, o := range objects {
			if fmt.Sprintf("%T", o) == fmt.Sprintf("%T", l.New()) && (l != rest.NetworkRules) {
				d.objects = append(d.objects, wanted{object: o})
			}
		}
		out = append(out, d)
	}
	return out
}

func (b *box) sync(desires []desire) synced {
	b.Helper()
	s, err := b.memory.sync(b.Context(), b.client, desires, syncOptions{})
	require.NoError(b, err)
	return s
}

func mwan3(name, policy, port string) *rest.Rule {
	return &rest.Rule{Name: name, Policy: policy, DestPort: port}
}

func policy(name string) *rest.Policy {
	return &rest.Policy{Name: name, Members: []rest.Member{{Interface: "net1", Metric: "1", Weight: "1"}}}
}

// A CNF gets what it lacks, in one pass, and each service is restarted once. A second sync changes
// nothing.
func TestSync(t *testing.T) {
	b := newBox(t)
	all := want(
		policy("p"),
		mwan3("a", "p", "1"),
		mwan3("b", "p", "2"),
		&rest.Zone{Name: "z", Network: []string{"net1"}},
		&rest.Forwarding{Name: "f", Src: "z", Dest: "z"},
		&rest.Redirect{
			Name:   "d",
			Src:    "z",
			Target: "DNAT",
		},
		&rest.FirewallRule{Name: "r", Src: "z", ICMPType: []string{"echo-request"}},
		&rest.Proposal{
			Name:       "x",
			Encryption: "aes128",
		},
		&rest.Remote{
			Name:         "s",
			Gateway:      "%any",
			Auth:         "psk",
			PreSharedKey: "k",
			Proposals:    []string{"x"},
			Connections: []rest.Connection{
				{
					Name: "c2",
					Type: "tunnel",
					Mode: "start",
					IfID: "3",
				}, {Name: "c1", Type: "transport", Mode: "start", Proposals: []string{"x"}},
			},
		},
		&rest.NAT{Name: "n", Target: "DNAT", DestIP: "10.0.0.1"},
	)
	s := b.sync(all)
	require.Empty(t, s.refused)
	require.Len(t, s.written, 10)
	require.Equal(t, []string{
		"POST mwan3/policies", "POST mwan3/rules", "POST mwan3/rules", "POST firewall/zones",
		"POST firewall/forwardings", "POST firewall/rules", "POST firewall/redirects", "POST ipsec/proposals",
		"POST ipsec/remotes", "POST nat/nats", "restart firewall", "restart mwan3", "restart ipsec", "PUT nat/nats/n",
	}, b.Writes())
	b.inEffect(all)
	b.sync(all)
	require.Empty(t, b.Writes(), "it holds everything")
	// What was changed on the CNF is put right.
	b.Reset()
	b.Put(rest.Rules, mwan3("stranger", "p", "3"))
	b.Put(rest.Policies, &rest.Policy{Name: "p"})
	s = b.sync(all)
	require.Empty(t, s.refused)
	require.Equal(t, []string{"a", "b"}, b.EffectiveNames(rest.Rules))
	require.Len(t, b.Field(rest.Policies, "p", "members"), 1)
	require.Equal(t, []string{"restart firewall", "restart mwan3", "restart ipsec"},
		slices.DeleteFunc(b.Writes(), func(s string) bool { return !strings.HasPrefix(s, "restart") }))
	// Deletions go the other way: a policy is removed after its rules.
	s = b.sync(want())
	require.Empty(t, s.refused)
	for _, l := range rest.Collections {
		require.Empty(t, b.EffectiveNames(l), l)
	}
}

// A CNF that forwards nothing until a service was restarted gets its restart: also if there are no
// rules for it, and if another controller wrote them and ended before the restart.
func TestSyncStarts(t *testing.T) {
	for name, all := range map[string][]desire{
		"no rules": want(),
		"rules":    want(policy("p"), &rest.NAT{Name: "n", Target: "DNAT", DestIP: "10.0.0.1"}),
	} {
		b := newBox(t)
		b.sync(all)
		b.Writes()
		b.Await()
		b.memory = newMemory()
		b.BreakService("firewall", true)
		_, err := b.memory.sync(t.Context(), b.client, all, syncOptions{})
		require.ErrorContains(t, err, "starting it: the CNF answers 500", name)
		b.BreakService("firewall", false)
		require.Empty(t, b.sync(all).restarts, name)
		require.Equal(t, []string{"restart firewall", "restart firewall"}, b.Writes(), name)
		reads := b.Reads()
		b.sync(all)
		require.Empty(t, b.Writes(), name)
		require.Equal(t, len(all), b.Reads()-reads, "%s: it is asked once only", name)
	}
}

// A CNF on OpenWrt moves a rule that changes to the end, and all that follow it are moved after it.
// Only the rule that has changed counts as written: the statuses of the others, which may be
// thousands, stay.
func TestSyncMoves(t *testing.T) {
	b := newBox(t)
	b.sync(want(policy("p"), mwan3("a", "p", "1"), mwan3("b", "p", "2"), mwan3("c", "p", "3"), mwan3("d", "p", "4")))
	s := b.sync(
		want(policy("p"), mwan3("a", "p", "1"), mwan3("b", "p", "22"), mwan3("c", "p", "3"), mwan3("d", "p", "4")))
	require.Equal(t, []string{"a", "b", "c", "d"}, b.EffectiveNames(rest.Rules))
	require.Equal(t, map[id]bool{{rest.Rules, "b"}: true}, s.written)
	require.Empty(t, s.refused)
}

// Whatever a CNF holds, in whatever order, a sync makes it hold what is wanted, in the order in
// which it is wanted.
func TestSyncWalk(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	b := newBox(t)
	names := []string{"a", "b", "c", "d", "e", "f"}
	for range 40 {
		for range random.IntN(4) {
			b.Put(rest.FirewallRules, &rest.FirewallRule{Name: names[random.IntN(len(names))], Target: "DROP"})
		}
		b.Restart("firewall") // a stranger who writes just what is wanted, and restarts nothing, cannot be seen
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		var objects []rest.Object
		for _, n := range names[:random.IntN(len(names)+1)] {
			objects = append(objects,
				&rest.FirewallRule{Name: n, Target: []string{"ACCEPT", "DROP", "REJECT"}[random.IntN(3)]})
		}
		s := b.sync(want(objects...))
		require.Empty(t, s.refused)
		var order []string
		for _, o := range objects {
			order = append(order, o.GetName())
			require.Equal(t, o.(*rest.FirewallRule).Target, b.Field(rest.FirewallRules, o.GetName(), "target"))
		}
		require.Equal(t, order, append([]string(nil), b.EffectiveNames(rest.FirewallRules)...))
		b.Writes()
		b.sync(want(objects...))
		require.Empty(t, b.Writes())
	}
}

// An object that is refused does not stop the others, and what depends on it follows when it is
// accepted.
func TestRefused(t *testing.T) {
	b := newBox(t)
	all := want(mwan3("a", "p", "1"), mwan3("b", "q", "1"), policy("q"))
	s := b.sync(all)
	require.Len(t, s.refused, 1)
	require.ErrorContains(t, s.refused[id{rest.Rules, "a"}], "policy p is not defined")
	require.Equal(t, []string{"b"}, b.EffectiveNames(rest.Rules))
	b.Writes()
	b.sync(all)
	require.Equal(t, []string{"POST mwan3/rules"}, b.Writes(), "what is refused restarts nothing")
	s = b.sync(want(mwan3("a", "p", "1"), mwan3("b", "q", "1"), policy("q"), policy("p")))
	require.Empty(t, s.refused)
	require.Equal(t, []string{"a", "b"}, b.EffectiveNames(rest.Rules),
		"the order is that of all rules, not that in which they were accepted")
}

// An order that is wrong is corrected although an object is refused, and without touching what the
// CNF refuses to change.
func TestOrderBesidesRefused(t *testing.T) {
	b := newBox(t)
	b.sync(want(policy("p"), mwan3("d", "p", "1"), mwan3("x", "p", "1"), mwan3("e", "p", "1")))
	s := b.sync(
		want(policy("p"), mwan3("a", "none", "1"), mwan3("x", "none", "1"), mwan3("e", "p", "1"), mwan3("d", "p", "1")))
	require.Len(t, s.refused, 2)
	require.Equal(t, []string{"x", "e", "d"}, b.EffectiveNames(rest.Rules))
}

// OpenWrt deletes a policy whose change it then refuses: that is in effect after a restart, and
// tried again without another one.
func TestRefusedAndDeleted(t *testing.T) {
	b := newBox(t)
	b.sync(want(policy("p")))
	twice := policy("p")
	twice.Members = append(twice.Members, twice.Members...)
	b.Writes()
	s := b.sync(want(twice))
	require.ErrorContains(t, s.refused[id{rest.Policies, "p"}], "Same interface")
	require.Equal(t, []string{"PUT mwan3/policies/p", "restart mwan3"}, b.Writes())
	require.Empty(t, b.EffectiveNames(rest.Policies))
	b.sync(want(twice))
	require.Equal(t, []string{"POST mwan3/policies"}, b.Writes())
	b.sync(want(policy("p")))
	require.Equal(t, []string{"p"}, b.EffectiveNames(rest.Policies))
}

// An object that a CNF answers with 5xx does not stop the others, and restarts no service while
// nothing changes; a CNF that answers so to many is broken.
func TestFailureOfOneObject(t *testing.T) {
	b := newBox(t)
	broken := func(paths ...string) {
		b.Answer(func(w http.ResponseWriter, r *http.Request) bool {
			name := about(r)
			if name == "" || !strings.HasPrefix(r.URL.Path, rest.Policies.Path()) ||
				!slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(name, p) }) {
				return false
			}
			http.Error(w, "no", 500)
			return true
		})
	}
	b.sync(want(policy("p"), policy("q"), policy("old")))
	changed := policy("p")
	added := policy("r")
	changed.Members[0].Weight = "2"
	broken("p", "old", "new")
	b.Writes()
	for i := range 2 {
		s := b.sync(want(changed, policy("q"), policy("new"), added, &rest.Zone{Name: "z", Network: []string{"net1"}}))
		for _, name := range []string{"p", "old", "new"} {
			require.ErrorContains(t, s.refused[id{rest.Policies, name}], "500", name)
		}
		require.Len(t, s.refused, 3)
		require.Equal(t, i == 0, slices.Contains(b.Writes(), "restart mwan3"), "only while something changes")
	}
	require.Equal(t, []string{"p", "q", "old", "r"}, b.EffectiveNames(rest.Policies))
	require.Equal(t, []string{"z"}, b.EffectiveNames(rest.Zones))
	b.Fail(nil)
	require.Empty(t, b.sync(want(changed)).refused)
	require.Equal(t, []string{"p"}, b.EffectiveNames(rest.Policies))

	broken("")
	var many []rest.Object
	for i := range 2*maxFailures + 4 {
		many = append(many, policy(fmt.Sprint("n", i)))
	}
	many = append(many, &rest.Zone{Name: "z", Network: []string{"net1"}})
	for _, unsent := range []int{13, 4, 0, 0} { // eight and one more are refused in a round, then others
		s := b.sync(want(many...))
		require.Len(t, s.unsent, unsent)
		require.Equal(t, unsent > 0, s.unsent[id{rest.Zones, "z"}])
		if unsent > 0 {
			require.ErrorContains(t, s.stopped, "changing mwan3/policies/n")
			require.ErrorContains(t, s.stopped, "the CNF answers 500")
		}
		require.Equal(t, []string{"p"}, b.EffectiveNames(rest.Policies))
	}
	require.Equal(t, []string{"z"}, b.EffectiveNames(rest.Zones))
}

// A restart that fails is tried again, although the objects are as they should be.
func TestRestartIsNotForgotten(t *testing.T) {
	b := newBox(t)
	b.BreakService("mwan3", true)
	all := want(policy("p"), mwan3("a", "p", "1"))
	for range 2 {
		s := b.sync(all)
		require.ErrorContains(t, s.restarts["mwan3"], "500")
		require.Empty(t, b.EffectiveNames(rest.Rules))
	}
	// Another controller takes over, and is told by the status of the rules.
	b.memory = newMemory()
	b.BreakService("mwan3", false)
	s, err := b.memory.sync(t.Context(), b.client, all,
		syncOptions{owes: func(service string) bool { return service == "mwan3" }})
	require.NoError(t, err)
	require.Empty(t, s.restarts)
	require.Equal(t, []string{"a"}, b.EffectiveNames(rest.Rules))
	b.Writes()
	b.sync(all)
	require.Empty(t, b.Writes())
}

// A connection that ends after a change is like a restart that has failed.
func TestLostAnswer(t *testing.T) {
	b := newBox(t)
	all := want(policy("p"))
	b.sync(want())
	lossy := &lossy{api: b.client}
	_, err := b.memory.sync(t.Context(), lossy, all, syncOptions{})
	require.Error(t, err)
	require.Equal(t, []string{"p"}, b.Names(rest.Policies), "it was written")
	require.Empty(t, b.EffectiveNames(rest.Policies), "and is not in effect")
	b.sync(all)
	require.Equal(t, []string{"p"}, b.EffectiveNames(rest.Policies))
}

type lossy struct{ api }

func (l *lossy) Create(ctx context.Context, c *rest.Collection, o rest.Object) (restclient.Item, error) {
	_, _ = l.api.Create(ctx, c, o)
	return restclient.Item{}, &restclient.Error{Err: http.ErrServerClosed}
}

// Fields that OpenWrt does not return are written again by a controller that does not know whether
// they are right, and no more.
func TestUnreadableFields(t *testing.T) {
	b := newBox(t)
	remote := &rest.Remote{
		Name:        "r",
		Auth:        "pubkey",
		LocalCert:   "AA==",
		LocalKey:    "AA==",
		CA:          "AA==",
		Connections: []rest.Connection{{Name: "c", Type: "tunnel", IfID: "1"}},
	}
	b.sync(want(remote))
	require.Equal(t, []string{"POST ipsec/remotes", "restart ipsec"}, b.Writes())
	b.sync(want(remote))
	require.Empty(t, b.Writes())
	b.memory = newMemory()
	trusting := want(remote)
	for i := range trusting {
		for j := range trusting[i].objects {
			trusting[i].objects[j].trusted = true
		}
	}
	b.sync(trusting)
	require.Empty(t, b.Writes(), "the status says that it is right")
	b.memory = newMemory()
	b.sync(want(remote))
	require.Equal(t, []string{"PUT ipsec/remotes/r", "restart ipsec"}, b.Writes())
	changed := *remote
	changed.LocalKey = "BB=="
	b.sync(want(&changed))
	require.Equal(t, []string{"PUT ipsec/remotes/r", "restart ipsec"}, b.Writes(), "a new key is written")
	b.sync(want(&changed))
	require.Empty(t, b.Writes())
}

// A CNF that accepts everything and keeps nothing is not taken for one that holds it.
func TestForgetful(t *testing.T) {
	b := newBox(t)
	s, err := b.memory.sync(t.Context(), forgetful{b.client}, want(policy("p")), syncOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, s.refused[id{rest.Policies, "p"}], errDiffers)
}

type forgetful struct{ api }

func (forgetful) Create(context.Context, *rest.Collection, rest.Object) (restclient.Item, error) {
	return restclient.Item{}, nil
}

// What is kept is not removed.
func TestKept(t *testing.T) {
	b := newBox(t)
	b.Put(rest.FirewallRules, &rest.FirewallRule{Name: "Allow-DHCP"})
	b.Put(rest.FirewallRules, &rest.FirewallRule{Name: "other"})
	desires := want()
	for i := range desires {
		desires[i].keep = func(name string) bool { return strings.HasPrefix(name, "Allow-") }
	}
	b.sync(desires)
	require.Equal(t, []string{"Allow-DHCP"}, b.EffectiveNames(rest.FirewallRules))
}
