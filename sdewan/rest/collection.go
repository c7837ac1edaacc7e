package rest

import (
	"net/url"
	"slices"
)

// Base is the path below which LuCI serves the API. The login is a POST of a form to Base itself.
const Base = "/cgi-bin/luci/"

// Collection is a list of objects of the API.
type Collection struct {
	// Module and Name are parts of the path.
	Module, Name string
	// ListKey is the key of the list in what a CNF on OpenWrt returns for the whole collection, and
	// ClientKey, unless it is "", the one that upstream's client reads instead.
	ListKey, ClientKey string
	// Service is restarted after a change, by PUT of ServicePath: mwan3, firewall or ipsec. "" if
	// changes take effect at once.
	Service string
	// New returns an empty object, for decoding.
	New func() Object

	items items
}

// items accesses the list of a collection in a Config.
type items interface {
	all(*Config) []Object
	size(*Config) int
	index(c *Config, name string) int // -1 if there is none
	at(*Config, int) Object           // a copy
	set(*Config, int, Object)
	add(*Config, Object)
	cut(*Config, int)
	clone(*Config) // makes the list independent of other copies of the Config
}

// The collections, in the order in which a CNF needs their objects: an object refers only to
// objects of earlier collections.
var (
	Policies    = collection("mwan3", "policies", "", "mwan3", func(c *Config) *[]Policy { return &c.Policies })
	Rules       = collection("mwan3", "rules", "", "mwan3", func(c *Config) *[]Rule { return &c.Rules })
	Zones       = collection("firewall", "zones", "", "firewall", func(c *Config) *[]Zone { return &c.Zones })
	Forwardings = collection("firewall", "forwardings", "", "firewall",
		func(c *Config) *[]Forwarding { return &c.Forwardings })
	FirewallRules = collection("firewall", "rules", "", "firewall",
		func(c *Config) *[]FirewallRule { return &c.Firewall })
	Redirects = collection("firewall", "redirects", "", "firewall", func(c *Config) *[]Redirect {
		return &c.Redirects
	})
	Proposals    = collection("ipsec", "proposals", "", "ipsec", func(c *Config) *[]Proposal { return &c.Proposals })
	Remotes      = collection("ipsec", "remotes", "", "ipsec", func(c *Config) *[]Remote { return &c.Remotes })
	NetworkRules = collection("networkfirewall", "rules", "", "", func(c *Config) *[]FirewallRule { return &c.Network })
	NATs         = collection("nat", "nats", "", "", func(c *Config) *[]NAT { return &c.NATs })
	Routes       = collection("route", "routes", "", "", func(c *Config) *[]Route { return &c.Routes })
	RouteRules   = collection("rule", "rules", "routerules", "", func(c *Config) *[]RouteRule { return &c.RouteRules })
	Applications = collection("application", "applications", "apps", "",
		func(c *Config) *[]Application { return &c.Applications })
	Services = collection("service", "services", "svcs", "", func(c *Config) *[]Service { return &c.Services })
)

// Collections are all of them, in that order.
var Collections = []*Collection{
	Policies, Rules, Zones, Forwardings, FirewallRules, Redirects, Proposals, Remotes, NetworkRules, NATs, Routes,
	RouteRules, Applications, Services,
}

// ServiceNames are the services that a PUT of ServicePath controls.
var ServiceNames = []string{"mwan3", "firewall", "ipsec"}

// Lookup returns the collection with these parts of its path, or nil.
func Lookup(module, name string) *Collection {
	i := slices.IndexFunc(Collections, func(l *Collection) bool { return l.Module == module && l.Name == name })
	if i < 0 {
		return nil
	}
	return Collections[i]
}

// String returns the module and the name: mwan3/policies.
func (l *Collection) String() string { return l.Module + "/" + l.Name }

// Path returns the path of the whole collection, for GET and POST.
func (l *Collection) Path() string { return Base + "sdewan/" + l.Module + "/v1/" + l.Name }

// ItemPath is that of an object, for GET, PUT and DELETE.
func (l *Collection) ItemPath(name string) string { return l.Path() + "/" + url.PathEscape(name) }

// ServicePath is that of a service, for PUT of a body like {"action":"restart"}.
func ServicePath(service string) string { return Base + "sdewan/v1/service/" + service }

// StatusPath returns the path of the report of a module (conntrack, effect, interface, ipsec,
// neighbour, route, rule, wan), for GET; "" stands for all modules.
func StatusPath(module string) string {
	if module == "" {
		return Base + "sdewan/v1/status"
	}
	return Base + "sdewan/v1/status/" + module
}

// List returns copies of the objects of a collection, in their order. The copies share lists with
// c: do not change elements of these.
func (c *Config) List(l *Collection) []Object { return l.items.all(c) }

// Len returns how many objects a collection has.
func (c *Config) Len(l *Collection) int { return l.items.size(c) }

// Get returns a copy of the object with this name, and whether there is one.
func (c *Config) Get(l *Collection, name string) (Object, bool) {
	i := l.items.index(c, name)
	if i < 0 {
		return nil, false
	}
	return l.items.at(c, i), true
}

// PlaceHeader of a PUT with the value PlaceLast asks to put the object behind all others of its
// collection, in one step: meanwhile, no state lacks it. The answer has the same header if that was
// done. CNFs that do not know it ignore it.
const (
	PlaceHeader = "Sdewan-Place"
	PlaceLast   = "last"
)

// Put replaces the object with the name of o, which keeps its place in the order, or appends o. The
// type of o must be that of the collection.
func (c *Config) Put(l *Collection, o Object) {
	if i := l.items.index(c, o.GetName()); i >= 0 {
		l.items.set(c, i, o)
	} else {
		l.items.add(c, o)
	}
}

// Delete removes the object with this name, and reports whether there was one.
func (c *Config) Delete(l *Collection, name string) bool {
	i := l.items.index(c, name)
	if i >= 0 {
		l.items.cut(c, i)
	}
	return i >= 0
}

// Clone returns a copy that Put and Delete change independently of c.
func (c *Config) Clone() Config {
	n := *c
	for _, l := range Collections {
		l.items.clone(&n)
	}
	n.Stopped = slices.Clone(c.Stopped)
	return n
}

// Filter returns a copy with the objects that keep is true for.
func (c *Config) Filter(keep func(*Collection, Object) bool) Config {
	n := Config{Stopped: slices.Clone(c.Stopped), Awaiting: c.Awaiting}
	for _, l := range Collections {
		for _, o := range l.items.all(c) {
			if keep(l, o) {
				l.items.add(&n, o)
			}
		}
	}
	return n
}

// pointer is *T for the type T of the objects of a collection.
type pointer[T any] interface {
	*T
	Object
}

// field is the list of a Config that holds the objects of a collection.
type field[T any, P pointer[T]] func(*Config) *[]T

func (f field[T, P]) all(c *Config) []Object {
	found := make([]Object, len(*f(c)))
	for i := range found {
		found[i] = f.at(c, i)
	}
	return found
}

func (f field[T, P]) size(c *Config) int { return len(*f(c)) }

func (f field[T, P]) index(c *Config, name string) int {
	list := *f(c)
	for i := range list {
		if P(&list[i]).GetName() == name {
			return i
		}
	}
	return -1
}

func (f field[T, P]) at(c *Config, i int) Object {
	o := (*f(c))[i]
	return P(&o)
}

func (f field[T, P]) set(c *Config, i int, o Object) { (*f(c))[i] = *o.(P) }
func (f field[T, P]) add(c *Config, o Object)        { *f(c) = append(*f(c), *o.(P)) }
func (f field[T, P]) cut(c *Config, i int)           { *f(c) = slices.Delete(*f(c), i, i+1) }
func (f field[T, P]) clone(c *Config)                { *f(c) = slices.Clone(*f(c)) }

func collection[T any, P pointer[T]](module, name, clientKey, service string, f field[T, P]) *Collection {
	return &Collection{
		Module: module, Name: name, ListKey: name, ClientKey: clientKey, Service: service,
		New: func() Object { return P(new(T)) }, items: f,
	}
}
