// Package rest is the REST API of a CNF, as OpenWrt with the packages of ICN SD-EWAN serves it: its
// objects, the paths at which they are, and the checks that a CNF makes. It does no I/O:
// sdewan/rest/client calls the API, sdewan/cnf/server serves it.
package rest

// Config is the configuration that a CNF has received, each list in the order of creation.
type Config struct {
	Policies     []Policy
	Rules        []Rule
	Zones        []Zone
	Forwardings  []Forwarding
	Firewall     []FirewallRule
	Redirects    []Redirect
	Proposals    []Proposal
	Remotes      []Remote
	Network      []FirewallRule // networkfirewall
	NATs         []NAT
	Routes       []Route
	RouteRules   []RouteRule
	Applications []Application
	Services     []Service
	// Stopped are the services (mwan3, firewall, ipsec) that were stopped: their objects stay,
	// without effect.
	Stopped []string
	// Awaiting specifies that no service was started yet: whoever configures the CNF has not
	// finished, and nothing is forwarded.
	Awaiting bool
}
