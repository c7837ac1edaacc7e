// Package openwrttest serves the REST API of CNFs as OpenWrt with the packages of ICN SD-EWAN does,
// with its codes and quirks, over TLS, for tests of clients and controllers. It keeps objects in
// memory; like an OpenWrt container that restarts, a Box that is Reset has none. Nothing is
// configured: Effective returns what a service has read when it was last restarted.
//
// It is not for production code. Our own CNF is sdewan/cnf/server, which has fewer quirks.
package openwrttest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"subctl/sdewan/rest"
)

// Box is one CNF.
type Box struct {
	// Password of root.
	password atomic.Pointer[string]
	// first answers instead of the box, or returns false; nil: the box answers.
	first atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	// Interfaces are the devices that policies may have as members and zones as networks; nil: any.
	Interfaces []string

	mu        sync.Mutex
	sessions  map[string]bool
	logins    int
	store     map[string][]map[string]any // by collection
	effective map[string][]map[string]any // at the last restart of the service of the collection
	// by collection: objects whose rules of iptables a restart of the firewall has flushed
	dropped map[string]map[string]bool
	broken  map[string]bool // services that do not restart
	awaits  bool            // see Await
	writes  []string        // "POST mwan3/rules/x", in order
	reads   int
}

// New returns a box without objects.
func New(password string) *Box {
	b := &Box{}
	b.SetPassword(password)
	b.Reset()
	return b
}

// SetPassword changes the password of root, and ends all sessions.
func (b *Box) SetPassword(p string) {
	b.password.Store(&p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions = map[string]bool{}
}

// Reset forgets everything, as a container that restarts does. What is counted goes on.
func (b *Box) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions = map[string]bool{}
	b.store = map[string][]map[string]any{}
	b.effective = map[string][]map[string]any{}
	b.dropped = map[string]map[string]bool{}
	if b.broken == nil {
		b.broken = map[string]bool{}
	}
}

// Fail makes f answer all requests, until Fail(nil).
func (b *Box) Fail(f http.HandlerFunc) {
	if f == nil {
		b.first.Store(nil)
		return
	}
	b.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		f(w, r)
		return true
	})
}

// Answer makes f answer requests. Those for which it returns false are answered by the box.
func (b *Box) Answer(f func(http.ResponseWriter, *http.Request) bool) { b.first.Store(&f) }

// BreakService makes restarts of a service fail with 500, or not.
func (b *Box) BreakService(service string, broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken[service] = broken
}

// Await makes the box tell that it forwards nothing until a service is restarted, as a CNF of
// subctl does after its start.
func (b *Box) Await() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaits = true
}

// Put stores an object without any check, as a user on the box would.
func (b *Box) Put(l *rest.Collection, o rest.Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store[l.String()] = append(b.store[l.String()], stored(l, fieldsOf(o)))
}

// Restart restarts a service, as a user on the box would.
func (b *Box) Restart(service string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.restart(service)
}

// restart makes what is stored effective. That of the firewall flushes all of iptables: the chains
// of mwan3, and what is made when an object is written.
func (b *Box) restart(service string) {
	b.awaits = false
	if service == "firewall" {
		delete(b.effective, rest.Policies.String())
		delete(b.effective, rest.Rules.String())
		for _, l := range []*rest.Collection{rest.NetworkRules, rest.NATs, rest.Services} {
			b.dropped[l.String()] = map[string]bool{}
			for _, name := range names(b.store[l.String()]) {
				b.dropped[l.String()][name] = true
			}
		}
	}
	for _, l := range rest.Collections {
		if l.Service == service {
			b.effective[l.String()] = slices.DeleteFunc(slices.Clone(b.store[l.String()]), func(o map[string]any) bool {
				name, _ := o["name"].(string)
				return service == "mwan3" && len(name) > 15 // skipped with a line in the log
			})
		}
	}
}

// Names returns the names of the objects of a collection, in order.
func (b *Box) Names(l *rest.Collection) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return names(b.store[l.String()])
}

// EffectiveNames returns the names of the objects that are in effect: since the last restart, for a
// collection of a service. What a restart of the firewall has flushed is not.
func (b *Box) EffectiveNames(l *rest.Collection) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.Service == "" {
		return slices.DeleteFunc(names(b.store[l.String()]),
			func(name string) bool { return b.dropped[l.String()][name] })
	}
	return names(b.effective[l.String()])
}

// Field returns a field of an object that is in effect; nil if there is none.
func (b *Box) Field(l *rest.Collection, name, field string) any {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.store[l.String()]
	if l.Service != "" {
		list = b.effective[l.String()]
	}
	if i := find(list, name); i >= 0 {
		return list[i][field]
	}
	return nil
}

// Writes returns the changes that were requested since the last call, such as "PUT mwan3/rules/x",
// and restarts: "restart mwan3".
func (b *Box) Writes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.writes
	b.writes = nil
	return w
}

// Logins returns how many sessions were opened.
func (b *Box) Logins() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logins
}

// Reads returns the number of GETs.
func (b *Box) Reads() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads
}

// ServeHTTP implements http.Handler.
func (b *Box) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f := b.first.Load(); f != nil && (*f)(w, r) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.URL.Path == rest.Base && r.Method == http.MethodPost {
		b.login(w, r)
		return
	}
	parts := slices.DeleteFunc(strings.Split(strings.TrimPrefix(r.RequestURI, "/cgi-bin/luci"), "/"),
		func(s string) bool { return s == "" })
	if len(parts) < 2 || parts[0] != "sdewan" {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<html><body>No page is registered</body></html>")
		return
	}
	if c, err := r.Cookie("sysauth"); err != nil || !b.sessions[c.Value] {
		w.Header().Set("X-LuCI-Login-Required", "yes")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<form>")
		return
	}
	if parts[1] == "v1" {
		b.control(w, r, parts[2:])
		return
	}
	b.objects(w, r, parts[1:])
}

func (b *Box) login(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("luci_username") != "root" || r.FormValue("luci_password") != *b.password.Load() {
		w.Header().Set("X-LuCI-Login-Required", "yes")
		w.WriteHeader(http.StatusForbidden)
		return
	}
	b.logins++
	token := fmt.Sprintf("%032x", b.logins)
	b.sessions[token] = true
	w.Header().Set("Set-Cookie", "sysauth="+token+"; path=/cgi-bin/luci/; SameSite=Strict; HttpOnly; secure")
	w.Header().Set("Location", rest.Base)
	w.WriteHeader(http.StatusFound)
}

func (b *Box) control(w http.ResponseWriter, r *http.Request, parts []string) {
	if r.Method == http.MethodGet {
		b.reads++
	}
	switch {
	case len(parts) == 1 && parts[0] == "services":
		reply(w, http.StatusOK, map[string]any{"services": rest.ServiceNames})
	case len(parts) == 1 && parts[0] == "status":
		reply(w, http.StatusOK, []any{
			map[string]any{"name": "ipsec", "status": map[string]any{"InitConnection": "success", "details": []any{}}},
			map[string]any{"name": "conntrack", "status": []any{}},
		})
	case len(parts) == 2 && parts[0] == "status" && parts[1] == "effect" && b.awaits:
		reply(w, http.StatusOK, map[string]any{"name": "effect", "status": map[string]any{"awaiting": true}})
	case len(parts) == 2 && parts[0] == "service" && r.Method == http.MethodPut &&
		slices.Contains(rest.ServiceNames, parts[1]):
		b.writes = append(b.writes, "restart "+parts[1])
		if b.broken[parts[1]] {
			refuse(w, http.StatusInternalServerError,
				"/usr/lib/lua/luci/dispatcher.lua:427: attempt to index a nil value")
			return
		}
		b.restart(parts[1])
		reply(w, http.StatusOK, map[string]any{"message": "success"})
	default:
		refuse(w, http.StatusBadRequest, "Bad request URI")
	}
}

// refuse writes an error as OpenWrt does: with an unescaped text.
func refuse(w http.ResponseWriter, code int, format string, args ...any) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"message":"`+format+`"}`, args...)
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client may have left
}

func names(list []map[string]any) []string {
	out := make([]string, len(list))
	for i, o := range list {
		out[i], _ = o["name"].(string)
	}
	return out
}

func find(list []map[string]any, name string) int {
	return slices.IndexFunc(list, func(o map[string]any) bool { return o["name"] == name })
}

func fieldsOf(o rest.Object) map[string]any {
	b, _ := json.Marshal(o) // strings and lists of them
	m := map[string]any{}
	_ = json.Unmarshal(b, &m)
	return m
}

func clone(m map[string]any) map[string]any { return maps.Clone(m) }
